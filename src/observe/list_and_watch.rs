//! A feed lists and watches one source in a cluster: a resource, in all namespaces or in one. It
//! turns the answers of the kube-apiserver into [`Raw`] events.
//!
//! A `WatchList` is a watch that begins with all existing objects (KEP-3157). A bookmark marks the
//! end of these initial objects. In this diagram, the version is the resourceVersion from which a
//! watch can continue:
//!
//! ```text
//!   no version ──WatchList──▶ initial events ──bookmark──▶ Synced ─▶ events, bookmarks
//!       │ 400/410/422, silence                                         │ end of the watch
//!       └──▶ pages of a list ──▶ Synced ──▶ watch from the version ◀───┘
//!                                                │ 410
//!                                                └──▶ no version
//! ```
//!
//! After a list, the version is the resourceVersion of the list. After a watch, it is the
//! resourceVersion of the last event or bookmark.
//!
//! A feed does not use the watcher of the crate kube, for three reasons:
//!
//! - The watcher decodes whole objects.
//! - The watcher starts a `WatchList` at resourceVersion 0. The kube-apiserver may then send an
//!   older state than the feed has already read.
//! - The watcher does not fall back to a list if the kube-apiserver refuses `WatchList`.

use super::{
    Connection, GapReason, InvalidData, Raw,
    apiserver_requests::{self, Refusal, WatchOrPage},
    backoff::Backoff,
    body_parts::{self, BodyPart, MAX_OBJECT},
    read_budget::ReadBudget,
    watch_event::{self, WatchLine},
    watch_lines::LineReader,
};
use crate::telemetry::Metrics;
use bytes::Bytes;
use futures::channel::mpsc;
use http_body_util::BodyExt as _;
use ifo_api::Source;
use kube::client::Body;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

/// The longest time without a line in a watch. After this time, the feed ends the watch and opens a
/// new one. A kube-apiserver sends a bookmark every 60 s, so two bookmarks are then missing.
///
/// Two other waits have the same limit: for the beginning of an answer, and for the next object of
/// a list. `K8S_API_TIMEOUT` (30 s by default) also limits the time for a whole page of a list.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// The longest time without a line in a `WatchList` that has not sent all objects yet. After this
/// time, the feed lists the objects instead. A kube-apiserver without support for
/// `sendInitialEvents` sends the objects, but never the bookmark after the last object.
const INITIAL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// If a resumed watch sends no line within this time, the feed counts the watch as working, and
/// sends `Synced`. A resumed watch continues from a known version after an interruption. If this
/// version is too old, the kube-apiserver sends an error at once. The feed does not wait for the
/// first line, because a working watch can be silent for 60 s, until its first bookmark.
const RESUMED_AFTER: Duration = Duration::from_secs(1);

/// If a feed that is up to date must wait longer than this time, it sends its consumer the report
/// of an interruption, and continues to wait. The feed can wait for an answer of the
/// kube-apiserver, for the time of the next attempt, or for a permit to list ([`ReadBudget`] limits
/// the concurrent lists).
const INTERRUPTION_REPORT_DELAY: Duration = Duration::from_secs(2);

/// Maximum number of lines in one watch that cannot be decoded. If there are more, the feed reports
/// an interruption, and reads all objects again.
const MAX_GARBAGE: u64 = 10;

/// Maximum size in bytes of an object that a feed keeps until the next object arrives or the watch
/// ends. The next watch continues from the resourceVersion of the last object.
///
/// - The feed keeps an object of at most this size. If the watch ends, the feed decodes the
///   resourceVersion of the kept object. So it decodes one object for each watch, which saves time.
/// - The feed does not keep a larger object, which saves memory. It decodes the resourceVersion
///   when the object arrives.
const KEPT_BUFFER: usize = 16 << 10;

/// Maximum delay before the next attempt if the kube-apiserver cannot be reached or fails
/// temporarily. After 401, 403, 404 or invalid data, the maximum delay is `REQUEUE_INTERVAL` (60 s
/// by default), because such a failure usually lasts longer.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(5);

mod attempt_end;
mod list;
mod send_events;

use attempt_end::AttemptEnd;

/// Lists and watches one source. [`WatchTask::run`] never returns. The caller ends the watch by
/// dropping the future.
pub(super) struct WatchTask {
    connection: Connection,
    source: Source,
    /// The label selector of the requests. `None` means that the feed reads all objects.
    selection: Option<String>,
    /// The resource of `source` as a text, for the metrics.
    target: String,
    retry_interval: Duration,
    metrics: Arc<Metrics>,
    budget: ReadBudget,
    out: mpsc::Sender<Raw>,
    backoff: Backoff,
    /// False after the kube-apiserver has shown that it does not support `WatchList`.
    watch_list: bool,
    /// True if the feed has sent `Synced`, and neither `Reset` nor `Lost` since then.
    synced: bool,
    /// The resourceVersion from which a watch can continue. `None` if all objects must be read.
    version: Option<String>,
    /// The object of the latest event. The next watch continues from the resourceVersion of this
    /// object. If `last` is `None`, the next watch continues from `version`. `last` is `None` in
    /// these cases:
    ///
    /// - No object has arrived since `version` last changed. The initial objects of a `WatchList`
    ///   do not count.
    /// - The object has more than [`KEPT_BUFFER`] bytes. `version` is then its resourceVersion.
    last: Option<Bytes>,
    /// Number of objects to request in one page.
    page: u32,
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.metrics.feed_state(&self.target, "stopped");
    }
}

impl WatchTask {
    pub(super) fn new(
        connection: Connection,
        source: Source,
        selection: Option<String>,
        retry_interval: Duration,
        metrics: Arc<Metrics>,
        budget: ReadBudget,
        out: mpsc::Sender<Raw>,
    ) -> Self {
        Self {
            connection,
            target: source.target.to_string(),
            source,
            selection,
            retry_interval,
            metrics,
            budget,
            out,
            backoff: Backoff::default(),
            watch_list: true,
            synced: false,
            version: None,
            last: None,
            page: list::FIRST_PAGE,
        }
    }

    pub(super) async fn run(mut self) {
        let watch_client = self.connection.watch_client();
        loop {
            let began = Instant::now();
            let end = self.attempt(&watch_client.client).await;
            self.backoff.ended(began);
            debug!(source = %self.source, ?end, "watch ended");
            let max_delay = MAX_UNREACHABLE_DELAY.min(self.retry_interval);
            let wait = match end {
                AttemptEnd::Closed => self.backoff.next_after_clean_end(max_delay),
                AttemptEnd::Expired | AttemptEnd::NoWatchList { .. } => {
                    self.forget_version();
                    self.backoff.next_after_clean_end(max_delay)
                }
                AttemptEnd::Failed(lost, retry_after) => {
                    let refused = matches!(
                        lost,
                        GapReason::Unauthorized { .. }
                            | GapReason::Forbidden { .. }
                            | GapReason::NotFound { .. }
                            | GapReason::Garbled(_)
                    );
                    self.lost(lost).await;
                    let cap = if refused {
                        self.retry_interval
                    } else {
                        max_delay
                    };
                    self.backoff.next(cap).max(retry_after.unwrap_or_default())
                }
            };
            if self.synced && wait > INTERRUPTION_REPORT_DELAY {
                self.lost(GapReason::Unreachable(
                    "the kube-apiserver ends each watch as soon as the watch is open".into(),
                ))
                .await;
            }
            sleep(wait).await;
        }
    }

    /// Reads all objects if there is no version to continue from. Then reads changes until the
    /// watch ends.
    async fn attempt(&mut self, client: &kube::Client) -> AttemptEnd {
        if let Some(last) = self.last.take() {
            self.version = watch_event::resource_version(&last);
        }
        if self.version.is_none() {
            self.metrics.feed_state(&self.target, "listing");
            if self.watch_list {
                match self.read_watch_list(client).await {
                    AttemptEnd::NoWatchList { for_good } => {
                        debug!(source = %self.source, "the WatchList was refused or is not complete; listing");
                        self.forget_version();
                        self.watch_list = !for_good;
                    }
                    end => return end,
                }
            }
            if let Err(end) = self.list(client).await {
                return end;
            }
        }
        self.resume(client).await
    }

    /// Reads all objects and then their changes with one `WatchList` request (KEP-3157).
    async fn read_watch_list(&mut self, client: &kube::Client) -> AttemptEnd {
        match self
            .open(
                client,
                WatchOrPage::WatchList {
                    seconds: watch_seconds(),
                },
            )
            .await
        {
            Ok(body) => {
                self.reset().await;
                self.read(body, true).await
            }
            Err(Refusal::Invalid(_)) => AttemptEnd::NoWatchList { for_good: true },
            // A kube-apiserver that supports `WatchList` can also send a 410, for example while its
            // cache is filled again.
            Err(Refusal::Expired) => AttemptEnd::NoWatchList { for_good: false },
            Err(refusal) => refusal.into(),
        }
    }

    /// Watches the changes after `version`.
    async fn resume(&mut self, client: &kube::Client) -> AttemptEnd {
        let Some(version) = self.version.clone() else {
            return AttemptEnd::Expired;
        };
        match self
            .open(
                client,
                WatchOrPage::Watch {
                    version: &version,
                    seconds: watch_seconds(),
                },
            )
            .await
        {
            Ok(body) => self.read(body, false).await,
            Err(refusal) => refusal.into(),
        }
    }

    /// Sends a request and returns the body of the answer. If the feed is synced, and the answer
    /// takes longer than [`INTERRUPTION_REPORT_DELAY`], reports an interruption and continues to
    /// wait. If the answer does not begin within [`IDLE_TIMEOUT`], returns an error.
    async fn open(&mut self, client: &kube::Client, ask: WatchOrPage<'_>) -> Result<Body, Refusal> {
        let request = apiserver_requests::build(&self.source, self.selection.as_deref(), ask)?;
        let answer = apiserver_requests::send(client, request);
        tokio::pin!(answer);
        if self.synced {
            if let Ok(answer) = timeout(INTERRUPTION_REPORT_DELAY, &mut answer).await {
                return answer.map(http::Response::into_body);
            }
            self.lost(GapReason::Unreachable("no answer yet".into()))
                .await;
        }
        match timeout(IDLE_TIMEOUT, answer).await {
            Ok(answer) => answer.map(http::Response::into_body),
            Err(_) => Err(Refusal::Lost(
                GapReason::Unreachable(format!("no answer within {IDLE_TIMEOUT:?}")),
                None,
            )),
        }
    }

    /// Reads a watch to its end, and returns the reason of the end. If `initial` is true, the watch
    /// is a `WatchList`, which begins with all objects.
    async fn read(&mut self, body: Body, mut initial: bool) -> AttemptEnd {
        let mut lines = LineReader::new(body.into_data_stream(), MAX_OBJECT, self.budget.clone());
        let (mut has_event, mut garbage) = (false, 0_u64);
        loop {
            let awaits_confirmation = !initial && !self.synced;
            let line_timeout = match (initial, awaits_confirmation) {
                (true, _) => INITIAL_IDLE_TIMEOUT,
                (_, true) => RESUMED_AFTER,
                _ => IDLE_TIMEOUT,
            };
            let problem = match lines.next(line_timeout).await {
                Ok(line) => {
                    let decoded = decode_line(&line);
                    // A large line holds the permit for large objects ([`ReadBudget`]). An event
                    // with an object of this line holds the permit, too. After this drop, other
                    // feeds get the permit as soon as the event is dropped.
                    drop(line);
                    match decoded {
                        Ok(event) => {
                            has_event = true;
                            if let Err(end) = self.event(event, &mut initial).await {
                                return end;
                            }
                            continue;
                        }
                        // The line is too long to be read, and its beginning lacks the type of the
                        // event, or the name or the UID of the object. Without this object, the
                        // initial objects would be incomplete. So the feed lists the objects. In a
                        // list, the feed needs only the name and the UID.
                        Err(line) if line.too_long && initial => {
                            return AttemptEnd::NoWatchList { for_good: false };
                        }
                        Err(line) => line.why,
                    }
                }
                Err(body_parts::BodyEnd::Idle) if awaits_confirmation => {
                    self.synced().await;
                    continue;
                }
                Err(body_parts::BodyEnd::Idle) if initial => {
                    return AttemptEnd::NoWatchList { for_good: false };
                }
                // If etcd was restored from a backup, the version of this feed can be higher than
                // the newest version of the kube-apiserver. Then the kube-apiserver sends nothing,
                // not even a bookmark, until its version reaches the version of this feed. So the
                // feed must read all objects again.
                Err(body_parts::BodyEnd::Idle) if !has_event => return AttemptEnd::Expired,
                Err(body_parts::BodyEnd::Closed) if initial => {
                    let why =
                        "the watch ended before the kube-apiserver had sent all existing objects";
                    return AttemptEnd::Failed(GapReason::Unreachable(why.into()), None);
                }
                // A line that could not be decoded may have contained a change, so all objects must
                // be read again.
                Err(body_parts::BodyEnd::Idle | body_parts::BodyEnd::Closed) if garbage > 0 => {
                    return AttemptEnd::Expired;
                }
                Err(body_parts::BodyEnd::Idle | body_parts::BodyEnd::Closed) => {
                    return AttemptEnd::Closed;
                }
                Err(body_parts::BodyEnd::Broken(why)) => {
                    return AttemptEnd::Failed(GapReason::Unreachable(why), None);
                }
            };
            garbage += 1;
            warn!(source = %self.source, %problem, "a line of a watch cannot be decoded; skipped");
            if garbage > MAX_GARBAGE {
                self.forget_version();
                return AttemptEnd::Failed(GapReason::Garbled(problem), None);
            }
        }
    }

    /// Processes an event of a watch. Sends objects and deletions to the consumer of the feed. Sets
    /// `initial` to false after the last initial object. Returns an error if the watch cannot
    /// continue.
    async fn event(&mut self, event: WatchLine, initial: &mut bool) -> Result<(), AttemptEnd> {
        match event {
            WatchLine::Error(status) if status.is_expired() => return Err(AttemptEnd::Expired),
            WatchLine::Error(_) if *initial => {
                return Err(AttemptEnd::NoWatchList { for_good: false });
            }
            WatchLine::Error(status) => {
                return Err(apiserver_requests::refusal(status.code, &status, None).into());
            }
            // A periodic bookmark before the end of the initial objects shows that the
            // kube-apiserver does not support `sendInitialEvents`.
            WatchLine::Bookmark {
                initial_end: false, ..
            } if *initial => {
                return Err(AttemptEnd::NoWatchList { for_good: true });
            }
            _ => {}
        }
        if !*initial && !self.synced {
            self.synced().await;
        }
        match event {
            WatchLine::Applied(object) => {
                self.remember_version(&object, *initial);
                self.applied(object).await;
            }
            WatchLine::TooLarge { object, length } => {
                self.remember_version(&object, *initial);
                self.too_large(object, length).await;
            }
            WatchLine::Deleted(object) => {
                self.remember_version(&object, *initial);
                self.send(Raw::Deleted(object)).await;
            }
            WatchLine::Bookmark { version, .. } => {
                self.version = Some(version);
                self.last = None;
                if std::mem::replace(initial, false) {
                    self.synced().await;
                }
            }
            WatchLine::Error(_) => {}
        }
        Ok(())
    }

    /// Remembers the version of an object, so that the next watch can continue from this version.
    /// Initial objects are ignored, because the kube-apiserver does not send them in the order of
    /// their versions.
    fn remember_version(&mut self, object: &Bytes, initial: bool) {
        if initial {
            return;
        }
        if object.len() <= KEPT_BUFFER {
            self.last = Some(object.clone());
        } else {
            self.last = None;
            self.version = watch_event::resource_version(object);
        }
    }

    fn forget_version(&mut self) {
        self.version = None;
        self.last = None;
    }
}

/// The reason why a line of a watch cannot be decoded.
struct Unintelligible {
    too_long: bool,
    why: InvalidData,
}

/// Decodes a line of a watch.
fn decode_line(line: &BodyPart) -> Result<WatchLine, Unintelligible> {
    let (event, too_long) = match line {
        BodyPart::TooLong { length, head } => (
            watch_event::read_head(head, *length).ok_or(InvalidData::Line(*length)),
            true,
        ),
        BodyPart::Whole(line) => (watch_event::read(line), false),
    };
    event.map_err(|why| Unintelligible { too_long, why })
}

/// Returns the time in seconds after which the kube-apiserver ends a watch (`timeoutSeconds`). A
/// long watch saves requests. The time is random, so that feeds that started together do not
/// reconnect together.
fn watch_seconds() -> u64 {
    fastrand::u64(300..=600)
}
