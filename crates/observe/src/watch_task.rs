//! A feed lists and watches one source in a cluster: a resource, in all namespaces or in one. It
//! turns the answers of the kube-apiserver into [`Raw`] events.
//!
//! In this diagram, the version is the resourceVersion from which a watch can continue:
//!
//! ```text
//!   no version ──pages of a list──▶ Synced ──▶ watch from the version ◀───┐
//!       ▲                                        │ 410   │ end of the watch │
//!       └────────────────────────────────────────┘       └──────────────────┘
//! ```
//!
//! After a list, the version is the resourceVersion of the list. After a watch, it is the
//! resourceVersion of the last event or bookmark.
//!
//! A feed does not use the watcher of the crate kube. This watcher decodes whole objects, does not
//! limit their size, and does not report when a watch works again.

use super::{
    GapReason, Raw,
    lines::{LargeObjects, Lines, NextLine},
    requests::{Failure, unreachable},
    watch_event::{self, WatchLine},
};
use futures::{AsyncBufRead, SinkExt as _, channel::mpsc};
use ifo_api::Source;
use ifo_client::backoff::Backoff;
use kube::api::WatchParams;
use std::{
    pin::{Pin, pin},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

/// The longest time without a line in a watch, and the longest wait for the beginning of an answer.
/// After this time, the feed opens a new watch. If the watch never sent a line, the feed first
/// lists all objects again. A kube-apiserver sends a bookmark every 60 s, so two bookmarks are then
/// missing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// After an interruption, a watch continues from the last known version. If the kube-apiserver
/// sends no line within this time, the watch counts as working, and the feed sends `Synced`. If the
/// version is too old, the kube-apiserver sends an error at once. The feed does not wait for the
/// first line, because a working watch can be silent for 60 s, until its first bookmark.
const RESUMED_AFTER: Duration = Duration::from_secs(1);

/// If a feed that is up to date waits longer than this time, it reports an interruption to its
/// consumer, and continues to wait. The feed can wait for an answer, for the permit for large
/// objects, or for the next attempt.
const INTERRUPTION_REPORT_DELAY: Duration = Duration::from_secs(2);

/// Maximum delay before the next attempt if the kube-apiserver cannot be reached or fails
/// temporarily. After 401, 403, 404 or invalid data, the maximum delay is `REQUEUE_INTERVAL` (60 s
/// by default), because such a failure usually lasts longer.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(5);

/// The body of an answer.
pub(super) type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// Lists and watches one source. [`WatchTask::run`] never returns. The caller ends the watch by
/// dropping the future.
pub(super) struct WatchTask {
    pub(super) client: kube::Client,
    pub(super) source: Source,
    /// Builds the requests for the objects of the source.
    pub(super) request: kube::core::Request,
    /// The label selector of the requests. `None` means that the feed reads all objects.
    pub(super) selection: Option<String>,
    pub(super) retry_interval: Duration,
    pub(super) large_objects: LargeObjects,
    pub(super) out: mpsc::Sender<Raw>,
    pub(super) backoff: Backoff,
    /// True if the feed has sent `Synced`, and neither `Reset` nor `Lost` since then.
    pub(super) is_synced: bool,
    /// The resourceVersion from which a watch can continue. `None` if all objects must be read.
    pub(super) version: Option<String>,
    /// Number of objects to request in one page.
    pub(super) page: u32,
}

impl WatchTask {
    /// Reads objects until the caller drops the future.
    pub(super) async fn run(mut self) {
        loop {
            let mut began = Instant::now();
            let end = self.list_and_watch().await;
            debug!(source = %self.source, ?end, "watch ended");
            let mut max_delay = MAX_UNREACHABLE_DELAY.min(self.retry_interval);
            match end {
                Ok(()) => {}
                Err(Failure::Expired) => self.version = None,
                Err(Failure::Lost(why)) => {
                    match why {
                        GapReason::Garbled(_) => {
                            // The feed lacks the data that it could not decode, so the next attempt
                            // lists all objects. The backoff resets after an attempt that lasted
                            // long. The failed attempt may have lasted long only because of its
                            // list. So it counts as an attempt that began now.
                            self.version = None;
                            began = Instant::now();
                            max_delay = self.retry_interval;
                        }
                        GapReason::Refused {
                            code: 401 | 403 | 404,
                            ..
                        } => max_delay = self.retry_interval,
                        _ => {}
                    }
                    self.report_lost(why).await;
                }
            }
            let wait = self.backoff.next(began, max_delay);
            if self.is_synced && wait > INTERRUPTION_REPORT_DELAY {
                let why = "the kube-apiserver ends each watch as soon as the watch is open";
                self.report_lost(GapReason::Unreachable(why.into())).await;
            }
            sleep(wait).await;
        }
    }

    /// Reads all objects if necessary, and then watches their changes until the kube-apiserver closes
    /// the watch, as it does after some minutes. The next watch continues from the last version.
    async fn list_and_watch(&mut self) -> Result<(), Failure> {
        if self.version.is_none() {
            self.list().await?;
        }
        match self.version.clone() {
            Some(version) => self.watch(&version).await,
            None => Err(Failure::Expired),
        }
    }

    /// Sends a request, and waits for the beginning of the answer.
    pub(super) async fn open(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Body, Failure> {
        let client = self.client.clone();
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = timeout(IDLE_TIMEOUT, client.request_stream(request));
        match self.wait_for(answer, "no answer yet").await {
            Ok(answer) => Ok(Box::pin(answer?)),
            Err(_) => Err(unreachable(format!("no answer within {IDLE_TIMEOUT:?}"))),
        }
    }

    /// Waits for the result of `work`. If the feed is up to date and the wait takes longer than
    /// [`INTERRUPTION_REPORT_DELAY`], reports an interruption with the reason `why`.
    pub(super) async fn wait_for<T>(&mut self, work: impl Future<Output = T>, why: &str) -> T {
        let mut work = pin!(work);
        if self.is_synced {
            if let Ok(result) = timeout(INTERRUPTION_REPORT_DELAY, &mut work).await {
                return result;
            }
            self.report_lost(GapReason::Unreachable(why.into())).await;
        }
        work.await
    }

    /// Watches the changes since `version`, until the watch ends.
    async fn watch(&mut self, version: &str) -> Result<(), Failure> {
        let params = WatchParams {
            label_selector: self.selection.clone(),
            // A long watch saves requests. The time is random, so that feeds that started together do
            // not reconnect together.
            timeout: Some(fastrand::u32(300..=600)),
            ..WatchParams::default()
        };
        let body = self.open(self.request.watch(&params, version)).await?;
        let mut lines = Lines::new(body, self.large_objects.clone());
        let mut has_event = false;
        loop {
            let limit = if self.is_synced {
                IDLE_TIMEOUT
            } else {
                RESUMED_AFTER
            };
            let line = match lines.next(limit).await? {
                NextLine::Line(line) => line,
                NextLine::Idle if !self.is_synced => {
                    self.report_synced().await;
                    continue;
                }
                // A restored etcd can have only older versions than this watch. Then the
                // kube-apiserver sends nothing, and the feed must list again.
                NextLine::Idle if !has_event => return Err(Failure::Expired),
                NextLine::Idle | NextLine::End => return Ok(()),
            };
            let event = watch_event::read(&line)?;
            // A large line holds the permit for large objects. From now on, only the event holds
            // it.
            drop(line);
            has_event = true;
            if !self.is_synced && !matches!(event, WatchLine::Error(_)) {
                self.report_synced().await;
            }
            match event {
                WatchLine::Applied(object) => {
                    self.version = watch_event::resource_version(&object);
                    self.send(Raw::Applied(object)).await;
                }
                WatchLine::Deleted(object) => {
                    self.version = watch_event::resource_version(&object);
                    self.send(Raw::Deleted(object)).await;
                }
                WatchLine::Bookmark(version) => self.version = Some(version),
                WatchLine::Error(status) => return Err((*status).into()),
            }
        }
    }

    pub(super) async fn reset(&mut self) {
        self.is_synced = false;
        self.send(Raw::Reset).await;
    }

    pub(super) async fn report_synced(&mut self) {
        self.is_synced = true;
        info!(source = %self.source, "up to date");
        self.send(Raw::Synced).await;
    }

    async fn report_lost(&mut self, why: GapReason) {
        self.is_synced = false;
        warn!(source = %self.source, reason = %why, "the watch is interrupted");
        self.send(Raw::Lost(why)).await;
    }

    /// Sends an event to the consumer, and waits until the consumer has taken it. An error is
    /// ignored: it means that the consumer has dropped the feed, and with it this future.
    pub(super) async fn send(&mut self, raw: Raw) {
        let _ = self.out.send(raw).await;
    }
}
