//! The queue of custom resources that must be written. Decides which custom resource is written
//! next, and when.
//!
//! The queue has one small entry for each operation in the index (the operations in memory). An
//! entry contains the wanted state and the stored state of the custom resource. If these states
//! differ, a write is due, now or later. If an operation changes several times before its write,
//! only its newest state is written.
//!
//! If a write fails, its entry backs off: the time until the next attempt grows with each failure,
//! up to a limit. If a failure concerns all objects, such as an unreachable kube-apiserver, the next
//! round starts later.
//!
//! An orphan is a custom resource whose operation is not in the index. The comparison in
//! `compare.rs` decides for each orphan whether the queue keeps or deletes it. The queue has entries
//! only for the orphans that it deletes.

use super::client::Revision;
use super::condition::PersistVerdict;
use super::failure::StoreFailure;
use crate::clock;
use ifo_api::Text;
use ifo_api::live::InFlightOperation;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod compare;
mod entry;
mod listed;
#[cfg(test)]
mod tests;

pub(super) use entry::StoredState;
use entry::{QueueEntry, delay};
pub(super) use listed::list;
pub use listed::read_pages;

/// The shortest time from the end of a round to the start of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);

/// The largest number of writes in a round, so at most 50 each second. If 1,000 operations start
/// together, their writes take 20 s or longer. This is a small load for a kube-apiserver.
const WRITES_PER_ROUND: usize = 50;

/// The longest back-off while the kube-apiserver is unreachable.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The longest pause that a kube-apiserver can request.
const MAX_PAUSE: Duration = Duration::from_mins(10);

/// The time between two regular comparisons of the custom resources with the index. A comparison
/// finds custom resources that other clients have deleted or changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(10);

/// The queue does not create custom resources of operations that had ended earlier than this time
/// before the queue was created. If such a custom resource is missing, a user has probably deleted it.
/// The time is longer than the usual restart of a kube-apiserver, during which a previous leader
/// cannot write.
const OLD_AGE: Duration = COMPARE_INTERVAL;

/// The time for which requests must fail before the verdict becomes [`PersistVerdict::Fails`]. A
/// kube-apiserver that has just started refuses all requests for some seconds, until it has read the
/// RBAC objects. A missing CRD is reported at once.
const FAILING_PERIOD: Duration = Duration::from_secs(10);

/// The settings that decide which operations are written, and when.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// The shortest time between two writes of the same operation while it is in flight.
    pub resync: Duration,
    /// The delay before the queue writes the state `Settling`. Usually the operation ends before
    /// this delay has passed, and the queue writes only the end.
    pub settling: Duration,
    /// The pause after a request that fails because the CRD is missing, and the longest back-off
    /// after failures of a single object.
    pub requeue: Duration,
    /// True if the custom resources of completed operations are kept.
    pub retain: bool,
    /// The time for which completed operations are kept after their end.
    pub retain_for: Duration,
    /// The largest number of completed operations that are kept.
    pub retain_max: usize,
}

/// The names of the rule sets whose target (the resource that the rule set names) is unsynced. A
/// target is unsynced if it has not been listed yet, or if its watch is interrupted.
pub type UnsyncedRuleSets = BTreeSet<String>;

/// The requests that bring one custom resource to its wanted state.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The name of the custom resource.
    pub name: Text,
    /// The operation that the custom resource must contain. None if the custom resource must not
    /// exist.
    pub wanted: Option<Arc<InFlightOperation>>,
    pub stored: StoredState,
}

/// The entries of all operations in the index. Decides which custom resource is written next.
#[derive(Debug)]
pub(super) struct Queue {
    settings: PersistSettings,
    entries: BTreeMap<Text, QueueEntry>,
    /// The time of the next comparison. No job starts before the first comparison has succeeded.
    compare_at: Instant,
    /// The time of the first call of [`Queue::set_unsynced_rule_sets`], and the rule sets whose
    /// targets are unsynced now.
    unsynced_rule_sets: Option<(Instant, Arc<UnsyncedRuleSets>)>,
    /// True if the last comparison skipped orphans that an unsynced rule set may still detect.
    has_undecided_orphans: bool,
    created: Timestamp,
    /// The results in this round.
    round: Round,
    /// The number of consecutive rounds with a failure that concerned all objects.
    failed_rounds: u32,
    /// True if a request has succeeded.
    has_succeeded: bool,
    /// The time of the first failure since all requests succeeded, and the last failure.
    failing: Option<(Instant, StoreFailure)>,
}

/// The results of the requests in one round.
#[derive(Debug, Default)]
struct Round {
    /// True if a request has succeeded.
    has_succeeded: bool,
    /// True if a request has failed, other than with a conflict.
    has_failed: bool,
    /// Set if a failure concerned all objects: the pause that it requires.
    pause: Option<Duration>,
}

impl Queue {
    /// Creates an empty queue. The first job starts after the first call of
    /// [`Queue::set_unsynced_rule_sets`] and the first successful comparison.
    pub fn new(settings: PersistSettings, now: Instant) -> Self {
        Self {
            settings,
            entries: BTreeMap::new(),
            compare_at: now,
            unsynced_rule_sets: None,
            has_undecided_orphans: false,
            created: clock::now(),
            round: Round::default(),
            failed_rounds: 0,
            has_succeeded: false,
            failing: None,
        }
    }

    /// Replaces all operations by `all`, the operations in the index.
    pub fn update(&mut self, all: &BTreeMap<Text, Arc<InFlightOperation>>, now: Instant) {
        let oldest = self.created.checked_sub(OLD_AGE).unwrap_or(Timestamp::MIN);
        let is_starting = self.unsynced_rule_sets.is_none();
        for (name, entry) in &mut self.entries {
            if !all.contains_key(name) {
                entry.wanted = None;
            }
        }
        for (name, operation) in all {
            let entry = self.entries.entry(name.clone()).or_insert_with(|| {
                let completed = operation.status.completed.as_ref();
                // If the queue has seen the operation in flight, the previous leader has not
                // written its end.
                let is_old = is_starting && completed.is_some_and(|time| time.0 < oldest);
                QueueEntry::new(is_old)
            });
            entry.set_wanted(operation, now);
        }
    }

    /// Records that all targets have been listed, except the targets of the rule sets in `unsynced`.
    pub fn set_unsynced_rule_sets(&mut self, unsynced: Arc<UnsyncedRuleSets>, now: Instant) {
        match &mut self.unsynced_rule_sets {
            Some((_, current)) if *current == unsynced => {}
            Some((_, current)) => {
                *current = unsynced;
                if self.has_undecided_orphans {
                    self.compare_by(now);
                }
            }
            None => self.unsynced_rule_sets = Some((now, unsynced)),
        }
    }

    /// Returns true if the custom resources must be listed and compared before the next jobs.
    pub fn is_comparison_due(&self, now: Instant) -> bool {
        self.unsynced_rule_sets.is_some() && self.compare_at <= now
    }

    /// Returns the jobs of this round: those that are due, the longest waiting first. If
    /// `is_stopping` is true, also those that are delayed.
    pub fn due_jobs(&mut self, is_stopping: bool, now: Instant) -> Vec<Job> {
        if self.unsynced_rule_sets.is_none() {
            return Vec::new();
        }
        let (mut due, mut has_given_up) = (Vec::new(), false);
        let settings = &self.settings;
        self.entries.retain(|name, entry| {
            let Some(start) = entry.plan(settings, is_stopping, now) else {
                has_given_up |= std::mem::take(&mut entry.failures) > 0;
                return entry.wanted.is_some();
            };
            if start <= now {
                due.push((start, name.clone()));
            }
            true
        });
        if has_given_up {
            // The failed write is not repeated, for example because the operation has ended. So the
            // write cannot show whether requests succeed again. A comparison shows this instead.
            self.compare_by(now + self.settings.requeue);
        }
        due.sort_unstable();
        due.truncate(WRITES_PER_ROUND);
        let job = |(_, name): (Instant, Text)| Job {
            wanted: self.entries[&name].wanted.clone(),
            stored: self.entries[&name].stored.clone(),
            name,
        };
        due.into_iter().map(job).collect()
    }

    /// Processes the result of a job: the new revision of the custom resource, or None if the job
    /// has deleted it.
    pub fn process_result(
        &mut self,
        job: &Job,
        result: Result<Option<Revision>, StoreFailure>,
        now: Instant,
    ) {
        match &result {
            Ok(_) => self.process_success(),
            Err(failure) => self.process_failure(failure, failure.is_of_one_object(), now),
        }
        let most = self.settings.requeue;
        if let Some(entry) = self.entries.get_mut(&job.name) {
            entry.record(job.wanted.as_deref(), result, most, now);
        }
    }

    /// Processes a failed list of the custom resources.
    pub fn process_list_failure(&mut self, failure: &StoreFailure, now: Instant) {
        self.process_failure(failure, false, now);
    }

    fn process_success(&mut self) {
        self.has_succeeded = true;
        self.round.has_succeeded = true;
    }

    /// Records a failure. If `is_of_one_object` is false, the next round starts later.
    fn process_failure(&mut self, failure: &StoreFailure, is_of_one_object: bool, now: Instant) {
        let pause = match failure {
            StoreFailure::CrdMissing => {
                // If the CRD was deleted, all custom resources were deleted with it. So the queue
                // must create all custom resources again, also those of old operations.
                for entry in self.entries.values_mut() {
                    if matches!(entry.stored, StoredState::Present { .. }) {
                        (entry.stored, entry.is_old) = (StoredState::Absent, false);
                    }
                }
                self.compare_by(now);
                self.settings.requeue
            }
            StoreFailure::Throttled(after) => *after,
            _ => Duration::ZERO,
        };
        if !is_of_one_object {
            self.round.pause = self.round.pause.max(Some(pause));
        }
        if *failure != StoreFailure::Conflict {
            self.round.has_failed = true;
            let since = self.failing.take().map_or(now, |(since, _)| since);
            self.failing = Some((since, failure.clone()));
        }
    }

    /// Ends the round. Returns the time at which the next round starts.
    pub fn end_round(&mut self, now: Instant) -> Instant {
        let round = std::mem::take(&mut self.round);
        let is_working = round.has_succeeded && !round.has_failed;
        if is_working && self.entries.values().all(|entry| entry.failures == 0) {
            self.failing = None;
        }
        let Some(pause) = round.pause else {
            self.failed_rounds = 0;
            return now + ROUND_INTERVAL;
        };
        let own = delay(self.failed_rounds, MAX_DELAY).max(ROUND_INTERVAL);
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        now + pause.min(MAX_PAUSE).max(own)
    }

    /// Returns the verdict of the recent requests. Returns None if no request has succeeded yet, or if
    /// requests have failed only for a short time.
    pub fn verdict(&self, now: Instant) -> Option<PersistVerdict> {
        match &self.failing {
            Some((since, failure))
                if *failure == StoreFailure::CrdMissing || now - *since >= FAILING_PERIOD =>
            {
                Some(PersistVerdict::failing(failure))
            }
            None if self.has_succeeded => Some(PersistVerdict::working()),
            _ => None,
        }
    }

    /// Returns the number of custom resources whose write is due, and the time for which the oldest of
    /// these writes has been waiting.
    pub fn backlog(&self, now: Instant) -> (usize, Duration) {
        let waiting = self.entries.values().filter_map(|entry| entry.due);
        let waiting = waiting.filter_map(|due| now.checked_duration_since(due));
        (waiting.clone().count(), waiting.max().unwrap_or_default())
    }

    /// Moves the next comparison to `time` if it is scheduled for a later time.
    fn compare_by(&mut self, time: Instant) {
        self.compare_at = self.compare_at.min(time);
    }
}
