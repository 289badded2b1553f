//! The optional persistence mode: the leader (the replica that detects operations) writes each
//! operation as a custom resource.
//!
//! The custom resources keep the history of completed operations. If all replicas restart, the new
//! leader restores the operations from the custom resources. A typical operation needs two writes:
//! one at its start and one at its end.
//!
//! ```text
//! index ──Cursor──▶ write_queue (one entry per operation) ──writes──▶ store ──▶ kube-apiserver
//!                     ▲                                                  │
//!                     └────────── results of writes, and lists ──────────┘
//! ```
//!
//! The index has the operations in memory. A cursor delivers the changes of the index in their
//! order, and [`Persist`] passes them to the queue. The index keeps only the latest changes. If the
//! cursor is so slow that it misses changes, the queue receives all operations of the index again.
//!
//! Requests of API clients never wait for persistence. The queue has one small entry for each
//! operation, so it does not grow while the kube-apiserver is slow or unavailable.
//!
//! Each change or deletion is conditional on the resourceVersion that the leader last read or
//! wrote. A creation fails if the name exists. So if a write of a previous leader arrives late, it
//! cannot overwrite a newer state.
//!
//! The leader compares all custom resources with the index at least at these times:
//!
//! - after the first attempt to list each target (a resource that a rule set names)
//! - 65 s after this time
//! - ten minutes after each comparison

mod client;
mod condition;
mod conversion;
mod redacted_failure;
mod store_failure;
mod write_queue;
mod write_rate;
mod written_summary;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fake_cluster;

pub use client::{ClusterStore, FIELD_MANAGER, Pending, Revision, Store, StoredPage};
pub use condition::{PersistVerdict, keep_condition};
pub use conversion::{from_cr, to_cr};
use ifo_api::Text;
pub use redacted_failure::RedactedFailure;
pub use store_failure::StoreFailure;
pub use write_queue::{AtStop, PersistSettings, UnsyncedRuleSets};

use crate::clock;
use crate::index::{self, Cursor, IndexChange, IndexReader, ReadVersion};
use crate::telemetry::PersistenceMetrics;
use condition::WriteMonitor;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use write_queue::{Job, JobResult, ListedResource, Next, Queue, StoredState, WantedState};
use written_summary::WrittenSummary;

/// The time between two updates of the queue metrics. An update is expensive, because it counts all
/// entries of the queue. If the queue has not changed, the update is skipped.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

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
    /// What happens to waiting writes when the task is stopped.
    pub at_stop: AtStop,
    /// The channel on which the task publishes its verdict: operations are written, or writes fail.
    pub verdict: watch::Sender<PersistVerdict>,
}

/// The result of a job, or of a list of all custom resources. A job writes or reads one custom
/// resource.
enum WriteAnswer {
    /// The result of the job for the custom resource with this name.
    Written(Text, Result<JobResult, StoreFailure>),
    /// All custom resources in the cluster.
    Listed(Result<Vec<ListedResource>, StoreFailure>),
}

/// The jobs and lists that are running.
type PendingRequests = FuturesUnordered<BoxFuture<'static, WriteAnswer>>;

impl Persist {
    /// Writes operations until the task is stopped. Then continues for a limited time with the
    /// writes that [`AtStop`] selects.
    pub async fn run(mut self) {
        let mut queue = Queue::new(self.settings, Instant::now());
        // If the unsynced rule sets were published before this task started, the receiver does not
        // report them as a change. Without this call, the first comparison would not run.
        self.unsynced_rule_sets.mark_changed();
        let mut monitor = WriteMonitor::new(self.verdict.clone());
        let mut cursor = self.catch_up(&mut queue);
        let mut requests = PendingRequests::new();
        let mut metrics_timer = tokio::time::interval(METRICS_INTERVAL);
        let mut has_changed = true;
        let mut stop_deadline: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if queue.is_drained() || stop_deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
            let wake = self.start_work(&mut queue, &requests, now);
            let wake = wake.into_iter().chain(stop_deadline).min();
            tokio::select! {
                // The branches are polled in this order. If the index changes constantly, the last
                // branch is never polled. The last branch is only a timer that starts the next
                // iteration. While the index changes, the loop needs no timer, because each change
                // starts an iteration, and each iteration starts the due work.
                biased;
                _ = metrics_timer.tick() => {
                    if std::mem::take(&mut has_changed) {
                        let (length, since) = queue.backlog(now);
                        self.metrics.backlog(length, since.map(Instant::into_std));
                    }
                    continue;
                }
                Some(answer) = requests.next() => self.process_answer(answer, &mut queue, &mut monitor),
                unsynced = next_unsynced_rule_sets(&mut self.unsynced_rule_sets) => queue.set_unsynced_rule_sets(unsynced, Instant::now()),
                () = self.stop.cancelled(), if stop_deadline.is_none() => {
                    // Pass the changes that are already in the index to the queue.
                    while let Some(Ok(changes)) = cursor.next().now_or_never() {
                        queue_changes(&mut queue, &changes);
                    }
                    let now = Instant::now();
                    queue.stop(self.at_stop, now);
                    stop_deadline = Some(now + self.at_stop.limit());
                }
                changes = cursor.next() => match changes {
                    Ok(changes) => queue_changes(&mut queue, &changes),
                    // The cursor was too slow: the index has dropped changes that the cursor has
                    // not read. So the queue receives all operations again.
                    Err(_) => cursor = self.catch_up(&mut queue),
                },
                // `wake` is the time at which the next job or list may start, or the deadline of
                // the stop. If `wake` is None, the loop continues after one second.
                () = tokio::time::sleep_until(wake.unwrap_or(now + METRICS_INTERVAL)) => {}
            }
            has_changed = true;
        }
        let (left, _) = queue.backlog(Instant::now());
        if left > 0 && self.at_stop == AtStop::WriteAll {
            tracing::warn!(left, "the server stops before all waiting writes were sent");
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
            let all = entries.into_iter().filter_map(|entry| {
                let (name, summary) = written_summary::name_and_summary(&entry)?;
                Some((name, entry, summary))
            });
            queue.reset(all.collect(), Instant::now());
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
                    WriteAnswer::Written(job.name, result)
                }
                .boxed(),
                Next::Compare => async move { WriteAnswer::Listed(list(&*store).await) }.boxed(),
                Next::Wait(until) => return until,
            });
        }
    }

    /// Passes the result of a job or of a list to the queue, the metrics and the monitor.
    fn process_answer(&self, answer: WriteAnswer, queue: &mut Queue, monitor: &mut WriteMonitor) {
        let now = Instant::now();
        let failure = match answer {
            WriteAnswer::Listed(Ok(found)) => {
                queue.process_list(found, now);
                return monitor.record_success(|| !queue.has_failing_write());
            }
            WriteAnswer::Listed(Err(failure)) => {
                queue.process_list_failure(&failure, now);
                failure
            }
            WriteAnswer::Written(name, result) => {
                queue.process_result(&name, &result, now);
                match result {
                    Ok(JobResult::Written(found)) => {
                        let verb = if found.is_some() { "apply" } else { "delete" };
                        self.metrics.written(verb);
                        return monitor.record_success(|| !queue.has_refused_write());
                    }
                    // This job only read the custom resource. So its success does not show whether
                    // writes succeed.
                    Ok(JobResult::Read(_)) => {
                        return monitor.record_success(|| !queue.has_failing_write());
                    }
                    Err(failure) => {
                        // `Invalid` concerns only this object. The messages of the monitor do not
                        // contain the name of the object, so this message contains it.
                        if matches!(failure, StoreFailure::Invalid(_)) {
                            tracing::warn!(%name, %failure, "an operation cannot be written");
                        }
                        failure
                    }
                }
            }
        };
        self.metrics.failed(failure.reason());
        monitor.record_failure(&failure, now);
    }
}

/// Passes changes of the index to the queue.
fn queue_changes(queue: &mut Queue, changes: &[IndexChange]) {
    let now = Instant::now();
    for change in changes {
        let before = || {
            change
                .before
                .as_ref()
                .and_then(|it| written_summary::name_and_summary(it))
        };
        if let Some(entry) = &change.after {
            if let Some((name, summary)) = written_summary::name_and_summary(entry) {
                queue.set_live(&name, entry, summary, now);
            }
        } else if let Some((name, _)) = before() {
            queue.set_gone(&name, now);
        }
    }
}

/// Performs one job: sends the requests that bring a custom resource to its wanted state. If the
/// stored state is unknown, the job can end after it has read the custom resource. If a write is
/// still needed, a later job writes the custom resource.
async fn run_job(store: &dyn Store, job: &Job) -> Result<JobResult, StoreFailure> {
    let name = &*job.name;
    match (&job.wanted, &job.stored) {
        (WantedState::Live(entry, summary, _), StoredState::Absent) => {
            let revision = store.create(&written_summary::cr_of(entry)?).await?;
            Ok(JobResult::Written(Some((*summary, revision))))
        }
        (WantedState::Live(entry, summary, _), StoredState::Present(old, revision, _)) => {
            let wanted = written_summary::cr_of(entry)?;
            let mut obsolete = Vec::new();
            // A merge patch removes a label only if the patch names the label. The queue knows only
            // a hash of the label keys. So if this hash has changed, the job reads the custom
            // resource to find the labels that must be removed.
            if old.labels != summary.labels {
                let there = store.get(name).await?.ok_or(StoreFailure::ObjectDeleted)?;
                obsolete = conversion::obsolete_labels(&there, &wanted);
            }
            let patch = conversion::merge_patch(&wanted, revision, &obsolete);
            let revision = store.patch(name, &patch).await?;
            Ok(JobResult::Written(Some((*summary, revision))))
        }
        (WantedState::Live(entry, ..), StoredState::Unknown) => {
            let Some(cr) = store.get(name).await? else {
                return Ok(JobResult::Read(None));
            };
            let live_uid = |cr: &InFlightOperation| Some(cr.status.as_ref()?.live_uid.clone());
            let is_same = live_uid(&cr) == live_uid(&written_summary::cr_of(entry)?);
            let Some(state) = state_of(&cr).filter(|_| is_same) else {
                let why = "another client created a custom resource with the name of this \
                           operation's custom resource";
                return Err(StoreFailure::Invalid(why.into()));
            };
            Ok(JobResult::Read(Some(state)))
        }
        (WantedState::Gone, StoredState::Present(_, revision, _)) => {
            store.delete(name, revision).await?;
            Ok(JobResult::Written(None))
        }
        (WantedState::Gone, _) => Ok(JobResult::Read(
            store.get(name).await?.as_ref().and_then(state_of),
        )),
        (WantedState::Completed, _) => {
            let cr = store.get(name).await?;
            let state = cr.as_ref().and_then(state_of);
            let completed = cr.and_then(|cr| conversion::completed_cr(&cr, clock::now()));
            match (
                state,
                completed.and_then(|cr| Some((WrittenSummary::of(&cr)?, cr))),
            ) {
                (Some((old, revision)), Some((summary, cr))) if old.phase == Phase::Active => {
                    let patch = conversion::merge_patch(&cr, &revision, &[]);
                    let revision = store.patch(name, &patch).await?;
                    Ok(JobResult::Written(Some((summary, revision))))
                }
                (state, _) => Ok(JobResult::Read(state)),
            }
        }
    }
}

/// Returns the summary (the compared fields) and the revision of a custom resource. Returns None if
/// another client created the custom resource.
fn state_of(cr: &InFlightOperation) -> Option<(WrittenSummary, Revision)> {
    conversion::from_cr(cr)?;
    Some((WrittenSummary::of(cr)?, Revision::of(&cr.metadata)?))
}

/// Lists all custom resources that this server has created. Keeps only the fields that the
/// comparison needs.
async fn list(store: &dyn Store) -> Result<Vec<ListedResource>, StoreFailure> {
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let page = store.page("", token.as_deref()).await?;
        all.extend(page.items.iter().filter_map(listed_resource));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    // This function lists the namespaces after the custom resources. So the namespace of each
    // subject (the object of an operation) was created before the list of namespaces. The namespace
    // of a subject was deleted in two cases:
    //
    // - The list of namespaces does not contain the namespace.
    // - The listed namespace was created after the subject was last seen. So it is a new namespace
    //   with the same name.
    //
    // If the namespaces cannot be listed, no namespace counts as deleted.
    match store.namespaces().await {
        Ok(created) => {
            for found in &mut all {
                found.namespace_deleted =
                    found
                        .last_seen_in
                        .as_ref()
                        .is_some_and(|(namespace, seen)| {
                            created
                                .get(&**namespace)
                                .is_none_or(|created| created > seen)
                        });
            }
        }
        Err(error) => tracing::debug!(%error, "the namespaces cannot be listed"),
    }
    Ok(all)
}

/// Returns the fields of a custom resource that the comparison needs. Returns None if another
/// client created the custom resource, because this server never changes such a custom resource.
fn listed_resource(cr: &InFlightOperation) -> Option<ListedResource> {
    let live = conversion::from_cr(cr)?;
    let seen = conversion::subject_last_seen(&live);
    let last_seen_in = live.spec.subject.namespace.zip(seen);
    let name = cr.metadata.name.as_deref()?;
    let mut rule_sets = live.status.detected_by;
    if !rule_sets.contains(&live.spec.rule_set) {
        rule_sets.push(live.spec.rule_set);
    }
    Some(ListedResource {
        name: name.into(),
        revision: Revision::of(&cr.metadata)?,
        summary: WrittenSummary::of(cr)?,
        completed: live.status.completed.map(|time| time.0),
        last_seen_in,
        namespace_deleted: false,
        rule_sets,
    })
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
