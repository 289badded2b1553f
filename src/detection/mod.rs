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

mod feed_task;

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod supervisor_tests;

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
}

impl Supervisor {
    /// Runs until the sender of `publications` is dropped or the tracker has ended. Then stops all
    /// feeds.
    pub async fn run(self, mut publications: mpsc::Receiver<Publication>) {
        let mut running: HashMap<Arc<Gvr>, Vec<RunningFeed>> = HashMap::new();
        while let Some(Publication {
            target,
            book,
            removed,
        }) = publications.recv().await
        {
            // The tracker must receive all messages of the old feeds before the new rules. So the
            // old feeds are stopped first.
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

/// The task of a feed. Dropping this value aborts the task.
struct RunningFeed(JoinHandle<()>);

impl Drop for RunningFeed {
    fn drop(&mut self) {
        self.0.abort();
    }
}
