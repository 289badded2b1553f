//! The state that the tracker keeps for all objects together: pending writes, timers, retained
//! operations, deleted namespaces, and the times of previous runs. A retained operation is a
//! completed operation that clients can still read. A run is one occurrence of an operation, from
//! its start to its end.

use super::baselines::SharedBaselines;
use super::books::Books;
use super::end_reason::End;
use super::expiring_map::ExpiringMap;
use super::last_runs::{Identity, LastRuns};
use super::operation::Operation;
use super::operation_limits::OperationLimits;
use super::retained::{RetainedByComponent, Retention};
use super::{Namespaces, Write};
use crate::detect::Subject;
use crate::{ClockReading, Meter};
use ifo_api::Text;
use ifo_api::{Key, Object};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Settings of the tracker.
#[derive(Clone, Debug)]
pub struct TrackerSettings {
    /// Default debounce period. If no rule has detected an operation for this time, the operation
    /// completes. A rule can set another debounce period for its operation.
    pub debounce: Duration,
    /// Retention of completed operations. None if completed operations are deleted at once.
    pub retain: Option<Retention>,
    /// Maximum number of records. A record is a short summary of a completed operation. If there
    /// are more records, the tracker selects the component with most records. In this component, it
    /// deletes the oldest records of the rule set with most records. If the maximum is 0, the
    /// tracker writes no records.
    pub max_records: usize,
    /// Namespace of the operations on cluster-scoped objects.
    pub cluster_namespace: Text,
}

/// The tracker remembers the last completed run of an operation for this time, or for the setting
/// `RETAIN_FOR` if that is longer.
const LAST_RUN_TTL: Duration = Duration::from_hours(1);

/// Maximum age of a record (a short summary of a completed operation), counted from the end of the
/// operation. Usually, the tracker deletes a record earlier, because there are more records than
/// [`TrackerSettings::max_records`].
const RECORD_TTL: Duration = Duration::from_hours(365 * 24);

/// Time for which the tracker remembers a deleted namespace. Objects and namespaces have different
/// watches. So the deletion of an object can arrive after the deletion of its namespace. This
/// constant is longer than the usual delay.
const DELETED_TTL: Duration = Duration::from_hours(1);

/// Maximum number of deleted namespaces that the tracker remembers. Their names take about 2 MB.
/// Beyond the maximum, the tracker forgets the namespaces that expire first.
const MAX_DELETED: usize = 10_000;

/// The state that the tracker keeps for all objects together.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) settings: TrackerSettings,
    meter: Arc<dyn Meter>,
    /// The time of the next timer of each subject ([`TrackedSubject::timer`]). A timer fires at one
    /// of these times:
    ///
    /// - the end of a debounce period, at which an operation that is no longer detected completes
    /// - the end of `appearAfter`, at which a detected operation becomes visible to clients
    /// - the end of `stateAfter`, at which a new state becomes visible to clients
    /// - the time at which the condition `Overdue` or `Stalled` can change
    ///
    /// [`TrackedSubject::timer`]: super::subject::TrackedSubject::timer
    pub(super) timers: BTreeSet<(Instant, Identity)>,
    /// The last completed run of each operation.
    pub(super) last_runs: LastRuns,
    /// The retained operations: key, rule set, start and expiry of each.
    pub(super) retained: RetainedByComponent,
    /// The records: key, rule set, start and expiry of each.
    pub(super) records: RetainedByComponent,
    /// Deleted namespaces. The value is the creation time of a new namespace with the same name.
    /// None if there is no such namespace.
    ///
    /// The tracker does not retain an operation of a deleted namespace. The operation can complete
    /// after the watch of namespaces has reported the deletion. So the tracker must remember the
    /// deletion until then.
    pub(super) deleted_namespaces: ExpiringMap<Text, Option<Timestamp>>,
    /// The namespaces that exist. None if they are not known yet.
    pub(super) namespaces: Option<Arc<Namespaces>>,
    /// The baselines: the durations of earlier runs.
    pub(super) baselines: SharedBaselines,
    /// The bounds on operations, and what the operations use of them.
    pub(super) limits: OperationLimits,
    /// The writes that the caller has not taken yet.
    pub(super) writes: Vec<Write>,
}

impl SharedState {
    pub(super) fn new(
        settings: TrackerSettings,
        meter: Arc<dyn Meter>,
        baselines: SharedBaselines,
    ) -> Self {
        let of_records = (settings.max_records > 0).then_some(Retention {
            age: RECORD_TTL,
            max_count: settings.max_records,
        });
        Self {
            retained: RetainedByComponent::new(settings.retain),
            records: RetainedByComponent::new(of_records),
            settings,
            meter,
            timers: BTreeSet::new(),
            last_runs: LastRuns::default(),
            deleted_namespaces: ExpiringMap::default(),
            namespaces: None,
            baselines,
            limits: OperationLimits::default(),
            writes: Vec::new(),
        }
    }

    /// Adds a write of an operation.
    pub(super) fn show(&mut self, operation: &Operation) {
        let object = Object::Operation(operation.object.clone());
        self.put(operation.key(), object);
    }

    /// Adds a write of an operation or of a record.
    fn put(&mut self, key: Key, object: Object) {
        self.writes.push(Write::Put { key, object });
    }

    /// Adds a write that deletes an operation.
    pub(super) fn delete(&mut self, key: Key) {
        self.writes.push(Write::Delete { key });
    }

    /// Counts and logs the start of an operation, and adds a write of the operation.
    pub(super) fn start(&mut self, operation: &Operation) {
        let name = &operation.what.operation;
        self.meter.operation_started(&operation.object);
        let (key, kind) = (operation.key(), &operation.object.spec.subject.kind);
        tracing::info!(subject = %kind, namespace = %key.namespace, name = %key.name,
            operation = %name, "operation started");
        // The new run can have the same name as an earlier run whose start the tracker has
        // forgotten. If this earlier run stayed retained, the end of its retention would delete the
        // new operation.
        self.retained.remove(&key);
        self.show(operation);
    }

    /// Completes an operation at the time `now`. Adds writes of the completed operation and of its
    /// record. If the operation is not retained, adds a write that deletes it. An operation of a
    /// deleted namespace is not retained and gets no record, even if a new namespace has the same
    /// name.
    pub(super) fn complete(
        &mut self,
        identity: &Identity,
        operation: &mut Operation,
        subject: &Subject,
        (end, books): (&End, &Books),
        now: ClockReading,
    ) {
        operation.complete(subject, end, now.wall);
        self.show(operation);
        let key = operation.key();
        let deleted = self.deleted_namespaces.get(&key.namespace);
        let namespace_was_deleted =
            deleted.is_some_and(|recreated| recreated.is_none_or(|it| operation.started() < it));
        let keep = |kept: &mut RetainedByComponent, key: &Key| {
            let times = (operation.started(), now.wall);
            !namespace_was_deleted && kept.insert(key.clone(), operation.owner(), times, now)
        };
        if !keep(&mut self.retained, &key) {
            self.delete(key.clone());
        }
        let record_key = operation.record_key();
        if keep(&mut self.records, &record_key)
            && let Some(record) = operation.record()
        {
            self.put(record_key, record.into());
        }
        self.remember_end(identity, operation, now.wall, now);
        let namespace = subject.reference.namespace.as_ref();
        operation.learn_duration(namespace, end, now, (&self.baselines, books));
        self.meter.operation_completed(&operation.object);
        tracing::info!(namespace = %key.namespace, name = %key.name,
            operation = %operation.what.operation, reason = end.reason(), "operation completed");
    }

    /// Remembers start and end of an operation that completed at `end`. Does nothing if the run
    /// ended too long ago to be remembered.
    pub(super) fn remember_end(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        end: Timestamp,
        now: ClockReading,
    ) {
        let retained = self.settings.retain.map_or(Duration::ZERO, |it| it.age);
        let age = retained.max(LAST_RUN_TTL);
        let Some(left) = age.checked_sub(now.since(end)) else {
            return;
        };
        let id = (identity.clone(), operation.what.clone());
        let end = operation.detected_until(end);
        self.last_runs
            .add(id, operation.started(), end, now.steady + left);
    }

    /// Deletes expired retained operations and records, and forgets expired runs and deleted
    /// namespaces. If there are too many operations or records, deletes the oldest ones of the
    /// largest rule set in the largest component. If there are too many runs or deleted namespaces,
    /// forgets those that expire first.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(key) = self.retained.pop(now).or_else(|| self.records.pop(now)) {
            self.delete(key);
        }
        let retained = self.settings.retain.map_or(0, |it| it.max_count);
        self.last_runs.expire(retained, now);
        self.deleted_namespaces.expire(MAX_DELETED, now);
    }

    /// Deletes the retained operations and the records of a deleted namespace. Operations of this
    /// namespace that complete later are not retained, and get no record.
    ///
    /// `recreated` is the creation time of a new namespace with the same name. Operations that
    /// started at this time or later belong to the new namespace, and stay. If `recreated` is None,
    /// all operations belong to the deleted namespace.
    pub(super) fn namespace_deleted(
        &mut self,
        name: Text,
        recreated: Option<Timestamp>,
        now: Instant,
    ) {
        let was_deleted = |start| recreated.is_none_or(|recreated| start < recreated);
        for kept in [&mut self.retained, &mut self.records] {
            let deleted = kept.remove_from(&name, was_deleted).into_iter();
            self.writes.extend(deleted.map(|key| Write::Delete { key }));
        }
        self.deleted_namespaces
            .insert(name, recreated, now + DELETED_TTL);
    }
}
