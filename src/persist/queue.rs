//! The queue of writes. Enters: the newest state of each operation, lists of the custom
//! resources, results of writes, the time. Leaves: the next write.
//!
//! The queue holds one small record for each operation in the index and for each custom
//! resource in the cluster, however many changes there were. A record has the wanted state
//! and the stored state. If the two differ, a write is due.

use super::look::{self, Look};
use super::pace::{self, Pace};
use super::store::{Failure, Revision};
use crate::clock;
use crate::index::Entry;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod orphans;
mod outcomes;
mod record;
#[cfg(test)]
mod tests;

use record::{Plan, Record, Stored, Wanted};

/// Jobs that run at the same time. If a write takes 20 ms, this is more than the rate needs.
const CONCURRENCY: usize = 4;

/// How often the custom resources are listed and compared with the index. A comparison
/// finds those that others have deleted or changed.
const COMPARE_EVERY: Duration = Duration::from_mins(10);

/// How long an orphan is left alone after a comparison found it. The previous leader may have
/// read the subject from a kube-apiserver that is ahead of the one that this leader reads
/// from. Then this leader detects the same operation a moment later.
const GRACE: Duration = Duration::from_secs(5);

/// How long after the targets have been read the second comparison is. The previous leader
/// may have sent a creation just before it lost the Lease. The kube-apiserver ends requests
/// after 60 s, so 5 s later such a late creation has either landed or failed.
const COMPARE_AGAIN: Duration = Duration::from_secs(65);

/// An operation that was completed longer than this before the queue existed, and has no
/// custom resource, was written and then deleted by somebody. A later one may not have been
/// written by the previous leader. The time is that between two comparisons, so it is longer
/// than a kube-apiserver usually needs to restart.
const OLD: Duration = COMPARE_EVERY;

/// Refusals in a row after which the server is taken to lack rights. A single refusal may be
/// about one object, and a kube-apiserver that has just started refuses everything until it
/// has read its RBAC rules. With pauses that double, these refusals take some ten seconds.
pub(super) const REFUSALS: u32 = 6;

/// Names of the rule sets whose targets have not been read, or have a gap.
pub type Unread = BTreeSet<String>;

/// When and what the queue writes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Changes in the middle of an operation are written at most this often.
    pub resync: Duration,
    /// How long an operation must be settling before this is written. It is longer than an
    /// operation usually settles before it ends.
    pub settling: Duration,
    /// Time until the next attempt after the CRD was missing.
    pub requeue: Duration,
    /// Whether completed operations are kept.
    pub retain: bool,
    /// How long after their end they are kept.
    pub retain_for: Duration,
    /// How many of them are kept.
    pub retain_max: usize,
}

/// What happens to the writes that wait when the server stops or hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStop {
    /// Write all of them, for at most 10 s. This is for a server that runs alone.
    WriteAll,
    /// Send no more writes, and wait for those that were sent, for at most 500 ms. The next
    /// leader does the rest.
    HandOver,
}

impl AtStop {
    /// How long it may take.
    pub(super) fn limit(self) -> Duration {
        match self {
            // With the 5 s before it, this is well within the 30 s that a Pod has.
            Self::WriteAll => Duration::from_secs(10),
            // No replica writes meanwhile, so this is a part of the failover time.
            Self::HandOver => Duration::from_millis(500),
        }
    }
}

/// One or two requests about one custom resource.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Name of the custom resource.
    pub name: Arc<str>,
    pub task: Task,
}

#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Create it as the index has it.
    Create { entry: Arc<Entry>, look: Look },
    /// Change this state of it to what the index has. With `relabels`, the keys of its labels
    /// differ: read it first, to find those that are to be removed.
    Change {
        entry: Arc<Entry>,
        look: Look,
        revision: Revision,
        relabels: bool,
    },
    /// Read it. If it is Active, change it to an operation that ended unobserved.
    End,
    /// Delete it if it is in this state.
    Delete { revision: Revision },
    /// Read it. With an entry, it must be the custom resource of that operation.
    Read { entry: Option<Arc<Entry>> },
}

/// The result of a job that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It was created or changed, and is in this state now.
    Written(Look, Revision),
    /// It was deleted, or was gone already.
    Deleted,
    /// It was read and not written. None if it does not exist or is not ours.
    Read(Option<(Look, Revision)>),
}

/// The next step.
#[derive(Debug)]
pub(super) enum Next {
    /// Do this job.
    Write(Job),
    /// List the custom resources.
    Compare,
    /// Wait until this time, or, if it is None, until something happens.
    Wait(Option<Instant>),
}

/// A custom resource in a list.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub name: Arc<str>,
    pub revision: Revision,
    pub look: Look,
    pub completed: Option<Timestamp>,
    /// The namespace of its subject, and when it was last seen there.
    pub place: Option<(String, Timestamp)>,
    /// Whether that namespace was deleted. A new one of the same name may exist.
    pub outlived: bool,
    /// The rule sets that detect it.
    pub rule_sets: Vec<String>,
}

/// The operations that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    /// Operations whose write is due or under way.
    pub length: usize,
    /// Since when the oldest of them is.
    pub since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Queue {
    settings: Settings,
    pace: Pace,
    records: BTreeMap<Arc<str>, Record>,
    /// The time of the next job of each record, back-off included.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// The same for records that were refused. They come after all others.
    again: BTreeSet<(Instant, Arc<str>)>,
    /// The records that were refused and are still to be written.
    refused: HashSet<Arc<str>>,
    writing: usize,
    /// When to compare next; None while a comparison is under way.
    compare_at: Option<Instant>,
    /// When the second comparison after the start is.
    compare_again: Option<Instant>,
    /// The rule sets whose operations the index may lack. None until the targets have been
    /// read after the start.
    unread: Option<Arc<Unread>>,
    born: Timestamp,
    /// Writes that succeeded.
    successes: u64,
    /// Writes that were refused since the last success.
    refusals: u32,
    /// Lists that were refused in a row.
    unlisted: u32,
    stopping: Option<AtStop>,
}

impl Queue {
    /// Creates an empty queue. It writes nothing before the first comparison.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Self {
            settings,
            pace: Pace::new(now),
            records: BTreeMap::new(),
            due: BTreeSet::new(),
            again: BTreeSet::new(),
            refused: HashSet::new(),
            writing: 0,
            compare_at: Some(now),
            compare_again: None,
            unread: None,
            born: clock::now(),
            successes: 0,
            refusals: 0,
            unlisted: 0,
            stopping: None,
        }
    }

    /// An operation was added to the index, or has changed.
    pub fn live(&mut self, name: &Arc<str>, entry: &Arc<Entry>, look: Look, now: Instant) {
        let record = match self.records.entry(name.clone()) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(new) => {
                let record = new.insert(Record::default());
                // An operation whose end this queue observes has had a record before.
                let old = self.born.checked_sub(OLD).unwrap_or(Timestamp::MIN);
                record.is_old = look.phase == Phase::Completed
                    && self.unread.is_none()
                    && look::completed(entry).is_some_and(|completed| completed < old);
                record
            }
        };
        match &mut record.wanted {
            Wanted::Live((newest, known), _) if *known == look => {
                newest.clone_from(entry);
            }
            wanted => {
                if matches!(wanted, Wanted::Orphan(_)) {
                    record.not_before = None;
                }
                *wanted = Wanted::Live((entry.clone(), look), now);
                record.has_changed(now);
            }
        }
        self.plan(name, now);
    }

    /// An operation was removed from the index.
    pub fn gone(&mut self, name: &Arc<str>, now: Instant) {
        if let Some(record) = self.records.get_mut(name)
            && matches!(record.wanted, Wanted::Live(..))
        {
            record.wanted = Wanted::Gone;
            record.has_changed(now);
            self.plan(name, now);
        }
    }

    /// Replaces all operations, after changes were missed.
    pub fn reset(&mut self, all: Vec<(Arc<str>, Arc<Entry>, Look)>, now: Instant) {
        let there: HashSet<Arc<str>> = all.iter().map(|(name, ..)| name.clone()).collect();
        let others: Vec<Arc<str>> = self.names(|name, _| !there.contains(name));
        for name in others {
            self.gone(&name, now);
        }
        for (name, entry, look) in all {
            self.live(&name, &entry, look, now);
        }
    }

    /// The targets have been read, except those of the rule sets in `unread`. From now on, a
    /// custom resource without a live object belongs to an operation that has ended.
    pub fn settle(&mut self, unread: Arc<Unread>, now: Instant) {
        if self.unread.replace(unread).is_none() {
            self.compare_again = Some(now + COMPARE_AGAIN);
            self.compare_at = self.compare_at.map(|at| at.min(now + COMPARE_AGAIN));
        }
        for name in self.names(|_, _| true) {
            if let Some(record) = self.records.get_mut(&name)
                && matches!(record.wanted, Wanted::Orphan(_))
                && record.due.is_none()
            {
                record.not_before = Some(now + GRACE);
            }
            self.plan(&name, now);
        }
    }

    /// Prepares for the stop. With [`AtStop::WriteAll`], changes that were held back become
    /// due now, and writes that failed are tried again at once.
    pub fn stop(&mut self, at_stop: AtStop, now: Instant) {
        self.stopping = Some(at_stop);
        for record in self.records.values_mut() {
            record.not_before = None;
        }
        for name in self.names(|_, _| true) {
            self.plan(&name, now);
        }
    }

    /// Whether nothing is left to do before the stop.
    pub fn is_drained(&self) -> bool {
        let is_empty = match self.stopping {
            None => false,
            Some(AtStop::WriteAll) => self.due.is_empty() && self.again.is_empty(),
            Some(AtStop::HandOver) => true,
        };
        is_empty && self.writing == 0
    }

    /// Whether anything that is still to be written was refused the last time.
    pub fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns the next step, and counts a job as started.
    pub fn next(&mut self, now: Instant) -> Next {
        let Some(compare_at) = self.compare_at else {
            return Next::Wait(None);
        };
        if self.stopping == Some(AtStop::HandOver) {
            return Next::Wait(None);
        }
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
        // After trouble, one write at a time finds out whether the trouble is over.
        let most = if self.pace.in_trouble() {
            1
        } else {
            CONCURRENCY
        };
        if self.writing >= most {
            return Next::Wait(None);
        }
        let due = self.due.first().map(|(at, _)| *at);
        let again = self.again.first().map(|(at, _)| *at);
        let Some(at) = due.into_iter().chain(again).min() else {
            return Next::Wait(Some(compare_at));
        };
        if at > now {
            return Next::Wait(Some(compare_at.min(at)));
        }
        if let Err(until) = self.pace.take(now) {
            return Next::Wait(Some(until));
        }
        let from = if due.is_some_and(|at| at <= now) {
            &mut self.due
        } else {
            &mut self.again
        };
        let (_, name) = from.pop_first().expect("it was there just now");
        let record = self.records.get_mut(&name);
        let record = record.expect("what is due has a record");
        record.due = None;
        record.writing = true;
        self.writing += 1;
        let task = record.task();
        Next::Write(Job { name, task })
    }

    /// A job has ended.
    pub fn done(&mut self, name: &Arc<str>, result: &Result<Done, Failure>, now: Instant) {
        self.writing -= 1;
        let mut most = pace::MAX_OBJECT;
        match result {
            Ok(Done::Read(_)) => self.pace.succeeded(),
            Ok(_) => self.succeeded(name, now),
            Err(Failure::Forbidden(_)) => most = self.forbidden(name, now),
            Err(failure) => self.failed(failure, now),
        }
        if self.stopping.is_some() {
            most = pace::MAX_DRAINING;
        }
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        record.writing = false;
        match result {
            Ok(done) => record.succeeded(done, now),
            Err(failure) => {
                record.failed(failure, most, now);
                if matches!(failure, Failure::Forbidden(_) | Failure::Invalid(_)) {
                    self.refused.insert(name.clone());
                }
            }
        }
        self.plan(name, now);
    }

    /// A list has ended. Compares it with the records.
    pub fn compared(&mut self, found: Vec<Found>, now: Instant) {
        self.pace.succeeded();
        self.unlisted = 0;
        let again = self.compare_again.filter(|at| *at > now);
        self.compare_again = again;
        self.compare_at = Some(again.unwrap_or(now + COMPARE_EVERY));
        let there: HashSet<Arc<str>> = found.iter().map(|found| found.name.clone()).collect();
        // A completed operation is not written twice. Somebody has deleted its custom
        // resource, for example the garbage collector together with the subject.
        for name in self.names(|name, record| !there.contains(name) && !record.is_history()) {
            if let Some(record) = self.records.get_mut(&name) {
                record.stored = Stored::Absent;
                if matches!(record.wanted, Wanted::Orphan(_)) {
                    record.wanted = Wanted::Gone;
                }
            }
            self.plan(&name, now);
        }
        let keep = self.kept(&found);
        for found in found {
            let orphan = self.orphan(&found, &keep);
            let record = match self.records.entry(found.name.clone()) {
                Slot::Occupied(known) => known.into_mut(),
                Slot::Vacant(new) => new.insert(Record::orphan(orphan.clone(), now + GRACE)),
            };
            if let Wanted::Orphan(known) = &mut record.wanted {
                *known = orphan;
            }
            let at = match &record.stored {
                // Nobody has changed it since. Its look can still differ from the look that was
                // written: all labels of an object that others created count as ours, but a
                // write does not remove the labels of others.
                Stored::Present { revision, .. } if *revision == found.revision => None,
                Stored::Present { at, .. } => Some(*at),
                _ => Some(None),
            };
            if let Some(at) = at {
                record.stored = Stored::Present {
                    look: found.look,
                    revision: found.revision,
                    at,
                };
            }
            self.plan(&found.name, now);
        }
    }

    /// A list failed.
    pub fn not_compared(&mut self, failure: &Failure, now: Instant) {
        self.compare_at = Some(now);
        match failure {
            Failure::Gone | Failure::Conflict(_) | Failure::Invalid(_) => {
                self.pace.failed(None, now)
            }
            _ => self.failed(failure, now),
        }
    }

    /// Counts the operations that wait.
    pub fn backlog(&self, now: Instant) -> Backlog {
        let mut backlog = Backlog::default();
        for record in self.records.values() {
            if let Some(since) = record.since.filter(|since| *since <= now) {
                backlog.length += 1;
                backlog.since = Some(backlog.since.map_or(since, |oldest| oldest.min(since)));
            }
        }
        backlog
    }

    fn names(&self, which: impl Fn(&Arc<str>, &Record) -> bool) -> Vec<Arc<str>> {
        let matching = self.records.iter().filter(|(name, of)| which(name, of));
        matching.map(|(name, _)| name.clone()).collect()
    }

    /// Plans the next job of a record, after anything about it has changed.
    fn plan(&mut self, name: &Arc<str>, now: Instant) {
        let Some(record) = self.records.get_mut(name) else {
            return;
        };
        if let Some(at) = record.due.take() {
            let place = (at, name.clone());
            let _ = self.due.remove(&place) || self.again.remove(&place);
        }
        if record.writing {
            return; // The end of its job plans it again.
        }
        let changed = record.changed.take();
        let unread = self.unread.as_deref();
        match record.plan(&self.settings, unread, self.stopping, now) {
            Plan::Forget => {
                self.records.remove(name);
                self.pardon(name, now);
            }
            Plan::Rest => {
                record.since = None;
                self.pardon(name, now);
            }
            Plan::At(at) => {
                // A record that waits keeps its place, however often it changes. A record that
                // changed during its job has its place from that time: otherwise the end of one
                // run would be written after the whole next run.
                let changed = changed.filter(|_| at <= now);
                let place = record.since.filter(|since| *since <= now).or(changed);
                let at = place.unwrap_or(at);
                record.since = Some(at);
                let at = record.not_before.map_or(at, |earliest| earliest.max(at));
                record.due = Some(at);
                let place = (at, name.clone());
                if self.refused.contains(name) {
                    self.again.insert(place);
                } else {
                    self.due.insert(place);
                }
            }
        }
    }
}
