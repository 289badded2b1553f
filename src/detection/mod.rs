//! Watches the resources for which rule sets exist, and evaluates the rules on the objects of these
//! resources. Such a resource is a target. A feed is the watch of one target, in all namespaces or
//! in one.
//!
//! [`Supervisor`] starts and stops feeds when the rule-set controller publishes rule books. A rule
//! book contains all compiled rule sets of one target. If all rule sets of a target name
//! namespaces, the target has one feed for each of these namespaces. Otherwise it has one feed for
//! all namespaces.
//!
//! Each feed has a task. The task gives the events of the feed to a [`Detector`] of the engine. The
//! task sends the detector's results to the tracker, the state machine that turns detections into
//! operations. The task also reports failures of the feed, which appear in the status of the rule
//! sets.
//!
//! A feed can end unexpectedly, for example because the evaluation of a rule panics. Then its task
//! starts a new feed. The new feed first reports the interruption to the tracker and to the
//! rule-set controller. Then it waits, and lists all objects again.
//!
//! [`Detector`]: ifo_engine::detect::Detector

mod feed_task;

#[cfg(test)]
pub(crate) mod tests;

use crate::clock;
use feed_task::FeedTask;
pub use feed_task::Supervisor;
use futures::FutureExt as _;
use ifo_api::{Gvr, Source};
use ifo_client::backoff::Backoff;
use ifo_engine::rules::{RuleBook, WorkWaitingSince};
use ifo_engine::track::{Message, Publication};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest delay before a feed that has ended unexpectedly starts again. Each start lists all
/// objects of the target, so the delay limits the load on the kube-apiserver.
const MAX_RESTART_DELAY: Duration = Duration::from_mins(1);

/// Interval at which the supervisor records a heartbeat. The supervisor runs on the thread of the
/// feeds. If a heartbeat is missing, an evaluation blocks this thread.
const HEARTBEAT: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Runs until the sender of `publications` is dropped, or until the tracker has ended. Then stops
    /// all feeds.
    pub async fn run(self, mut publications: mpsc::Receiver<Publication>) {
        // The tasks of the feeds of each target. Dropping the tasks stops the feeds.
        let mut running: HashMap<Arc<Gvr>, JoinSet<()>> = HashMap::new();
        // The last heartbeat of the thread on which all feeds run.
        let thread = Arc::new(WorkWaitingSince::default());
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            let publication = tokio::select! {
                _ = heartbeat.tick() => {
                    thread.restart(clock::steady());
                    continue;
                }
                publication = publications.recv() => publication,
            };
            let Some(publication) = publication else {
                return;
            };
            let (target, book) = (publication.target.clone(), publication.book.clone());
            // The tracker must receive all messages of the old feeds before the new rules. So the old
            // feeds are stopped first.
            if let Some(mut feeds) = running.remove(&target) {
                feeds.shutdown().await;
            }
            let message = Message::Rules(publication);
            if self.tracker.send(message).await.is_err() {
                return;
            }
            let Some(book) = book else {
                continue;
            };
            let feeds = running.entry(target.clone()).or_default();
            for source in book.sources(&target) {
                feeds.spawn(
                    self.clone()
                        .keep_running(source, book.clone(), thread.clone()),
                );
            }
        }
    }

    /// Runs a feed, and starts it again if it ends unexpectedly. Ends when the tracker has ended,
    /// or when the receiver of `feedback` is dropped.
    async fn keep_running(
        self,
        source: Source,
        book: Arc<RuleBook>,
        thread: Arc<WorkWaitingSince>,
    ) {
        let mut backoff = Backoff::default();
        let mut delay = None;
        loop {
            let began = Instant::now() + delay.unwrap_or_default();
            let feed = FeedTask::new(self.clone(), source.clone(), book.clone(), &thread);
            let running = AssertUnwindSafe(feed.run(delay)).catch_unwind();
            let cause = match running.await {
                Ok(_) => "the events of the watch have ended",
                Err(_) => "panic",
            };
            if self.tracker.is_closed() || self.feedback.is_closed() {
                return;
            }
            let wait = backoff.next(began, MAX_RESTART_DELAY);
            let target = source.target.to_string();
            tracing::error!(
                gvr = target,
                namespace = source.namespace.as_deref(),
                cause,
                "the watch of a target ended unexpectedly, and starts again in {} ms",
                wait.as_millis()
            );
            let restarts = &self.metrics.series.feed_restarts;
            self.metrics.of_target(restarts, &target).inc();
            delay = Some(wait);
        }
    }
}
