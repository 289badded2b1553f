//! The queue of writes.
//!
//! Input: the newest state of each operation, lists of the custom resources, results of writes, and
//! the time. Output: the next write.
//!
//! The queue holds one small record for each operation in the index, regardless of the number of
//! changes. A record has the wanted state and the stored state. If the two differ, a write is due.
//! Each failure of a record doubles the time until its next attempt. Records that have failed come
//! after the other records, so they do not delay them.
//!
//! An orphan is a custom resource without a live object. Each comparison decides what happens to
//! each orphan. An orphan has a record only while it waits for its write.

use super::failure::StoreFailure;
use super::rate_limit::{self, WritePace};
use super::store::Revision;
use super::written_summary::WrittenSummary;
use crate::clock;
use crate::index::IndexEntry;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod compare;
mod record;
#[cfg(test)]
mod tests;

pub(super) use compare::ListedResource;
use record::Record;
pub(super) use record::{StoredState, WantedState};

/// Largest number of concurrent jobs. If each write takes 20 ms, one job is enough for 50 writes a
/// second. The others are for a slow kube-apiserver.
const CONCURRENCY: usize = 4;

/// Interval at which the custom resources are listed and compared with the index. A comparison
/// finds custom resources that other clients have deleted or changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(10);

/// Decides what it means if a completed operation has no custom resource when the queue is created.
///
/// If the operation ended longer ago than this, another client has deleted the custom resource, so
/// it is not created again. If it ended later, the previous leader possibly had not written it, so
/// it is created. The value is longer than a kube-apiserver usually needs to restart.
const LONG_COMPLETED: Duration = COMPARE_INTERVAL;

/// Names of the rule sets whose targets have not been listed yet, or whose watch is interrupted.
pub type UnreadRuleSets = BTreeSet<String>;

/// Settings that decide when and which operations are written.
#[derive(Clone, Copy, Debug)]
pub struct PersistSettings {
    /// Smallest time between two writes of one operation that is in flight.
    pub resync: Duration,
    /// Time for which an operation must be settling before this state is written. It is longer than
    /// an operation usually settles before it ends.
    pub settling: Duration,
    /// Time until the next attempt after the CRD was missing. It is also the longest time until the
    /// next attempt for one object.
    pub requeue: Duration,
    /// True if completed operations are kept.
    pub retain: bool,
    /// Time for which they are kept after their end.
    pub retain_for: Duration,
    /// Number of completed operations that are kept.
    pub retain_max: usize,
}

/// The treatment of waiting writes when the server stops or hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStop {
    /// Write all of them, for at most 10 s. This is for a server that runs alone.
    WriteAll,
    /// Send no more writes, and wait for those that were sent, for at most 500 ms. The next
    /// leader does the rest.
    HandOver,
}

impl AtStop {
    /// Returns the time limit.
    pub(super) fn limit(self) -> Duration {
        match self {
            // With the 5 s before it, this is well within the 30 s of a Pod's grace period.
            Self::WriteAll => Duration::from_secs(10),
            // No replica writes during this time, so it is part of the failover time.
            Self::HandOver => Duration::from_millis(500),
        }
    }
}

/// One or two requests that bring a custom resource from its stored to its wanted state.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Name of the custom resource.
    pub name: Arc<str>,
    pub wanted: WantedState,
    pub stored: StoredState,
}

/// The result of a successful job, with the state of the custom resource after it. The state is
/// None if the custom resource does not exist or was not created by us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobResult {
    /// The custom resource was created, changed or deleted.
    Written(Option<(WrittenSummary, Revision)>),
    /// The custom resource was only read.
    Read(Option<(WrittenSummary, Revision)>),
}

/// The next step.
#[derive(Debug)]
pub(super) enum Next {
    /// Do this job.
    Write(Job),
    /// List the custom resources.
    Compare,
    /// Wait until this time. If it is None, wait until the next input.
    Wait(Option<Instant>),
}

#[derive(Debug)]
pub(super) struct Queue {
    settings: PersistSettings,
    pace: WritePace,
    records: BTreeMap<Arc<str>, Record>,
    /// The records that wait for a job, with its due time, including back-off. Records that have
    /// not failed come first.
    waiting: [BTreeSet<(Instant, Arc<str>)>; 2],
    writing: usize,
    /// Time of the next comparison. None before the targets have been read, and during a
    /// comparison.
    compare_at: Option<Instant>,
    /// The time at which the targets had been read, and the rule sets whose operations can still be
    /// missing in the index.
    settled: Option<(Instant, Arc<UnreadRuleSets>)>,
    /// True if the last comparison did not touch orphans of such rule sets.
    has_undecided: bool,
    born: Timestamp,
    stopping: Option<AtStop>,
}

impl Queue {
    /// Creates an empty queue. It writes nothing before the targets have been read and a
    /// comparison has succeeded.
    pub fn new(settings: PersistSettings, now: Instant) -> Self {
        Self {
            settings,
            pace: WritePace::new(now),
            records: BTreeMap::new(),
            waiting: Default::default(),
            writing: 0,
            compare_at: None,
            settled: None,
            has_undecided: false,
            born: clock::now(),
            stopping: None,
        }
    }

    /// Processes a new or changed operation of the index.
    pub fn live(
        &mut self,
        name: &Arc<str>,
        entry: &Arc<IndexEntry>,
        summary: WrittenSummary,
        now: Instant,
    ) {
        // If this queue observes the end of an operation, it has had a record for it before.
        let old = self
            .born
            .checked_sub(LONG_COMPLETED)
            .unwrap_or(Timestamp::MIN);
        let is_old = summary.phase == Phase::Completed
            && self.settled.is_none()
            && !self.records.contains_key(name)
            && entry
                .facts()
                .completed
                .is_some_and(|completed| completed < old);
        self.change(name, now, |record| {
            record.is_old |= is_old;
            if record.live_phase().is_none() {
                // An orphan waits some time before it is ended or deleted.
                record.not_before = None;
            }
            let since = match &record.wanted {
                WantedState::Live(_, known, since) if *known == summary => *since,
                _ => now,
            };
            record.wanted = WantedState::Live(entry.clone(), summary, since);
        });
    }

    /// Processes the removal of an operation from the index.
    pub fn gone(&mut self, name: &Arc<str>, now: Instant) {
        if self.live_phase(name).is_some() {
            self.change(name, now, |record| record.wanted = WantedState::Gone);
        }
    }

    /// Replaces all operations, after changes were missed.
    pub fn reset(&mut self, all: Vec<(Arc<str>, Arc<IndexEntry>, WrittenSummary)>, now: Instant) {
        let there: HashSet<Arc<str>> = all.iter().map(|(name, ..)| name.clone()).collect();
        for name in self.names(|name, _| !there.contains(name)) {
            self.gone(&name, now);
        }
        for (name, entry, summary) in all {
            self.live(&name, &entry, summary, now);
        }
    }

    /// Records that the targets have been read, except those of the rule sets in `unread`. From now
    /// on, a custom resource without a live object belongs to an operation that has ended.
    pub fn settle(&mut self, unread: Arc<UnreadRuleSets>, now: Instant) {
        let is_first = self.settled.is_none();
        let since = self.settled.take().map_or(now, |(since, _)| since);
        self.settled = Some((since, unread));
        if is_first {
            self.compare_at = Some(now);
            self.change_all(now, |_| {});
        } else if self.has_undecided {
            self.compare_by(now);
        }
    }

    /// Prepares for the stop. With [`AtStop::WriteAll`], delayed changes become due now, and failed
    /// writes are retried immediately.
    pub fn stop(&mut self, at_stop: AtStop, now: Instant) {
        self.stopping = Some(at_stop);
        self.change_all(now, |record| record.not_before = None);
    }

    /// Returns true if the server can stop without losing a write.
    pub fn is_drained(&self) -> bool {
        let is_empty = match self.stopping {
            None => false,
            Some(AtStop::WriteAll) => self.waiting.iter().all(BTreeSet::is_empty),
            Some(AtStop::HandOver) => true,
        };
        is_empty && self.writing == 0
    }

    /// Returns true if any pending write was refused at its last attempt.
    pub fn is_refused(&self) -> bool {
        self.records.values().any(|record| record.is_refused)
    }

    /// Returns true if any pending write has failed at its last attempt.
    pub fn is_failing(&self) -> bool {
        self.records.values().any(|record| record.failures > 0)
    }

    /// Returns the next step. A returned job counts as started.
    pub fn next(&mut self, now: Instant) -> Next {
        let is_over = self.stopping == Some(AtStop::HandOver);
        let Some(compare_at) = self.compare_at.filter(|_| !is_over) else {
            return Next::Wait(None);
        };
        if let Some(until) = self.pace.paused(now) {
            return Next::Wait(Some(until));
        }
        if compare_at <= now {
            if self.writing > 0 {
                return Next::Wait(None);
            }
            self.compare_at = None;
            return Next::Compare;
        }
        // After a failure of all requests, one write at a time tests if requests succeed again.
        let is_probing = self.pace.in_trouble() && self.writing > 0;
        if is_probing || self.writing >= CONCURRENCY {
            return Next::Wait(None);
        }
        let firsts = || self.waiting.iter().filter_map(BTreeSet::first);
        let Some((_, name)) = firsts().find(|(at, _)| *at <= now).cloned() else {
            let at = firsts().map(|(at, _)| *at).chain([compare_at]).min();
            return Next::Wait(at);
        };
        if let Err(until) = self.pace.take(now) {
            return Next::Wait(Some(until));
        }
        self.writing += 1;
        self.change(&name, now, |record| record.is_writing = true);
        let record = &self.records[&name];
        Next::Write(Job {
            wanted: record.wanted.clone(),
            stored: record.stored.clone(),
            name,
        })
    }

    /// Processes the end of a job.
    pub fn done(
        &mut self,
        name: &Arc<str>,
        result: &Result<JobResult, StoreFailure>,
        now: Instant,
    ) {
        self.writing -= 1;
        match result {
            Ok(_) => self.pace.succeeded(),
            Err(failure) if failure.is_refusal() => self.pace.refused(now),
            Err(StoreFailure::Gone | StoreFailure::Conflict(_)) => {}
            Err(failure) => self.failed(failure, now),
        }
        let most = if self.stopping.is_some() {
            rate_limit::MAX_DRAINING_DELAY
        } else {
            self.settings.requeue
        };
        self.change(name, now, |record| {
            record.is_writing = false;
            match result {
                Ok(done) => record.succeeded(done, now),
                Err(failure) => record.failed(failure, most, now),
            }
        });
    }

    /// Processes the failure of a list.
    pub fn not_compared(&mut self, failure: &StoreFailure, now: Instant) {
        self.compare_at = Some(now);
        self.failed(failure, now);
    }

    /// Processes a failure whose reason affects all requests.
    fn failed(&mut self, failure: &StoreFailure, now: Instant) {
        match failure {
            StoreFailure::Missing => {
                // The custom resources were deleted with their CRD. After the pause, the next step
                // is a comparison.
                for record in self.records.values_mut() {
                    if matches!(record.stored, StoredState::Present(..)) {
                        (record.stored, record.is_old) = (StoredState::Absent, false);
                    }
                }
                self.pace.failed(Some(self.settings.requeue), now);
                self.compare_by(now);
            }
            StoreFailure::Throttled(after) => self.pace.failed(Some(*after), now),
            StoreFailure::Unreachable(_, after) => self.pace.failed(*after, now),
            _ => self.pace.failed(None, now),
        }
    }

    /// Counts the operations whose write is due or running. Also returns the due time of the
    /// oldest.
    pub fn backlog(&self, now: Instant) -> (usize, Option<Instant>) {
        let due = self.records.values().filter_map(|record| record.due);
        let due = due.filter(|due| *due <= now);
        (due.clone().count(), due.min())
    }

    fn live_phase(&self, name: &Arc<str>) -> Option<Phase> {
        self.records.get(name)?.live_phase()
    }

    fn names(&self, which: impl Fn(&Arc<str>, &Record) -> bool) -> Vec<Arc<str>> {
        let matching = self.records.iter().filter(|(name, of)| which(name, of));
        matching.map(|(name, _)| name.clone()).collect()
    }

    fn compare_by(&mut self, time: Instant) {
        self.compare_at = self.compare_at.map(|at| at.min(time));
    }

    fn change_all(&mut self, now: Instant, change: impl Fn(&mut Record)) {
        for name in self.names(|_, _| true) {
            self.change(&name, now, &change);
        }
    }

    /// Changes a record and plans its next job. A missing record is created.
    fn change(&mut self, name: &Arc<str>, now: Instant, change: impl FnOnce(&mut Record)) {
        let record = self.records.entry(name.clone()).or_default();
        if let Some((index, at)) = record.place() {
            self.waiting[index].remove(&(at, name.clone()));
        }
        change(record);
        if record.is_writing {
            return; // The end of its job plans it again.
        }
        let is_settled = self.settled.is_some();
        let due = record.plan(&self.settings, self.stopping, now);
        // A waiting record keeps its position, regardless of the number of its changes.
        let place = record.due.filter(|since| *since <= now);
        record.due = due.filter(|_| is_settled).map(|due| place.unwrap_or(due));
        if let Some((index, at)) = record.place() {
            self.waiting[index].insert((at, name.clone()));
            return;
        }
        let has_failed = std::mem::take(&mut record.failures) > 0;
        record.is_refused = false;
        if record.live_phase().is_none() {
            self.records.remove(name);
        }
        if has_failed {
            // The write is not needed any more. The comparison tests if requests succeed.
            self.compare_by(now + self.settings.requeue);
        }
    }
}
