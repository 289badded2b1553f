//! State that all subjects share: pending writes, timers, and completed operations.

use super::Write;
use super::arbitrate::OperationName;
use super::end_reason::End;
use super::expiring_map::ExpiringMap;
use super::facts::EncodedOperation;
use super::operation::{Operation, OperationStart, SubjectView};
use super::tracker::TrackerSettings;
use crate::{ClockReading, Meter};
use ifo_api::Key;
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The identity of a subject.
pub(super) type Identity = Arc<str>;
/// The identity of an operation among all operations in flight.
pub(super) type OperationId = (Identity, OperationName);

/// Number of operations whose last start is remembered, or the number of retained operations if it
/// is higher. A later run that starts within the same second then gets another name.
const MAX_ENDED: usize = 10_000;
/// Time for which a start is remembered, or the retention if it is longer.
const ENDED_TTL: Duration = Duration::from_hours(1);

/// Shortest time for which a deleted namespace is remembered. It is longer than the differences
/// between watches, unless one has a gap. A namespace is remembered for longer while an operation
/// is in flight in it.
pub(super) const DELETED_TTL: Duration = Duration::from_hours(1);

/// Largest number of remembered deleted namespaces: some 2 MB of names.
pub(super) const MAX_DELETED: usize = 10_000;

/// The shared state, see above.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) settings: TrackerSettings,
    meter: Arc<dyn Meter>,
    /// The next time of each subject at which a debounce period ends, or an operation or a state
    /// may appear.
    pub(super) deadlines: ExpiringMap<Identity, ()>,
    /// Starts and ends of operations that have ended.
    ended: ExpiringMap<OperationId, LastRun>,
    /// Completed operations that are still shown, with their start.
    retained: ExpiringMap<Key, Timestamp>,
    /// Deleted namespaces, with the creation time of a new namespace with the same name. An
    /// operation may end after the deletion of its namespace, because another watch reports its
    /// end. It is not retained then.
    pub(super) gone: ExpiringMap<Arc<str>, Option<Timestamp>>,
    writes: Vec<Write>,
}

/// The last run of an operation.
#[derive(Debug)]
struct LastRun {
    /// The second in which the last run started.
    start: i64,
    /// The second in which the last run ended.
    over: i64,
}

impl SharedState {
    pub(super) fn new(settings: TrackerSettings, meter: Arc<dyn Meter>) -> Self {
        Self {
            settings,
            meter,
            deadlines: ExpiringMap::new(),
            ended: ExpiringMap::new(),
            retained: ExpiringMap::new(),
            gone: ExpiringMap::new(),
            writes: Vec::new(),
        }
    }

    /// The next time at which there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let (due, retained) = (
            self.deadlines.next_deadline(),
            self.retained.next_deadline(),
        );
        due.into_iter().chain(retained).min()
    }

    /// Writes an operation in flight.
    pub(super) fn show(&mut self, operation: &Operation, view: &SubjectView) {
        self.put(operation.key.clone(), operation.active(view));
    }

    /// Writes an operation.
    pub(super) fn put(&mut self, key: Key, operation: EncodedOperation) {
        self.writes.push(Write::Show { key, operation });
    }

    /// Deletes an object.
    pub(super) fn delete(&mut self, key: Key) {
        self.writes.push(Write::Delete { key });
    }

    /// Writes an operation that has just started.
    pub(super) fn start(&mut self, operation: &Operation, view: &SubjectView) {
        let name = &operation.what.operation;
        self.meter.operation_started(operation.component(), name);
        tracing::info!(subject = %view.kind, namespace = %operation.key.namespace,
            name = %operation.key.name, operation = %name, "operation started");
        // While starts are remembered, no other operation has its name. An operation in flight must
        // never be deleted together with a completed one.
        self.retained.remove(&operation.key);
        self.show(operation, view);
    }

    /// Writes the end of an operation. Deletes it, unless it is retained. An operation of a deleted
    /// namespace is never retained, even if there is a new namespace of the same name.
    pub(super) fn complete(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        view: &SubjectView,
        end: &End,
        now: ClockReading,
    ) {
        let key = &operation.key;
        self.put(key.clone(), operation.completed(view, end, now.wall));
        let gone = self.gone.get(&key.namespace);
        let is_homeless = gone.is_some_and(|again| again.is_none_or(|it| operation.start < it));
        if is_homeless || !self.retain(operation, now.wall, now) {
            self.delete(key.clone());
        }
        self.remember_end(identity, operation, now.wall, now);
        let name = &operation.what.operation;
        self.meter.operation_completed(
            operation.component(),
            name,
            end.state().name(),
            end.reason(),
            now.since(operation.start),
        );
        tracing::info!(namespace = %key.namespace, name = %key.name,
            operation = %name, reason = end.reason(), "operation completed");
    }

    /// Remembers the start of an operation that completed at `end`.
    pub(super) fn remember_end(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        end: Timestamp,
        now: ClockReading,
    ) {
        let retained = self.settings.retain.map(|retention| retention.age);
        let age = retained.unwrap_or_default().max(ENDED_TTL);
        let Some(left) = age.checked_sub(now.since(end)) else {
            return;
        };
        let id = (identity.clone(), operation.what.clone());
        let mut until = now.steady + left;
        let mut ended = LastRun {
            start: operation.start.as_second(),
            over: operation.detected_until(Some(end)).as_second(),
        };
        if let Some((later, before)) = self.ended.remove(&id) {
            until = until.max(later);
            ended.start = ended.start.max(before.start);
            ended.over = ended.over.max(before.over);
        }
        self.ended.keep(id, ended, until);
    }

    /// Retains an operation that completed at `end` for the rest of its retention. Returns false if
    /// the retention is over or turned off.
    pub(super) fn retain(
        &mut self,
        operation: &Operation,
        end: Timestamp,
        now: ClockReading,
    ) -> bool {
        let age = self.settings.retain.map(|retention| retention.age);
        let left = age.and_then(|age| age.checked_sub(now.since(end)));
        if let Some(left) = left {
            let until = now.steady + left;
            self.retained
                .keep(operation.key.clone(), operation.start, until);
        }
        left.is_some()
    }

    /// Returns `start`, or one second after the start of the previous run if that is later, because
    /// the name of an operation contains the second of its start. A run also does not start before
    /// the end of the previous run, which may have been reported late, unless the rule sets the
    /// start.
    pub(super) fn after_predecessor(
        &self,
        id: &OperationId,
        start: OperationStart,
    ) -> OperationStart {
        let Some(ended) = self.ended.get(id) else {
            return start;
        };
        let earliest = match start.source {
            StartTimeSource::Expression => ended.start + 1,
            _ => ended.over.max(ended.start + 1),
        };
        if start.at.as_second() >= earliest {
            return start;
        }
        let at = Timestamp::from_second(earliest).unwrap_or(start.at);
        OperationStart { at, ..start }
    }

    /// Drops expired entries.
    pub(super) fn expire(&mut self, now: Instant) {
        let most = self.settings.retain.map_or(0, |retention| retention.most);
        while let Some((key, _)) = self.retained.pop(most, now) {
            self.delete(key);
        }
        while self.ended.pop(most.max(MAX_ENDED), now).is_some() {}
    }

    /// Drops retained operations of a deleted namespace, and retains no further ones. `again` is
    /// the creation time of a new namespace with the same name.
    pub(super) fn namespace_gone(
        &mut self,
        name: Arc<str>,
        again: Option<Timestamp>,
        now: Instant,
    ) {
        if self.settings.retain.is_none() {
            return;
        }
        let was_there = |start| again.is_none_or(|again| start < again);
        let retained = self.retained.iter();
        let goes = retained.filter(|(key, start)| key.namespace == name && was_there(**start));
        let goes: Vec<Key> = goes.map(|(key, _)| key.clone()).collect();
        for key in goes {
            self.retained.remove(&key);
            self.delete(key);
        }
        self.gone.keep(name, again, now + DELETED_TTL);
    }

    /// Records a namespace that was created at `created`.
    pub(super) fn namespace_made(&mut self, name: &Arc<str>, created: Timestamp) {
        if let Some((until, _)) = self.gone.remove(name) {
            self.gone.keep(name.clone(), Some(created), until);
        }
    }

    /// Forgets all remembered starts.
    #[cfg(test)]
    pub(super) fn forget_starts(&mut self) {
        self.ended = ExpiringMap::new();
    }

    /// Returns the changes since the last call.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
}
