//! Serves watches: the changes of a cursor on the index, as a streamed body.
//!
//! No queue exists for a client, so none can fill up. A slow client falls behind, and gets an error
//! when the ring no longer has its next change. A watch keeps only its initial state in memory, for
//! at most the time limit of a list.

#[cfg(any(fuzzing, test))]
mod fuzzing;
mod lifetime;
#[cfg(test)]
mod tests;

use self::lifetime::{WatchLifetime, WatchStart};
use super::REQUEST_TIMEOUT;
use super::encode::{Encoder, VersionedEntry};
use super::list::{FRESHNESS_TIMEOUT, ListPace};
use super::middleware::WatchSlot;
use super::negotiate::{ChosenClause, ObjectForm, Shape, Syntax};
use super::options::Options;
use super::request::{Query, Request};
use super::resource::Resource;
use super::respond;
use super::select::Selector;
use super::status::ErrorStatus;
use crate::clock;
use crate::index::{Cursor, IndexChange, IndexEntry, ListScope, ReadVersion, Rv};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::options as check_options;

/// Interval of bookmarks. In kube-apiserver it is about a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Time before the end of a watch at which the last bookmark is sent, so that a client can continue
/// from it.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Bytes of initial events that are written together: one HTTP/2 frame. With many watches, each can
/// have this many unread bytes.
const CHUNK: usize = 16 << 10;
/// Number of attempts to start, if the ring drops changes between the list and the creation of the
/// cursor.
const MAX_START_ATTEMPTS: usize = 5;

/// Answers a watch. `watch_slot` counts the watch until it ends. `stop` ends it in an orderly way.
/// For another replica, the watch begins with a bookmark, which confirms that this server has its
/// version.
pub fn watch(
    resource: &Arc<Resource>,
    request: &Request,
    query: &Query,
    headers: &HeaderMap,
    (stop, is_replica): (CancellationToken, bool),
    watch_slot: Option<WatchSlot>,
) -> Result<Response, ErrorStatus> {
    let chosen = ChosenClause::of(headers, query)?;
    // As in kube-apiserver, the old watch paths take the options of a list, unless the query
    // contains `watch`.
    let by_path = request.legacy_watch && !query.flag("watch");
    let options = if by_path {
        Options::of_list(query, resource)?
    } else {
        Options::of_watch(query, resource)?
    };
    let course = WatchLifetime::of(query, &options, by_path)?;
    let mut selector = options.selector;
    if !request.name.is_empty() {
        selector.require_name(&request.name)?;
    }
    let wanted = chosen.form(Shape::Watch, resource.list_kind)?;
    let scope = selector.scope(&request.namespace, resource.namespaced);
    let now = Instant::now();
    let mut watcher = Watcher {
        resource: Arc::clone(resource),
        form: wanted.form,
        selector,
        scope,
        deadline: now + course.lasts,
        bookmark_at: None,
        columns_sent: false,
        pace: ListPace::default(),
        // If no time is left, the watch ends here, because a timer would fire too late.
        step: if course.lasts.is_zero() {
            WatchStep::Over
        } else {
            WatchStep::Start(course.start)
        },
        course,
        is_replica,
        stop,
        _slot: watch_slot,
    };
    watcher.bookmark_at = watcher.bookmark_after(now);
    let stream = futures::stream::unfold(watcher, |mut watcher| async move {
        let chunk = watcher.next().await?;
        Some((Ok::<_, Infallible>(chunk), watcher))
    });
    Ok(respond::data(Body::from_stream(stream), Syntax::Compact))
}

/// One watch.
struct Watcher {
    resource: Arc<Resource>,
    form: ObjectForm,
    selector: Selector,
    scope: ListScope,
    course: WatchLifetime,
    deadline: Instant,
    bookmark_at: Option<Instant>,
    columns_sent: bool,
    pace: ListPace,
    step: WatchStep,
    is_replica: bool,
    stop: CancellationToken,
    /// Counts the watch while it lasts.
    _slot: Option<WatchSlot>,
}

enum WatchStep {
    Start(WatchStart),
    Initial(Initial),
    Live(Cursor),
    Over,
}

/// The initial state, at the version of the cursor.
struct Initial {
    entries: std::vec::IntoIter<Arc<IndexEntry>>,
    cursor: Cursor,
    /// The time until which the initial state is kept. It is the time limit of a list. A slower
    /// watch would keep entries in memory that have been replaced.
    until: Instant,
}

impl Watcher {
    /// The next bytes. None at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match std::mem::replace(&mut self.step, WatchStep::Over) {
                WatchStep::Over => return None,
                WatchStep::Start(start) => {
                    let ending = self.stop.clone();
                    // The wait for a version has its own time limit, even if the watch is shorter.
                    // As in kube-apiserver, the client gets an error.
                    let opened = tokio::select! {
                        biased;
                        () = ending.cancelled() => return None,
                        opened = self.open(start) => opened,
                    };
                    match opened {
                        Ok(step) => {
                            let mut first = Vec::new();
                            if let WatchStep::Live(cursor) = &step
                                && self.is_replica
                            {
                                self.bookmark(cursor.rv(), false, &mut first);
                            }
                            self.step = step;
                            first.into()
                        }
                        Err(failure) => error_event(&failure),
                    }
                }
                WatchStep::Initial(initial) => {
                    let late = Instant::now() >= initial.until.min(self.deadline);
                    // As in kube-apiserver, the watch ends. The bookmark at the end of the initial
                    // events is missing, so the client knows that they are incomplete, and sends a
                    // new request.
                    if late || self.stop.is_cancelled() {
                        return None;
                    }
                    self.initial(initial).await.into()
                }
                WatchStep::Live(cursor) => self.live(cursor).await?,
            };
            if !chunk.is_empty() {
                return Some(chunk);
            }
        }
    }

    async fn open(&self, start: WatchStart) -> Result<WatchStep, ErrorStatus> {
        let reader = &self.resource.reader;
        let gone = |gone: crate::index::VersionUnavailable| {
            ErrorStatus::watch_too_old(gone.asked.0, gone.oldest.0)
        };
        match start {
            WatchStart::After(rv) => {
                // A version in the future can belong to another history, so the watch does not wait
                // for it.
                if !reader.reached(rv, FRESHNESS_TIMEOUT).await {
                    return Err(ErrorStatus::watch_too_old(rv.0, reader.oldest().0));
                }
                reader
                    .follow(rv, self.scope.clone())
                    .map(WatchStep::Live)
                    .map_err(gone)
            }
            WatchStart::Now => self.retry(|| {
                reader
                    .follow(reader.head(), self.scope.clone())
                    .map(WatchStep::Live)
            }),
            WatchStart::State(at_least) => {
                if let Some(rv) = at_least
                    && !reader.reached(rv, FRESHNESS_TIMEOUT).await
                {
                    return Err(ErrorStatus::too_large(rv.0, reader.head().0));
                }
                self.retry(|| {
                    let (rv, entries) = reader.list(&self.scope, ReadVersion::Latest)?;
                    let cursor = reader.follow(rv, self.scope.clone())?;
                    Ok(WatchStep::Initial(Initial {
                        entries: entries.into_iter(),
                        cursor,
                        until: Instant::now() + REQUEST_TIMEOUT,
                    }))
                })
            }
        }
    }

    /// Returns the newest version. It is unknown only if the whole ring was replaced in the
    /// meantime.
    fn retry(
        &self,
        open: impl Fn() -> Result<WatchStep, crate::index::VersionUnavailable>,
    ) -> Result<WatchStep, ErrorStatus> {
        for _ in 0..MAX_START_ATTEMPTS {
            if let Ok(step) = open() {
                return Ok(step);
            }
        }
        // After a 410, a client with `sendInitialEvents` would repeat its request at once and
        // forever. So it gets an error after which it waits.
        Err(if self.course.explicit {
            ErrorStatus::initializing()
        } else {
            let reader = &self.resource.reader;
            ErrorStatus::watch_too_old(reader.head().0, reader.oldest().0)
        })
    }

    /// Returns the next initial events: as many as fit into a chunk, or as one turn has processed.
    async fn initial(&mut self, mut initial: Initial) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < CHUNK {
            let Some(entry) = initial.entries.next() else {
                if self.course.bookmarks && self.course.marked {
                    self.bookmark(initial.cursor.rv(), true, &mut out);
                }
                self.step = WatchStep::Live(initial.cursor);
                return out;
            };
            if self.selector.matches(&entry) {
                self.event("ADDED", VersionedEntry::own(&entry), &mut out);
            }
            if self.pace.looked(1).await {
                break;
            }
        }
        self.step = WatchStep::Initial(initial);
        out
    }

    async fn live(&mut self, mut cursor: Cursor) -> Option<Bytes> {
        let out;
        let bookmark_at = self.bookmark_at;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            () = sleep_until(self.deadline) => return None,
            () = async { sleep_until(bookmark_at.unwrap_or(self.deadline)).await },
                if bookmark_at.is_some() =>
            {
                self.bookmark_at = self.bookmark_after(Instant::now());
                let mut line = Vec::new();
                self.bookmark(cursor.rv(), false, &mut line);
                out = line.into();
            }
            changes = cursor.next() => match changes {
                Ok(changes) => {
                    out = self.changes(&changes);
                    self.pace.looked(changes.len()).await;
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

    /// Returns the lines of all changes. Usually there is one change, and all watchers share its
    /// bytes.
    fn changes(&mut self, changes: &[IndexChange]) -> Bytes {
        if let [change] = changes {
            return self.change(change).unwrap_or_default();
        }
        let mut out = Vec::new();
        for change in changes {
            out.extend_from_slice(&self.change(change).unwrap_or_default());
        }
        out.into()
    }

    /// Converts a change for the selector of this watch.
    ///
    /// - An object that begins to match is added.
    /// - An object that no longer matches is deleted. The event has its last matching content, and
    ///   the version of the change.
    /// - A term marker becomes a bookmark. From its version on, a client can continue at every
    ///   replica.
    fn change(&mut self, change: &IndexChange) -> Option<Bytes> {
        if change.key().is_none() {
            let mut line = Vec::new();
            if self.course.bookmarks {
                self.bookmark(change.rv, false, &mut line);
            }
            return Some(line.into());
        }
        let fitting = |entry: &'_ Option<Arc<IndexEntry>>| {
            let entry = entry.as_ref()?;
            self.selector.matches(entry).then(|| Arc::clone(entry))
        };
        match (fitting(&change.before), fitting(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(self.line("ADDED", &after, None)),
            (Some(_), Some(after)) => Some(self.line("MODIFIED", &after, None)),
            (Some(before), None) => Some(self.line("DELETED", &before, Some(change.rv))),
        }
    }

    /// Returns the line of a change. The first watcher of this form encodes it.
    fn line(&mut self, kind: &'static str, entry: &Arc<IndexEntry>, at: Option<Rv>) -> Bytes {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        let (resource, form) = (&*self.resource, self.form);
        let lines = &resource.lines;
        lines.line(kind, entry, at, form, columns, |shown, now| {
            let mut out = Vec::new();
            let encoder = Encoder {
                resource,
                form,
                now,
            };
            encoder.event(kind, shown, columns, &mut out);
            out.into()
        })
    }

    /// Returns the line of an initial event, which only this watch needs.
    fn event(&mut self, kind: &str, shown: VersionedEntry<'_>, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().event(kind, shown, columns, out);
    }

    fn bookmark(&mut self, rv: Rv, initial_end: bool, out: &mut Vec<u8>) {
        let columns = !std::mem::replace(&mut self.columns_sent, true);
        self.encoder().bookmark(rv, initial_end, columns, out);
    }

    fn encoder(&self) -> Encoder<'_> {
        Encoder {
            resource: &self.resource,
            form: self.form,
            now: clock::now(),
        }
    }

    /// Returns the time of the next bookmark: in one minute, or shortly before the end.
    fn bookmark_after(&self, now: Instant) -> Option<Instant> {
        if !self.course.bookmarks {
            return None;
        }
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END)?;
        let next = (now + BOOKMARK_INTERVAL).min(last);
        (next > now).then_some(next)
    }
}

fn error_event(failure: &ErrorStatus) -> Bytes {
    let mut out = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    out.extend_from_slice(&failure.json());
    out.extend_from_slice(b"}\n");
    out.into()
}
