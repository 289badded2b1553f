//! What all subjects share: what is to be written, what is due when, and what has ended.

use super::Write;
use super::arbitrate::What;
use super::end::End;
use super::expiring::Expiring;
use super::facts::EncodedOperation;
use super::operation::{Operation, OperationStart, SubjectView};
use super::tracker::TrackerSettings;
use crate::{ClockReading, Meter};
use ifo_api::Key;
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What tells a subject from all others.
pub(super) type Identity = Arc<str>;
/// What tells an operation from all others that are in flight.
pub(super) type OperationId = (Identity, What);

/// Operations of which the last start is remembered, so that a successor which started
/// within the same second, or says so, gets another name: this many, or as many as are
/// retained, …
const ENDED: usize = 10_000;
/// … and for this long, or as long as they are retained.
const ENDED_FOR: Duration = Duration::from_hours(1);

/// How long a deleted namespace is remembered at least: longer than watches are apart from
/// each other, unless one has a gap. It is remembered for longer while something is in
/// flight in it.
pub(super) const GONE_FOR: Duration = Duration::from_hours(1);

/// How many deleted namespaces are remembered, the latest: some 2 MB of names.
pub(super) const GONE: usize = 10_000;

/// See above.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) settings: TrackerSettings,
    meter: Arc<dyn Meter>,
    /// When the next debounce of a subject ends, or its next operation or state may appear.
    pub(super) deadlines: Expiring<Identity, ()>,
    /// Operations that ended.
    ended: Expiring<OperationId, Ended>,
    /// Completed operations that are still shown, with their start.
    retained: Expiring<Key, Timestamp>,
    /// Deleted namespaces, and when another one of the name was created. An operation in a
    /// namespace may end after the namespace is gone, because another watch reports that. It
    /// is not retained then.
    pub(super) gone: Expiring<Arc<str>, Option<Timestamp>>,
    writes: Vec<Write>,
}

/// What is remembered of all runs of one operation.
#[derive(Debug)]
struct Ended {
    /// The second in which the last one started.
    start: i64,
    /// The second in which the last one was over.
    over: i64,
}

impl Ledger {
    pub(super) fn new(settings: TrackerSettings, meter: Arc<dyn Meter>) -> Self {
        Self {
            settings,
            meter,
            deadlines: Expiring::new(),
            ended: Expiring::new(),
            retained: Expiring::new(),
            gone: Expiring::new(),
            writes: Vec::new(),
        }
    }

    /// When there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let (due, retained) = (
            self.deadlines.next_deadline(),
            self.retained.next_deadline(),
        );
        due.into_iter().chain(retained).min()
    }

    /// Shows an operation that is in flight.
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

    /// Shows one that has just started.
    pub(super) fn start(&mut self, operation: &Operation, view: &SubjectView) {
        let name = &operation.what.operation;
        self.meter.operation_started(operation.component(), name);
        tracing::info!(subject = %view.kind, namespace = %operation.key.namespace,
            name = %operation.key.name, operation = %name, "operation started");
        // None has its name, as long as starts are remembered; but what is in flight must
        // never go with what is over.
        self.retained.remove(&operation.key);
        self.show(operation, view);
    }

    /// Shows the end of one, and takes it away unless it is retained: never in a namespace
    /// that was made since, or is gone.
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

    /// Remembers the start of an operation that completed at `end` for the rest of its time.
    pub(super) fn remember_end(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        end: Timestamp,
        now: ClockReading,
    ) {
        let retained = self.settings.retain.map(|retention| retention.age);
        let age = retained.unwrap_or_default().max(ENDED_FOR);
        let Some(left) = age.checked_sub(now.since(end)) else {
            return;
        };
        let id = (identity.clone(), operation.what.clone());
        let mut until = now.steady + left;
        let mut ended = Ended {
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

    /// Retains the object of an operation that completed at `end` for the rest of its time.
    /// False if its time is over, or if completed operations are not retained.
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

    /// `start`, or a second after the predecessor's start if it is not after that: the
    /// name of an operation is made of the second in which it started. Nor does it start
    /// before the predecessor was over, whose end may have been told late, unless the rule
    /// says when.
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

    /// Drops what was kept long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        let most = self.settings.retain.map_or(0, |retention| retention.most);
        while let Some((key, _)) = self.retained.pop(most, now) {
            self.delete(key);
        }
        while self.ended.pop(most.max(ENDED), now).is_some() {}
    }

    /// Drops what is retained in a namespace that is gone, and retains nothing more of
    /// what was in it. There may be another one of its name, made at `again`.
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
        self.gone.keep(name, again, now + GONE_FOR);
    }

    /// There is a namespace of this name, made at `created`.
    pub(super) fn namespace_made(&mut self, name: &Arc<str>, created: Timestamp) {
        if let Some((until, _)) = self.gone.remove(name) {
            self.gone.keep(name.clone(), Some(created), until);
        }
    }

    /// As if everything had ended longer ago than starts are remembered.
    #[cfg(test)]
    pub(super) fn forget_starts(&mut self) {
        self.ended = Expiring::new();
    }

    /// What has changed since the last call.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
}
