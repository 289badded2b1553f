//! Writes the statuses of rule sets. The controller of rule sets computes these statuses. At most
//! eight writes are in flight at the same time, and at most one for each rule set. A failed write
//! is retried after a delay. In a cluster, a write succeeds only if the rule set still has the
//! resourceVersion that the controller has read.
//!
//! Each rule set has a budget of writes. So if another client edits the status of a rule set again
//! and again, the controller repairs this status up to ten times without a delay, and then only
//! once a minute. A new generation of the rule set has the full budget.

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ifo_api::ruleset::OperationRuleSetStatus;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Maximum number of concurrent writes. Further writes wait. The limit prevents a burst of requests
/// when the server starts with many rule sets.
const CONCURRENCY: usize = 8;

/// The full budget of a rule set: the number of its writes that may follow each other without a
/// delay.
const BUDGET: u32 = 10;

/// Time after which the budget of a rule set grows by one write.
const REFILL_PERIOD: Duration = Duration::from_mins(1);

/// Delay after a failed write. Each failure makes a log line.
const RETRY_DELAY: Duration = Duration::from_secs(30);

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// UID of the rule set. A rule set from a file may have no UID.
    pub uid: Option<String>,
    /// The resourceVersion that the rule set must still have. `None` for a rule set from a file.
    pub version: Option<String>,
    /// The new status.
    pub status: OperationRuleSetStatus,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusAnswer {
    /// The status was written, or the rule set was deleted before the write. The value is the new
    /// resourceVersion of the rule set. `None` for a rule set from a file or a deleted rule set.
    Written(Option<String>),
    /// The write has failed and must be retried. For example, the cluster refuses the write if the
    /// rule set has another UID or resourceVersion.
    Failed,
}

/// Writes statuses to the cluster, or to the store of the demo.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes a status. In a cluster, the write has an effect only if the rule set still has the
    /// UID and the resourceVersion in `write`.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, StatusAnswer>;
}

/// The status writes in flight, and the delays of the next ones.
pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    in_flight: FuturesUnordered<BoxFuture<'static, (StatusWrite, StatusAnswer)>>,
    limit: Arc<Semaphore>,
    /// The rule sets with a write in flight.
    writing: HashSet<String>,
    /// For each rule set that has used some of its budget: its generation, and the time at which its
    /// budget is full again.
    refilled: HashMap<String, (Option<i64>, Instant)>,
}

impl StatusWrites {
    pub(super) fn new(sink: Arc<dyn StatusSink>) -> Self {
        Self {
            sink,
            in_flight: FuturesUnordered::new(),
            limit: Arc::new(Semaphore::new(CONCURRENCY)),
            writing: HashSet::new(),
            refilled: HashMap::new(),
        }
    }

    /// Starts these writes, except in two cases:
    ///
    /// - The rule set has a write in flight. Its status must be computed again after this write.
    /// - The rule set has used up its budget.
    ///
    /// The controller calls this method again after some seconds, with the statuses of that time.
    pub(super) fn start_all(&mut self, writes: Vec<StatusWrite>) {
        let now = Instant::now();
        self.refilled.retain(|_, (_, refilled)| *refilled > now);
        for write in writes {
            let full = (write.status.observed_generation, now);
            let budget = self.refilled.entry(write.name.clone()).or_insert(full);
            if budget.0 != full.0 {
                *budget = full;
            }
            let (_, refilled) = budget;
            let has_budget = *refilled <= now + REFILL_PERIOD * (BUDGET - 1);
            if has_budget && !self.writing.contains(&write.name) {
                *refilled += REFILL_PERIOD;
                self.start(write);
            }
        }
    }

    fn start(&mut self, write: StatusWrite) {
        self.writing.insert(write.name.clone());
        let (sink, limit) = (self.sink.clone(), self.limit.clone());
        let written = async move {
            let _permit = limit.acquire().await;
            let answer = sink.write(&write).await;
            (write, answer)
        };
        self.in_flight.push(written.boxed());
    }

    /// Waits until a write has ended. Returns a successful write, with the resourceVersion of the
    /// rule set after the write. Returns `None` if the write has failed. Never returns while no
    /// write is in flight. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(StatusWrite, Option<String>)> {
        let Some((write, answer)) = self.in_flight.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&write.name);
        let StatusAnswer::Written(version) = answer else {
            // With this time, the budget allows exactly one write when the delay is over.
            let refilled = Instant::now() + REFILL_PERIOD * (BUDGET - 1) + RETRY_DELAY;
            let generation = write.status.observed_generation;
            self.refilled.insert(write.name, (generation, refilled));
            return None;
        };
        Some((write, version))
    }
}
