//! The queue of custom resources that must be written. Decides which custom resource is written
//! next, and when.
//!
//! The queue has one small entry for each operation in the index (the operations in memory). An
//! entry contains the wanted state and the stored state of the custom resource. If these states
//! differ, a write is due, now or later. If an operation changes several times before its write,
//! only its newest state is written.
//!
//! If a write fails, its entry backs off: the time until the next attempt grows with each failure,
//! up to a limit. If a failure concerns all objects, such as an unreachable kube-apiserver, all
//! requests pause.
//!
//! An orphan is a custom resource whose operation is not in the index. The comparison in
//! `compare.rs` decides for each orphan whether the queue keeps or deletes it. The queue has entries
//! only for the orphans that it deletes.

use super::client::Revision;
use super::condition::PersistVerdict;
use super::failure::StoreFailure;
use super::pace::Pace;
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

use entry::QueueEntry;
pub(super) use entry::StoredState;
pub use listed::read_pages;
pub(super) use listed::{ListedResource, list};

/// The largest number of jobs that run at the same time. If a write takes 20 ms, one job at a time
/// reaches the limit of 50 writes per second. Four jobs reach it even if a write takes 80 ms.
const CONCURRENCY: usize = 4;

/// The time between two regular comparisons of the custom resources with the index. A comparison
/// finds custom resources that other clients have deleted or changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(10);

/// If an operation had ended for this time when the queue was created, and it has no custom
/// resource, a user has probably deleted the custom resource. So the queue does not create it again.
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

/// The next step of the task that owns the queue.
#[derive(Debug)]
pub(super) enum Next {
    /// Start this job.
    StartJob(Job),
    /// List all custom resources.
    Compare,
    /// Wait until this time, or until the queue changes. If the time is None, wait until the queue
    /// changes.
    Wait(Option<Instant>),
}

/// The entries of all operations in the index. Decides which custom resource is written next.
#[derive(Debug)]
pub(super) struct Queue {
    settings: PersistSettings,
    pace: Pace,
    entries: BTreeMap<Text, QueueEntry>,
    /// The entries that wait for a job, ordered by the time at which their jobs may start.
    waiting: BTreeSet<(Instant, Text)>,
    /// The number of jobs that are running.
    running: usize,
    /// The time of the next comparison. None before the first call of
    /// [`Queue::set_unsynced_rule_sets`], and while a comparison runs. Meanwhile no job starts.
    compare_at: Option<Instant>,
    /// The time of the first call of [`Queue::set_unsynced_rule_sets`], and the rule sets whose
    /// targets are unsynced now.
    unsynced_rule_sets: Option<(Instant, Arc<UnsyncedRuleSets>)>,
    /// True if the last comparison skipped orphans that an unsynced rule set may still detect.
    has_undecided_orphans: bool,
    created: Timestamp,
    /// True if the task that owns the queue stops. Delayed changes are then due.
    is_stopping: bool,
    /// True if a request has succeeded.
    has_succeeded: bool,
    /// The time of the first failure since all requests succeeded, and the last failure.
    failing: Option<(Instant, StoreFailure)>,
}

impl Queue {
    /// Creates an empty queue. The first job starts after the first call of
    /// [`Queue::set_unsynced_rule_sets`] and the first successful comparison.
    pub fn new(settings: PersistSettings, now: Instant) -> Self {
        Self {
            settings,
            pace: Pace::new(now),
            entries: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: 0,
            compare_at: None,
            unsynced_rule_sets: None,
            has_undecided_orphans: false,
            created: clock::now(),
            is_stopping: false,
            has_succeeded: false,
            failing: None,
        }
    }

    /// Records a new or changed operation of the index.
    pub fn set_live(&mut self, name: &Text, operation: &Arc<InFlightOperation>, now: Instant) {
        let oldest = self.created.checked_sub(OLD_AGE).unwrap_or(Timestamp::MIN);
        // If the queue has seen the operation in flight, the previous leader has not written its end.
        let is_old = self.unsynced_rule_sets.is_none()
            && !self.entries.contains_key(name)
            && (operation.status.completed).is_some_and(|completed| completed.0 < oldest);
        self.change(name, now, |entry| {
            entry.is_old |= is_old;
            entry.set_wanted(operation, now);
        });
    }

    /// Records that an operation was removed from the index.
    pub fn set_gone(&mut self, name: &Text, now: Instant) {
        if self.entries.contains_key(name) {
            self.change(name, now, |entry| entry.wanted = None);
        }
    }

    /// Replaces all operations by `all`, the operations in the index. The caller does this at the
    /// start, and when the queue has missed changes of the index.
    pub fn reset(&mut self, all: &BTreeMap<Text, Arc<InFlightOperation>>, now: Instant) {
        for name in self.names(|name, _| !all.contains_key(name)) {
            self.set_gone(&name, now);
        }
        for (name, operation) in all {
            self.set_live(name, operation, now);
        }
    }

    /// Records that all targets have been listed, except the targets of the rule sets in `unsynced`.
    pub fn set_unsynced_rule_sets(&mut self, unsynced: Arc<UnsyncedRuleSets>, now: Instant) {
        if let Some((_, current)) = &mut self.unsynced_rule_sets {
            *current = unsynced;
            if self.has_undecided_orphans {
                self.compare_by(now);
            }
        } else {
            self.unsynced_rule_sets = Some((now, unsynced));
            self.compare_at = Some(now);
            self.change_all(now, |_| {});
        }
    }

    /// Prepares for the stop: all waiting writes become due now.
    pub fn stop(&mut self, now: Instant) {
        self.is_stopping = true;
        self.change_all(now, |entry| entry.not_before = None);
    }

    /// Returns the next step. If the next step is a job or a comparison, the caller must start it,
    /// because the queue counts it as running from now on.
    pub fn next(&mut self, now: Instant) -> Next {
        let Some(compare_at) = self.compare_at else {
            return Next::Wait(None);
        };
        if let Some(until) = self.pace.pause_end(now) {
            return Next::Wait(Some(until));
        }
        if compare_at <= now {
            if self.running > 0 {
                return Next::Wait(None);
            }
            self.compare_at = None;
            return Next::Compare;
        }
        // After a failure that concerns all objects, only one job runs at a time. This job shows
        // whether requests succeed again.
        let is_probing = self.pace.is_failing() && self.running > 0;
        if is_probing || self.running >= CONCURRENCY {
            return Next::Wait(None);
        }
        let first = self.waiting.first().cloned();
        let Some((_, name)) = first.clone().filter(|(at, _)| *at <= now) else {
            let at = first.map_or(compare_at, |(at, _)| at.min(compare_at));
            return Next::Wait(Some(at));
        };
        if let Err(until) = self.pace.take_slot(now) {
            return Next::Wait(Some(until));
        }
        self.running += 1;
        self.change(&name, now, |entry| entry.is_running = true);
        let entry = &self.entries[&name];
        Next::StartJob(Job {
            wanted: entry.wanted.clone(),
            stored: entry.stored.clone(),
            name,
        })
    }

    /// Processes the result of a job: the new revision of the custom resource, or None if the job
    /// has deleted it.
    pub fn process_result(
        &mut self,
        job: &Job,
        result: Result<Option<Revision>, StoreFailure>,
        now: Instant,
    ) {
        self.running -= 1;
        let most = self.settings.requeue;
        if let Err(failure) = &result {
            self.process_failure(failure, failure.is_of_one_object(), now);
        }
        let is_success = result.is_ok();
        let written = job.wanted.as_deref();
        self.change(&job.name, now, |entry| {
            entry.record(written, result, most, now);
        });
        if is_success {
            self.process_success();
        }
    }

    /// Processes a failed list of the custom resources.
    pub fn process_list_failure(&mut self, failure: &StoreFailure, now: Instant) {
        self.compare_at = Some(now);
        self.process_failure(failure, false, now);
    }

    fn process_success(&mut self) {
        self.pace.record_success();
        self.has_succeeded = true;
        if self.failing.is_some() && self.entries.values().all(|entry| entry.failures == 0) {
            self.failing = None;
        }
    }

    /// Records a failure. If `is_of_one_object` is false, all requests pause.
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
                Some(self.settings.requeue)
            }
            StoreFailure::Throttled(after) => Some(*after),
            _ => None,
        };
        if is_of_one_object {
            self.pace.record_success();
        } else {
            self.pace.record_failure(pause, now);
        }
        if *failure != StoreFailure::Conflict {
            let since = self.failing.take().map_or(now, |(since, _)| since);
            self.failing = Some((since, failure.clone()));
        }
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

    /// Returns the number of custom resources whose write is due or running, and the earliest due
    /// time of these writes.
    pub fn backlog(&self, now: Instant) -> (usize, Option<Instant>) {
        let due = self.entries.values().filter_map(|entry| entry.due);
        let due = due.filter(|due| *due <= now);
        (due.clone().count(), due.min())
    }

    /// Returns the names of the entries that match the condition `which`.
    fn names(&self, which: impl Fn(&Text, &QueueEntry) -> bool) -> Vec<Text> {
        let matching = self.entries.iter().filter(|(name, of)| which(name, of));
        matching.map(|(name, _)| name.clone()).collect()
    }

    /// Moves the next comparison to `time` if it is scheduled for a later time.
    fn compare_by(&mut self, time: Instant) {
        self.compare_at = self.compare_at.map(|at| at.min(time));
    }

    fn change_all(&mut self, now: Instant, change: impl Fn(&mut QueueEntry)) {
        for name in self.names(|_, _| true) {
            self.change(&name, now, &change);
        }
    }

    /// Changes an entry with `change`, and plans its next job. Creates the entry if it does not
    /// exist. Removes the entry if it needs no job and its operation is not in the index.
    fn change(&mut self, name: &Text, now: Instant, change: impl FnOnce(&mut QueueEntry)) {
        let entry = self.entries.entry(name.clone()).or_default();
        if let Some(at) = entry.start_at() {
            self.waiting.remove(&(at, name.clone()));
        }
        change(entry);
        if entry.is_running {
            // The next job is planned when the running job ends.
            return;
        }
        let due = entry.plan(&self.settings, self.is_stopping, now);
        // If an operation changes while its write is due but has not started, the write keeps its
        // due time. So frequent changes do not delay the write.
        let waiting_since = entry.due.filter(|since| *since <= now);
        entry.due = due
            .filter(|_| self.unsynced_rule_sets.is_some())
            .map(|due| waiting_since.unwrap_or(due));
        if let Some(at) = entry.start_at() {
            self.waiting.insert((at, name.clone()));
            return;
        }
        let has_failed = std::mem::take(&mut entry.failures) > 0;
        if entry.wanted.is_none() {
            self.entries.remove(name);
        }
        if has_failed {
            // The failed write is not repeated, for example because the operation has ended. So the
            // write cannot show whether requests succeed again. A comparison shows this instead.
            self.compare_by(now + self.settings.requeue);
        }
    }
}
