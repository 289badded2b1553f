//! Persistence mode, which is optional: writes operations as custom resources.
//!
//! Input: the index, through a cursor. Output: usually two writes per operation.
//!
//! ```text
//! index ──Cursor──▶ queue: wanted and stored state of each ──▶ store ──▶ kube-apiserver
//!           │                ▲                                     │
//!           └ off the ring:  └─────── results · lists, compared ───┘
//!             list, follow again
//! ```
//!
//! Serving never waits for persistence. While the kube-apiserver is slow or unavailable, the queue
//! holds one small record for each operation.
//!
//! Only the leader writes. Every write requires the state that was last read or written, so a late
//! write of a previous leader changes nothing.
//!
//! The custom resources are listed and compared with the index when the targets have been read, 65
//! s later, and then every ten minutes.

mod convert;
mod failure;
mod failure_text;
mod persisted_condition;
mod queue;
mod rate_limit;
mod store;
mod written_summary;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fake;

pub use convert::{from_cr, to_cr};
pub use failure::StoreFailure;
pub use failure_text::FailureText;
pub use persisted_condition::{PersistVerdict, keep_condition};
pub use queue::{AtStop, PersistSettings, UnreadRuleSets};
pub use store::{ClusterStore, FIELD_MANAGER, Pending, Revision, Store, StoredPage};

use crate::clock;
use crate::index::{Cursor, IndexChange, IndexReader, ListScope, ReadVersion};
use crate::telemetry::PersistenceMetrics;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use persisted_condition::WriteMonitor;
use queue::{Job, JobResult, ListedResource, Next, Queue, StoredState, WantedState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use written_summary::WrittenSummary;

/// Interval at which the metrics of the queue are updated, if it has changed. An update counts all
/// records.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// Writes operations as custom resources.
pub struct Persist {
    /// The operations in the index.
    pub reader: IndexReader,
    /// The API of the custom resources.
    pub store: Arc<dyn Store>,
    /// Settings of the queue.
    pub settings: PersistSettings,
    /// The metrics of the queue and its writes.
    pub metrics: Arc<PersistenceMetrics>,
    /// None until the targets have been read after the start or the takeover. Then it has the names
    /// of the rule sets whose operations can still be missing in the index. All other operations
    /// that the index does not have have ended.
    pub settled: watch::Receiver<Option<Arc<UnreadRuleSets>>>,
    /// Stops the task.
    pub stop: CancellationToken,
    /// Treatment of waiting writes at the stop.
    pub at_stop: AtStop,
    /// Receives the verdict if operations are being written.
    pub verdict: watch::Sender<PersistVerdict>,
}

/// An answer to a request.
enum WriteAnswer {
    /// The result of the job for the custom resource with this name.
    Written(Arc<str>, Result<JobResult, StoreFailure>),
    Listed(Result<Vec<ListedResource>, StoreFailure>),
}

/// The running requests.
type PendingRequests = FuturesUnordered<BoxFuture<'static, WriteAnswer>>;

impl Persist {
    /// Runs until it is stopped, and then for the time limit of [`AtStop`].
    pub async fn run(mut self) {
        let mut queue = Queue::new(self.settings, Instant::now());
        // The value may have been set before this task started.
        self.settled.mark_changed();
        let mut judge = WriteMonitor::new(self.verdict.clone());
        let mut cursor = self.catch_up(&mut queue);
        let mut requests = PendingRequests::new();
        let mut measure = tokio::time::interval(METRICS_INTERVAL);
        let mut has_changed = true;
        let mut until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if queue.is_drained() || until.is_some_and(|until| now >= until) {
                break;
            }
            let wake = self.start_work(&mut queue, &requests, now);
            let wake = wake.into_iter().chain(until).min();
            tokio::select! {
                // Changes come last, because there can always be another change.
                biased;
                _ = measure.tick() => {
                    if std::mem::take(&mut has_changed) {
                        let (length, since) = queue.backlog(now);
                        self.metrics.backlog(length, since.map(Instant::into_std));
                    }
                    continue;
                }
                Some(answer) = requests.next() => self.answered(answer, &mut queue, &mut judge),
                unread = settled(&mut self.settled) => queue.settle(unread, Instant::now()),
                () = self.stop.cancelled(), if until.is_none() => {
                    // The last changes before the stop are also written.
                    while let Some(Ok(changes)) = cursor.next().now_or_never() {
                        follow(&mut queue, &changes);
                    }
                    let now = Instant::now();
                    queue.stop(self.at_stop, now);
                    until = Some(now + self.at_stop.limit());
                }
                changes = cursor.next() => match changes {
                    Ok(changes) => follow(&mut queue, &changes),
                    // The cursor fell off the ring, so list and follow again.
                    Err(_) => cursor = self.catch_up(&mut queue),
                },
                // Without a time, the next tick comes first.
                () = tokio::time::sleep_until(wake.unwrap_or(now + METRICS_INTERVAL)) => {}
            }
            has_changed = true;
        }
        let (left, _) = queue.backlog(Instant::now());
        if left > 0 && self.at_stop == AtStop::WriteAll {
            tracing::warn!(left, "not every operation could be written before the end");
        }
        // This process writes nothing more.
        self.metrics.backlog(0, None);
    }

    /// Passes all operations to the queue. Returns a cursor to later changes.
    fn catch_up(&self, queue: &mut Queue) -> Cursor {
        loop {
            let Ok((rv, entries)) = self.reader.list(&ListScope::All, ReadVersion::Latest) else {
                continue; // The newest state is always available.
            };
            let all = entries.into_iter().filter_map(|entry| {
                let (name, summary) = written_summary::name_and_summary(&entry)?;
                Some((name, entry, summary))
            });
            queue.reset(all.collect(), Instant::now());
            // This fails only if the changes since the list fill the whole ring.
            if let Ok(cursor) = self.reader.follow(rv, ListScope::All) {
                return cursor;
            }
        }
    }

    /// Starts all jobs that are due. Returns the due time of the next job.
    fn start_work(
        &self,
        queue: &mut Queue,
        requests: &PendingRequests,
        now: Instant,
    ) -> Option<Instant> {
        loop {
            let store = self.store.clone();
            requests.push(match queue.next(now) {
                Next::Write(job) => async move {
                    let result = perform(&*store, &job).await;
                    WriteAnswer::Written(job.name, result)
                }
                .boxed(),
                Next::Compare => async move { WriteAnswer::Listed(list(&*store).await) }.boxed(),
                Next::Wait(until) => return until,
            });
        }
    }

    fn answered(&self, answer: WriteAnswer, queue: &mut Queue, judge: &mut WriteMonitor) {
        let now = Instant::now();
        let failure = match answer {
            WriteAnswer::Listed(Ok(found)) => {
                queue.compared(found, now);
                return judge.succeeded(|| !queue.is_failing());
            }
            WriteAnswer::Listed(Err(failure)) => {
                queue.not_compared(&failure, now);
                failure
            }
            WriteAnswer::Written(name, result) => {
                queue.done(&name, &result, now);
                match result {
                    Ok(JobResult::Written(found)) => {
                        let verb = if found.is_some() { "apply" } else { "delete" };
                        self.metrics.written(verb);
                        return judge.succeeded(|| !queue.is_refused());
                    }
                    // A read can succeed while writes fail.
                    Ok(JobResult::Read(_)) => return judge.succeeded(|| !queue.is_failing()),
                    Err(failure) => {
                        // This failure is about one object. Other failures are reported by the
                        // verdict.
                        if matches!(failure, StoreFailure::Invalid(_)) {
                            tracing::warn!(%name, %failure, "an operation cannot be written");
                        }
                        failure
                    }
                }
            }
        };
        self.metrics.failed(failure.reason());
        judge.failed(&failure, now);
    }
}

/// Passes changes of the index to the queue.
fn follow(queue: &mut Queue, changes: &[IndexChange]) {
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
                queue.live(&name, entry, summary, now);
            }
        } else if let Some((name, _)) = before() {
            queue.gone(&name, now);
        }
    }
}

/// Performs one job.
async fn perform(store: &dyn Store, job: &Job) -> Result<JobResult, StoreFailure> {
    let name = &*job.name;
    match (&job.wanted, &job.stored) {
        (WantedState::Live(entry, summary, _), StoredState::Absent) => {
            let revision = store.create(&written_summary::cr_of(entry)?).await?;
            Ok(JobResult::Written(Some((*summary, revision))))
        }
        (WantedState::Live(entry, summary, _), StoredState::Present(old, revision, _)) => {
            let wanted = written_summary::cr_of(entry)?;
            let mut gone = Vec::new();
            // The label keys differ, so find the labels that must be removed.
            if old.labels != summary.labels {
                let there = store.get(name).await?.ok_or(StoreFailure::Gone)?;
                gone = convert::gone_labels(&there, &wanted);
            }
            let patch = convert::merge_patch(&wanted, revision, &gone);
            let revision = store.patch(name, &patch).await?;
            Ok(JobResult::Written(Some((*summary, revision))))
        }
        (WantedState::Live(entry, ..), StoredState::Unknown) => {
            let Some(cr) = store.get(name).await? else {
                return Ok(JobResult::Read(None));
            };
            let live_uid = |cr: &InFlightOperation| Some(cr.status.as_ref()?.live_uid.clone());
            let is_same = live_uid(&cr) == live_uid(&written_summary::cr_of(entry)?);
            match state_of(&cr).filter(|_| is_same) {
                Some(state) => Ok(JobResult::Read(Some(state))),
                None => Err(StoreFailure::Invalid("another object has its name".into())),
            }
        }
        (WantedState::Gone, StoredState::Present(_, revision, _)) => {
            store.delete(name, revision).await?;
            Ok(JobResult::Written(None))
        }
        (WantedState::Gone, _) => Ok(JobResult::Read(
            store.get(name).await?.as_ref().and_then(state_of),
        )),
        (WantedState::Ended, _) => {
            let cr = store.get(name).await?;
            let state = cr.as_ref().and_then(state_of);
            let ended = cr.and_then(|cr| convert::ended(&cr, clock::now()));
            match (
                state,
                ended.and_then(|cr| Some((WrittenSummary::of(&cr)?, cr))),
            ) {
                (Some((old, revision)), Some((summary, cr))) if old.phase == Phase::Active => {
                    let patch = convert::merge_patch(&cr, &revision, &[]);
                    let revision = store.patch(name, &patch).await?;
                    Ok(JobResult::Written(Some((summary, revision))))
                }
                (state, _) => Ok(JobResult::Read(state)),
            }
        }
    }
}

/// Returns the state of a custom resource. None if it was not created by us.
fn state_of(cr: &InFlightOperation) -> Option<(WrittenSummary, Revision)> {
    convert::from_cr(cr)?;
    Some((WrittenSummary::of(cr)?, Revision::of(&cr.metadata)?))
}

/// Lists the custom resources page by page. Keeps only the fields that the comparison needs.
async fn list(store: &dyn Store) -> Result<Vec<ListedResource>, StoreFailure> {
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let page = store.page("", token.as_deref()).await?;
        all.extend(page.items.iter().filter_map(found));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    // The namespaces are listed last. A namespace that is missing now existed before.
    match store.namespaces().await {
        Ok(created) => {
            for found in &mut all {
                found.namespace_deleted =
                    found
                        .last_seen_in
                        .as_ref()
                        .is_some_and(|(namespace, seen)| {
                            created.get(namespace).is_none_or(|created| created > seen)
                        });
            }
        }
        Err(error) => tracing::debug!(%error, "the namespaces cannot be listed"),
    }
    Ok(all)
}

/// Returns None if the custom resource was not created by us. Such objects are not changed.
fn found(cr: &InFlightOperation) -> Option<ListedResource> {
    let live = convert::from_cr(cr)?;
    let seen = convert::last_seen(&live);
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

/// Waits until the value is set, or has changed since.
async fn settled(
    settled: &mut watch::Receiver<Option<Arc<UnreadRuleSets>>>,
) -> Arc<UnreadRuleSets> {
    loop {
        if settled.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(unread) = settled.borrow_and_update().clone() {
            return unread;
        }
    }
}
