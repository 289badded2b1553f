//! Restores operations (such as migrations) after a restart or a change of the leader. An operation
//! is restored from one of two sources:
//!
//! - An object of the index, the copy of all operations that each replica has in memory. A server
//!   built the object, so its values are trusted.
//! - A custom resource, which a leader in persistence mode writes. A user may have edited it, so
//!   its values are checked.

use super::object::{authors_labels, operation_reason, rule_values};
use super::{Detections, Observed, Operation, OperationTiming, Yielded};
use crate::ClockReading;
use crate::detect::Subject;
use crate::rules;
use crate::track::superseded_operations::OperationName;
use ifo_api::Text;
use ifo_api::labels;
use ifo_api::live::{InFlightOperation, Phase, StartTimeSource, State, cut_message};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Maximum time by which the start of an operation in a custom resource may be ahead of the clock.
/// If the start is further ahead, the operation is not restored.
const MAX_CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Maximum length of a custom resource as JSON, in bytes. A longer custom resource is not restored,
/// because a user must have edited it. The server writes about 2 KiB for most operations.
const MAX_BYTES: usize = 64 << 10;

/// Maximum number of owner references of one subject. The server decodes no more from the objects
/// that it watches.
const MAX_OWNERS: usize = 16;

/// The reason why a custom resource is not restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// The field with this path has a value that the server never writes.
    #[error("{0} has a value that the server never writes")]
    Field(&'static str),
    /// The name or the UID is missing, or differs from the value that the server computes from the
    /// subject, the operation and its start.
    #[error("name and UID do not match the subject, the operation and its start")]
    Identity,
}

/// A restored operation.
#[derive(Debug)]
pub struct Restored {
    /// Identity of the subject, which is the object that the operation is about.
    pub identity: Text,
    /// The subject.
    pub subject: Subject,
    /// The operation, for the tracker.
    pub operation: Operation,
    /// Time of the end. None for an operation in flight.
    pub ended: Option<Timestamp>,
    /// True if the index contains the operation. False if only a custom resource contains it.
    pub is_in_index: bool,
}

impl Restored {
    /// Restores an operation of the index. The values are not checked, because a server built the
    /// object. Returns None if its UID is not a UUID, if its subject has no UID, or if a completed
    /// operation has no end.
    pub fn from_index(object: &Arc<InFlightOperation>, now: ClockReading) -> Option<Self> {
        Self::build(object.clone(), now, now.wall)
    }

    /// Restores the operation of a custom resource. Checks its values, because users can edit
    /// custom resources. The name and the UID must be those that the server computes from the
    /// subject, the operation and its start.
    pub fn from_custom_resource(
        mut object: InFlightOperation,
        cluster_namespace: &Text,
        now: ClockReading,
    ) -> Result<Self, NotRestored> {
        check(&object, now.wall)?;
        correct(&mut object, now.wall);
        let known_until = object.status.last_detected.0;
        let restored = Self::build(Arc::new(object), now, known_until);
        let mut restored = restored.ok_or(NotRestored::Identity)?;
        let (subject, operation) = (&restored.subject, &mut restored.operation);
        let (what, second) = (&operation.what, operation.started().as_second());
        let (key, uid) =
            Operation::key_and_uid(&restored.identity, subject, cluster_namespace, what, second);
        let metadata = &mut Arc::make_mut(&mut operation.object).metadata;
        if metadata.name != key.name || *metadata.uid != *uid.to_string() {
            return Err(NotRestored::Identity);
        }
        metadata.namespace = key.namespace;
        metadata.resource_version = None;
        restored.is_in_index = false;
        // The server computes the labels again, because users may have edited them.
        operation.show_subject(subject, operation.object.status.state);
        Ok(restored)
    }

    /// Converts `object`. `known_until` is the time until which the status of the object is up to
    /// date. This is the current time for an object of the index, and the last detection for a
    /// custom resource. Returns None in the same cases as [`Self::from_index`].
    fn build(
        object: Arc<InFlightOperation>,
        now: ClockReading,
        known_until: Timestamp,
    ) -> Option<Self> {
        let (spec, status) = (&object.spec, &object.status);
        let start = object.metadata.creation_timestamp.0;
        Uuid::parse_str(&object.metadata.uid).ok()?;
        let values = Arc::new(rule_values(&object));
        let ended = match (status.phase, &status.completed) {
            (Phase::Active | Phase::Unknown(_), _) => None,
            (Phase::Completed, Some(completed)) => {
                // `completed` is the time of the last detection. The operation usually completed
                // later, at the end of its debounce period. The condition `Completed` has this
                // later time.
                let end = status.condition("Completed");
                let end = end.map_or(completed.0, |own| own.last_transition_time.0);
                Some(end.max(completed.0))
            }
            (Phase::Completed, None) => return None,
        };
        let mut detections = Detections::new();
        if ended.is_none() && status.state != State::Settling {
            let rule_sets = status.detected_by.iter();
            detections.extend(rule_sets.map(|name| (name.clone(), values.clone())));
        }
        let identity = spec.subject.uid.clone()?;
        let subject = Subject {
            reference: spec.subject.clone(),
            generation: status.subject_generation,
        };
        let operation = Operation {
            what: OperationName {
                component: spec.component.clone(),
                operation: spec.operation.clone(),
                item: spec.item.clone(),
            },
            detections,
            debounce_end: None,
            left_selection: false,
            // Clients see the old state until the first evaluation.
            state: values.state,
            yielded: Yielded::first(&values, None, Observed::now(now.steady)),
            values,
            timing: OperationTiming::restored(status, start, known_until),
            object,
        };
        Some(Self {
            identity,
            subject,
            operation,
            ended,
            is_in_index: true,
        })
    }
}

/// Returns an error if a field has a value that the server never writes.
fn check(object: &InFlightOperation, now: Timestamp) -> Result<(), NotRestored> {
    let (metadata, status) = (&object.metadata, &object.status);
    let namespace = object.spec.subject.namespace.as_deref();
    let is_namespace = |text: &str| labels::is_subdomain(text) && !text.contains('.');
    let latest = now.checked_add(MAX_CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    let are_labels =
        authors_labels(object).all(|(key, value)| labels::is_key(key) && labels::is_value(value));
    let is_over = status.phase == Phase::Completed;
    // If the rule yields no reason, an operation in flight has a reason that the server derives
    // from its name. The derived reason can contain characters that are not valid in the reason of
    // a rule. So the derived reason is checked separately.
    let is_default = !is_over && *status.reason == *operation_reason(&object.spec.operation);
    let is_reason = is_default || rules::is_reason(&status.reason);
    let (message, owners) = (&*status.message, object.spec.subject.owner_references.len());
    let is_completed = status.state.is_completed();
    let size = serde_json::to_vec(object).map_or(usize::MAX, |json| json.len());
    let start = metadata.creation_timestamp.0;
    for (field, is_valid) in [
        ("the object", size <= MAX_BYTES),
        ("metadata.creationTimestamp", start <= latest),
        ("metadata.labels", are_labels),
        ("spec.subject.namespace", namespace.is_none_or(is_namespace)),
        ("status.state", is_over == is_completed),
        ("status.reason", is_reason),
        ("status.message", cut_message(message) == message),
        (
            "status.progress",
            status.progress.is_none_or(|it| it <= 100),
        ),
        ("spec.subject.ownerReferences", owners <= MAX_OWNERS),
    ] {
        if !is_valid {
            return Err(NotRestored::Field(field));
        }
    }
    Ok(())
}

/// Corrects values that the server may have written, but that cannot be restored as they are:
///
/// - In `lastDetected`, `completed` and the conditions, a time ahead of the clock becomes the
///   current time.
/// - A `lastDetected` before the start becomes the start.
/// - The command line that stops the operation is removed until the next detection, because a user
///   may have replaced it by another command.
/// - If the operation is in flight, its end is removed, and the start time source `Detected`
///   becomes `Restored`.
fn correct(object: &mut InFlightOperation, now: Timestamp) {
    let earliest = object.metadata.creation_timestamp.0.min(now);
    let status = &mut object.status;
    status.cancel = None;
    status.last_detected.0 = status.last_detected.0.clamp(earliest, now);
    if let Some(completed) = &mut status.completed {
        completed.0 = completed.0.min(now);
    }
    for condition in &mut status.conditions {
        let since = &mut condition.last_transition_time.0;
        *since = (*since).min(now);
    }
    if status.phase != Phase::Completed {
        (status.completed, status.duration_seconds) = (None, None);
        if status.start_time_source == StartTimeSource::Detected {
            status.start_time_source = StartTimeSource::Restored;
        }
    }
}
