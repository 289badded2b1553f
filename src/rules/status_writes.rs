//! Writes the statuses of rule sets. The controller of rule sets computes these statuses. At most
//! eight writes are in flight at the same time, and at most one for each rule set. A failed write
//! is retried after a delay. In a cluster, a write succeeds only if the rule set still has the
//! resourceVersion that the controller has read.

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

/// The status writes in flight, and the delays of the next ones.
pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    in_flight: FuturesUnordered<BoxFuture<'static, (StatusWrite, StatusAnswer)>>,
    limit: Arc<Semaphore>,
    /// The rule sets with a write in flight.
    writing: HashSet<String>,
    /// The rule sets whose last write has failed or was a repair, by name.
    delays: HashMap<String, WriteDelay>,
}

struct WriteDelay {
    /// The earliest time of the next write.
    until: Instant,
    /// The delay after the next write, if it also fails or is a repair.
    next: Duration,
    /// True if the last write was a repair and succeeded. Then only a repair must wait.
    only_repairs: bool,
}

impl StatusWrites {
    pub(super) fn new(sink: Arc<dyn StatusSink>) -> Self {
        Self {
            sink,
            in_flight: FuturesUnordered::new(),
            limit: Arc::new(Semaphore::new(CONCURRENCY)),
            writing: HashSet::new(),
            delays: HashMap::new(),
        }
    }

    /// Starts these writes. Skips a rule set with a write in flight, because its status must be computed
    /// again after this write. Skips a rule set whose delay has not passed. Returns the time at which
    /// the first of these delays has passed.
    pub(super) fn start_all(&mut self, writes: Vec<StatusWrite>) -> Option<Instant> {
        let now = Instant::now();
        self.delays
            .retain(|_, delay| delay.until + MAX_RETRY_DELAY > now);
        let mut again: Option<Instant> = None;
        for write in writes {
            if self.writing.contains(&write.name) {
                continue;
            }
            let must_wait =
                |delay: &&WriteDelay| delay.until > now && (write.repairs || !delay.only_repairs);
            match self.delays.get(&write.name).filter(must_wait) {
                Some(WriteDelay { until, .. }) => {
                    again = Some(again.map_or(*until, |other| other.min(*until)));
                }
                None => self.start(write),
            }
        }
        again
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

    /// Waits until a write has ended. Returns a successful write, with the
    /// resourceVersion of the rule set after the write. Returns `None` if the write has failed.
    /// Never returns while no write is in flight. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(StatusWrite, Option<String>)> {
        let Some((write, answer)) = self.in_flight.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&write.name);
        let version = match answer {
            StatusAnswer::Written(version) => Some(version),
            StatusAnswer::Conflict | StatusAnswer::Failed => None,
        };
        if version.is_none() || write.repairs {
            let before = self.delays.get(&write.name);
            let wait = before.map_or(FIRST_RETRY_DELAY, |delay| delay.next);
            let delay = WriteDelay {
                until: Instant::now() + wait,
                next: (wait * 2).min(MAX_RETRY_DELAY),
                only_repairs: version.is_some(),
            };
            self.delays.insert(write.name.clone(), delay);
        } else {
            self.delays.remove(&write.name);
        }
        version.map(|version| (write, version))
    }
}
