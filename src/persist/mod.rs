//! Optional: writes operations as custom resources. Enters: the index, through a cursor.
//! Leaves: two writes for an ordinary operation.
//!
//! ```text
//! index ──Cursor──▶ queue: wanted and stored state of each ──▶ store ──▶ kube-apiserver
//!           │                ▲                                     │
//!           └ off the ring:  └─────── results · lists, compared ───┘
//!             list, follow again
//! ```
//!
//! Serving never waits for persistence. While the kube-apiserver is slow or unavailable, the
//! queue holds one small record for each operation. Only the leader writes, and every write
//! is conditional on the state that was last read or written, so a late write of a previous
//! leader changes nothing. At the start, 65 s later, after trouble and every ten minutes, the
//! custom resources are listed and compared with the index.

mod convert;
mod explanation;
mod look;
mod pace;
mod queue;
mod store;
mod verdict;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::fake;

pub use convert::{ended, from_cr, is_outlived, name_of, to_cr};
pub use explanation::Explanation;
pub use queue::{AtStop, Settings, Unread};
pub use store::{ClusterStore, FIELD_MANAGER, Failure, Page, Pending, Revision, Store};
pub use verdict::{Verdict, keep_condition};

use crate::clock;
use crate::index::{At, Change, Cursor, Entry, Reader, Scope};
use crate::telemetry::PersistenceMetrics;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::live::Phase;
use ifo_api::persisted::InFlightOperation;
use look::Look;
use queue::{Done, Found, Job, Next, Queue, Task};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdict::Judge;

/// How often the metrics of the queue are updated, if it has changed. An update counts all
/// records.
const MEASURE: Duration = Duration::from_secs(1);

/// Writes operations as custom resources.
pub struct Persist {
    /// The operations in the index.
    pub reader: Reader,
    /// The API of the custom resources.
    pub store: Arc<dyn Store>,
    /// When and what to write.
    pub settings: Settings,
    /// The metrics of the queue and its writes.
    pub metrics: Arc<PersistenceMetrics>,
    /// None until the targets have been read after the start or the takeover. Then it has the
    /// names of the rule sets whose operations the index may still lack. All other operations
    /// that the index does not hold have ended.
    pub settled: watch::Receiver<Option<Arc<Unread>>>,
    /// Stops it.
    pub stop: CancellationToken,
    /// What happens then to the writes that wait.
    pub at_stop: AtStop,
    /// Receives whether writes succeed.
    pub verdict: watch::Sender<Verdict>,
}

/// The name of the custom resource, and the result of the job.
type Writing = BoxFuture<'static, (Arc<str>, Result<Done, Failure>)>;
type Listing = Pending<'static, Vec<Found>>;

/// The events that the loop waits for.
struct Waits {
    cursor: Cursor,
    writes: FuturesUnordered<Writing>,
    listing: Option<Listing>,
}

impl Persist {
    /// Runs until it is stopped, and then as long as [`AtStop`] says.
    pub async fn run(mut self) {
        let mut queue = Queue::new(self.settings, Instant::now());
        // It may have been set before this task started.
        self.settled.mark_changed();
        let mut judge = Judge::new(self.verdict.clone());
        let mut waits = Waits {
            cursor: self.catch_up(&mut queue),
            writes: FuturesUnordered::new(),
            listing: None,
        };
        let mut measure = tokio::time::interval(MEASURE);
        let mut has_changed = true;
        let mut until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if queue.is_drained() || until.is_some_and(|until| now >= until) {
                break;
            }
            let wake = self.start_work(&mut queue, &mut waits, now);
            let wake = wake.into_iter().chain(until).min();
            tokio::select! {
                // Changes come last: there can always be another one.
                biased;
                _ = measure.tick() => {
                    if std::mem::take(&mut has_changed) {
                        self.measure(&queue, now);
                    }
                    continue;
                }
                Some((name, result)) = waits.writes.next() => {
                    queue.done(&name, &result, Instant::now());
                    self.written(&name, &result);
                    match &result {
                        // A read can succeed while writes are refused.
                        Ok(Done::Read(_)) => judge.listed(None, false),
                        _ => judge.written(result.as_ref().err(), queue.is_refused()),
                    }
                }
                found = listed(&mut waits.listing) => {
                    let now = Instant::now();
                    match found {
                        Ok(found) => {
                            queue.compared(found, now);
                            judge.listed(None, queue.backlog(now).length == 0);
                        }
                        Err(failure) => {
                            judge.listed(Some(&failure), false);
                            self.metrics.failed(failure.reason());
                            queue.not_compared(&failure, now);
                        }
                    }
                }
                unread = settled(&mut self.settled) => queue.settle(unread, Instant::now()),
                () = self.stop.cancelled(), if until.is_none() => {
                    // The last changes before the stop are to be written too.
                    while let Some(Ok(changes)) = waits.cursor.next().now_or_never() {
                        follow(&mut queue, &changes);
                    }
                    let now = Instant::now();
                    queue.stop(self.at_stop, now);
                    until = Some(now + self.at_stop.limit());
                }
                changes = waits.cursor.next() => match changes {
                    Ok(changes) => follow(&mut queue, &changes),
                    // The cursor fell off the ring: list, and follow again.
                    Err(_) => waits.cursor = self.catch_up(&mut queue),
                },
                () = sleep_until(wake) => {}
            }
            has_changed = true;
        }
        let left = queue.backlog(Instant::now()).length;
        if left > 0 && self.at_stop == AtStop::WriteAll {
            tracing::warn!(left, "not every operation could be written before the end");
        }
        // This process writes nothing more.
        self.metrics.backlog(0, None);
    }

    /// Passes all operations to the queue, and returns a cursor to the changes after them.
    fn catch_up(&self, queue: &mut Queue) -> Cursor {
        loop {
            let Ok((rv, entries)) = self.reader.list(&Scope::All, At::Latest) else {
                continue; // The newest state is always available.
            };
            let all = entries.into_iter().filter_map(|entry| {
                let (name, look) = look::of_entry(&entry)?;
                Some((name.into(), entry, look))
            });
            queue.reset(all.collect(), Instant::now());
            // This fails only if the changes since the list fill the whole ring.
            if let Ok(cursor) = self.reader.follow(rv, Scope::All) {
                return cursor;
            }
        }
    }

    /// Starts all jobs that are due. Returns the time at which the next one is.
    fn start_work(&self, queue: &mut Queue, waits: &mut Waits, now: Instant) -> Option<Instant> {
        loop {
            match queue.next(now) {
                Next::Write(job) => waits.writes.push(write(self.store.clone(), job)),
                Next::Compare => waits.listing = Some(list(self.store.clone())),
                Next::Wait(until) => return until,
            }
        }
    }

    fn written(&self, name: &str, result: &Result<Done, Failure>) {
        match result {
            Ok(Done::Written(..)) => self.metrics.written("apply"),
            Ok(Done::Deleted) => self.metrics.written("delete"),
            Ok(Done::Read(_)) => {}
            Err(failure) => {
                self.metrics.failed(failure.reason());
                // This failure is about one object. The judge reports the others.
                if matches!(failure, Failure::Invalid(_)) {
                    tracing::warn!(name, %failure, "an operation cannot be written");
                }
            }
        }
    }

    fn measure(&self, queue: &Queue, now: Instant) {
        let backlog = queue.backlog(now);
        self.metrics
            .backlog(backlog.length, backlog.since.map(Instant::into_std));
    }
}

/// Passes changes of the index to the queue.
fn follow(queue: &mut Queue, changes: &[Change]) {
    let now = Instant::now();
    for change in changes {
        let state = |entry: &Arc<Entry>| look::of_entry(entry);
        if let Some(entry) = &change.after {
            if let Some((name, look)) = state(entry) {
                queue.live(&name.into(), entry, look, now);
            }
        } else if let Some((name, _)) = change.before.as_ref().and_then(state) {
            queue.gone(&name.into(), now);
        }
    }
}

/// Does one job.
fn write(store: Arc<dyn Store>, job: Job) -> Writing {
    async move {
        let Job { name, task } = job;
        let result = perform(&*store, &name, task).await;
        (name, result)
    }
    .boxed()
}

async fn perform(store: &dyn Store, name: &str, task: Task) -> Result<Done, Failure> {
    match task {
        Task::Create { entry, look } => {
            let revision = store.create(&wanted(&entry)?).await?;
            Ok(Done::Written(look, revision))
        }
        Task::Change {
            entry,
            look,
            revision,
            relabels,
        } => {
            let wanted = wanted(&entry)?;
            let gone = if relabels {
                let there = store.get(name).await?;
                let there = there.ok_or(Failure::Gone)?;
                convert::gone_labels(&there, &wanted)
            } else {
                Vec::new()
            };
            let patch = convert::merge_patch(&wanted, &revision, &gone);
            let revision = store.patch(name, &patch).await?;
            Ok(Done::Written(look, revision))
        }
        Task::End => end(store, name).await,
        Task::Delete { revision } => {
            store.delete(name, &revision).await?;
            Ok(Done::Deleted)
        }
        Task::Read { entry } => {
            let Some(cr) = store.get(name).await? else {
                return Ok(Done::Read(None));
            };
            let state = state_of(&cr);
            let Some(entry) = entry else {
                return Ok(Done::Read(state));
            };
            let wanted = wanted(&entry)?;
            let live_uid = |cr: &InFlightOperation| Some(cr.status.as_ref()?.live_uid.clone());
            let state = state.filter(|_| live_uid(&cr) == live_uid(&wanted));
            let other = || Failure::Invalid("another object has its name".into());
            state.map(|it| Done::Read(Some(it))).ok_or_else(other)
        }
    }
}

/// Writes the end of an operation that ended unobserved, if its custom resource is Active.
async fn end(store: &dyn Store, name: &str) -> Result<Done, Failure> {
    let cr = store.get(name).await?;
    let Some((cr, (look, revision))) = cr.and_then(|cr| state_of(&cr).map(|it| (cr, it))) else {
        return Ok(Done::Read(None));
    };
    let ended = convert::ended(&cr, clock::now());
    let ended = ended.and_then(|ended| Some((Look::of(&ended)?, ended)));
    match ended.filter(|_| look.phase == Phase::Active) {
        Some((look, ended)) => {
            let patch = convert::merge_patch(&ended, &revision, &[]);
            let revision = store.patch(name, &patch).await?;
            Ok(Done::Written(look, revision))
        }
        None => Ok(Done::Read(Some((look, revision)))),
    }
}

/// The state of a custom resource. None if it is not ours.
fn state_of(cr: &InFlightOperation) -> Option<(Look, Revision)> {
    convert::from_cr(cr)?;
    Some((Look::of(cr)?, Revision::of(&cr.metadata)?))
}

/// The custom resource as the index has the operation.
fn wanted(entry: &Entry) -> Result<InFlightOperation, Failure> {
    let none = || Failure::Invalid("the index holds no operation".into());
    look::cr_of(entry).ok_or_else(none)
}

/// Lists the custom resources page by page, and keeps only what decides about each of them.
fn list(store: Arc<dyn Store>) -> Listing {
    async move {
        let (mut all, mut token) = (Vec::new(), None);
        loop {
            let page = store.page("", token.as_deref()).await?;
            all.extend(page.items.iter().filter_map(found));
            token = page.next;
            if token.is_none() {
                break;
            }
        }
        if all.iter().all(|found| found.place.is_none()) {
            return Ok(all);
        }
        // The namespaces are listed last: one that is missing now was there before.
        match store.namespaces().await {
            Ok(created) => {
                for found in &mut all {
                    found.outlived = found.place.as_ref().is_some_and(|(namespace, seen)| {
                        created.get(namespace).is_none_or(|created| created > seen)
                    });
                }
            }
            Err(error) => tracing::debug!(%error, "the namespaces cannot be listed"),
        }
        Ok(all)
    }
    .boxed()
}

/// None if the custom resource is not ours: it is left alone.
fn found(cr: &InFlightOperation) -> Option<Found> {
    let live = convert::from_cr(cr)?;
    let seen = convert::last_seen(&live);
    let place = live.spec.subject.namespace.zip(seen);
    let name = cr.metadata.name.as_deref()?;
    let mut rule_sets = live.status.detected_by;
    if !rule_sets.contains(&live.spec.rule_set) {
        rule_sets.push(live.spec.rule_set);
    }
    Some(Found {
        name: name.into(),
        revision: Revision::of(&cr.metadata)?,
        look: Look::of(cr)?,
        completed: live.status.completed.map(|time| time.0),
        place,
        outlived: false,
        rule_sets,
    })
}

/// Waits for the end of the listing. Waits forever if there is none.
async fn listed(listing: &mut Option<Listing>) -> Result<Vec<Found>, Failure> {
    let Some(under_way) = listing else {
        return std::future::pending().await;
    };
    let found = under_way.await;
    *listing = None;
    found
}

/// Waits until the value is set, or has changed since.
async fn settled(settled: &mut watch::Receiver<Option<Arc<Unread>>>) -> Arc<Unread> {
    loop {
        if settled.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        if let Some(unread) = settled.borrow_and_update().clone() {
            return unread;
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
