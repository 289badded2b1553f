//! What all subjects share: what is to be written, what is due when, and what has ended.

use super::arbitrate::What;
use super::end::End;
use super::operation::{Operation, Start, SubjectView};
use super::tracker::{Now, Retention, Settings};
use crate::index::{Key, Write};
use crate::telemetry::Metrics;
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What tells a subject from all others.
pub(super) type Identity = Arc<str>;
/// What tells an operation from all others that are in flight.
pub(super) type OperationId = (Identity, What);

/// Starts of ended operations that are remembered, so that a successor which started
/// within the same second, or says so, gets another name: at most this many …
const ENDED: usize = 10_000;
/// … and for this long.
const ENDED_FOR: Duration = Duration::from_hours(1);

/// See above.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) settings: Settings,
    metrics: Arc<Metrics>,
    /// When debounces end and operations may appear, soonest first.
    deadlines: BTreeSet<(Instant, OperationId)>,
    /// Start seconds of operations that ended.
    starts: HashMap<OperationId, i64>,
    /// The order in which they ended.
    ended: VecDeque<(Instant, OperationId)>,
    /// Completed operations that are still shown, oldest first, and until when.
    retained: VecDeque<(Instant, Key)>,
    writes: Vec<Write>,
}

impl Ledger {
    pub(super) fn new(settings: Settings, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            metrics,
            deadlines: BTreeSet::new(),
            starts: HashMap::new(),
            ended: VecDeque::new(),
            retained: VecDeque::new(),
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
        let retained = self.retained.front().map(|(until, _)| *until);
        due.into_iter().chain(retained).min()
    }

    /// Shows an operation that is in flight.
    pub(super) fn show(&mut self, operation: &Operation, view: &SubjectView) {
        self.writes.push(Write::Put {
            key: operation.key.clone(),
            json: operation.active(view),
        });
    }

    /// Shows one that has just started.
    pub(super) fn start(&mut self, operation: &Operation, view: &SubjectView) {
        let name = &operation.what.operation;
        self.metrics.operation_started(operation.component(), name);
        tracing::info!(subject = %view.kind, namespace = %operation.key.namespace,
            name = %operation.key.name, operation = %name, "operation started");
        self.show(operation, view);
    }

    /// Shows the end of one, and takes it away unless it is retained.
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
        if let Some(retention) = self.settings.retain {
            let until = now.steady + retention.age;
            self.retained.push_back((until, operation.key.clone()));
        } else {
            self.writes.push(Write::Delete {
                key: operation.key.clone(),
            });
        }
        let id = (identity.clone(), operation.what.clone());
        self.starts.insert(id.clone(), operation.start_second());
        self.ended.push_back((now.steady, id));
        let name = &operation.what.operation;
        self.metrics.operation_completed(
            operation.component(),
            name,
            end.state().name(),
            end.reason(),
            operation.duration(now.wall),
        );
        tracing::info!(namespace = %operation.key.namespace, name = %operation.key.name,
            operation = %name, reason = end.reason(), "operation completed");
    }

    /// Shows one that was over before a restart, at `end`, for as long as it would have
    /// been shown.
    pub(super) fn restore(
        &mut self,
        identity: &Identity,
        operation: &Operation,
        (end, json): (Timestamp, Vec<u8>),
        now: Now,
    ) {
        let age = Duration::try_from(now.wall.duration_since(end)).unwrap_or_default();
        if age < ENDED_FOR {
            let id = (identity.clone(), operation.what.clone());
            let last = self.starts.entry(id.clone()).or_insert(i64::MIN);
            *last = operation.start_second().max(*last);
            // For longer than needed, so that the oldest still is the first.
            self.ended.push_back((now.steady, id));
        }
        let left = |retention: Retention| retention.age.checked_sub(age);
        if let Some(left) = self.settings.retain.and_then(left) {
            let until = now.steady + left;
            // Nearly always the last: they come oldest first, or in any order, once.
            let place = self.retained.partition_point(|(other, _)| *other <= until);
            self.retained.insert(place, (until, operation.key.clone()));
            self.writes.push(Write::Put {
                key: operation.key.clone(),
                json,
            });
        }
    }

    /// `start`, or a second after the predecessor's start if it is not after that: the
    /// name of an operation is made of the second in which it started.
    pub(super) fn after_predecessor(&self, id: &OperationId, start: Start) -> Start {
        let Some(&last) = self.starts.get(id) else {
            return start;
        };
        if start.at.as_second() > last {
            return start;
        }
        let at = Timestamp::from_second(last + 1).unwrap_or(start.at);
        Start { at, ..start }
    }

    /// Drops what was kept long enough.
    pub(super) fn expire(&mut self, now: Instant) {
        let most = self.settings.retain.map_or(0, |retention| retention.most);
        while self.retained.len() > most
            || matches!(self.retained.front(), Some((until, _)) if *until <= now)
        {
            if let Some((_, key)) = self.retained.pop_front() {
                self.writes.push(Write::Delete { key });
            }
        }
        while self.ended.len() > ENDED
            || matches!(self.ended.front(), Some((since, _)) if *since + ENDED_FOR <= now)
        {
            if let Some((_, id)) = self.ended.pop_front() {
                // It may have ended again since; then this is a little early.
                self.starts.remove(&id);
            }
        }
    }

    /// Drops what is retained in a namespace that is gone.
    pub(super) fn forget_namespace(&mut self, namespace: &str) {
        self.retained.retain(|(_, key)| {
            let stays = *key.namespace != *namespace;
            if !stays {
                self.writes.push(Write::Delete { key: key.clone() });
            }
            stays
        });
    }

    /// What has changed since the last call.
    pub(super) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
}
