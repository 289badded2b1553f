//! Optional: operations as real custom resources. Enters: the index, by a cursor like any
//! watcher's. Leaves: two writes for an ordinary operation, by server-side apply.
//!
//! ```text
//! index ──Cursor──▶ queue: newest state of each, what is written ──▶ store ──▶ kube-apiserver
//!           │                ▲                                          │
//!           └ off the ring:  └──────── how it went · a list, compared ──┘
//!             list, go on
//! ```
//!
//! Nothing waits for it: when the kube-apiserver is slow or away, the queue holds one small
//! record for each operation, and serving goes on. What is written is a function of the live
//! object, name included, so a retry, a second replica and a restart change nothing. At the
//! start, after trouble and every ten minutes what is in the cluster is listed and compared,
//! so that nothing is left behind by whoever was killed.

mod convert;
mod explanation;
mod look;
mod pace;
mod queue;
mod store;
mod verdict;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use convert::{ended, from_cr, is_outlived, name_of, to_cr};
pub use explanation::Explanation;
pub use queue::{Settings, Unread};
pub use store::{ClusterStore, FIELD_MANAGER, Failure, NamespacePage, Page, Store};
pub use verdict::{Verdict, keep_condition};

use crate::clock;
use crate::index::{At, Change, Cursor, Entry, Reader, Scope};
use crate::telemetry::PersistenceMetrics;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::live::{Phase, State};
use ifo_api::persisted::InFlightOperation;
use jiff::Timestamp;
use kube::ResourceExt as _;
use look::Look;
use queue::{Done, Found, Job, Next, Queue, Task};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use verdict::Judge;

/// How long the queue may take to empty itself when the server stops. With the 5 s before
/// it, well within the 30 s that a Pod has.
const DRAIN: Duration = Duration::from_secs(10); // As `Persist::stop` says.

/// How often the metrics of the queue are brought up to date: it is counted for that.
const MEASURE: Duration = Duration::from_secs(1);

/// Writes operations as custom resources.
pub struct Persist {
    /// The operations.
    pub reader: Reader,
    /// Where they are written to.
    pub store: Arc<dyn Store>,
    /// How.
    pub settings: Settings,
    /// Metrics.
    pub metrics: Arc<PersistenceMetrics>,
    /// Set once the index holds all that it should after the start, but for operations of
    /// the rule sets that are named; what it does not hold then is over.
    pub settled: watch::Receiver<Option<Arc<Unread>>>,
    /// Ends it, once what waits has been written or 10 s have passed.
    pub stop: CancellationToken,
    /// Tells whether writes succeed.
    pub verdict: watch::Sender<Verdict>,
}

/// The name of what was written, how it went, and by which verb, if it was.
type Writing = BoxFuture<'static, (Arc<str>, Option<&'static str>, Result<Done, Failure>)>;
/// Namespaces, each held once.
type Places = HashSet<Arc<str>>;
type Listing = BoxFuture<'static, Result<Vec<Found>, Failure>>;

/// When to bring the metrics up to date.
struct Measure {
    /// None while nothing has changed since the last time.
    at: Option<Instant>,
    last: Option<Instant>,
}

impl Measure {
    fn due(now: Instant) -> Self {
        Self {
            at: Some(now),
            last: None,
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.at.is_some_and(|at| at <= now);
        if due {
            *self = Self {
                at: None,
                last: Some(now),
            };
        }
        due
    }

    /// Something has changed.
    fn soon(&mut self) {
        let earliest = self.last.map(|last| last + MEASURE);
        self.at = self.at.or(earliest);
    }
}

/// What there is to wait for.
struct Waits {
    cursor: Cursor,
    writes: FuturesUnordered<Writing>,
    listing: Option<Listing>,
}

impl Persist {
    /// Runs until it is stopped and the queue is empty, or has had its time.
    pub async fn run(mut self) {
        let mut queue = Queue::new(self.settings, Instant::now());
        // It may have been set before anybody looked.
        self.settled.mark_changed();
        let mut judge = Judge::new(self.verdict.clone());
        let mut waits = Waits {
            cursor: self.catch_up(&mut queue),
            writes: FuturesUnordered::new(),
            listing: None,
        };
        let mut measure = Measure::due(Instant::now());
        let mut until: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if queue.is_drained() || until.is_some_and(|until| now >= until) {
                break;
            }
            let wake = self.start_work(&mut queue, &mut waits, now);
            if measure.is_due(now) {
                self.measure(&queue, now);
            }
            let wake = wake.into_iter().chain(until).chain(measure.at).min();
            tokio::select! {
                changes = waits.cursor.next() => match changes {
                    Ok(changes) => follow(&mut queue, &changes),
                    // Off the ring: compare and go on.
                    Err(_) => waits.cursor = self.catch_up(&mut queue),
                },
                Some((name, verb, result)) = waits.writes.next() => {
                    queue.done(&name, &result, Instant::now());
                    self.written(&name, verb, &result);
                    judge.written(result.as_ref().err(), queue.is_refused());
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
                    let now = Instant::now();
                    queue.drain(now);
                    until = Some(now + DRAIN);
                }
                () = sleep_until(wake) => {
                    if measure.at == wake {
                        continue; // Nothing has changed but the time.
                    }
                }
            }
            measure.soon();
        }
        let left = queue.backlog(Instant::now()).length;
        if left > 0 {
            tracing::warn!(left, "not every operation could be written before the end");
        }
    }

    /// Tells the queue of everything that is there, and follows from then on.
    fn catch_up(&self, queue: &mut Queue) -> Cursor {
        loop {
            let Ok((rv, entries)) = self.reader.list(&Scope::All, At::Latest) else {
                continue; // The newest state is never gone.
            };
            let all = entries.into_iter().filter_map(|entry| {
                let (name, look) = look::of_entry(&entry)?;
                Some((name.into(), entry, look))
            });
            queue.reset(all.collect(), Instant::now());
            // Only a writer that fills the ring meanwhile makes this fail.
            if let Ok(cursor) = self.reader.follow(rv, Scope::All) {
                return cursor;
            }
        }
    }

    /// Starts what may be started; the time at which there is more.
    fn start_work(&self, queue: &mut Queue, waits: &mut Waits, now: Instant) -> Option<Instant> {
        loop {
            match queue.next(now) {
                Next::Write(job) => waits.writes.push(write(self.store.clone(), job)),
                Next::Compare => waits.listing = Some(list(self.store.clone())),
                Next::Wait(until) => return until,
            }
        }
    }

    fn written(&self, name: &str, verb: Option<&'static str>, result: &Result<Done, Failure>) {
        match result {
            Ok(_) => {
                if let Some(verb) = verb {
                    self.metrics.written(verb);
                }
            }
            Err(failure) => {
                self.metrics.failed(failure.reason());
                // What is about one object; the judge speaks of the rest.
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

/// Tells the queue what changed.
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
        let (verb, result) = match task {
            Task::Apply { entry, look, uid } => {
                (Some("apply"), apply(&*store, &entry, look, uid).await)
            }
            Task::End { doubled } => match end(&*store, &name, doubled).await {
                Ok((verb, done)) => (verb, Ok(done)),
                Err(failure) => (None, Err(failure)),
            },
            Task::Delete { uid } => {
                let deleted = store.delete(&name, uid).await;
                (Some("delete"), deleted.map(|()| Done::Absent))
            }
        };
        (name, verb, result)
    }
    .boxed()
}

async fn apply(
    store: &dyn Store,
    entry: &Entry,
    look: Look,
    uid: Option<Uuid>,
) -> Result<Done, Failure> {
    let cr = look::cr_of(entry);
    let mut cr = cr.ok_or_else(|| Failure::Invalid("the index holds no operation".into()))?;
    cr.metadata.uid = uid.map(|uid| uid.to_string());
    let uid = store.apply(&cr).await?;
    Ok(Done::Applied(look, uid))
}

/// Writes the end of what nobody saw the end of, unless it is written or gone by now; of one
/// that is there twice (`doubled`) none, and it goes.
async fn end(
    store: &dyn Store,
    name: &str,
    doubled: bool,
) -> Result<(Option<&'static str>, Done), Failure> {
    let Some(cr) = store.get(name).await? else {
        return Ok((None, Done::Absent));
    };
    if let Some(look) = Look::of(&cr).filter(|look| look.phase == Phase::Completed) {
        let uid = cr.uid().and_then(|uid| uid.parse().ok());
        return Ok((None, Done::Applied(look, uid)));
    }
    if doubled {
        let uid = cr.uid().and_then(|uid| uid.parse().ok());
        store.delete(name, uid).await?;
        return Ok((Some("delete"), Done::Absent));
    }
    let ended = convert::ended(&cr, clock::now())
        .and_then(|ended| Some((Look::of(&ended)?, ended)))
        .ok_or_else(|| Failure::Invalid("it is not one of ours any more".into()))?;
    let (look, mut ended) = ended;
    // Another server may have seen how it ended, and say so in this very moment.
    ended.metadata.uid = cr.metadata.uid;
    ended.metadata.resource_version = cr.metadata.resource_version;
    let uid = store.apply(&ended).await?;
    Ok((Some("apply"), Done::Applied(look, uid)))
}

/// What is in the cluster, page by page, and nothing kept of it but what decides.
fn list(store: Arc<dyn Store>) -> Listing {
    async move {
        let mut all = Vec::new();
        let mut places = Places::new();
        let mut token: Option<String> = None;
        loop {
            let page = store.page(token.as_deref()).await?;
            all.extend(page.items.iter().filter_map(|cr| found(cr, &mut places)));
            match page.next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        // Only now: what is not there has been there before.
        match since(&*store, &places).await {
            Ok(since) => {
                for found in &mut all {
                    found.outlived = found.place.as_ref().is_some_and(|(namespace, seen)| {
                        since.get(namespace).is_none_or(|since| since > seen)
                    });
                }
            }
            Err(error) => {
                tracing::debug!(%error, "nobody knows which namespaces are gone");
            }
        }
        Ok(all)
    }
    .boxed()
}

/// Since when those of these namespaces are there that are.
async fn since(
    store: &dyn Store,
    places: &Places,
) -> Result<HashMap<Arc<str>, Timestamp>, Failure> {
    let mut there = HashMap::new();
    if places.is_empty() {
        return Ok(there);
    }
    let mut token: Option<String> = None;
    loop {
        let page = store.namespaces(token.as_deref()).await?;
        for (name, since) in page.items {
            if let Some(name) = places.get(&*name) {
                there.insert(name.clone(), since);
            }
        }
        match page.next {
            Some(next) => token = Some(next),
            None => return Ok(there),
        }
    }
}

/// None for one that is not ours: it is left alone.
fn found(cr: &InFlightOperation, places: &mut Places) -> Option<Found> {
    let live = convert::from_cr(cr)?;
    let namespace = live.spec.subject.namespace.as_deref();
    let place = namespace
        .zip(convert::last_seen(&live))
        .map(|(namespace, seen)| {
            let known = places.get(namespace).cloned();
            let namespace = known.unwrap_or_else(|| {
                let new: Arc<str> = namespace.into();
                places.insert(new.clone());
                new
            });
            (namespace, seen)
        });
    let name = cr.metadata.name.as_deref()?;
    let mut rule_sets = live.status.detected_by;
    if !rule_sets.contains(&live.spec.rule_set) {
        rule_sets.push(live.spec.rule_set);
    }
    let own_uid = cr.metadata.uid.as_deref();
    Some(Found {
        name: name.into(),
        uid: own_uid.and_then(|uid| Uuid::parse_str(uid).ok()),
        look: Look::of(cr)?,
        started: live.metadata.creation_timestamp?.0,
        settling: (live.status.state == State::Settling).then_some(live.status.last_detected.0),
        completed: live.status.completed.map(|time| time.0),
        place,
        outlived: false,
        rule_sets,
    })
}

/// The end of the listing, if there is one under way.
async fn listed(listing: &mut Option<Listing>) -> Result<Vec<Found>, Failure> {
    let Some(under_way) = listing else {
        return std::future::pending().await;
    };
    let found = under_way.await;
    *listing = None;
    found
}

/// Ready when it is set, and each time that it changes then.
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
