//! Writes statuses. Enters: the statuses as they should be. Leaves: one write at a time
//! for each rule set, a few in all, and a failed one again after a while. In a cluster, each
//! write is conditional on the version of the rule set that the status was made for.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::ruleset::OperationRuleSetStatus;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Writes under way at once: a start with many rule sets is no burst for the API server.
const CONCURRENCY: usize = 8;

/// A write that failed is tried again after this, then twice this and so on …
const RETRY: Duration = Duration::from_secs(5);
/// … up to this: who may not write statuses is told in the log once in a while.
///
/// The same two waits limit how often a status that another client has edited is written
/// again.
const MAX_RETRY: Duration = Duration::from_mins(5);

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// UID of the rule set; those from files may lack one.
    pub uid: Option<String>,
    /// The resourceVersion that the rule set must still have. Rule sets from files have none.
    pub version: Option<String>,
    /// Whether another client has edited the status that this one replaces.
    pub repairs: bool,
    /// Its status.
    pub status: OperationRuleSetStatus,
}

/// How a write of a status ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusAnswer {
    /// It was written. The rule set has this resourceVersion since then, if it has any.
    Written(Option<String>),
    /// The rule set has another UID or resourceVersion than the write is for.
    Conflict,
    /// It has to be tried again.
    Failed,
}

/// Where statuses go.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes one, if the rule set still has the UID and the version of the write.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer>;
}

pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    under_way: FuturesUnordered<BoxFuture<'static, (StatusWrite, StatusAnswer)>>,
    /// Names of those under way.
    writing: HashSet<String>,
    waiting: VecDeque<StatusWrite>,
    /// The writes that failed, by the name of the rule set.
    failed: HashMap<String, FailedWrite>,
    /// By the name of a rule set whose status another client has edited: when it may be
    /// repaired again, and the wait after that.
    repaired: HashMap<String, (Instant, Duration)>,
}

struct FailedWrite {
    /// When it may be tried again.
    at: Instant,
    /// The wait after that.
    next: Duration,
    /// After a conflict: a write for another version than this one may start at once.
    conflict: Option<String>,
}

impl StatusWrites {
    pub(super) fn new(sink: Arc<dyn StatusSink>) -> Self {
        Self {
            sink,
            under_way: FuturesUnordered::new(),
            writing: HashSet::new(),
            waiting: VecDeque::new(),
            failed: HashMap::new(),
            repaired: HashMap::new(),
        }
    }

    /// Takes in all that has to be written as of now, in place of what was still waiting.
    /// What cannot be written yet has to be brought again: when the write of the same
    /// rule set has ended, or at the time that is returned.
    pub(super) fn take(&mut self, writes: Vec<StatusWrite>) -> Option<Instant> {
        let now = Instant::now();
        let wanted: HashSet<&str> = writes.iter().map(|write| write.name.as_str()).collect();
        self.failed.retain(|name, _| wanted.contains(name.as_str()));
        // A client that edits a status less often than this cannot cause many writes.
        self.repaired.retain(|_, (at, _)| *at + MAX_RETRY > now);
        self.waiting.clear();
        let mut again: Option<Instant> = None;
        for write in writes {
            if self.writing.contains(&write.name) {
                continue;
            }
            match self.held_until(&write).filter(|at| *at > now) {
                Some(at) => again = Some(again.map_or(at, |other| other.min(at))),
                None => self.waiting.push_back(write),
            }
        }
        self.start();
        again
    }

    /// The time before which this write must not start.
    fn held_until(&self, write: &StatusWrite) -> Option<Instant> {
        let failed = self.failed.get(&write.name).filter(|failed| {
            failed.conflict.is_none() || failed.conflict.as_ref() == write.version.as_ref()
        });
        let repaired = self.repaired.get(&write.name).filter(|_| write.repairs);
        failed
            .map(|failed| failed.at)
            .max(repaired.map(|(at, _)| *at))
    }

    fn start(&mut self) {
        while self.under_way.len() < CONCURRENCY
            && let Some(write) = self.waiting.pop_front()
        {
            self.writing.insert(write.name.clone());
            if write.repairs {
                let before = self.repaired.get(&write.name);
                let wait = before.map_or(RETRY, |(_, wait)| *wait);
                let next = (wait * 2).min(MAX_RETRY);
                self.repaired
                    .insert(write.name.clone(), (Instant::now() + wait, next));
            }
            let sink = self.sink.clone();
            let written = async move {
                let answer = sink.write(&write).await;
                (write, answer)
            };
            self.under_way.push(written.boxed());
        }
    }

    /// The next write that ended, with the version of the rule set since then. None if it
    /// failed. Pending while there is none to wait for. Loses nothing when dropped.
    pub(super) async fn next(&mut self) -> Option<(StatusWrite, Option<String>)> {
        let Some((write, answer)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&write.name);
        self.start();
        if let StatusAnswer::Written(version) = answer {
            self.failed.remove(&write.name);
            return Some((write, version));
        }
        let before = self.failed.get(&write.name);
        let wait = before.map_or(RETRY, |failed| failed.next);
        // Of two failures in a row, the second one always waits. So a client that changes the
        // rule set all the time cannot cause a conflict for each of its changes.
        let conflict = (answer == StatusAnswer::Conflict && before.is_none())
            .then(|| write.version.clone())
            .flatten();
        let failed = FailedWrite {
            at: Instant::now() + wait,
            next: (wait * 2).min(MAX_RETRY),
            conflict,
        };
        self.failed.insert(write.name, failed);
        None
    }
}
