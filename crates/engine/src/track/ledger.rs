//! What all subjects share: what is to be written, what is due when, and what has ended.

use super::Write;
use super::arbitrate::What;
use super::end::End;
use super::gone::Gone;
use super::operation::{Operation, Start, SubjectView};
use super::retained::Retained;
use super::tracker::{Now, Retention, Settings};
use crate::Meter;
use ifo_api::Key;
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What tells a subject from all others.
pub(super) type Identity = Arc<str>;
/// What tells an operation from all others that are in flight.
pub(super) type OperationId = (Identity, What);

/// Starts of ended operations that are remembered, so that a successor which started
/// within the same second, or says so, gets another name: this many, or as many as are
/// retained, …
const ENDED: usize = 10_000;
/// … and for this long, or as long as they are retained.
const ENDED_FOR: Duration = Duration::from_hours(1);

/// See above.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) settings: Settings,
    meter: Arc<dyn Meter>,
    /// When debounces end, operations may appear and states may be shown, soonest first.
    deadlines: BTreeSet<(Instant, OperationId)>,
    /// Operations that ended.
    starts: HashMap<OperationId, Starts>,
    /// Until when each end is remembered, in that order.
    ended: VecDeque<(Instant, OperationId)>,
    retained: Retained,
    pub(super) gone: Gone,
    writes: Vec<Write>,
}

/// When one operation started, as often as it did.
#[derive(Debug)]
struct Starts {
    /// The second of the last time.
    last: i64,
    /// The second in which the last one was over.
    over: i64,
    /// How many of its ends are remembered.
    ends: usize,
}

/// How long ago that was.
fn age(then: Timestamp, now: Now) -> Duration {
    Duration::try_from(now.wall.duration_since(then)).unwrap_or_default()
}

impl Ledger {
    pub(super) fn new(settings: Settings, meter: Arc<dyn Meter>) -> Self {
        Self {
            settings,
            meter,
            deadlines: BTreeSet::new(),
            starts: HashMap::new(),
            ended: VecDeque::new(),
            retained: Retained::default(),
            gone: Gone::default(),
            writes: Vec::new(),
        }
    }

    /// Wakes the tracker for `id` at `at`.
    pub(super) fn due(&mut self, at: Instant, id: OperationId) {
        self.deadlines.insert((at, id));
    }

    /// Takes [`Ledger::due`] back.
    pub(super) fn not_due(&mut self, at: Instant, id: OperationId) {
        self.deadlines.remove(&(at, id));
    }

    /// The next of what is due now, with the time that it was due at.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<(Instant, OperationId)> {
        let is_due = self.deadlines.first().is_some_and(|(at, _)| *at <= now);
        if is_due {
            self.deadlines.pop_first()
        } else {
            None
        }
    }

    /// When there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = self.deadlines.first().map(|(at, _)| *at);
        let retained = self.retained.next_deadline();
        due.into_iter().chain(retained).min()
    }

    /// Shows an operation that is in flight.
    pub(super) fn show(&mut self, operation: &Operation, view: &SubjectView) {
        self.writes.push(Write::Put {
            key: operation.key.clone(),
            json: operation.active(view),
        });
    }

    /// Writes an object.
    pub(super) fn put(&mut self, key: Key, json: Vec<u8>) {
        self.writes.push(Write::Put { key, json });
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
        self.retained.take_back(&operation.key);
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
        now: Now,
    ) {
        self.writes.push(Write::Put {
            key: operation.key.clone(),
            json: operation.completed(view, end, now.wall),
        });
        let start = operation.started();
        let homeless = self.gone.had(&operation.key.namespace, start);
        if let Some(retention) = self.settings.retain.filter(|_| !homeless) {
            let until = now.steady + retention.age;
            self.retained.keep(until, start, operation.key.clone());
        } else {
            self.writes.push(Write::Delete {
                key: operation.key.clone(),
            });
        }
        let until = now.steady + self.ended_for();
        self.remember(identity, operation, now.wall, until);
        let name = &operation.what.operation;
        self.meter.operation_completed(
            operation.component(),
            name,
            end.state().name(),
            end.reason(),
            operation.duration(now.wall),
        );
        tracing::info!(namespace = %operation.key.namespace, name = %operation.key.name,
            operation = %name, reason = end.reason(), "operation completed");
    }

    /// Remembers the start of an operation that completed at `end`, before a restart or a
    /// takeover, for the rest of its time.
    pub(super) fn remember_end(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        end: Timestamp,
        now: Now,
    ) {
        if let Some(left) = self.ended_for().checked_sub(age(end, now)) {
            self.remember(identity, operation, end, now.steady + left);
        }
    }

    /// Retains the object of an operation that completed at `end`, before a restart or a
    /// takeover, for the rest of its time. False if its time is over.
    pub(super) fn retain(&mut self, operation: &Operation, end: Timestamp, now: Now) -> bool {
        let left = |retention: Retention| retention.age.checked_sub(age(end, now));
        let Some(left) = self.settings.retain.and_then(left) else {
            return false;
        };
        let until = now.steady + left;
        self.retained
            .keep(until, operation.started(), operation.key.clone());
        true
    }

    /// How long starts are remembered.
    fn ended_for(&self) -> Duration {
        let retained = self.settings.retain.map(|retention| retention.age);
        retained.unwrap_or_default().max(ENDED_FOR)
    }

    /// Remembers until then when an operation started that has ended, and when it did.
    fn remember(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        end: Timestamp,
        until: Instant,
    ) {
        let id = (identity.clone(), operation.what.clone());
        let second = operation.start_second();
        let over = operation.detected_until(Some(end)).as_second();
        let starts = self.starts.entry(id.clone()).or_insert(Starts {
            last: second,
            over,
            ends: 0,
        });
        starts.last = starts.last.max(second);
        starts.over = starts.over.max(over);
        starts.ends += 1;
        // As with those that are retained, so that these do not stay longer.
        let place = self.ended.partition_point(|(other, _)| *other <= until);
        self.ended.insert(place, (until, id));
    }

    /// `start`, or a second after the predecessor's start if it is not after that: the
    /// name of an operation is made of the second in which it started. Nor does it start
    /// before the predecessor was over, whose end may have been told late, unless the rule
    /// says when.
    pub(super) fn after_predecessor(&self, id: &OperationId, start: Start) -> Start {
        let Some(&Starts { last, over, .. }) = self.starts.get(id) else {
            return start;
        };
        let earliest = match start.source {
            StartTimeSource::Expression => last + 1,
            _ => over.max(last + 1),
        };
        if start.at.as_second() >= earliest {
            return start;
        }
        let at = Timestamp::from_second(earliest).unwrap_or(start.at);
        Start { at, ..start }
    }

    /// Drops what was kept long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        let most = self.settings.retain.map_or(0, |retention| retention.most);
        while let Some(key) = self.retained.next_over(most, now) {
            self.writes.push(Write::Delete { key });
        }
        while self.ended.len() > most.max(ENDED)
            || matches!(self.ended.front(), Some((until, _)) if *until <= now)
        {
            let Some((_, id)) = self.ended.pop_front() else {
                break;
            };
            if let Some(starts) = self.starts.get_mut(&id) {
                starts.ends -= 1;
                if starts.ends == 0 {
                    self.starts.remove(&id);
                }
            }
        }
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
        for key in self.retained.leave(&name, again) {
            self.writes.push(Write::Delete { key });
        }
        self.gone.tell(name, again, now);
    }

    /// As if everything had ended longer ago than starts are remembered.
    #[cfg(test)]
    pub(super) fn forget_starts(&mut self) {
        self.starts.clear();
        self.ended.clear();
    }

    /// What has changed since the last call.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
}
