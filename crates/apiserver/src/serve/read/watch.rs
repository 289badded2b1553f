//! Answers watch requests. The store keeps the latest changes in a ring buffer. Each watch has a
//! cursor, which is its position in the ring buffer. The watch sends the changes after its cursor
//! as a streamed body.
//!
//! A watch has no queue of events. If a client is slow, its cursor falls behind. When the ring
//! buffer no longer has the next change for this client, the client gets a 410.
//!
//! An open watch is authorized again at least once a minute. If its user may no longer watch, the
//! watch ends with an event `ERROR`. This event contains the same 403 as the answer to a new watch.
//!
//! Initial events contain the objects that exist when the watch starts. A watch keeps these objects
//! in memory until it has sent them. If the client reads the initial events too slowly, the watch
//! ends. A watch also keeps one chunk of its body in memory.

mod events;
mod plan;
mod view;

use self::plan::{WatchPlan, WatchStart};
use super::list::FRESHNESS_TIMEOUT;
use crate::Model;
use crate::auth::ResourceAttributes;
use crate::serve::REQUEST_TIMEOUT;
use crate::serve::answer::encoder::VersionedEntry;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::answer::responses::json;
use crate::serve::hooks::Hooks;
use crate::serve::request::Query;
use crate::serve::request::list_options::Options;
use crate::serve::request::negotiation::{ObjectForm, negotiate};
use crate::serve::request::selectors::Selector;
use crate::serve::resource::Resource;
use crate::serve::visibility::{RestrictedUser, View};
use crate::store::{Cursor, Entry, Scope, VersionUnavailable};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
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

/// Time between two authorizations of an open watch. A decision can be cached for 10 s, so a user
/// who loses the right to watch gets no further events after one minute.
const AUTHORIZATION_INTERVAL: Duration = Duration::from_secs(50);

/// Authorizes the request of an open watch again. An error ends the watch.
pub type AuthorizeAgain =
    Box<dyn Fn() -> BoxFuture<'static, Result<(), ErrorStatus>> + Send + Sync>;

/// The parts of a watch that do not come from the request.
pub struct WatchContext<M: Model> {
    /// Cancelling this token ends the watch without an error.
    pub stop: CancellationToken,
    pub authorize_again: AuthorizeAgain,
    /// The user from whom objects can be hidden. None if nothing is hidden.
    pub user: Option<RestrictedUser<M>>,
}

/// Answers a watch request. `peer` has the hooks of the server if the client is another replica.
/// Then a watch without initial events begins with a bookmark, which confirms that this server has
/// the requested version.
pub fn watch<M: Model>(
    resource: &Arc<Resource<M>>,
    request: &ResourceAttributes,
    query: &Query,
    headers: &HeaderMap,
    (context, peer): (WatchContext<M>, Option<&dyn Hooks>),
) -> Result<Response, ErrorStatus> {
    let form = negotiate(headers, query)?;
    // As in the kube-apiserver, the options of a request for a deprecated path with `/watch/` are
    // checked like the options of a list. If the query also has the option `watch`, they are
    // checked like the options of a watch.
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
        authorize_at: now + AUTHORIZATION_INTERVAL,
        context,
        view: None,
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
    context: WatchContext<M>,
    /// The time of the next authorization.
    authorize_at: Instant,
    /// What the user sees. None if nothing is hidden.
    view: Option<Box<dyn View<M>>>,
}

/// The next step of a watch.
enum WatchStep<M: Model> {
    /// The watch has not started yet.
    Start(WatchStart),
    /// The watch sends initial events, or the difference between an expired view and its new view.
    Initial(InitialEvents<M>),
    /// The watch sends changes.
    Live(Cursor<M>),
    /// The watch has ended.
    Over,
}

/// Objects that the watch must send. At the start, the watch sends all of them as initial events.
/// After a change of the view, the watch sends only the difference between both views.
struct InitialEvents<M: Model> {
    /// The objects that have not been sent yet.
    entries: std::vec::IntoIter<Arc<Entry<M>>>,
    /// The cursor at the version of the state. After the initial events, the watch continues from
    /// this cursor.
    cursor: Cursor<M>,
    /// The expired view, according to which the client has received its objects. None at the start
    /// of the watch.
    before: Option<Box<dyn View<M>>>,
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
                    let stop = self.context.stop.clone();
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
                        Err(failure) => failure.event(),
                    }
                }
                WatchStep::Initial(initial) => {
                    let is_late = Instant::now() >= initial.until.min(self.deadline);
                    // If the client reads the initial events too slowly, the watch ends without an
                    // error, as in the kube-apiserver. The client has not received the bookmark
                    // after the initial events. So the client knows that the initial events are
                    // incomplete, and sends a new request.
                    if is_late || self.context.stop.is_cancelled() {
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
    async fn start(&mut self, start: WatchStart) -> Result<WatchStep<M>, ErrorStatus> {
        let resource = Arc::clone(&self.resource);
        let reader = &resource.reader;
        match start {
            WatchStart::After(rv) => {
                // If the store does not reach the version in time, the leader that issued the
                // version may have crashed. Then changes up to this version may be lost, so the
                // client must list again. Clients list again after a 410, but not after a 504.
                if !reader.wait_until_reached(rv, FRESHNESS_TIMEOUT).await {
                    let oldest = reader.oldest();
                    let lost = VersionUnavailable { asked: rv, oldest };
                    return Err(ErrorStatus::watch_too_old(lost));
                }
                let cursor = reader
                    .follow(rv, self.scope.clone())
                    .map_err(ErrorStatus::watch_too_old)?;
                self.set_view(rv, None, true).await?;
                Ok(WatchStep::Live(cursor))
            }
            WatchStart::Now => {
                let cursor = reader.follow_newest(self.scope.clone());
                self.set_view(cursor.rv(), None, false).await?;
                Ok(WatchStep::Live(cursor))
            }
            WatchStart::State(at_least) => {
                if let Some(rv) = at_least
                    && !reader.wait_until_reached(rv, FRESHNESS_TIMEOUT).await
                {
                    return Err(ErrorStatus::version_not_reached(rv.0, reader.head().0));
                }
                let (entries, cursor) = reader.list_and_follow(self.scope.clone());
                self.set_view(cursor.rv(), Some(&entries), false).await?;
                Ok(WatchStep::Initial(InitialEvents {
                    entries: entries.into_iter(),
                    cursor,
                    before: None,
                    until: Instant::now() + REQUEST_TIMEOUT,
                }))
            }
        }
    }

    /// Returns the next initial events. The function returns when a chunk is full, or when all
    /// objects are sent. The result can be empty.
    async fn next_initial_events(&mut self, mut initial: InitialEvents<M>) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = initial.entries.next() else {
                let is_start = initial.before.is_none();
                if is_start && self.plan.bookmarks && self.plan.marks_initial_end {
                    self.write_bookmark(initial.cursor.rv(), true, &mut out);
                }
                self.step = WatchStep::Live(initial.cursor);
                return out;
            };
            let after = self.visible_match(self.view.as_deref(), &entry);
            if let Some(before) = &initial.before {
                let before = self.visible_match(Some(&**before), &entry);
                self.write_difference(before, after, initial.cursor.rv(), &mut out);
            } else if let Some(after) = after {
                self.write_event("ADDED", VersionedEntry::at_own_version(&after), &mut out);
            }
            consume_budget().await;
        }
        self.step = WatchStep::Initial(initial);
        out
    }

    /// Waits for changes, for the time of a bookmark, of an authorization or of a new view, or for
    /// the end of the watch. Returns the events. The result is empty if no change matches the
    /// selector. Returns None if the watch has ended.
    async fn next_live_events(&mut self, mut cursor: Cursor<M>) -> Option<Bytes> {
        let out;
        let bookmark_at = self.bookmark_at;
        let expires = self.view.as_ref().map(|view| view.expires());
        tokio::select! {
            biased;
            () = self.context.stop.cancelled() => return None,
            () = sleep_until(self.deadline) => return None,
            () = sleep_until(self.authorize_at) => {
                self.authorize_at = Instant::now() + AUTHORIZATION_INTERVAL;
                if let Err(refused) = (self.context.authorize_again)().await {
                    return Some(refused.event());
                }
                out = Bytes::new();
            }
            () = async { sleep_until(expires.unwrap_or(self.deadline)).await },
                if expires.is_some() =>
            {
                let expired = self.view.take()?;
                match self.renew_view(expired, cursor).await {
                    Ok(step) => self.step = step,
                    Err(failure) => return Some(failure.event()),
                }
                return Some(Bytes::new());
            }
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
                    if let Some(view) = &mut self.view {
                        let after: Vec<_> = changes.iter().filter_map(|it| it.after.clone()).collect();
                        if let Err(failure) = view.extend(&after).await {
                            return Some(failure.event());
                        }
                    }
                    let mut events = Vec::new();
                    for change in &changes {
                        self.write_change(change, &mut events);
                        consume_budget().await;
                    }
                    out = events.into();
                }
                Err(lost) => return Some(ErrorStatus::watch_too_old(lost).event()),
            },
        }
        self.step = WatchStep::Live(cursor);
        Some(out)
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
