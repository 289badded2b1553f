//! The queue of custom resources that must be written. Decides which custom resource is written
//! next, and when.
//!
//! The queue has one small entry for each operation in the index (the operations in memory), and
//! for each orphan that must be written (see below). A queue entry contains the wanted state and
//! the stored state of the custom resource. If these states differ, a write is due, now or later.
//! The comments in `QueueEntry::plan` describe the exceptions. If an operation changes several
//! times before its write, only its newest state is written.
//!
//! If a write fails, its queue entry backs off: the time until the next attempt grows with each
//! failure, up to a limit. Queue entries without failures are written first, so they do not wait
//! for the attempts of failing queue entries.
//!
//! An orphan is a custom resource whose operation is not in the index. A comparison compares a list
//! of all custom resources with the queue entries. The comparison decides for each orphan whether
//! the queue keeps, completes or deletes it. To complete an orphan, the queue writes the end of the
//! operation into the custom resource. If the operation of an orphan may still be detected, a later
//! comparison decides.
//!
//! If an orphan must be completed or deleted, the comparison creates a queue entry for it. After
//! this write has succeeded, the queue removes the queue entry. Other orphans have no queue entry.

use super::client::Revision;
use super::store_failure::StoreFailure;
use super::write_rate::{self, WritePace};
use super::written_summary::WrittenSummary;
use crate::clock;
use crate::index::IndexEntry;
use ifo_api::Text;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod compare_listed;
mod queue_entry;
#[cfg(test)]
mod tests;

pub(super) use compare_listed::ListedResource;
use queue_entry::QueueEntry;
pub(super) use queue_entry::{StoredState, WantedState};

/// The largest number of jobs that run at the same time. A [`Job`] sends the requests for one
/// custom resource. If a write takes 20 ms, one job at a time reaches the limit of 50 writes per
/// second. Four jobs reach this limit even if a write takes 80 ms.
const CONCURRENCY: usize = 4;

/// The time between two regular comparisons of the custom resources with the index. Some events,
/// such as a missing CRD, cause an earlier comparison. A comparison finds custom resources that
/// other clients have deleted or changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(10);

/// The age from which a completed operation counts as old. The age is the time from the end of the
/// operation to the creation of the queue. After a failover, the new leader creates its queue. Then
/// a completed operation may have no custom resource:
///
/// - If the operation is not old, the previous leader may have had no time to write it. So the
///   queue creates the custom resource.
/// - If the operation is old, a user has probably deleted the custom resource. So the queue does
///   not create it again.
///
/// While the kube-apiserver restarts, the previous leader cannot write. So `OLD_AGE` is longer than
/// the usual duration of such a restart.
const OLD_AGE: Duration = COMPARE_INTERVAL;

/// The names of the rule sets whose target (the resource that the rule set names) is unsynced. A
/// target is unsynced if it has not been listed yet, or if its watch is interrupted.
pub type UnsyncedRuleSets = BTreeSet<String>;

/// The settings that decide which operations are written, and when.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// The shortest time between two writes of the same operation while it is in flight.
    pub resync: Duration,
    /// The delay before the queue writes the state `Settling`. An operation is settling from the
    /// time at which no rule detects it any more until its debounce period ends. Usually, the
    /// operation ends before this delay has passed. Then the queue writes only the end.
    pub settling: Duration,
    /// The pause after a request that fails because the CRD is missing. The queue limits this pause
    /// to 10 minutes, even if the setting is longer. The setting is also the longest back-off after
    /// failures of a single object.
    pub requeue: Duration,
    /// True if the custom resources of completed operations are kept.
    pub retain: bool,
    /// The time for which completed operations are kept after their end. Then the queue deletes
    /// their custom resources.
    pub retain_for: Duration,
    /// The largest number of completed operations that are kept. If there are more, the queue
    /// deletes the custom resources of the oldest.
    pub retain_max: usize,
}

/// The treatment of waiting writes when this replica stops or releases the Lease. If this replica
/// loses the Lease, the task that sends the writes is aborted instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStop {
    /// The queue sends all waiting writes, for at most 10 s. It does not complete orphans. Writes
    /// that are left after this time are dropped, and a warning is logged. A server without leader
    /// election uses this variant.
    WriteAll,
    /// The queue sends no more writes. It waits for at most 500 ms for the answers to writes that
    /// were already sent. The next leader sends the waiting writes. A server with leader election
    /// uses this variant.
    HandOver,
}

impl AtStop {
    /// Returns the longest time for which the queue continues after the stop.
    pub(super) fn limit(self) -> Duration {
        match self {
            // Before the queue stops, the server waits for 5 s. In this time, the Service stops
            // sending requests to the server. The sum of both times is 15 s. This is less than the
            // grace period of the Pod, which is 30 s.
            Self::WriteAll => Duration::from_secs(10),
            // This replica releases the Lease only after the queue has stopped, so a longer limit
            // would delay the failover.
            Self::HandOver => Duration::from_millis(500),
        }
    }
}

/// The requests that bring one custom resource from its stored state to its wanted state. A job
/// sends one request or two. If the stored state is unknown, a job can end after reading the custom
/// resource. Then a later job writes the custom resource.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The name of the custom resource.
    pub name: Text,
    pub wanted: WantedState,
    pub stored: StoredState,
}

/// The result of a successful job. Each variant contains the state of the custom resource after the
/// job. The state is None in two cases: no custom resource with this name exists, or another client
/// has created the custom resource with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobResult {
    /// The custom resource was created, changed or deleted.
    Written(Option<(WrittenSummary, Revision)>),
    /// The custom resource was only read.
    Read(Option<(WrittenSummary, Revision)>),
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

/// The queue entries of all operations in the index, and of the orphans that must be written.
/// Decides which custom resource is written next.
#[derive(Debug)]
pub(super) struct Queue {
    settings: PersistSettings,
    pace: WritePace,
    entries: BTreeMap<Text, QueueEntry>,
    /// The queue entries that wait for a job, ordered by the time at which their jobs may start.
    /// The first set has the queue entries without failures. The second set has the queue entries
    /// with failures. A job of the second set starts only if no job of the first set may start.
    waiting: [BTreeSet<(Instant, Text)>; 2],
    /// The number of jobs that are running.
    running: usize,
    /// The time of the next comparison. The value is None before the first call of
    /// [`Queue::set_unsynced_rule_sets`], and while a comparison runs. While the value is None, no
    /// job starts.
    compare_at: Option<Instant>,
    /// The time of the first call of [`Queue::set_unsynced_rule_sets`], and the rule sets whose
    /// targets are unsynced now. Operations of these rule sets can be missing in the index. The
    /// first call comes when each target has been listed or its list has failed. None before this
    /// call.
    unsynced_rule_sets: Option<(Instant, Arc<UnsyncedRuleSets>)>,
    /// True if the last comparison skipped orphans. A comparison skips an orphan whose operation
    /// may still be detected by an unsynced rule set.
    has_undecided_orphans: bool,
    created: Timestamp,
    stopping: Option<AtStop>,
}

impl Queue {
    /// Creates an empty queue. The first job starts after the first call of
    /// [`Queue::set_unsynced_rule_sets`] and the first successful comparison.
    pub fn new(settings: PersistSettings, now: Instant) -> Self {
        Self {
            settings,
            pace: WritePace::new(now),
            entries: BTreeMap::new(),
            waiting: Default::default(),
            running: 0,
            compare_at: None,
            unsynced_rule_sets: None,
            has_undecided_orphans: false,
            created: clock::now(),
            stopping: None,
        }
    }

    /// Records a new or changed operation of the index.
    pub fn set_live(
        &mut self,
        name: &Text,
        entry: &Arc<IndexEntry>,
        summary: WrittenSummary,
        now: Instant,
    ) {
        // An operation counts as old if all of these conditions are true:
        //
        // - The operation is completed, and ended before `oldest`.
        // - `set_unsynced_rule_sets` has not been called, so the first lists of the targets have
        //   not ended.
        // - The queue has no entry for the operation, so it has never seen the operation in flight.
        let oldest = self.created.checked_sub(OLD_AGE).unwrap_or(Timestamp::MIN);
        let is_old = summary.phase == Phase::Completed
            && self.unsynced_rule_sets.is_none()
            && !self.entries.contains_key(name)
            && (entry.object().completed()).is_some_and(|completed| completed < oldest);
        self.change(name, now, |queued| {
            queued.is_old |= is_old;
            if queued.live_phase().is_none() {
                // If this is the queue entry of an orphan, its write is delayed. Now the operation
                // is in the index, so the custom resource is no orphan, and the delay ends.
                queued.not_before = None;
            }
            let since = match &queued.wanted {
                WantedState::Live(_, known, since) if *known == summary => *since,
                _ => now,
            };
            queued.wanted = WantedState::Live(entry.clone(), summary, since);
        });
    }

    /// Records that an operation was removed from the index.
    pub fn set_gone(&mut self, name: &Text, now: Instant) {
        if self.live_phase(name).is_some() {
            self.change(name, now, |queued| queued.wanted = WantedState::Gone);
        }
    }

    /// Replaces all operations by `all`, the operations in the index. The caller does this at the
    /// start, and when the queue has missed changes of the index.
    pub fn reset(&mut self, all: Vec<(Text, Arc<IndexEntry>, WrittenSummary)>, now: Instant) {
        let current: HashSet<Text> = all.iter().map(|(name, ..)| name.clone()).collect();
        for name in self.names(|name, _| !current.contains(name)) {
            self.set_gone(&name, now);
        }
        for (name, entry, summary) in all {
            self.set_live(&name, &entry, summary, now);
        }
    }

    /// Records that all targets have been listed, except the targets of the rule sets in
    /// `unsynced`. From now on, the operation of an orphan counts as ended if no rule set that
    /// detected the operation is in `unsynced`.
    pub fn set_unsynced_rule_sets(&mut self, unsynced: Arc<UnsyncedRuleSets>, now: Instant) {
        let is_first = self.unsynced_rule_sets.is_none();
        let since = self
            .unsynced_rule_sets
            .take()
            .map_or(now, |(since, _)| since);
        self.unsynced_rule_sets = Some((since, unsynced));
        if is_first {
            self.compare_at = Some(now);
            self.change_all(now, |_| {});
        } else if self.has_undecided_orphans {
            self.compare_by(now);
        }
    }

    /// Prepares for the stop. With [`AtStop::WriteAll`], all waiting writes except the completions
    /// of orphans become due now, also writes that back off after failures. From now on, the queue
    /// completes no orphan. The next leader completes the orphans.
    pub fn stop(&mut self, at_stop: AtStop, now: Instant) {
        self.stopping = Some(at_stop);
        self.change_all(now, |queued| queued.not_before = None);
    }

    /// Returns true if the task that owns the queue may end. This is the case after [`Queue::stop`]
    /// if no job is running. With [`AtStop::WriteAll`], no write may be waiting either.
    pub fn is_drained(&self) -> bool {
        let is_empty = match self.stopping {
            None => false,
            Some(AtStop::WriteAll) => self.waiting.iter().all(BTreeSet::is_empty),
            Some(AtStop::HandOver) => true,
        };
        is_empty && self.running == 0
    }

    /// Returns true if the kube-apiserver refused the last attempt of at least one waiting write.
    pub fn has_refused_write(&self) -> bool {
        self.entries.values().any(|queued| queued.is_refused)
    }

    /// Returns true if at least one waiting write has failed and has not succeeded since then.
    pub fn has_failing_write(&self) -> bool {
        self.entries.values().any(|queued| queued.failures > 0)
    }

    /// Returns the next step. If the next step is a job or a comparison, the caller must start it,
    /// because the queue counts it as running from now on.
    pub fn next(&mut self, now: Instant) -> Next {
        let is_handing_over = self.stopping == Some(AtStop::HandOver);
        let Some(compare_at) = self.compare_at.filter(|_| !is_handing_over) else {
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
        // After a failure that concerns all objects, such as an unreachable kube-apiserver, only
        // one job runs at a time. This job shows whether requests succeed again.
        let is_probing = self.pace.is_failing() && self.running > 0;
        if is_probing || self.running >= CONCURRENCY {
            return Next::Wait(None);
        }
        let firsts = || self.waiting.iter().filter_map(BTreeSet::first);
        let Some((_, name)) = firsts().find(|(at, _)| *at <= now).cloned() else {
            let at = firsts().map(|(at, _)| *at).chain([compare_at]).min();
            return Next::Wait(at);
        };
        if let Err(until) = self.pace.take_slot(now) {
            return Next::Wait(Some(until));
        }
        self.running += 1;
        self.change(&name, now, |queued| queued.has_running_job = true);
        let queued = &self.entries[&name];
        Next::StartJob(Job {
            wanted: queued.wanted.clone(),
            stored: queued.stored.clone(),
            name,
        })
    }

    /// Processes the result of a job.
    pub fn process_result(
        &mut self,
        name: &Text,
        result: &Result<JobResult, StoreFailure>,
        now: Instant,
    ) {
        self.running -= 1;
        match result {
            Ok(_) => self.pace.record_success(),
            Err(failure) if failure.is_refusal() => self.pace.record_refusal(now),
            Err(StoreFailure::ObjectDeleted | StoreFailure::Conflict(_)) => {}
            Err(failure) => self.process_general_failure(failure, now),
        }
        let most = if self.stopping.is_some() {
            write_rate::MAX_DRAINING_DELAY
        } else {
            self.settings.requeue
        };
        self.change(name, now, |queued| {
            queued.has_running_job = false;
            match result {
                Ok(done) => queued.record_success(done, now),
                Err(failure) => queued.record_failure(failure, most, now),
            }
        });
    }

    /// Processes a failed list of the custom resources.
    pub fn process_list_failure(&mut self, failure: &StoreFailure, now: Instant) {
        self.compare_at = Some(now);
        self.process_general_failure(failure, now);
    }

    /// Processes a failure that concerns all objects, such as an unreachable kube-apiserver.
    fn process_general_failure(&mut self, failure: &StoreFailure, now: Instant) {
        match failure {
            StoreFailure::CrdMissing => {
                // If the CRD was deleted, all custom resources were deleted with it. So the queue
                // must create all custom resources again, also those of old operations. After the
                // pause, the next step is a comparison.
                for queued in self.entries.values_mut() {
                    if matches!(queued.stored, StoredState::Present(..)) {
                        (queued.stored, queued.is_old) = (StoredState::Absent, false);
                    }
                }
                self.pace
                    .record_general_failure(Some(self.settings.requeue), now);
                self.compare_by(now);
            }
            StoreFailure::Throttled(after) => self.pace.record_general_failure(Some(*after), now),
            StoreFailure::Unreachable(_, after) => self.pace.record_general_failure(*after, now),
            _ => self.pace.record_general_failure(None, now),
        }
    }

    /// Returns the number of custom resources whose write is due or running, and the earliest due
    /// time of these writes.
    pub fn backlog(&self, now: Instant) -> (usize, Option<Instant>) {
        let due = self.entries.values().filter_map(|queued| queued.due);
        let due = due.filter(|due| *due <= now);
        (due.clone().count(), due.min())
    }

    fn live_phase(&self, name: &Text) -> Option<Phase> {
        self.entries.get(name)?.live_phase()
    }

    /// Returns the names of the queue entries that match the condition `which`.
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

    /// Changes a queue entry with `change`, and plans its next job. Creates the queue entry if it
    /// does not exist. Removes the queue entry if it needs no job and its operation is not in the
    /// index.
    fn change(&mut self, name: &Text, now: Instant, change: impl FnOnce(&mut QueueEntry)) {
        let queued = self.entries.entry(name.clone()).or_default();
        if let Some((index, at)) = queued.queue_position() {
            self.waiting[index].remove(&(at, name.clone()));
        }
        change(queued);
        if queued.has_running_job {
            // The next job is planned when the running job ends.
            return;
        }
        let is_first_sync_complete = self.unsynced_rule_sets.is_some();
        let due = queued.plan(&self.settings, self.stopping, now);
        // If an operation changes while its write is due but has not started, the write keeps its
        // due time. So frequent changes do not delay the write.
        let waiting_since = queued.due.filter(|since| *since <= now);
        queued.due = due
            .filter(|_| is_first_sync_complete)
            .map(|due| waiting_since.unwrap_or(due));
        if let Some((index, at)) = queued.queue_position() {
            self.waiting[index].insert((at, name.clone()));
            return;
        }
        let has_failed = std::mem::take(&mut queued.failures) > 0;
        queued.is_refused = false;
        if queued.live_phase().is_none() {
            self.entries.remove(name);
        }
        if has_failed {
            // The last job of this queue entry has failed, and now no write is needed, for example
            // because the operation has ended. The queue does not repeat this write, so the write
            // cannot show whether requests succeed again. The comparison shows this instead.
            self.compare_by(now + self.settings.requeue);
        }
    }
}
