//! Answers watch requests. The store keeps the latest changes in a ring
//! buffer. Each watch has a cursor, which is its position in the ring buffer. The watch sends the
//! changes after its cursor as a streamed body.
//!
//! A watch has no queue of events. If a client is slow, its cursor falls behind. When the ring
//! buffer no longer has the next change for this client, the client gets a 410.
//!
//! Initial events contain the objects that exist when the watch starts. A watch keeps these objects
//! in memory until it has sent them. If the client reads the initial events too slowly, the watch
//! ends. A watch also keeps one chunk of its body in memory.

mod plan;

use self::plan::{WatchPlan, WatchStart};
use super::list::FRESHNESS_TIMEOUT;
use crate::auth::ResourceAttributes;
use crate::serve::REQUEST_TIMEOUT;
use crate::serve::answer::encoder::{Encoder, VersionedEntry};
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::answer::responses::json;
use crate::serve::hooks::Hooks;
use crate::serve::request::Query;
use crate::serve::request::list_options::Options;
use crate::serve::request::negotiation::{ObjectForm, negotiate};
use crate::serve::request::selectors::Selector;
use crate::serve::resource::Resource;
use crate::store::{Change, Cursor, Entry, Rv, Scope};
use crate::{Model, clock};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Interval of bookmarks. The kube-apiserver has an interval of about a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Time before the end of a watch at which the last bookmark is sent. The client can start its next
/// watch at the version of this bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Size in bytes after which a chunk of initial events ends: one HTTP/2 frame. Chunks are small,
/// because each watch can have an unread chunk in memory.
const CHUNK: usize = 16 << 10;

/// Answers a watch request. Cancelling `stop` ends the watch without an error. `peer` has the hooks of
/// the server if the client is another replica. Then a watch without initial events begins with a
/// bookmark, which confirms that this server has the requested version.
pub fn watch<M: Model>(
    resource: &Arc<Resource<M>>,
    request: &ResourceAttributes,
    query: &Query,
    headers: &HeaderMap,
    (stop, peer): (CancellationToken, Option<&dyn Hooks>),
) -> Result<Response, ErrorStatus> {
    let form = negotiate(headers, query)?;
    // As in the kube-apiserver, a request for a deprecated path with `/watch/` has the options of a
    // list. If the query also has the option `watch`, the request has the options of a watch.
    let by_path = request.legacy_watch && !query.flag("watch");
    let options = Options::of(query, resource, !by_path)?;
    let plan = WatchPlan::of(query, &options, by_path)?;
    let mut selector = options.selector;
    if !request.name.is_empty() {
        selector.require_name(&request.name)?;
    }
    let mut scope = selector.scope(&request.namespace, resource);
    if let Some(hooks) = peer {
        scope = hooks.scope_of_peer(&resource.info, scope);
    }
    let now = Instant::now();
    let mut watcher = Watcher {
        resource: Arc::clone(resource),
        form,
        selector,
        scope,
        deadline: now + plan.duration,
        bookmark_at: None,
        columns_sent: false,
        // A watch with a duration of zero sends no events. The timer for the end of the watch would
        // fire too late, after the first events. So such a watch begins with its last step.
        step: if plan.duration.is_zero() {
            WatchStep::Over
        } else {
            WatchStep::Start(plan.start)
        },
        plan,
        is_from_replica: peer.is_some(),
        stop,
    };
    watcher.bookmark_at = watcher.next_bookmark_time(now);
    let stream = futures::stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), watcher))
    });
    Ok(json(Body::from_stream(stream)))
}

/// The state of one watch.
struct Watcher<M: Model> {
    resource: Arc<Resource<M>>,
    form: ObjectForm,
    selector: Selector<M>,
    scope: Scope,
    plan: WatchPlan,
    /// The time at which the watch ends.
    deadline: Instant,
    /// The time of the next bookmark. None if no further bookmark is due.
    bookmark_at: Option<Instant>,
    /// True if an event with the column definitions of a table has been sent.
    columns_sent: bool,
    step: WatchStep<M>,
    /// True if the client is another replica.
    is_from_replica: bool,
    stop: CancellationToken,
}

/// The next step of a watch.
enum WatchStep<M: Model> {
    /// The watch has not started yet.
    Start(WatchStart),
    /// The watch sends initial events.
    Initial(InitialEvents<M>),
    /// The watch sends changes.
    Live(Cursor<M>),
    /// The watch has ended.
    Over,
}

/// The state that is sent as initial events.
struct InitialEvents<M: Model> {
    /// The objects that have not been sent yet.
    entries: std::vec::IntoIter<Arc<Entry<M>>>,
    /// The cursor at the version of the state. After the initial events, the watch continues from
    /// this cursor.
    cursor: Cursor<M>,
    /// The time until which the initial events must be sent: one minute after the start, as for
    /// reading a list. Without this limit, a slow watch would keep objects in memory that have been
    /// replaced. The watch checks the limit only when the connection asks for more data.
    until: Instant,
}

impl<M: Model> Watcher<M> {
    /// Returns the next bytes of the body. Returns None at the end of the watch.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match std::mem::replace(&mut self.step, WatchStep::Over) {
                WatchStep::Over => return None,
                WatchStep::Start(start) => {
                    let stop = self.stop.clone();
                    // The start of a watch may wait until the store reaches the requested version.
                    // After `FRESHNESS_TIMEOUT`, the client gets an error. As in the
                    // kube-apiserver, the client gets the error even if the watch should have ended
                    // earlier.
                    let started = tokio::select! {
                        biased;
                        () = stop.cancelled() => return None,
                        started = self.start(start) => started,
                    };
                    match started {
                        Ok(step) => {
                            let mut first = Vec::new();
                            if let WatchStep::Live(cursor) = &step
                                && self.is_from_replica
                            {
                                self.write_bookmark(cursor.rv(), false, &mut first);
                            }
                            self.step = step;
                            first.into()
                        }
                        Err(failure) => error_event(&failure),
                    }
                }
                WatchStep::Initial(initial) => {
                    let is_late = Instant::now() >= initial.until.min(self.deadline);
                    // If the client reads the initial events too slowly, the watch ends without an
                    // error, as in the kube-apiserver. The client has not received the bookmark
                    // after the initial events. So the client knows that the initial events are
                    // incomplete, and sends a new request.
                    if is_late || self.stop.is_cancelled() {
                        return None;
                    }
                    self.next_initial_events(initial).await.into()
                }
                WatchStep::Live(cursor) => self.next_live_events(cursor).await?,
            };
            if !chunk.is_empty() {
                return Some(chunk);
            }
        }
    }

    /// Starts the watch. Returns the step in which the watch sends its first event.
    async fn start(&self, start: WatchStart) -> Result<WatchStep<M>, ErrorStatus> {
        let reader = &self.resource.reader;
        let gone = |gone: crate::store::VersionUnavailable| {
            ErrorStatus::watch_too_old(gone.asked.0, gone.oldest.0)
        };
        match start {
            WatchStart::After(rv) => {
                // If the store does not reach the version in time, the leader that issued the
                // version may have crashed. Then changes up to this version may be lost, so the
                // client must list again. Clients list again after a 410, but not after a 504.
                if !reader.wait_until_reached(rv, FRESHNESS_TIMEOUT).await {
                    return Err(ErrorStatus::watch_too_old(rv.0, reader.oldest().0));
                }
                reader
                    .follow(rv, self.scope.clone())
                    .map(WatchStep::Live)
                    .map_err(gone)
            }
            WatchStart::Now => Ok(WatchStep::Live(reader.follow_newest(self.scope.clone()))),
            WatchStart::State(at_least) => {
                if let Some(rv) = at_least
                    && !reader.wait_until_reached(rv, FRESHNESS_TIMEOUT).await
                {
                    return Err(ErrorStatus::version_not_reached(rv.0, reader.head().0));
                }
                let (entries, cursor) = reader.list_and_follow(self.scope.clone());
                Ok(WatchStep::Initial(InitialEvents {
                    entries: entries.into_iter(),
                    cursor,
                    until: Instant::now() + REQUEST_TIMEOUT,
                }))
            }
        }
    }

    /// Returns the next initial events. The function returns when a chunk is full, or after it has
    /// paused to let other requests run. The result can be empty.
    async fn next_initial_events(&mut self, mut initial: InitialEvents<M>) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = initial.entries.next() else {
                if self.plan.bookmarks && self.plan.marks_initial_end {
                    self.write_bookmark(initial.cursor.rv(), true, &mut out);
                }
                self.step = WatchStep::Live(initial.cursor);
                return out;
            };
            if self.selector.matches(&entry) {
                self.write_event("ADDED", VersionedEntry::at_own_version(&entry), &mut out);
            }
            consume_budget().await;
        }
        self.step = WatchStep::Initial(initial);
        out
    }

    /// Waits for changes or for the time of a bookmark, and returns the events. The result is empty
    /// if no change matches the selector. Returns None if the watch has ended.
    async fn next_live_events(&mut self, mut cursor: Cursor<M>) -> Option<Bytes> {
        let out;
        let bookmark_at = self.bookmark_at;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            () = sleep_until(self.deadline) => return None,
            () = async { sleep_until(bookmark_at.unwrap_or(self.deadline)).await },
                if bookmark_at.is_some() =>
            {
                self.bookmark_at = self.next_bookmark_time(Instant::now());
                let mut line = Vec::new();
                self.write_bookmark(cursor.rv(), false, &mut line);
                out = line.into();
            }
            changes = cursor.next() => match changes {
                Ok(changes) => {
                    let mut events = Vec::new();
                    for change in &changes {
                        self.write_change(change, &mut events);
                        consume_budget().await;
                    }
                    out = events.into();
                }
                Err(gone) => {
                    let failure = ErrorStatus::watch_too_old(gone.asked.0, gone.oldest.0);
                    return Some(error_event(&failure));
                }
            },
        }
        self.step = WatchStep::Live(cursor);
        Some(out)
    }

    /// Writes the event for a change. Writes nothing if the object matches the selector of this
    /// watch neither before nor after the change. The event depends on the change and on the
    /// selector:
    ///
    /// - If the object begins to match, the event is `ADDED`.
    /// - If the object matches before and after the change, the event is `MODIFIED`.
    /// - If the object no longer matches, the event is `DELETED`. This event has the last matching
    ///   content of the object, and the version of the change.
    /// - If the change has no object, it marks the start of a new leadership term (the time for
    ///   which one replica leads). If the client allows bookmarks, the event is a bookmark. A
    ///   client can continue the watch from the version of this bookmark at every replica. If the
    ///   client does not allow bookmarks, the event has no bytes.
    fn write_change(&mut self, change: &Change<M>, out: &mut Vec<u8>) {
        if change.key().is_none() {
            if self.plan.bookmarks {
                self.write_bookmark(change.rv, false, out);
            }
            return;
        }
        let matching = |entry: &'_ Option<Arc<Entry<M>>>| {
            let entry = entry.as_ref()?;
            self.selector.matches(entry).then(|| Arc::clone(entry))
        };
        let (kind, entry, rv) = match (matching(&change.before), matching(&change.after)) {
            (None, None) => return,
            (None, Some(after)) => ("ADDED", after.clone(), after.rv()),
            (Some(_), Some(after)) => ("MODIFIED", after.clone(), after.rv()),
            (Some(before), None) => ("DELETED", before, change.rv),
        };
        self.write_event(kind, VersionedEntry { entry: &entry, rv }, out);
    }

    fn write_event(&mut self, kind: &str, shown: VersionedEntry<'_, M>, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().event(kind, shown, columns, out);
    }

    fn write_bookmark(&mut self, rv: Rv, initial_end: bool, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().bookmark(rv, initial_end, columns, out);
    }

    fn encoder(&self) -> Encoder<'_, M> {
        Encoder {
            resource: &self.resource,
            form: self.form,
            now: clock::now(),
        }
    }

    /// Returns the time of the next bookmark: in one minute, or two seconds before the end of the
    /// watch if that is earlier. Returns None if no further bookmark is due.
    fn next_bookmark_time(&self, now: Instant) -> Option<Instant> {
        if !self.plan.bookmarks {
            return None;
        }
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END)?;
        let next = (now + BOOKMARK_INTERVAL).min(last);
        (next > now).then_some(next)
    }
}

/// Returns the event `ERROR`, after which the watch ends.
fn error_event(failure: &ErrorStatus) -> Bytes {
    let mut out = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    out.extend_from_slice(&failure.json());
    out.extend_from_slice(b"}\n");
    out.into()
}
