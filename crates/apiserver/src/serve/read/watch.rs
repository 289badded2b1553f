//! Answers watch requests. The store keeps the latest changes in a ring buffer. Each watch has a
//! cursor, which is its position in the ring buffer. The watch sends the changes after its cursor
//! as a streamed body.
//!
//! A watch has no queue of events. If a client is slow, its cursor falls behind. When the ring
//! buffer no longer has the next change for this client, the client gets a 410.
//!
//! An open watch is authorized again at least once a minute, also while it sends initial events. If
//! the user may no longer watch, the watch ends with an event `ERROR`. This event contains the same
//! 403 as the answer to a new watch.
//!
//! Initial events contain the objects that exist when the watch starts. A watch keeps these objects
//! in memory until the watch has sent them. So if the client reads the initial events too slowly,
//! the watch ends. A watch also keeps one chunk of its body in memory.

mod events;
mod plan;
mod view;

use self::plan::{WatchPlan, WatchStart};
use super::{FRESHNESS_TIMEOUT, wait_until_reached};
use crate::Model;
use crate::serve::REQUEST_TIMEOUT;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::answer::responses::json;
use crate::serve::hooks::{Hooks, Read};
use crate::serve::request::list_options::checked_selector;
use crate::serve::request::negotiation::{ObjectForm, negotiate};
use crate::serve::request::selectors::Selector;
use crate::serve::resource::Resource;
use crate::serve::visibility::{RestrictedUser, View};
use crate::store::{Cursor, Entry, Rv, Scope, VersionUnavailable};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, PollNext};
use futures::{SinkExt as _, StreamExt as _};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

/// Interval of bookmarks. The kube-apiserver has an interval of about a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Time before the end of a watch at which the last bookmark is sent. The client can start its next
/// watch at the version of this bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Size in bytes after which a chunk of initial events ends: one HTTP/2 frame. Chunks are small,
/// because each watch can have an unread chunk in memory.
const CHUNK: usize = 16 << 10;

/// Completes when the server must end a watch, for example because the server stops. If the output
/// is an error, the watch sends the error to the client before the watch ends.
pub type WatchEnd = BoxFuture<'static, Option<ErrorStatus>>;

/// Answers a watch request. If the client is another replica, `peer` is the hooks of this server.
/// Otherwise, `peer` is None. The watch of another replica begins with a bookmark if it has no
/// initial events. This bookmark confirms that this server has the requested version.
pub fn watch<M: Model>(
    resource: &Arc<Resource<M>>,
    read: &Read<'_>,
    peer: Option<&dyn Hooks>,
    user: Option<RestrictedUser<M>>,
    end: WatchEnd,
) -> Result<Response, ErrorStatus> {
    let (request, query) = (read.request, read.query);
    let form = negotiate(read.headers, query)?;
    // As in the kube-apiserver, the options of a request for a deprecated path with `/watch/` are
    // checked like the options of a list. There is one exception: if the query also has the option
    // `watch`, the options are checked like those of a watch.
    let by_path = request.legacy_watch && !query.flag("watch");
    let mut selector = checked_selector(query, resource, !by_path)?;
    let plan = WatchPlan::of(query, by_path)?;
    if !request.name.is_empty() {
        selector.require_name(&request.name, resource)?;
    }
    let mut scope = selector.scope(&request.namespace, resource);
    if let Some(hooks) = peer {
        scope = hooks.scope_of_peer(&resource.info, scope);
    }
    // The channel has room for one chunk. The watch has no task of its own: the body polls the
    // watch and the receiver of the channel. So the watch runs only while the connection reads the
    // body.
    let (chunks, body) = mpsc::channel(0);
    let watcher = Watcher {
        resource: Arc::clone(resource),
        form,
        selector,
        scope,
        deadline: Instant::now() + plan.duration,
        columns_sent: false,
        plan,
        is_from_replica: peer.is_some(),
        user,
        view: None,
        chunks,
    };
    let run = stream::once(watcher.run(end));
    let run = run.filter_map(|()| ready(None));
    // The stream polls the watch before the receiver. So the body returns a chunk as soon as the
    // watch has written the chunk.
    let body = stream::select_with_strategy(run, body, |(): &mut ()| PollNext::Left);
    Ok(json(Body::from_stream(body.map(Ok::<_, Infallible>))))
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
    /// True if an event with the column definitions of a table has been sent.
    columns_sent: bool,
    /// True if the client is another replica.
    is_from_replica: bool,
    user: Option<RestrictedUser<M>>,
    /// What the user sees. None if nothing is hidden.
    view: Option<Box<dyn View<M>>>,
    /// The chunks of the body.
    chunks: mpsc::Sender<Bytes>,
}

/// The objects that exist when the watch starts. None if the client already has them.
type InitialObjects<M> = Option<Vec<Arc<Entry<M>>>>;

impl<M: Model> Watcher<M> {
    /// Sends the events of the watch until its end.
    async fn run(mut self, end: WatchEnd) {
        // A watch with a duration of zero sends no events. The timer in `send_events` cannot ensure
        // this, because tokio rounds the deadline up to the next millisecond.
        if self.plan.duration.is_zero() {
            return;
        }
        let failure = tokio::select! {
            biased;
            failure = end => failure,
            ended = self.send_events() => ended.err().flatten(),
        };
        if let Some(failure) = failure {
            self.send(failure.event()).await;
        }
    }

    /// Sends a chunk of the body, unless the chunk is empty. Returns when the connection has taken
    /// the chunk.
    async fn send(&mut self, chunk: impl Into<Bytes>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            // The send fails only if the receiver was dropped. The body owns the receiver and this
            // future, and drops both together. So this error needs no handling.
            let _ = self.chunks.send(chunk).await;
        }
    }

    /// Sends the events. `Err(None)` ends the watch without an event `ERROR`.
    async fn send_events(&mut self) -> Result<(), Option<ErrorStatus>> {
        // The start of a watch may wait until the store reaches the requested version. After
        // `FRESHNESS_TIMEOUT`, the client gets an error. As in the kube-apiserver, the client gets
        // this error even if the deadline of the watch is earlier.
        let (initial, cursor) = self.start().await?;
        tokio::select! {
            biased;
            () = sleep_until(self.deadline) => Ok(()),
            ended = self.send_from(initial, cursor) => ended,
        }
    }

    /// Starts the watch. Returns the objects of the initial events, and the cursor from which the
    /// watch continues.
    async fn start(&mut self) -> Result<(InitialObjects<M>, Cursor<M>), ErrorStatus> {
        let resource = Arc::clone(&self.resource);
        let reader = &resource.reader;
        let (initial, cursor) = match self.plan.start {
            WatchStart::After(rv) => {
                // If the store does not reach the version in time, the leader that issued the
                // version may have crashed. Then changes up to this version may be lost, so the
                // client must list again. Clients list again after a 410, but not after a 504.
                if !reader.wait_until_reached(rv, FRESHNESS_TIMEOUT).await {
                    let oldest = reader.oldest();
                    let lost = VersionUnavailable { asked: rv, oldest };
                    return Err(ErrorStatus::watch_too_old(lost));
                }
                let cursor = reader.follow(rv, self.scope.clone());
                (None, cursor.map_err(ErrorStatus::watch_too_old)?)
            }
            WatchStart::Now => (None, reader.follow_newest(self.scope.clone())),
            WatchStart::State(at_least) => {
                wait_until_reached(reader, at_least.map(|rv| rv.0)).await?;
                let (entries, cursor) = reader.list_and_follow(self.scope.clone());
                (Some(entries), cursor)
            }
        };
        let continues = matches!(self.plan.start, WatchStart::After(_));
        self.set_view(cursor.rv(), continues).await?;
        Ok((initial, cursor))
    }

    /// Sends the initial events, and then the changes after the cursor.
    async fn send_from(
        &mut self,
        initial: InitialObjects<M>,
        mut cursor: Cursor<M>,
    ) -> Result<(), Option<ErrorStatus>> {
        let mut bookmark_at = self.next_bookmark_time();
        let mut bookmark = Vec::new();
        if let Some(entries) = initial {
            self.send_objects(entries, None, cursor.rv()).await?;
            if self.plan.bookmarks && self.plan.marks_initial_end {
                self.write_bookmark(cursor.rv(), true, &mut bookmark);
            }
        } else if self.is_from_replica {
            self.write_bookmark(cursor.rv(), false, &mut bookmark);
        }
        self.send(bookmark).await;
        loop {
            let view_expires = self.view.as_ref().map(|view| view.expires());
            let mut events = Vec::new();
            tokio::select! {
                biased;
                () = wait_until(view_expires) => self.renew_view(cursor.rv()).await?,
                () = wait_until(bookmark_at) => {
                    bookmark_at = self.next_bookmark_time();
                    // The client can continue after the version of the bookmark. So it must have
                    // all changes up to this version, also those that only a new view shows.
                    self.renew_view(cursor.rv()).await?;
                    self.write_bookmark(cursor.rv(), false, &mut events);
                }
                changes = cursor.next() => {
                    let changes = changes.map_err(ErrorStatus::watch_too_old)?;
                    if let Some(view) = &mut self.view {
                        let after: Vec<_> = changes.iter().filter_map(|it| it.after.clone()).collect();
                        view.extend(&after).await?;
                    }
                    for change in &changes {
                        self.write_change(change, &mut events);
                        consume_budget().await;
                    }
                }
            }
            self.send(events).await;
        }
    }

    /// Sends the events for these objects at the version `rv`:
    ///
    /// - At the start of the watch, `before` is None. The watch sends all objects as initial
    ///   events.
    /// - When the watch renews the view, `before` is the old view. The client has the objects as
    ///   this view showed them. The watch sends the difference between this view and the current
    ///   view.
    ///
    /// Returns `Err(None)` if the client does not read the events within a minute. Reading a list
    /// has the same limit. Until all events are sent, `entries` keeps the objects in memory, even
    /// after the store has replaced or deleted them. The limit ends this use of memory.
    ///
    /// As in the kube-apiserver, such a watch ends without an error. If the events are initial
    /// events, the client has not received the bookmark after them. So the client knows that the
    /// initial events are incomplete, and sends a new request.
    async fn send_objects(
        &mut self,
        entries: Vec<Arc<Entry<M>>>,
        before: Option<&dyn View<M>>,
        rv: Rv,
    ) -> Result<(), Option<ErrorStatus>> {
        let until = Instant::now() + REQUEST_TIMEOUT;
        let mut out = Vec::new();
        for entry in entries {
            let after = self.visible_match(self.view.as_deref(), &entry);
            if let Some(before) = before {
                let before = self.visible_match(Some(before), &entry);
                self.write_difference(before, after, rv, &mut out);
            } else if let Some(after) = after {
                self.write_event("ADDED", &after, after.rv(), &mut out);
            }
            if out.len() >= CHUNK {
                self.send(std::mem::take(&mut out)).await;
                if Instant::now() >= until {
                    return Err(None);
                }
            }
            consume_budget().await;
        }
        self.send(out).await;
        Ok(())
    }

    /// Returns the time of the next bookmark: in one minute, or two seconds before the end of the
    /// watch if that is earlier. Returns None if the watch sends no further bookmark.
    fn next_bookmark_time(&self) -> Option<Instant> {
        if !self.plan.bookmarks {
            return None;
        }
        let now = Instant::now();
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END)?;
        let next = (now + BOOKMARK_INTERVAL).min(last);
        (next > now).then_some(next)
    }
}

/// Waits until this time. Never returns if the time is None.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
