//! Writes the statuses of rule sets. The controller of rule sets computes these statuses. At most
//! eight writes are in flight at the same time, and at most one for each rule set. A failed write
//! is retried after a delay. In a cluster, a write succeeds only if the rule set still has the
//! resourceVersion that the controller has read.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::ruleset::OperationRuleSetStatus;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of concurrent writes. Further writes wait. The limit prevents a burst of requests
/// when the server starts with many rule sets.
const CONCURRENCY: usize = 8;

/// Delay after the first failed write. The delay doubles with each further failure, up to
/// [`MAX_RETRY_DELAY`].
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum delay after a failed write. Each failure makes a log line. If the server has no
/// permission to write statuses, this delay keeps the number of log lines low.
///
/// If another client edits a status again and again, the controller repairs the status with the
/// same delays: first 5 s, then twice the previous delay, up to this maximum.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// UID of the rule set. A rule set from a file may have no UID.
    pub uid: Option<String>,
    /// The resourceVersion that the rule set must still have. `None` for a rule set from a file.
    pub version: Option<String>,
    /// True if this status replaces a status that another client has edited.
    pub repairs: bool,
    /// The new status.
    pub status: OperationRuleSetStatus,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusAnswer {
    /// The status was written, or the rule set was deleted before the write. The value is the new
    /// resourceVersion of the rule set. `None` for a rule set from a file or a deleted rule set.
    Written(Option<String>),
    /// The cluster has refused the write, because the rule set has another UID or resourceVersion.
    Conflict,
    /// The write has failed and must be retried.
    Failed,
}

/// Writes statuses to the cluster, or to the store of the demo.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes a status. In a cluster, the write has an effect only if the rule set still has the
    /// UID and the resourceVersion in `write`.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer>;
}

/// The queue of status writes.
pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    in_flight: FuturesUnordered<BoxFuture<'static, (StatusWrite, StatusAnswer)>>,
    /// The rule sets with a write in flight.
    writing: HashSet<String>,
    waiting: VecDeque<StatusWrite>,
    /// The rule sets whose last write has failed, by name.
    failed: HashMap<String, FailedWrite>,
    /// The rule sets whose status the controller has repaired, because another client had edited
    /// the status. The key is the name of the rule set. The value is the earliest time of the next
    /// repair, and the delay after that repair.
    repaired: HashMap<String, (Instant, Duration)>,
}

struct FailedWrite {
    /// The earliest time of the next attempt.
    retry_at: Instant,
    /// The delay after that attempt, if it fails too.
    next_delay: Duration,
    /// The resourceVersion in the failed write. A write with another resourceVersion need not wait
    /// until `retry_at`. `None` if every write must wait, in two cases:
    ///
    /// - The failure was no conflict.
    /// - At least two consecutive writes have failed.
    conflict_version: Option<String>,
}

impl StatusWrites {
    pub(super) fn new(sink: Arc<dyn StatusSink>) -> Self {
        Self {
            sink,
            in_flight: FuturesUnordered::new(),
            writing: HashSet::new(),
            waiting: VecDeque::new(),
            failed: HashMap::new(),
            repaired: HashMap::new(),
        }
    }

    /// Replaces all waiting writes. A write in `writes` is ignored in two cases:
    ///
    /// - Another write of the same rule set is in flight. The caller must pass the ignored write
    ///   again when the other write has ended.
    /// - The delay after a failed write or after a repair is not over. The caller must pass the
    ///   ignored write again after the delay.
    ///
    /// Returns the time at which the first of these delays ends. `None` if no write waits for a
    /// delay.
    pub(super) fn replace_waiting(&mut self, writes: Vec<StatusWrite>) -> Option<Instant> {
        let now = Instant::now();
        let wanted: HashSet<&str> = writes.iter().map(|write| write.name.as_str()).collect();
        self.failed.retain(|name, _| wanted.contains(name.as_str()));
        // If the controller repairs nothing in the five minutes after the time in an entry, the
        // entry is removed. Then the controller repairs the next edit at once.
        self.repaired
            .retain(|_, (at, _)| *at + MAX_RETRY_DELAY > now);
        self.waiting.clear();
        let mut again: Option<Instant> = None;
        for write in writes {
            if self.writing.contains(&write.name) {
                continue;
            }
            match self.earliest_start(&write).filter(|at| *at > now) {
                Some(at) => again = Some(again.map_or(at, |other| other.min(at))),
                None => self.waiting.push_back(write),
            }
        }
        self.start();
        again
    }

    /// Returns the earliest time at which this write may start. Returns `None` if the write need
    /// not wait.
    fn earliest_start(&self, write: &StatusWrite) -> Option<Instant> {
        let failed = self.failed.get(&write.name).filter(|failed| {
            failed.conflict_version.is_none()
                || failed.conflict_version.as_ref() == write.version.as_ref()
        });
        let repaired = self.repaired.get(&write.name).filter(|_| write.repairs);
        failed
            .map(|failed| failed.retry_at)
            .max(repaired.map(|(at, _)| *at))
    }

    fn start(&mut self) {
        while self.in_flight.len() < CONCURRENCY
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
            self.in_flight.push(written.boxed());
        }
    }

    /// Waits for the end of a write. Returns the write and the new resourceVersion of the rule set,
    /// or `None` if the write has failed. While no write is in flight, the future stays pending.
    /// The future is cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(StatusWrite, Option<String>)> {
        let Some((write, answer)) = self.in_flight.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&write.name);
        self.start();
        if let StatusAnswer::Written(version) = answer {
            self.failed.remove(&write.name);
            return Some((write, version));
        }
        let before = self.failed.get(&write.name);
        let wait = before.map_or(FIRST_RETRY_DELAY, |failed| failed.next_delay);
        // After the first conflict, a write with another resourceVersion may start at once. After
        // two consecutive failures, every write waits. Without this rule, a client that constantly
        // changes the rule set could cause a conflict for each of its changes.
        let conflict_version = (answer == StatusAnswer::Conflict && before.is_none())
            .then(|| write.version.clone())
            .flatten();
        let failed = FailedWrite {
            retry_at: Instant::now() + wait,
            next_delay: (wait * 2).min(MAX_RETRY_DELAY),
            conflict_version,
        };
        self.failed.insert(write.name, failed);
        None
    }
}
