//! Watch: a cursor on the index, turned into a streamed body. No channel leads to a
//! client, so none can fill up: a slow client only falls behind, and one that falls off
//! the ring is told so and can start again. Only the state that a watch begins with is
//! kept for it, and only for as long as a list may take.

mod course;
#[cfg(any(fuzzing, test))]
mod fuzzing;
#[cfg(test)]
mod tests;

use self::course::{Course, WatchStart};
use super::REQUEST_TIMEOUT;
use super::access::Seat;
use super::encode::{Encoder, Shown};
use super::list::{FRESH_WAIT, ListPace};
use super::negotiate::{Chosen, Form, Shape, Syntax};
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

/// Time between bookmarks (upstream: about a minute).
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The last bookmark comes this long before the end, so that a client can go on from it.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Bytes of initial events that are written at a time: one HTTP/2 frame. There may be
/// many watches, and each may have this much that its client is slow to take.
const CHUNK: usize = 16 << 10;
/// How often the start is tried again when the ring moves on between list and follow.
const START_TRIES: usize = 5;

/// Answers a watch. `seat` is held as long as the watch lasts; `stop` ends it cleanly. That of
/// another replica begins with a bookmark, which says that its version is known here.
pub fn watch(
    resource: &Arc<Resource>,
    request: &Request,
    query: &Query,
    headers: &HeaderMap,
    (stop, is_replica): (CancellationToken, bool),
    seat: Option<Seat>,
) -> Result<Response, ErrorStatus> {
    let chosen = Chosen::of(headers, query)?;
    // Upstream takes the options of the old paths for those of a list, unless they say
    // themselves that it is a watch.
    let by_path = request.legacy_watch && !query.flag("watch");
    let options = if by_path {
        Options::of_list(query, resource)?
    } else {
        Options::of_watch(query, resource)?
    };
    let course = Course::of(query, &options, by_path)?;
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
        // Of less than no time: a timer would fire a moment too late.
        step: if course.lasts.is_zero() {
            WatchStep::Over
        } else {
            WatchStep::Start(course.start)
        },
        course,
        is_replica,
        stop,
        _seat: seat,
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
    form: Form,
    selector: Selector,
    scope: ListScope,
    course: Course,
    deadline: Instant,
    bookmark_at: Option<Instant>,
    columns_sent: bool,
    pace: ListPace,
    step: WatchStep,
    is_replica: bool,
    stop: CancellationToken,
    /// Counts the watch for as long as it lasts.
    _seat: Option<Seat>,
}

enum WatchStep {
    Start(WatchStart),
    Initial(Initial),
    Live(Cursor),
    Over,
}

/// The state as of the cursor's version.
struct Initial {
    entries: std::vec::IntoIter<Arc<IndexEntry>>,
    cursor: Cursor,
    /// Until when it is kept: the client has as long for it as for a list. One that is
    /// slower would keep for itself what everybody else has long forgotten.
    until: Instant,
}

impl Watcher {
    /// The next bytes, or None at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let chunk = match std::mem::replace(&mut self.step, WatchStep::Over) {
                WatchStep::Over => return None,
                WatchStep::Start(start) => {
                    let ending = self.stop.clone();
                    // Takes no longer than the wait for a version, even if the watch is
                    // to be shorter: as upstream, the client is told.
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
                    // As upstream. Without the bookmark at their end, whoever asked for
                    // initial events knows that these are not all, and asks again.
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
        let gone =
            |gone: crate::index::Gone| ErrorStatus::watch_too_old(gone.asked.0, gone.oldest.0);
        match start {
            WatchStart::After(rv) => {
                // A version from the future may be one of another lineage: no use waiting.
                if !reader.reached(rv, FRESH_WAIT).await {
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
                    && !reader.reached(rv, FRESH_WAIT).await
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

    /// The newest version is gone only if the whole ring was overwritten meanwhile.
    fn retry(
        &self,
        open: impl Fn() -> Result<WatchStep, crate::index::Gone>,
    ) -> Result<WatchStep, ErrorStatus> {
        for _ in 0..START_TRIES {
            if let Ok(step) = open() {
                return Ok(step);
            }
        }
        // A client that asked for initial events takes a 410 as a reason to ask again at
        // once and for ever, so it gets the retriable error instead.
        Err(if self.course.explicit {
            ErrorStatus::initializing()
        } else {
            let reader = &self.resource.reader;
            ErrorStatus::watch_too_old(reader.head().0, reader.oldest().0)
        })
    }

    /// The next of the initial events: as many as fit into a chunk, or as there are among
    /// the objects of one turn.
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
                self.event("ADDED", Shown::own(&entry), &mut out);
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

    /// The lines of all changes. Usually there is one, whose bytes all watchers share.
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

    /// One change as this watch's selector sees it: what comes to fit was added, what no
    /// longer fits was deleted, with its last fitting content at the change's version. An
    /// empty change is a bookmark: from its version on, a client can go on at every replica.
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

    /// The line of a change, encoded by whichever watcher of this form comes first.
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

    /// The line of an initial event, which only this watch needs.
    fn event(&mut self, kind: &str, shown: Shown<'_>, out: &mut Vec<u8>) {
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

    /// When the next bookmark is due: in a minute, or shortly before the end.
    fn bookmark_after(&self, now: Instant) -> Option<Instant> {
        if !self.course.bookmarks {
            return None;
        }
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END)?;
        let next = (now + BOOKMARK_EVERY).min(last);
        (next > now).then_some(next)
    }
}

fn error_event(failure: &ErrorStatus) -> Bytes {
    let mut out = b"{\"type\":\"ERROR\",\"object\":".to_vec();
    out.extend_from_slice(&failure.json());
    out.extend_from_slice(b"}\n");
    out.into()
}
