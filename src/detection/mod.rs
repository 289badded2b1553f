//! Connects feeds and rules. Input: the rule books that the controller publishes, and the raw
//! events of the feeds. Output: messages to the tracker, and reports on the feeds for the status of
//! rule sets.
//!
//! [`Supervisor`] starts and stops feeds when books are published. A target has one feed, or one
//! for each namespace if all of its rule sets name namespaces. Each feed has a task, which passes
//! its events to a [`Detector`] of the engine.

mod feed_task;

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;

use crate::observe::Feed;
use crate::rules::{Feedback, Publication};
use crate::telemetry::Metrics;
use feed_task::FeedTask;
use ifo_api::{Gvr, Source};
use ifo_engine::detect::Detector;
use ifo_engine::rules::RuleBook;
use ifo_engine::track::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Starts and stops feeds when books are published.
pub struct Supervisor {
    /// The source of objects.
    pub feed: Arc<dyn Feed>,
    /// The receiver of evaluations.
    pub tracker: mpsc::Sender<Message>,
    /// The receiver of the feeds' states.
    pub feedback: mpsc::Sender<Feedback>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Interval at which rules that depend on the time are evaluated again.
    pub resync: Duration,
}

impl Supervisor {
    /// Runs until there are no more publications, and then ends all feeds.
    pub async fn run(self, mut publications: mpsc::Receiver<Publication>) {
        let mut running: HashMap<Arc<Gvr>, Vec<RunningFeed>> = HashMap::new();
        while let Some(Publication {
            target,
            book,
            removed,
        }) = publications.recv().await
        {
            // The old feeds have ended before the tracker receives new rules, so that their
            // messages arrive before the rules.
            for mut feed in running.remove(&target).unwrap_or_default() {
                feed.0.abort();
                let _ = (&mut feed.0).await;
            }
            let message = Message::Rules {
                target: target.clone(),
                book: book.clone(),
                removed,
            };
            if self.tracker.send(message).await.is_err() {
                return;
            }
            let Some(book) = book else {
                self.metrics.feed_state(&target.to_string(), "stopped");
                continue;
            };
            let sources = book.sources(&target).into_iter();
            let feeds = sources.map(|source| self.start(source, book.clone()));
            let feeds = feeds.collect();
            running.insert(target, feeds);
        }
    }

    fn start(&self, source: Source, book: Arc<RuleBook>) -> RunningFeed {
        let task = FeedTask {
            feed: self.feed.clone(),
            events_read: self.metrics.feed_events(&source.target.to_string()),
            detector: Detector::new(book, self.metrics.clone()),
            source,
            tracker: self.tracker.clone(),
            feedback: self.feedback.clone(),
        };
        RunningFeed(tokio::spawn(task.run(self.resync)))
    }
}

/// A task that is aborted when this is dropped.
struct RunningFeed(JoinHandle<()>);

impl Drop for RunningFeed {
    fn drop(&mut self) {
        self.0.abort();
    }
}
