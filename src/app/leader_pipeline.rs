//! Starts the detection of operations on the leader. The rule-set controller compiles rule sets to
//! rule books. The supervisor runs a feed (the watch of a resource) for each rule book. The feeds
//! send detections to the tracker, which turns them into operations.
//!
//! This module also decides when the operations are complete enough to be served.

use super::leader_term::LeaderTerm;
use crate::config::Common;
use crate::detection::Supervisor;
use crate::observe::{Feed, Resolve};
use crate::persist::UnreadRuleSets;
use crate::rules::{Controller, Inputs, Outputs, Report, RuleSetEvent, StatusSink};
use crate::serve::Health;
use crate::telemetry::Metrics;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use ifo_engine::rules::RuleSetsWithoutBook;
use ifo_engine::track::{Message, Retention, Tracker, TrackerSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Capacity of the queue of reports from feeds to the rule-set controller. When the queue is full,
/// feeds wait.
const FEEDBACK_CAPACITY: usize = 256;

/// Capacity of the queue of rule books to the supervisor. When the queue is full, the controller
/// waits.
const BOOKS_CAPACITY: usize = 64;

/// The sources that the pipeline reads.
pub(super) struct PipelineInput {
    pub(super) feed: Arc<dyn Feed>,
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) rule_sets: BoxStream<'static, RuleSetEvent>,
    pub(super) status: Arc<dyn StatusSink>,
    /// Completes when the tracker has received the operations of earlier leaders.
    pub(super) restored: BoxFuture<'static, ()>,
    /// `None` until every target (every resource that is watched for rule sets) has been read in
    /// this leadership term, or has failed to be read.
    ///
    /// After that, the names of the rule sets whose targets are not up to date. An operation of any
    /// other rule set has ended if the index does not contain it.
    pub(super) settled: watch::Sender<Option<Arc<UnreadRuleSets>>>,
}

/// The values from which detection is started in each leadership term.
pub(super) struct DetectionSetup {
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    /// Sends the newest report on which rule sets work.
    pub(super) report: watch::Sender<Arc<Report>>,
    common: Common,
}

impl DetectionSetup {
    pub(super) fn new(
        common: Common,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        report: watch::Sender<Arc<Report>>,
    ) -> Self {
        Self {
            metrics,
            health,
            report,
            common,
        }
    }

    /// Creates a tracker without operations.
    pub(super) fn tracker(&self) -> Tracker {
        let common = &self.common;
        let settings = TrackerSettings {
            debounce: common.debounce,
            retain: common.retain.then_some(Retention {
                age: common.retain_for,
                most: common.retain_max,
            }),
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        };
        Tracker::new(settings, self.metrics.clone())
    }

    /// Clears the report on rule sets, because it was valid only in the leadership term that has
    /// ended.
    pub(super) fn clear_report(&self) {
        self.report.send_replace(Arc::default());
    }

    /// Starts the tasks of the pipeline.
    pub(super) fn start(&self, term: &mut LeaderTerm, origin: PipelineInput) {
        let common = &self.common;
        let (publications, published) = mpsc::channel(BOOKS_CAPACITY);
        let (feedback, reported) = mpsc::channel(FEEDBACK_CAPACITY);
        let (caught_up, catching_up) = watch::channel(None);
        let (unread_rule_sets, unread) = watch::channel(Arc::default());
        let supervisor = Supervisor {
            feed: origin.feed,
            tracker: term.tracker.clone(),
            feedback,
            metrics: self.metrics.clone(),
            resync: common.resync,
        };
        term.keep("supervisor", supervisor.run(published));
        let (restored, may_serve) = oneshot::channel();
        // A feed starts only for a rule set, and no rule sets arrive before the earlier operations
        // are restored. So nothing is detected before that.
        let rule_sets = origin.restored.map(move |()| {
            // The receiver is dropped only if the process is stopping.
            let _ = restored.send(());
            origin.rule_sets
        });
        let controller = Controller::new(origin.resolve, common.requeue, common.allow_secrets);
        let inputs = Inputs {
            rule_sets: rule_sets.flatten_stream().boxed(),
            feedback: reported,
        };
        let outputs = Outputs {
            publications,
            caught_up,
            unread_rule_sets,
            report: self.report.clone(),
            status: origin.status,
        };
        term.keep("rules", controller.run(inputs, outputs));
        let synced = first_sync(
            may_serve,
            (catching_up, unread),
            term.tracker.clone(),
            self.health.clone(),
            origin.settled,
            common.sync_timeout,
        );
        term.keep("first sync", synced);
    }
}

/// Decides when data is served for the first time, and keeps `settled` up to date. Never ends.
///
/// Data is served when these conditions are met:
///
/// - The operations of earlier leaders are restored.
/// - Every feed of the first rule sets has reported whether it could read its target.
/// - The operations that these feeds detected are in the index.
///
/// If the feeds take longer than `limit` after the restoration, data is served without them.
async fn first_sync(
    restored: oneshot::Receiver<()>,
    (mut caught_up, mut unread): (
        watch::Receiver<Option<Arc<RuleSetsWithoutBook>>>,
        watch::Receiver<Arc<UnreadRuleSets>>,
    ),
    tracker: mpsc::Sender<Message>,
    health: Arc<Health>,
    settled: watch::Sender<Option<Arc<UnreadRuleSets>>>,
    limit: Duration,
) {
    // The sender is dropped only if the process is stopping.
    let _ = restored.await;
    let complete = async {
        // A closed channel means that the process is stopping.
        let _ = caught_up.wait_for(Option::is_some).await;
        flush(&mut caught_up, &tracker).await;
    };
    if tokio::time::timeout(limit, complete).await.is_err() {
        tracing::warn!(
            "not every target has been read within {} s; the operations that were detected so far are served",
            limit.as_secs()
        );
    } else {
        tracing::info!("every target has been read");
    }
    health.set_synced();
    loop {
        // The value is taken before the flush. After the flush, the index contains everything that
        // was detected before this value was sent.
        let unread_now = unread.borrow_and_update().clone();
        flush(&mut caught_up, &tracker).await;
        if caught_up.borrow().is_some() {
            settled.send_replace(Some(unread_now));
        }
        let changed = tokio::select! {
            changed = caught_up.changed() => changed,
            changed = unread.changed() => changed,
        };
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Sends the tracker the rule sets that have no rule book. Returns after the tracker has processed
/// this message and all earlier messages.
///
/// Returns at once if not every feed of the first rule sets has reported.
async fn flush(
    caught_up: &mut watch::Receiver<Option<Arc<RuleSetsWithoutBook>>>,
    tracker: &mpsc::Sender<Message>,
) {
    let Some(bookless) = caught_up.borrow_and_update().clone() else {
        return;
    };
    let (done, flushed) = oneshot::channel();
    for message in [Message::Booked(bookless), Message::Flush(done)] {
        if tracker.send(message).await.is_err() {
            return;
        }
    }
    let _ = flushed.await;
}
