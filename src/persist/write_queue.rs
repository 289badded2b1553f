//! Decides which custom resource is written next, and when.
//!
//! The queue has one small entry for each operation in the index. An entry contains the wanted
//! state and the stored state of the custom resource. If they differ, a write is due. If an
//! operation changes several times before its write, only its newest state is written.
//!
//! Each failure of a queue entry doubles the time until its next attempt. Entries that have failed
//! come after all other queue entries, so they do not delay them.
//!
//! An orphan is a custom resource whose operation is not in the index. At regular times, the queue
//! compares its queue entries with a list of all custom resources. Each comparison decides if an
//! orphan is kept, completed or deleted. An orphan has a queue entry only while it waits for its
//! write.

use super::custom_resource_client::Revision;
use super::rate_limit::{self, WritePace};
use super::request_failure::StoreFailure;
use super::written_summary::WrittenSummary;
use crate::clock;
use crate::index::IndexEntry;
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

/// The largest number of jobs that run at the same time. If a write takes 20 ms, one job is enough
/// for 50 writes per second. Further jobs help if the kube-apiserver is slow.
const CONCURRENCY: usize = 4;

/// The time between two comparisons of the custom resources with the index. A comparison finds
/// custom resources that other clients have deleted or changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(10);

/// Decides if a custom resource is created for a completed operation without a custom resource.
///
/// This matters after a failover, when the queue is created. If the operation ended longer than
/// this time ago, another client has probably deleted its custom resource, and the queue does not
/// create it again. If the operation ended later, the previous leader has probably not written it,
/// so the queue creates it. The time is longer than a kube-apiserver usually needs to restart.
const LONG_COMPLETED: Duration = COMPARE_INTERVAL;

/// The names of the rule sets whose targets (the resources that they watch) have not been listed
/// yet, or whose watch is interrupted.
pub type UnreadRuleSets = BTreeSet<String>;

/// Settings that decide when and which operations are written.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// The smallest time between two writes of an operation in flight.
    pub resync: Duration,
    /// The time for which an operation must be settling before this state is written. A settling
    /// operation is no longer detected, but has not ended. It usually ends within this time, so
    /// this write is usually not needed.
    pub settling: Duration,
    /// The time until the next attempt after the CRD was missing. It is also the longest time until
    /// the next attempt for one object.
    pub requeue: Duration,
    /// True if completed operations are kept.
    pub retain: bool,
    /// The time for which completed operations are kept after their end.
    pub retain_for: Duration,
    /// The number of completed operations that are kept.
    pub retain_max: usize,
}

/// What happens to waiting writes when the server stops or another replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStop {
    /// The queue sends all waiting writes, for at most 10 s. A server that runs alone does this.
    WriteAll,
    /// The queue sends no more writes. It waits for at most 500 ms for the answers to writes that
    /// were already sent. The next leader sends the remaining writes.
    HandOver,
}

impl AtStop {
    /// Returns the longest time for which the queue continues after the stop.
    pub(super) fn limit(self) -> Duration {
        match self {
            // The earlier steps of the shutdown take 5 s. So the sum is less than the 30 s of a
            // Pod's grace period.
            Self::WriteAll => Duration::from_secs(10),
            // During this time no replica writes, so a failover takes this much longer.
            Self::HandOver => Duration::from_millis(500),
        }
    }
}

/// One or two requests that bring a custom resource from its stored state to its wanted state.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The name of the custom resource.
    pub name: Arc<str>,
    pub wanted: WantedState,
    pub stored: StoredState,
}

/// The result of a successful job. The value is the new state of the custom resource. The value is
/// None if the custom resource does not exist, or if another client created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobResult {
    /// The custom resource was created, changed or deleted.
    Written(Option<(WrittenSummary, Revision)>),
    /// The custom resource was only read.
    Read(Option<(WrittenSummary, Revision)>),
}

/// The next step of the caller.
#[derive(Debug)]
pub(super) enum Next {
    /// Perform this job.
    Write(Job),
    /// List all custom resources.
    Compare,
    /// Wait until this time. If the time is None, wait until the queue changes.
    Wait(Option<Instant>),
}

/// The queue entries of all operations. The queue decides which operation is written next.
#[derive(Debug)]
pub(super) struct Queue {
    settings: PersistSettings,
    pace: WritePace,
    entries: BTreeMap<Arc<str>, QueueEntry>,
    /// The queue entries that wait for a job, in the order in which their jobs may start. The first
    /// set has the queue entries without failures. The second set has the queue entries with
    /// failures, which come later.
    waiting: [BTreeSet<(Instant, Arc<str>)>; 2],
    /// The number of jobs that are running.
    running: usize,
    /// The time of the next comparison. None before the targets have been read, and during a
    /// comparison.
    compare_at: Option<Instant>,
    /// None until the targets have been read. Then the time at which they had been read, and the
    /// rule sets whose targets are unread now. Operations of these rule sets can be missing in the
    /// index.
    settled: Option<(Instant, Arc<UnreadRuleSets>)>,
    /// True if the last comparison skipped orphans, because an unread rule set may still detect
    /// their operations.
    has_undecided_orphans: bool,
    created: Timestamp,
    stopping: Option<AtStop>,
}

impl Queue {
    /// Creates an empty queue. The queue starts no write before the targets have been read and a
    /// comparison has succeeded.
    pub fn new(settings: PersistSettings, now: Instant) -> Self {
        Self {
            settings,
            pace: WritePace::new(now),
            entries: BTreeMap::new(),
            waiting: Default::default(),
            running: 0,
            compare_at: None,
            settled: None,
            has_undecided_orphans: false,
            created: clock::now(),
            stopping: None,
        }
    }

    /// Records a new or changed operation of the index.
    pub fn set_live(
        &mut self,
        name: &Arc<str>,
        entry: &Arc<IndexEntry>,
        summary: WrittenSummary,
        now: Instant,
    ) {
        // If this queue has seen the operation while it was in flight, the queue has a queue entry.
        // Then the operation does not count as old.
        let oldest = self
            .created
            .checked_sub(LONG_COMPLETED)
            .unwrap_or(Timestamp::MIN);
        let is_old = summary.phase == Phase::Completed
            && self.settled.is_none()
            && !self.entries.contains_key(name)
            && entry
                .facts()
                .completed
                .is_some_and(|completed| completed < oldest);
        self.change(name, now, |queued| {
            queued.is_old |= is_old;
            if queued.live_phase().is_none() {
                // Until now, the queue entry was an orphan whose write is delayed. The operation is
                // detected again, so the delay ends.
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
    pub fn set_gone(&mut self, name: &Arc<str>, now: Instant) {
        if self.live_phase(name).is_some() {
            self.change(name, now, |queued| queued.wanted = WantedState::Gone);
        }
    }

    /// Replaces all operations, after changes of the index were missed.
    pub fn reset(&mut self, all: Vec<(Arc<str>, Arc<IndexEntry>, WrittenSummary)>, now: Instant) {
        let current: HashSet<Arc<str>> = all.iter().map(|(name, ..)| name.clone()).collect();
        for name in self.names(|name, _| !current.contains(name)) {
            self.set_gone(&name, now);
        }
        for (name, entry, summary) in all {
            self.set_live(&name, &entry, summary, now);
        }
    }

    /// Records that the targets have been read. Only the targets of the rule sets in `unread` could
    /// not be read. From now on, an orphan of any other rule set belongs to an operation that has
    /// ended.
    pub fn settle(&mut self, unread: Arc<UnreadRuleSets>, now: Instant) {
        let is_first = self.settled.is_none();
        let since = self.settled.take().map_or(now, |(since, _)| since);
        self.settled = Some((since, unread));
        if is_first {
            self.compare_at = Some(now);
            self.change_all(now, |_| {});
        } else if self.has_undecided_orphans {
            self.compare_by(now);
        }
    }

    /// Prepares for the stop. With [`AtStop::WriteAll`], delayed writes become due now, also after
    /// failures.
    pub fn stop(&mut self, at_stop: AtStop, now: Instant) {
        self.stopping = Some(at_stop);
        self.change_all(now, |queued| queued.not_before = None);
    }

    /// Returns true if the server can stop: no job is running, and no write that must be sent
    /// before the stop is waiting.
    pub fn is_drained(&self) -> bool {
        let is_empty = match self.stopping {
            None => false,
            Some(AtStop::WriteAll) => self.waiting.iter().all(BTreeSet::is_empty),
            Some(AtStop::HandOver) => true,
        };
        is_empty && self.running == 0
    }

    /// Returns true if the last attempt of a waiting write was refused.
    pub fn is_refused(&self) -> bool {
        self.entries.values().any(|queued| queued.is_refused)
    }

    /// Returns true if the last attempt of a waiting write failed.
    pub fn is_failing(&self) -> bool {
        self.entries.values().any(|queued| queued.failures > 0)
    }

    /// Returns the next step. If it is a job or a comparison, the caller must start it.
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
        // While the kube-apiserver is unreachable, only one job runs at a time, to find out if
        // requests succeed again.
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
        self.change(&name, now, |queued| queued.is_writing = true);
        let queued = &self.entries[&name];
        Next::Write(Job {
            wanted: queued.wanted.clone(),
            stored: queued.stored.clone(),
            name,
        })
    }

    /// Processes the result of a job.
    pub fn process_result(
        &mut self,
        name: &Arc<str>,
        result: &Result<JobResult, StoreFailure>,
        now: Instant,
    ) {
        self.running -= 1;
        match result {
            Ok(_) => self.pace.record_success(),
            Err(failure) if failure.is_refusal() => self.pace.record_refusal(now),
            Err(StoreFailure::Gone | StoreFailure::Conflict(_)) => {}
            Err(failure) => self.process_general_failure(failure, now),
        }
        let most = if self.stopping.is_some() {
            rate_limit::MAX_DRAINING_DELAY
        } else {
            self.settings.requeue
        };
        self.change(name, now, |queued| {
            queued.is_writing = false;
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

    /// Processes a failure that affects all requests.
    fn process_general_failure(&mut self, failure: &StoreFailure, now: Instant) {
        match failure {
            StoreFailure::Missing => {
                // The CRD is missing, so all custom resources were deleted with it. The next step
                // after the pause is a comparison.
                for queued in self.entries.values_mut() {
                    if matches!(queued.stored, StoredState::Present(..)) {
                        (queued.stored, queued.is_old) = (StoredState::Absent, false);
                    }
                }
                self.pace.record_failure(Some(self.settings.requeue), now);
                self.compare_by(now);
            }
            StoreFailure::Throttled(after) => self.pace.record_failure(Some(*after), now),
            StoreFailure::Unreachable(_, after) => self.pace.record_failure(*after, now),
            _ => self.pace.record_failure(None, now),
        }
    }

    /// Returns the number of operations whose write is due or running, and the earliest due time of
    /// these writes.
    pub fn backlog(&self, now: Instant) -> (usize, Option<Instant>) {
        let due = self.entries.values().filter_map(|queued| queued.due);
        let due = due.filter(|due| *due <= now);
        (due.clone().count(), due.min())
    }

    fn live_phase(&self, name: &Arc<str>) -> Option<Phase> {
        self.entries.get(name)?.live_phase()
    }

    /// Returns the names of the queue entries for which `which` returns true.
    fn names(&self, which: impl Fn(&Arc<str>, &QueueEntry) -> bool) -> Vec<Arc<str>> {
        let matching = self.entries.iter().filter(|(name, of)| which(name, of));
        matching.map(|(name, _)| name.clone()).collect()
    }

    /// If the next comparison is later than `time`, moves the comparison to `time`.
    fn compare_by(&mut self, time: Instant) {
        self.compare_at = self.compare_at.map(|at| at.min(time));
    }

    fn change_all(&mut self, now: Instant, change: impl Fn(&mut QueueEntry)) {
        for name in self.names(|_, _| true) {
            self.change(&name, now, &change);
        }
    }

    /// Changes a queue entry with `change`, and plans its next job. Creates the queue entry if it
    /// is missing.
    fn change(&mut self, name: &Arc<str>, now: Instant, change: impl FnOnce(&mut QueueEntry)) {
        let queued = self.entries.entry(name.clone()).or_default();
        if let Some((index, at)) = queued.queue_position() {
            self.waiting[index].remove(&(at, name.clone()));
        }
        change(queued);
        if queued.is_writing {
            // When the running job ends, its result plans the next job.
            return;
        }
        let is_settled = self.settled.is_some();
        let due = queued.plan(&self.settings, self.stopping, now);
        // If the write of a queue entry is due and the queue entry changes again, the queue entry
        // keeps its due time. So frequent changes do not delay the write.
        let waiting_since = queued.due.filter(|since| *since <= now);
        queued.due = due
            .filter(|_| is_settled)
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
            // The write that failed is no longer needed, and is not retried. So a comparison must
            // find out if requests succeed again.
            self.compare_by(now + self.settings.requeue);
        }
    }
}
