//! Writes statuses. Enters: the statuses as they should be. Leaves: one write at a time
//! for each rule set, a few in all, and a failed one again after a while.

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
const MAX_RETRY: Duration = Duration::from_mins(5);

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// Name of the rule set.
    pub name: String,
    /// UID of the rule set; those from files may lack one.
    pub uid: Option<String>,
    /// Its status.
    pub status: OperationRuleSetStatus,
}

/// Where statuses go.
pub trait StatusSink: Send + Sync + 'static {
    /// Writes one; false if it has to be tried again.
    fn write<'a>(&'a self, write: &'a StatusWrite) -> BoxFuture<'a, bool>;
}

pub(super) struct StatusWrites {
    sink: Arc<dyn StatusSink>,
    under_way: FuturesUnordered<BoxFuture<'static, (StatusWrite, bool)>>,
    /// Names of those under way.
    writing: HashSet<String>,
    waiting: VecDeque<StatusWrite>,
    /// Names of those that failed: when they may be tried again, and the wait after it.
    failed: HashMap<String, (Instant, Duration)>,
}

impl StatusWrites {
    pub(super) fn new(sink: Arc<dyn StatusSink>) -> Self {
        Self {
            sink,
            under_way: FuturesUnordered::new(),
            writing: HashSet::new(),
            waiting: VecDeque::new(),
            failed: HashMap::new(),
        }
    }

    /// Takes in all that has to be written as of now, in place of what was still waiting.
    /// What cannot be written yet has to be brought again: when the write of the same
    /// rule set has ended, or at the time that is returned.
    pub(super) fn take(&mut self, writes: Vec<StatusWrite>) -> Option<Instant> {
        let now = Instant::now();
        let wanted: HashSet<&str> = writes.iter().map(|write| write.name.as_str()).collect();
        self.failed.retain(|name, _| wanted.contains(name.as_str()));
        self.waiting = writes
            .into_iter()
            .filter(|write| {
                let failed = self.failed.get(&write.name);
                !self.writing.contains(&write.name) && failed.is_none_or(|(at, _)| *at <= now)
            })
            .collect();
        self.start();
        let again = self.failed.values().map(|(at, _)| *at);
        again.filter(|at| *at > now).min()
    }

    fn start(&mut self) {
        while self.under_way.len() < CONCURRENCY
            && let Some(write) = self.waiting.pop_front()
        {
            self.writing.insert(write.name.clone());
            let sink = self.sink.clone();
            let written = async move {
                let written = sink.write(&write).await;
                (write, written)
            };
            self.under_way.push(written.boxed());
        }
    }

    /// The next write that ended, None if it failed. Pending while there is none to wait
    /// for. Loses nothing when dropped.
    pub(super) async fn next(&mut self) -> Option<StatusWrite> {
        let Some((write, written)) = self.under_way.next().await else {
            return std::future::pending().await;
        };
        self.writing.remove(&write.name);
        self.start();
        if written {
            self.failed.remove(&write.name);
            return Some(write);
        }
        let wait = self
            .failed
            .get(&write.name)
            .map_or(RETRY, |(_, wait)| *wait);
        let next = (wait * 2).min(MAX_RETRY);
        self.failed
            .insert(write.name, (Instant::now() + wait, next));
        None
    }
}
