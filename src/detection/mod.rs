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
//! The task of a feed never ends by itself. If it ends, for example because the evaluation of a
//! rule panics, the supervisor starts it again. The new task first reports the interruption to the
//! tracker and to the rule-set controller. Then it waits, and lists all objects again.

mod feed_task;

#[cfg(test)]
mod interruption_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod slow_rules_tests;
#[cfg(test)]
mod supervisor_tests;

use crate::clock;
use crate::observe::{Backoff, Feed};
use crate::rules::{Feedback, Publication};
use crate::telemetry::Metrics;
use feed_task::FeedTask;
use ifo_api::{Gvr, Source};
use ifo_engine::detect::{Detector, StoredBytes};
use ifo_engine::rules::{EvaluationTime, RegisteredLag, RuleBook, WorkWaitingSince};
use ifo_engine::track::Message;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// Longest delay before the task of a feed that has ended unexpectedly starts again. Each start
/// lists all objects of the target.
const MAX_RESTART_DELAY: Duration = Duration::from_mins(1);

/// Interval at which the supervisor records that the thread of the feeds is not blocked.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Starts and stops feeds when the rule-set controller publishes rule books.
pub struct Supervisor {
    /// Reads the objects from a cluster, from a folder, or from the demo.
    pub feed: Arc<dyn Feed>,
    /// The queue of messages to the tracker.
    pub tracker: mpsc::Sender<Message>,
    /// The queue of reports to the rule-set controller on the state of feeds.
    pub feedback: mpsc::Sender<Feedback>,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// The time between two evaluations of objects whose rules read the current time (`now`).
    pub resync: Duration,
    /// Measures and limits the time of evaluations. All feeds share it.
    pub time: Arc<EvaluationTime>,
    /// Limits the bytes of the objects that feeds store. All feeds share it.
    pub stored_bytes: Arc<StoredBytes>,
}

impl Supervisor {
    /// Runs until the sender of `publications` is dropped, or until the tracker or the receiver of
    /// `feedback` has ended. Then stops all feeds.
    pub async fn run(self, mut publications: mpsc::Receiver<Publication>) {
        let mut running = RunningFeeds::new();
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            tokio::select! {
                _ = heartbeat.tick() => running.thread.restart(clock::steady()),
                publication = publications.recv() => {
                    let Some(publication) = publication else {
                        return;
                    };
                    if !self.apply(publication, &mut running).await {
                        return;
                    }
                }
                (feed, ended) = running.next_ended() => {
                    if self.tracker.is_closed() || self.feedback.is_closed() {
                        return;
                    }
                    self.restart(feed, &ended);
                }
            }
        }
    }

    /// Stops the feeds of the old rule book of a target, and starts the feeds of the new one.
    /// Returns false if the tracker has ended.
    async fn apply(&self, publication: Publication, running: &mut RunningFeeds) -> bool {
        let Publication {
            target,
            book,
            removed,
        } = publication;
        // The tracker must receive all messages of the old feeds before the new rules. So the old
        // feeds are stopped first.
        for mut feed in running.feeds.remove(&target).unwrap_or_default() {
            feed.task.abort();
            let _ = (&mut feed.task).await;
        }
        let message = Message::Rules {
            target: target.clone(),
            book: book.clone(),
            removed,
        };
        if self.tracker.send(message).await.is_err() {
            return false;
        }
        let Some(book) = book else {
            self.metrics.feed_state(&target.to_string(), "stopped");
            return true;
        };
        let sources = book.sources(&target).into_iter();
        let feeds = sources.map(|source| self.start(source, book.clone(), &running.thread));
        let feeds = feeds.collect();
        running.feeds.insert(target, feeds);
        true
    }

    fn start(
        &self,
        source: Source,
        book: Arc<RuleBook>,
        thread: &Arc<WorkWaitingSince>,
    ) -> RunningFeed {
        let task = self.feed_task(source.clone(), book.clone(), thread);
        RunningFeed {
            task: tokio::spawn(task.run(self.resync)),
            source,
            book,
            thread: thread.clone(),
            began: Instant::now(),
            backoff: Backoff::default(),
        }
    }

    /// Starts the task of a feed again, after the task has ended unexpectedly. The new task begins
    /// to watch after a delay.
    fn restart(&self, feed: &mut RunningFeed, ended: &Result<(), JoinError>) {
        feed.backoff.ended(feed.began);
        let delay = feed.backoff.next(MAX_RESTART_DELAY);
        let cause = match ended {
            Ok(()) => "the events of the watch have ended".to_owned(),
            Err(error) => error.to_string(),
        };
        let target = feed.source.target.to_string();
        tracing::error!(
            gvr = target,
            namespace = feed.source.namespace.as_deref(),
            cause,
            "the watch of a target ended unexpectedly, and starts again in {} ms",
            delay.as_millis()
        );
        self.metrics.feed_state(&target, "lost");
        self.metrics.feed_restart(&target);
        let task = self.feed_task(feed.source.clone(), feed.book.clone(), &feed.thread);
        feed.task = tokio::spawn(task.run_after_unexpected_end(delay, self.resync));
        feed.began = Instant::now() + delay;
    }

    fn feed_task(
        &self,
        source: Source,
        book: Arc<RuleBook>,
        thread: &Arc<WorkWaitingSince>,
    ) -> FeedTask {
        FeedTask {
            feed: self.feed.clone(),
            events_read: self.metrics.feed_events(&source.target.to_string()),
            lag: RegisteredLag::new(
                &book,
                source.namespace.as_deref(),
                thread.clone(),
                clock::steady(),
            ),
            was_synced: false,
            is_relisting: false,
            unprocessed_bytes: 0,
            detector: Detector::new(book, self.metrics.clone())
                .with_time(self.time.clone())
                .with_stored_bytes(self.stored_bytes.clone()),
            source,
            tracker: self.tracker.clone(),
            feedback: self.feedback.clone(),
        }
    }
}

/// The running feeds.
struct RunningFeeds {
    /// The feeds of each target.
    feeds: HashMap<Arc<Gvr>, Vec<RunningFeed>>,
    /// The last heartbeat of the thread on which all feeds run.
    thread: Arc<WorkWaitingSince>,
}

impl RunningFeeds {
    fn new() -> Self {
        Self {
            feeds: HashMap::new(),
            thread: Arc::new(WorkWaitingSince::new(clock::steady())),
        }
    }

    /// Waits until the task of a feed ends. Returns the feed and the result of its task. The caller
    /// must replace the task, because the task of a feed must not be polled after its end.
    async fn next_ended(&mut self) -> (&mut RunningFeed, Result<(), JoinError>) {
        let (target, index, ended) = poll_fn(|context| {
            for (target, feeds) in &mut self.feeds {
                for (index, feed) in feeds.iter_mut().enumerate() {
                    if let Poll::Ready(ended) = Pin::new(&mut feed.task).poll(context) {
                        return Poll::Ready((target.clone(), index, ended));
                    }
                }
            }
            Poll::Pending
        })
        .await;
        let feeds = self.feeds.get_mut(&target);
        let feed = feeds.and_then(|feeds| feeds.get_mut(index));
        (feed.expect("the feed was just polled"), ended)
    }
}

/// A feed and its task. Dropping this value aborts the task.
struct RunningFeed {
    source: Source,
    book: Arc<RuleBook>,
    thread: Arc<WorkWaitingSince>,
    task: JoinHandle<()>,
    /// The time at which the task began, or begins, to watch.
    began: Instant,
    backoff: Backoff,
}

impl Drop for RunningFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}
