//! The task of one feed. A feed is the watch of one target (a resource that rule sets name), in all
//! namespaces or in one.
//!
//! The task gives each event of the feed to the detector, which evaluates the rules. The task sends
//! the results to the tracker, the state machine that turns detections into operations. When the
//! watch is interrupted or works again, the task reports this to the rule-set controller, which
//! writes the status of the rule sets.

use crate::clock;
use crate::rules::Feedback;
use crate::telemetry::{Counter, Metrics};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::ruleset::AGGREGATE_LABEL;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{CheckedEvent, Detector, EvaluatedObject, FeedEvent, StoredBytes};
use ifo_engine::rules::{EvaluationTime, FeedLag, RuleBook, WorkWaitingSince};
use ifo_engine::track::Message;
use ifo_observe::{Feed, GapReason, Raw};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

/// The failure in the status of the rule sets after a feed has ended unexpectedly. The text of a
/// panic can quote an object, so only the log contains this text.
pub(super) const ENDED_UNEXPECTEDLY: &str =
    "an internal error has interrupted the watch, and the log of ifo-apiserver has the details";

/// When a feed has sent results of rules with this total size, in bytes, it waits until the tracker
/// has processed them. The results on one object can take more than 1 MB. Without this limit, a
/// feed could fill the queue of the tracker with results of this size.
const MAX_UNPROCESSED_BYTES: usize = 1 << 20;

/// Starts and stops feeds when the rule-set controller publishes rule books. All clones share the
/// channels and the limits.
#[derive(Clone)]
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

/// The time of evaluations after which the task of a feed lets the other tasks run. A single object
/// can take longer.
const MAX_TURN: Duration = Duration::from_millis(1);

/// A feed and its detector.
pub(super) struct FeedTask {
    /// The source of the feed's events, and the channels to the tracker and to the rule-set controller.
    supervisor: Supervisor,
    source: Source,
    detector: Detector,
    /// Counts the objects that the feed delivers.
    events_read: Counter,
    /// The waiting work of this feed, from which other threads see whether the feed is late.
    lag: FeedLag,
    /// True after the first list. Before the first list, the feed does not count as late, because
    /// its rule sets are reported as incomplete in any case.
    was_synced: bool,
    /// True from the request of the detector for a new list until the list is complete or the watch
    /// is interrupted. The request ends the watch. So the feed is not up to date, even before the
    /// list begins.
    is_relisting: bool,
    /// Size of the results of rules that the task has sent since it last waited for the tracker.
    unprocessed_bytes: usize,
}

impl Drop for FeedTask {
    fn drop(&mut self) {
        self.set_state("stopped");
    }
}

impl FeedTask {
    pub(super) fn new(
        supervisor: Supervisor,
        source: Source,
        book: Arc<RuleBook>,
        thread: &Arc<WorkWaitingSince>,
    ) -> Self {
        let metrics = &supervisor.metrics;
        Self {
            events_read: metrics.of_target(&metrics.series.feed_events, &source.target),
            lag: FeedLag::new(&book, source.namespace.as_deref(), thread),
            detector: Detector::new(book, metrics.clone())
                .with_time(supervisor.time.clone())
                .with_stored_bytes(supervisor.stored_bytes.clone()),
            was_synced: false,
            is_relisting: false,
            unprocessed_bytes: 0,
            source,
            supervisor,
        }
    }

    /// Runs until the tracker, the receiver of `feedback` or the stream of events has ended. Then returns
    /// None. Objects whose rules read the current time (`now`) are evaluated again at the interval
    /// `resync`, but not during a list.
    ///
    /// All feeds run on one thread. So after [`MAX_TURN`] of evaluations, the task lets the other
    /// tasks run.
    ///
    /// `delay` is None unless the previous feed has ended unexpectedly. In this case, this method
    /// first reports the interruption of the watch, and begins to watch after `delay`.
    pub(super) async fn run(mut self, delay: Option<Duration>) -> Option<()> {
        if let Some(delay) = delay {
            self.set_state("lost");
            let event = FeedEvent::Lost;
            self.send(event).await?;
            let failure = Some(ENDED_UNEXPECTEDLY.to_owned());
            self.report_state(failure).await?;
            tokio::time::sleep(delay).await;
        }
        let mut events = self.start_stream();
        let mut resync = tokio::time::interval(self.supervisor.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_resyncing = false;
        loop {
            if let Some(event) = events.next().now_or_never() {
                self.process_event(event?).await?;
            } else {
                // All received changes are processed. During a list, the feed still waits for the
                // rest of the list, so it is not up to date.
                if !self.is_listing() {
                    self.end_work(|lag| &lag.changes).await?;
                }
                if !is_resyncing {
                    // The task now waits, so other tasks can run.
                    *self.detector.spent() = Duration::ZERO;
                    tokio::select! {
                        event = events.next() => self.process_event(event?).await?,
                        _ = resync.tick(), if !self.is_listing() => {
                            is_resyncing = true;
                            let now = clock::reading();
                            self.lag.reevaluation.begin(now.steady);
                            self.detector.begin_resync(now);
                        }
                    }
                }
            }
            if is_resyncing {
                is_resyncing = self.reevaluate_next(&mut events).await?;
            }
            self.detector.settle();
            if *self.detector.spent() >= MAX_TURN {
                *self.detector.spent() = Duration::ZERO;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Evaluates the next object whose rules read `now`. Returns false if there is no further
    /// object. In this case, starts a new list if the detector requests one.
    async fn reevaluate_next(&mut self, events: &mut BoxStream<'static, Raw>) -> Option<bool> {
        tokio::task::coop::consume_budget().await;
        let now = clock::reading();
        let found = self.detector.reevaluate_next(now);
        if found.is_some() {
            self.send_evaluation(found).await?;
            return Some(true);
        }
        if self.detector.wants_list(now) {
            self.is_relisting = true;
            self.lag.changes.begin(now.steady);
            *events = self.start_stream();
        }
        self.end_work(|lag| &lag.reevaluation).await?;
        Some(false)
    }

    /// Returns true during a list, and before a requested list begins.
    fn is_listing(&self) -> bool {
        self.is_relisting || self.detector.is_listing()
    }

    /// Starts a new stream of events. The stream begins with a list of all objects that match the
    /// label selector of the rule book. Without a label selector, all objects match.
    fn start_stream(&self) -> BoxStream<'static, Raw> {
        self.set_state("listing");
        let source = self.source.clone();
        let selector = self.detector.book().selector().map(ToString::to_string);
        self.supervisor.feed.follow(source, selector.as_deref())
    }

    /// Processes one event of the feed.
    ///
    /// This method and the methods below return None if the tracker or the receiver of `feedback`
    /// has ended.
    async fn process_event(&mut self, event: Raw) -> Option<()> {
        let now = clock::reading();
        if self.was_synced {
            self.lag.changes.begin(now.steady);
        }
        // The task drops each object before it sends to the tracker. If the queue of the tracker is
        // full, the send waits. All feeds together may hold only one large object in memory, so
        // another feed may be waiting until this object is dropped.
        match event {
            Raw::Reset => {
                let metrics = &self.supervisor.metrics;
                let relists = &metrics.series.feed_relists;
                metrics.of_target(relists, &self.source.target).inc();
                self.set_state("listing");
                let reset = self.detector.reset();
                self.send(reset).await
            }
            Raw::Applied(object) => {
                self.events_read.inc();
                let found = self.detector.applied(&object, now);
                drop(object);
                self.send_evaluation(found).await
            }
            Raw::Deleted(object) => {
                self.events_read.inc();
                let deleted = self.detector.deleted(&object, now);
                drop(object);
                match deleted {
                    Some(deleted) => self.send_checked(deleted, now).await,
                    None => Some(()),
                }
            }
            // After the report below, lists of operations count as complete. The index must then
            // contain the operations that the feed has just detected. So the task first flushes the
            // tracker.
            Raw::Synced => {
                self.was_synced = true;
                self.is_relisting = false;
                self.set_state("watching");
                let synced = self.detector.synced();
                self.send_checked(synced, now).await?;
                self.flush().await?;
                self.report_state(None).await
            }
            Raw::Lost(lost) => {
                self.is_relisting = false;
                self.set_state("lost");
                let event = FeedEvent::Lost;
                let failure = failure_text(&lost, &self.source.target);
                self.send(event).await?;
                self.report_state(Some(failure)).await
            }
        }
    }

    /// Shows the state of the feed in its metric.
    fn set_state(&self, state: &'static str) {
        let metrics = &self.supervisor.metrics;
        metrics.feed_state(&self.source.target, state);
    }

    /// Records that no work of this kind waits any more. `work` selects the kind: changes of
    /// objects, or objects that must be evaluated again.
    ///
    /// While the work is late, lists of operations have a warning. After this call, they have none,
    /// so the index must contain the operations of the late evaluations. For this reason, this
    /// method first flushes the tracker.
    async fn end_work(&self, work: fn(&FeedLag) -> &WorkWaitingSince) -> Option<()> {
        let work = work(&self.lag);
        if work.is_late(clock::steady()) {
            self.flush().await?;
        }
        work.end();
        Some(())
    }

    /// Sends the result of an evaluation to the tracker, if the tracker needs it.
    async fn send_evaluation(&mut self, found: Option<EvaluatedObject>) -> Option<()> {
        let Some(event) = found.and_then(EvaluatedObject::into_event) else {
            return Some(());
        };
        if let FeedEvent::Evaluated { evaluation, .. } = &event {
            self.unprocessed_bytes += evaluation.result_bytes();
        }
        self.send(event).await?;
        if self.unprocessed_bytes < MAX_UNPROCESSED_BYTES {
            return Some(());
        }
        self.unprocessed_bytes = 0;
        self.flush().await
    }

    /// Sends an event that can report missing objects: the end of a list, or a deletion. If the
    /// feed has a label selector, the tracker answers with the missing subjects (the missing
    /// objects that have operations). Each of them was deleted, or its labels no longer match the
    /// selector. So the task asks the cluster whether the subject still exists.
    async fn send_checked(
        &mut self,
        (event, missing): CheckedEvent,
        now: ClockReading,
    ) -> Option<()> {
        self.send(event).await?;
        let Some(missing) = missing else {
            return Some(());
        };
        // If no subject is missing, the tracker closes the channel without an answer.
        for subject in missing.await.unwrap_or_default() {
            let (target, object) = (&self.source.target, &subject.reference);
            let exists = self.supervisor.feed.exists(target, object).await;
            let event = self.detector.vanished(subject, exists, now);
            self.send(event).await?;
        }
        Some(())
    }

    async fn send(&self, event: FeedEvent) -> Option<()> {
        let message = Message::Feed {
            source: self.source.clone(),
            generation: self.detector.book().generation,
            event,
        };
        self.supervisor.tracker.send(message).await.ok()
    }

    /// Waits until the changes of all earlier messages to the tracker are in the index.
    async fn flush(&self) -> Option<()> {
        let (done, flushed) = oneshot::channel();
        self.supervisor
            .tracker
            .send(Message::Flush(done))
            .await
            .ok()?;
        flushed.await.ok()
    }

    /// Reports to the rule-set controller why the feed fails, or None if the feed is up to date.
    async fn report_state(&self, failure: Option<String>) -> Option<()> {
        let feedback = Feedback {
            source: self.source.clone(),
            generation: self.detector.book().generation,
            failure,
        };
        self.supervisor.feedback.send(feedback).await.ok()
    }
}

/// Returns the reason why a target is not watched, for the status of its rule sets. If the ifo
/// server may not read the target, the text contains commands that grant this right.
fn failure_text(lost: &GapReason, target: &Gvr) -> String {
    if !matches!(lost, GapReason::Refused { code: 403, .. }) {
        return lost.to_string();
    }
    let resource = if target.group.is_empty() {
        target.resource.clone()
    } else {
        format!("{}.{}", target.resource, target.group)
    };
    // The resource was found in discovery, so its name contains no characters that are special in a
    // shell.
    let role = format!("ifo-target-{resource}");
    format!(
        "{lost}; apply the ClusterRole that `kubectl ifo rules roles` prints for this rule set, \
         or run: kubectl create clusterrole {role} --verb=get,list,watch --resource={resource} && \
         kubectl label clusterrole {role} {AGGREGATE_LABEL}=true"
    )
}
