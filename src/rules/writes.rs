//! Writes statuses. Input: the statuses to write. Output: few writes at the same time, and only one
//! for each rule set. A failed write is retried with a wait. In a cluster, each write is
//! conditional on the version of the rule set for which the status was made.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::ruleset::OperationRuleSetStatus;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Number of concurrent writes, so that a start with many rule sets causes no burst.
const CONCURRENCY: usize = 8;

/// Wait after the first failed write. It doubles with each failure …
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(5);
/// … up to this wait, so that a server without the right to write statuses logs it rarely.
///
/// The same waits limit how often a status that another client has edited is written again.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// UID of the rule set. Rule sets from files may have none.
    pub uid: Option<String>,
    /// The resourceVersion that the rule set must still have. Rule sets from files have none.
    pub version: Option<String>,
    /// True if another client has edited the status that this one replaces.
    pub repairs: bool,
    /// Its status.
    pub status: OperationRuleSetStatus,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusAnswer {
    /// It was written. Contains the new resourceVersion of the rule set, if it has any.
    Written(Option<String>),
    /// The rule set has another UID or resourceVersion.
    Conflict,
    /// It has to be retried.
    Failed,
}

/// The receiver of statuses.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes a status, if the rule set still has the UID and the version of the write.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer>;
}

pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    under_way: FuturesUnordered<BoxFuture<'static, (StatusWrite, StatusAnswer)>>,
    /// The rule sets with a write in flight.
    writing: HashSet<String>,
    waiting: VecDeque<StatusWrite>,
    /// The failed writes by the name of the rule set.
    failed: HashMap<String, FailedWrite>,
    /// By the name of a rule set whose status another client has edited: the time of the next
    /// repair, and the wait after it.
    repaired: HashMap<String, (Instant, Duration)>,
}

struct FailedWrite {
    /// The time of the next attempt.
    at: Instant,
    /// The wait after that attempt.
    next: Duration,
    /// After a conflict: a write for another version may start at once.
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

    /// Replaces all waiting writes. A write that cannot start yet must be passed again: when the
    /// write of the same rule set has ended, or at the time that is returned.
    pub(super) fn take(&mut self, writes: Vec<StatusWrite>) -> Option<Instant> {
        let now = Instant::now();
        let wanted: HashSet<&str> = writes.iter().map(|write| write.name.as_str()).collect();
        self.failed.retain(|name, _| wanted.contains(name.as_str()));
        // A client that edits a status less often than this cannot cause many writes.
        self.repaired
            .retain(|_, (at, _)| *at + MAX_RETRY_DELAY > now);
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

    /// The earliest time of this write.
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
                let wait = before.map_or(FIRST_RETRY_DELAY, |(_, wait)| *wait);
                let next = (wait * 2).min(MAX_RETRY_DELAY);
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

    /// Waits for the end of the next write, and returns the version of the rule set since then.
    /// None if it failed. Pending while no write is in flight. Cancel-safe.
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
        let wait = before.map_or(FIRST_RETRY_DELAY, |failed| failed.next);
        // Of two consecutive failures, the second one always waits. So a client that changes the
        // rule set all the time cannot cause a conflict for each of its changes.
        let conflict = (answer == StatusAnswer::Conflict && before.is_none())
            .then(|| write.version.clone())
            .flatten();
        let failed = FailedWrite {
            at: Instant::now() + wait,
            next: (wait * 2).min(MAX_RETRY_DELAY),
            conflict,
        };
        self.failed.insert(write.name, failed);
        None
    }
}
