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
    backoff::Backoff,
    parts::{BodyEnd, MAX_PART, PartReader},
    read_budget::ReadBudget,
    requests::{self, Refusal},
    watch_event::{self, WatchLine},
};
use bytes::Bytes;
use futures::{SinkExt as _, channel::mpsc};
use http_body_util::BodyExt as _;
use ifo_api::Source;
use kube::client::Body;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

/// The longest time without a line in a watch. After this time, the feed ends the watch and opens a
/// new one. A kube-apiserver sends a bookmark every 60 s, so two bookmarks are then missing.
///
/// Two other waits have the same limit: for the beginning of an answer, and for a page of a list.
/// `K8S_API_TIMEOUT` (30 s by default) also limits the time for a page.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

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
/// kube-apiserver, or for the time of the next attempt.
const INTERRUPTION_REPORT_DELAY: Duration = Duration::from_secs(2);

/// Maximum delay before the next attempt if the kube-apiserver cannot be reached or fails
/// temporarily. After 401, 403, 404 or invalid data, the maximum delay is `REQUEUE_INTERVAL` (60 s
/// by default), because such a failure usually lasts longer.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(5);

/// Number of objects that a feed requests in its first page.
const FIRST_PAGE: u32 = 100;

/// The reason why a watch, a list, or an attempt to open a watch has ended. The reason decides which
/// request the feed sends next.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    /// The kube-apiserver closed the watch, as it does after some minutes, or the watch was silent
    /// for too long. The next watch continues from the last resourceVersion.
    Closed,
    /// The kube-apiserver no longer has the changes since the requested resourceVersion, or the
    /// feed may have missed changes. The feed must read all objects again.
    Expired,
    /// The `WatchList` did not yield all objects, so the feed lists them. If `for_good` is true,
    /// the kube-apiserver does not support `WatchList`, and the feed never requests a `WatchList`
    /// again.
    NoWatchList { for_good: bool },
    /// Any other failure, with the delay that the kube-apiserver requests (`Retry-After`). `None`
    /// if it requests no delay.
    Failed(GapReason, Option<Duration>),
}

impl From<Refusal> for AttemptEnd {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Expired => Self::Expired,
            Refusal::Invalid(message) => {
                Self::Failed(GapReason::Refused { code: 400, message }, None)
            }
            Refusal::Lost(lost, retry_after) => Self::Failed(lost, retry_after),
        }
    }
}

/// Lists and watches one source. [`WatchTask::run`] never returns. The caller ends the watch by
/// dropping the future.
pub(super) struct WatchTask {
    pub(super) connection: Connection,
    pub(super) source: Source,
    /// The label selector of the requests. `None` means that the feed reads all objects.
    pub(super) selection: Option<String>,
    pub(super) retry_interval: Duration,
    pub(super) budget: ReadBudget,
    pub(super) out: mpsc::Sender<Raw>,
    pub(super) state: WatchProgress,
}

/// The state of a [`WatchTask`].
pub(super) struct WatchProgress {
    backoff: Backoff,
    /// False after the kube-apiserver has shown that it does not support `WatchList`.
    watch_list: bool,
    /// True if the feed has sent `Synced`, and neither `Reset` nor `Lost` since then.
    pub(super) synced: bool,
    /// The resourceVersion from which a watch can continue. `None` if all objects must be read.
    pub(super) version: Option<String>,
    /// Number of objects to request in one page.
    pub(super) page: u32,
}

impl Default for WatchProgress {
    fn default() -> Self {
        Self {
            backoff: Backoff::default(),
            watch_list: true,
            synced: false,
            version: None,
            page: FIRST_PAGE,
        }
    }
}

impl WatchTask {
    /// Reads objects until the caller drops the future.
    pub(super) async fn run(mut self) {
        let client = self.connection.watch_client();
        loop {
            let began = Instant::now();
            let end = self.attempt(&client).await;
            // After invalid data, the next attempt reads all objects, which can take long. So the
            // duration of such an attempt does not show that the API server works. The delay grows.
            if !matches!(end, AttemptEnd::Failed(GapReason::Garbled(_), _)) {
                self.state.backoff.ended(began);
            }
            debug!(source = %self.source, ?end, "watch ended");
            let max_delay = MAX_UNREACHABLE_DELAY.min(self.retry_interval);
            let wait = match end {
                AttemptEnd::Closed => self.state.backoff.next_after_clean_end(max_delay),
                AttemptEnd::Expired | AttemptEnd::NoWatchList { .. } => {
                    self.state.version = None;
                    self.state.backoff.next_after_clean_end(max_delay)
                }
                AttemptEnd::Failed(lost, retry_after) => {
                    let cap = match lost {
                        GapReason::Garbled(_) => {
                            // The change that could not be decoded was missed.
                            self.state.version = None;
                            self.retry_interval
                        }
                        GapReason::Refused {
                            code: 401 | 403 | 404,
                            ..
                        } => self.retry_interval,
                        _ => max_delay,
                    };
                    self.lost(lost).await;
                    let wait = self.state.backoff.next(cap);
                    wait.max(retry_after.unwrap_or_default())
                }
            };
            if self.state.synced && wait > INTERRUPTION_REPORT_DELAY {
                let why = "the kube-apiserver ends each watch as soon as the watch is open";
                self.lost(GapReason::Unreachable(why.into())).await;
            }
            sleep(wait).await;
        }
    }

    /// Reads all objects if necessary, and then watches their changes until the watch ends.
    async fn attempt(&mut self, client: &kube::Client) -> AttemptEnd {
        if self.state.version.is_none() {
            if self.state.watch_list {
                match self.read_watch_list(client).await {
                    AttemptEnd::NoWatchList { for_good } => {
                        debug!(source = %self.source, "the WatchList was refused or is not complete; listing");
                        self.state.version = None;
                        self.state.watch_list = !for_good;
                    }
                    end => return end,
                }
            }
            if let Err(end) = self.list(client).await {
                return end;
            }
        }
        let Some(version) = &self.state.version else {
            return AttemptEnd::Expired;
        };
        let from = format!("resourceVersion={}", requests::escaped(version));
        match self.open_watch(client, &from).await {
            Ok(body) => self.read(body, false).await,
            Err(refusal) => refusal.into(),
        }
    }

    async fn read_watch_list(&mut self, client: &kube::Client) -> AttemptEnd {
        let all = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        match self.open_watch(client, all).await {
            Ok(body) => {
                self.reset().await;
                self.read(body, true).await
            }
            Err(Refusal::Invalid(_)) => AttemptEnd::NoWatchList { for_good: true },
            Err(Refusal::Expired) => AttemptEnd::NoWatchList { for_good: false },
            Err(refusal) => refusal.into(),
        }
    }

    async fn open_watch(&mut self, client: &kube::Client, from: &str) -> Result<Body, Refusal> {
        // A long watch saves requests. The time is random, so that feeds that started together do
        // not reconnect together.
        let seconds = fastrand::u64(300..=600);
        let query = format!("watch=1&{from}&allowWatchBookmarks=true&timeoutSeconds={seconds}");
        self.open(client, &query).await
    }

    /// Sends a request, and waits for the beginning of the answer. If a feed that is up to date
    /// waits for too long, reports an interruption.
    pub(super) async fn open(
        &mut self,
        client: &kube::Client,
        query: &str,
    ) -> Result<Body, Refusal> {
        let (source, selection) = (self.source.clone(), self.selection.clone());
        let mut answer = std::pin::pin!(requests::objects(
            client,
            &source,
            selection.as_deref(),
            query
        ));
        if self.state.synced {
            if let Ok(answer) = timeout(INTERRUPTION_REPORT_DELAY, &mut answer).await {
                return answer;
            }
            self.lost(GapReason::Unreachable("no answer yet".into()))
                .await;
        }
        timeout(IDLE_TIMEOUT, answer).await.unwrap_or_else(|_| {
            Err(Refusal::unreachable(format!(
                "no answer within {IDLE_TIMEOUT:?}"
            )))
        })
    }

    /// Reads a watch to its end, and returns the reason of the end. If `initial` is true, the watch
    /// is a `WatchList`, which begins with all objects.
    async fn read(&mut self, body: Body, mut initial: bool) -> AttemptEnd {
        let mut lines = PartReader::new(body.into_data_stream(), MAX_PART, self.budget.clone());
        let mut has_event = false;
        loop {
            let awaits_confirmation = !initial && !self.state.synced;
            let line_timeout = match (initial, awaits_confirmation) {
                (true, _) => INITIAL_IDLE_TIMEOUT,
                (_, true) => RESUMED_AFTER,
                _ => IDLE_TIMEOUT,
            };
            let line = match lines.line(line_timeout).await {
                Ok(line) => line,
                Err(BodyEnd::Idle) if awaits_confirmation => {
                    self.synced().await;
                    continue;
                }
                Err(end) => return end_of_watch(end, initial, has_event),
            };
            let decoded = watch_event::read(&line);
            // The line holds the permit for large objects.
            drop(line);
            let event = match decoded {
                Ok(event) => event,
                Err(problem) => return AttemptEnd::Failed(GapReason::Garbled(problem), None),
            };
            has_event = true;
            if let Err(end) = self.event(event, &mut initial).await {
                return end;
            }
        }
    }

    /// Processes an event of a watch. Sends objects and deletions to the consumer of the feed. Sets
    /// `initial` to false after the last initial object. Returns an error if the watch cannot
    /// continue.
    async fn event(&mut self, event: WatchLine, initial: &mut bool) -> Result<(), AttemptEnd> {
        match event {
            WatchLine::Error(status) if watch_event::is_expired(&status) => {
                return Err(AttemptEnd::Expired);
            }
            // For example, an etcd without support for progress notifications.
            WatchLine::Error(_) if *initial => {
                return Err(AttemptEnd::NoWatchList { for_good: false });
            }
            WatchLine::Error(status) => {
                return Err(requests::refusal(status.code, &status, None).into());
            }
            // The server ignores `sendInitialEvents`.
            WatchLine::Bookmark {
                initial_end: false, ..
            } if *initial => return Err(AttemptEnd::NoWatchList { for_good: true }),
            _ => {}
        }
        if !*initial && !self.state.synced {
            self.synced().await;
        }
        match event {
            WatchLine::Applied(object) => {
                self.remember_version(&object, *initial);
                self.send(Raw::Applied(object)).await;
            }
            WatchLine::Deleted(object) => {
                self.remember_version(&object, *initial);
                self.send(Raw::Deleted(object)).await;
            }
            WatchLine::Bookmark { version, .. } => {
                self.state.version = Some(version);
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
        if !initial {
            self.state.version = watch_event::resource_version(object);
        }
    }

    pub(super) async fn reset(&mut self) {
        self.state.synced = false;
        self.send(Raw::Reset).await;
    }

    pub(super) async fn synced(&mut self) {
        self.state.synced = true;
        info!(source = %self.source, "up to date");
        self.send(Raw::Synced).await;
    }

    pub(super) async fn lost(&mut self, lost: GapReason) {
        self.state.synced = false;
        warn!(source = %self.source, reason = %lost, "the watch is interrupted");
        self.send(Raw::Lost(lost)).await;
    }

    /// Sends an event to the consumer. Sending fails only if the consumer of the feed has stopped,
    /// and this future is then dropped, too.
    pub(super) async fn send(&mut self, raw: Raw) {
        let _ = self.out.send(raw).await;
    }
}

/// Returns the reason why a watch has ended. `initial` is true if the watch is a `WatchList` that
/// has not sent all objects.
fn end_of_watch(end: BodyEnd, initial: bool, has_event: bool) -> AttemptEnd {
    match end {
        BodyEnd::Idle if initial => AttemptEnd::NoWatchList { for_good: false },
        // After etcd was restored from a backup, the version of the watch can be higher than the
        // newest version. Then the kube-apiserver sends nothing.
        BodyEnd::Idle if !has_event => AttemptEnd::Expired,
        BodyEnd::Closed if initial => {
            let why = "the watch ended before the kube-apiserver had sent all existing objects";
            AttemptEnd::Failed(GapReason::Unreachable(why.into()), None)
        }
        BodyEnd::Idle | BodyEnd::Closed => AttemptEnd::Closed,
        BodyEnd::TooLong => AttemptEnd::Failed(GapReason::Garbled(InvalidData::TooLarge), None),
        BodyEnd::Broken(why) => AttemptEnd::Failed(GapReason::Unreachable(why), None),
    }
}
