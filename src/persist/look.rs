//! What of an operation is worth a write: a small value to compare instead of objects.

use super::convert;
use crate::index::Entry;
use ifo_api::live::{self, Phase, State};
use ifo_api::persisted;
use jiff::Timestamp;
use serde::Deserialize;
use std::hash::{DefaultHasher, Hasher as _};

/// What an operation looks like, in so far as a change of it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Whether it is over.
    pub phase: Phase,
    /// Whether it is no longer detected, but not over either.
    pub settling: bool,
    /// Everything else that a person would call a change.
    pub digest: u64,
    /// What it is an operation of: subject, operation and item. There is one at a time.
    pub identity: u64,
}

impl Look {
    /// Of a custom resource as it is, or as it is to be.
    ///
    /// Left out are `lastDetected`, `subjectGeneration` and the conditions: they change
    /// along with what is not left out, or on their own with every gap in a watch, and
    /// then for all operations at once. So would `startTimeSource`, with a restart. And so
    /// is what others put on a custom resource: writing it again does not remove that.
    pub fn of(cr: &persisted::InFlightOperation) -> Option<Self> {
        let status = cr.status.as_ref()?;
        let mut shown = serde_json::to_value(status).ok()?;
        for left_out in [
            "lastDetected",
            "subjectGeneration",
            "conditions",
            "startTimeSource",
        ] {
            shown.as_object_mut()?.remove(left_out);
        }
        let annotations = cr.metadata.annotations.as_ref();
        let place = annotations.and_then(|all| all.get(persisted::LIVE_ANNOTATION));
        let labels = convert::own_labels(cr);
        let bytes = serde_json::to_vec(&(&cr.spec, labels, place, shown)).ok()?;
        let subject = &cr.spec.subject;
        Some(Self {
            phase: status.phase,
            settling: status.state == State::Settling,
            digest: hash(&bytes),
            identity: hash(&(
                (&subject.api_version, &subject.kind),
                (&subject.namespace, &subject.name, &subject.uid),
                (&cr.spec.operation, &cr.spec.item),
            )),
        })
    }
}

fn hash(of: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// When the operation of an object of the index started, and when it was over if it is.
pub(super) fn span(entry: &Entry) -> Option<(Timestamp, Option<Timestamp>)> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Metadata,
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        creation_timestamp: Timestamp,
    }
    #[derive(Deserialize)]
    struct Status {
        completed: Option<Timestamp>,
    }
    let object: Object = serde_json::from_slice(entry.open().json()).ok()?;
    Some((object.metadata.creation_timestamp, object.status.completed))
}

/// When the operation of an object of the index was over.
pub(super) fn completed(entry: &Entry) -> Option<Timestamp> {
    span(entry)?.1
}

/// The name of the custom resource for an object of the index, and the look it is to have.
/// None for what is no operation, which the index never holds.
pub(super) fn of_entry(entry: &Entry) -> Option<(String, Look)> {
    let cr = cr_of(entry)?;
    let look = Look::of(&cr)?;
    Some((cr.metadata.name?, look))
}

/// The custom resource for an object of the index.
pub(super) fn cr_of(entry: &Entry) -> Option<persisted::InFlightOperation> {
    let live: live::InFlightOperation = serde_json::from_slice(entry.open().json()).ok()?;
    Some(convert::to_cr(&live))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cr() -> persisted::InFlightOperation {
        let cr = json!({
            "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
            "metadata": {"name": "a", "labels": {"a": "b"}},
            "spec": {
                "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
                "subject": {"apiVersion": "v1", "kind": "VM", "name": "vm"},
            },
            "status": {
                "phase": "Active", "state": "Progressing", "reason": "Migrating",
                "started": "2026-01-02T03:04:05Z", "liveUID": "u", "progress": 5,
                "startTimeSource": "Detected", "lastDetected": "2026-01-02T03:04:05Z",
            },
        });
        serde_json::from_value(cr).unwrap()
    }

    #[test]
    fn what_people_see_is_a_change_and_heartbeats_gaps_and_restarts_are_none() {
        let before = Look::of(&cr()).unwrap();
        let changed = |change: fn(&mut persisted::InFlightOperation)| {
            let mut cr = cr();
            change(&mut cr);
            Look::of(&cr).unwrap() != before
        };
        assert_eq!(Look::of(&cr()), Some(before));
        assert!(changed(|cr| cr.status.as_mut().unwrap().progress = Some(6)));
        assert!(changed(
            |cr| cr.status.as_mut().unwrap().message = "m".to_owned()
        ));
        assert!(changed(
            |cr| cr.status.as_mut().unwrap().state = State::Settling
        ));
        assert!(changed(|cr| cr.metadata.labels = None));
        assert!(changed(|cr| cr.spec.component = "other".to_owned()));
        assert!(!changed(|cr| {
            let status = cr.status.as_mut().unwrap();
            status.subject_generation = Some(9);
            status.last_detected.0 += jiff::SignedDuration::from_secs(9);
            status.start_time_source = live::StartTimeSource::Restored;
        }));
        assert!(!changed(|cr| {
            let annotations = cr.metadata.annotations.get_or_insert_default();
            annotations.insert("somebody's".to_owned(), "note".to_owned());
        }));
        // What the server adds to what was applied.
        assert!(!changed(|cr| {
            cr.metadata.uid = Some("x".to_owned());
            cr.metadata.resource_version = Some("1".to_owned());
        }));
    }
}
