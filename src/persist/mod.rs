//! The optional persistence mode: the leader (the replica that detects operations) writes each
//! operation as a custom resource.
//!
//! The custom resources keep the history of completed operations. If all replicas restart, the new
//! leader restores the operations from the custom resources. A typical operation needs two writes:
//! one at its start and one at its end.
//!
//! ```text
//! index ──Cursor──▶ queue (one entry per operation) ──writes──▶ client ──▶ kube-apiserver
//!                     ▲                                            │
//!                     └────────── results of writes, and lists ────┘
//! ```
//!
//! The index has the operations in memory. A cursor delivers the changes of the index in their
//! order, and [`Persist`] passes them to the queue. The index keeps only the latest changes. If the
//! cursor is so slow that it misses changes, the queue receives all operations of the index again.
//!
//! Requests of API clients never wait for persistence. The queue has one small entry for each
//! operation, so it does not grow while the kube-apiserver is slow or unavailable.
//!
//! The leader compares all custom resources with the index at least at these times:
//!
//! - after the first attempt to list each target (a resource that a rule set names)
//! - 65 s after this time
//! - ten minutes after each comparison

mod client;
mod condition;
mod conversion;
mod failure;
mod pace;
mod queue;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fake_cluster;

pub use client::{ClusterStore, FIELD_MANAGER, Pending, Revision, Store, StoredPage};
pub use condition::{PersistVerdict, keep_condition};
pub use conversion::{from_cr, to_cr};
pub use failure::StoreFailure;
pub use queue::{PersistSettings, UnsyncedRuleSets, read_pages};

use crate::index::{self, Cursor, IndexChange, IndexEntry, IndexReader, ReadVersion};
use crate::telemetry::PersistenceMetrics;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::Text;
use ifo_api::live::InFlightOperation;
use queue::{Job, ListedResource, Next, Queue, StoredState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time between two updates of the queue metrics. An update is expensive, because it counts all
/// entries of the queue. If the queue has not changed, the update is skipped.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// The time for which the task continues after the stop, at most. This replica releases the Lease only
/// after the task has ended, so a longer time would delay the failover. The next leader sends the
/// writes that are left.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Writes operations as custom resources.
pub struct Persist {
    /// The operations in the index.
    pub reader: IndexReader,
    /// Sends the requests for custom resources.
    pub store: Arc<dyn Store>,
    /// The settings that decide when and which operations are written.
    pub settings: PersistSettings,
    /// The metrics of persistence mode.
    pub metrics: Arc<PersistenceMetrics>,
    /// The names of the rule sets whose operations can be missing in the index.
    ///
    /// The value is None until each feed (the watch of one target) has listed its target or failed
    /// to list it. Then the value contains the rule sets whose targets are not completely known,
    /// because the list failed or the watch is broken. If an operation of any other rule set is
    /// missing in the index, the operation has ended.
    pub unsynced_rule_sets: watch::Receiver<Option<Arc<UnsyncedRuleSets>>>,
    /// Stops the task.
    pub stop: CancellationToken,
    /// The channel on which the task publishes its verdict: operations are written, or writes fail.
    /// None until a request has succeeded, or requests fail.
    pub verdict: watch::Sender<Option<PersistVerdict>>,
}

/// The result of a job, or of a list of all custom resources.
enum WriteAnswer {
    /// The result of the job: the new revision of the custom resource, or None after a deletion.
    Written(Job, Result<Option<Revision>, StoreFailure>),
    /// All custom resources in the cluster.
    Listed(Result<Vec<ListedResource>, StoreFailure>),
}

/// The jobs and lists that are running.
type PendingRequests = FuturesUnordered<BoxFuture<'static, WriteAnswer>>;

impl Persist {
    /// Writes operations until the task is stopped. Then continues with all waiting writes, as
    /// long as they are sent without delay, for at most `STOP_LIMIT`.
    pub async fn run(mut self) {
        let mut queue = Queue::new(self.settings, Instant::now());
        // If the unsynced rule sets were published before this task started, the receiver does not
        // report them as a change. Without this call, the first comparison would not run.
        self.unsynced_rule_sets.mark_changed();
        let mut cursor = self.catch_up(&mut queue);
        let mut requests = PendingRequests::new();
        let mut metrics_timer = tokio::time::interval(METRICS_INTERVAL);
        let mut has_changed = true;
        let mut stop_deadline: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let wake = self.start_work(&mut queue, &requests, now);
            if stop_deadline.is_some_and(|deadline| now >= deadline || requests.is_empty()) {
                break;
            }
            let wake = wake.into_iter().chain(stop_deadline).min();
            tokio::select! {
                // The branches are polled in this order. If the index changes constantly, the last
                // branch is never polled. The last branch is only a timer that starts the next
                // iteration. While the index changes, each change starts an iteration.
                biased;
                _ = metrics_timer.tick() => {
                    if std::mem::take(&mut has_changed) {
                        let (length, since) = queue.backlog(now);
                        self.metrics.backlog(length, since.map(Instant::into_std));
                    }
                    continue;
                }
                Some(answer) = requests.next() => self.process_answer(answer, &mut queue),
                unsynced = next_unsynced_rule_sets(&mut self.unsynced_rule_sets) => {
                    queue.set_unsynced_rule_sets(unsynced, Instant::now());
                }
                () = self.stop.cancelled(), if stop_deadline.is_none() => {
                    // Pass the changes that are already in the index to the queue.
                    while let Some(Ok(changes)) = cursor.next().now_or_never() {
                        queue_changes(&mut queue, &changes);
                    }
                    let now = Instant::now();
                    queue.stop(now);
                    stop_deadline = Some(now + STOP_LIMIT);
                }
                changes = cursor.next() => match changes {
                    Ok(changes) => queue_changes(&mut queue, &changes),
                    // The index has dropped changes that the cursor has not read.
                    Err(_) => cursor = self.catch_up(&mut queue),
                },
                // `wake` is the time at which the next job or list may start, or the deadline of
                // the stop. If `wake` is None, the loop continues after one second.
                () = tokio::time::sleep_until(wake.unwrap_or(now + METRICS_INTERVAL)) => {}
            }
            has_changed = true;
        }
        // This task sends no more writes, so the metrics must not show a backlog.
        self.metrics.backlog(0, None);
    }

    /// Passes all operations in the index to the queue. Returns a cursor that delivers the later
    /// changes of the index.
    fn catch_up(&self, queue: &mut Queue) -> Cursor {
        loop {
            let Ok((rv, entries)) = self.reader.list(&index::OPERATIONS, ReadVersion::Latest)
            else {
                continue; // A list of the newest version never fails.
            };
            let all = entries.iter().filter_map(|entry| named_operation(entry));
            let all = all.map(|(name, operation)| (name, operation.clone()));
            queue.reset(&all.collect(), Instant::now());
            // `follow` fails if the index has already dropped changes that are newer than this
            // list. Then the loop lists the operations again.
            if let Ok(cursor) = self.reader.follow(rv, index::OPERATIONS) {
                return cursor;
            }
        }
    }

    /// Starts all jobs and lists that are due. Returns the time at which the next job or list may
    /// start. Returns None if no job or list may start before the queue changes.
    fn start_work(
        &self,
        queue: &mut Queue,
        requests: &PendingRequests,
        now: Instant,
    ) -> Option<Instant> {
        loop {
            let store = self.store.clone();
            requests.push(match queue.next(now) {
                Next::StartJob(job) => async move {
                    let result = run_job(&*store, &job).await;
                    WriteAnswer::Written(job, result)
                }
                .boxed(),
                Next::Compare => {
                    async move { WriteAnswer::Listed(queue::list(&*store).await) }.boxed()
                }
                Next::Wait(until) => return until,
            });
        }
    }

    /// Passes the result of a job or of a list to the queue, the metrics and the verdict.
    fn process_answer(&self, answer: WriteAnswer, queue: &mut Queue) {
        let now = Instant::now();
        match answer {
            WriteAnswer::Listed(Ok(found)) => queue.process_list(found, now),
            WriteAnswer::Listed(Err(failure)) => {
                self.metrics.failed(failure.reason());
                queue.process_list_failure(&failure, now);
            }
            WriteAnswer::Written(job, result) => {
                match &result {
                    Ok(revision) => {
                        let verb = if revision.is_some() {
                            "apply"
                        } else {
                            "delete"
                        };
                        self.metrics.written(verb);
                    }
                    Err(failure) => {
                        // `Invalid` concerns only this object. The messages of the verdict do not
                        // contain the name of the object, so this message contains it.
                        if matches!(failure, StoreFailure::Invalid(_)) {
                            tracing::warn!(name = %job.name, %failure, "an operation cannot be written");
                        }
                        self.metrics.failed(failure.reason());
                    }
                }
                queue.process_result(&job, result, now);
            }
        }
        condition::publish(&self.verdict, queue.verdict(now));
    }
}

/// Returns the operation of an index entry, and the name of its custom resource. Returns None if the
/// entry is not an operation. Callers pass only operations, so this does not occur.
fn named_operation(entry: &IndexEntry) -> Option<(Text, &Arc<InFlightOperation>)> {
    let operation = entry.object().operation()?;
    let (name, uid) = (&operation.metadata.name, &operation.metadata.uid);
    Some((conversion::cr_name(name, uid).into(), operation))
}

/// Passes changes of the index to the queue.
fn queue_changes(queue: &mut Queue, changes: &[IndexChange]) {
    let now = Instant::now();
    for change in changes {
        if let Some(entry) = &change.after {
            if let Some((name, operation)) = named_operation(entry) {
                queue.set_live(&name, operation, now);
            }
        } else if let Some((name, _)) = change.before.as_deref().and_then(named_operation) {
            queue.set_gone(&name, now);
        }
    }
}

/// Performs one job. If the stored state is unknown, first reads the revision of the custom resource.
async fn run_job(store: &dyn Store, job: &Job) -> Result<Option<Revision>, StoreFailure> {
    let revision = match &job.stored {
        StoredState::Absent => None,
        StoredState::Unknown => store.get(&job.name).await?,
        StoredState::Present { revision, .. } => Some(revision.clone()),
    };
    if let Some(operation) = &job.wanted {
        let mut cr = to_cr(operation);
        if let Some(revision) = revision {
            cr.metadata.uid = Some(revision.uid);
            cr.metadata.resource_version = Some(revision.resource_version);
        }
        return store.apply(&cr).await.map(Some);
    }
    if let Some(revision) = revision {
        store.delete(&job.name, &revision).await?;
    }
    Ok(None)
}

/// Waits until the set of unsynced rule sets is published for the first time, or changes. Returns
/// the new set. If the sender is dropped, the future never completes.
async fn next_unsynced_rule_sets(
    unsynced_rule_sets: &mut watch::Receiver<Option<Arc<UnsyncedRuleSets>>>,
) -> Arc<UnsyncedRuleSets> {
    loop {
        if unsynced_rule_sets.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(unsynced) = unsynced_rule_sets.borrow_and_update().clone() {
            return unsynced;
        }
    }
}
