//! Starts the detection of operations on the leader. The rule-set controller compiles rule sets to
//! rule books. A rule book contains all rule sets of one target (a watched resource). The
//! supervisor runs the feeds (the watches) of each target. The feeds send detections to the
//! tracker, which turns them into operations.
//!
//! This module also decides when a new leader has detected enough operations to serve them.

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
use ifo_engine::track::{Message, Retention, SharedBaselines, Tracker, TrackerSettings};
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
    /// The rule sets whose operations may be missing in the index. With this value, persistence
    /// mode finds the custom resources whose operation has ended.
    ///
    /// In each leadership term, the value is `None` until the server has read every target, or has
    /// failed to read it. After that, the value contains the rule sets whose targets are not up to
    /// date. Suppose that a custom resource belongs to a rule set that is not in the value. If the
    /// index does not contain its operation, the operation has ended.
    pub(super) unread_rule_sets: watch::Sender<Option<Arc<UnreadRuleSets>>>,
}

/// The values from which detection is started in each leadership term (the time for which this
/// replica leads).
pub(super) struct DetectionSetup {
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    /// Sends the newest report. The report says which rule sets work.
    pub(super) report: watch::Sender<Arc<Report>>,
    /// The durations of earlier runs. Empty while this replica does not lead.
    pub(super) baselines: SharedBaselines,
    common: Common,
}

impl DetectionSetup {
    pub(super) fn new(
        common: Common,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        report: watch::Sender<Arc<Report>>,
        baselines: SharedBaselines,
    ) -> Self {
        Self {
            metrics,
            health,
            report,
            baselines,
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
            records: common.history_max,
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        };
        Tracker::with_baselines(settings, self.metrics.clone(), self.baselines.clone())
    }

    /// Clears the report on rule sets and the durations of earlier runs, because both were valid
    /// only in the leadership term that has ended. The next leader reads the durations again.
    pub(super) fn clear(&self) {
        self.report.send_replace(Arc::default());
        self.baselines.clear();
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
        term.start_task("supervisor", supervisor.run(published));
        let (restored, may_serve) = oneshot::channel();
        // The controller receives the rule sets after the operations of earlier leaders are
        // restored. A feed starts only for a rule set, so no operation is detected before the
        // restoration is complete.
        let rule_sets = origin.restored.map(move |()| {
            // The send fails only if the leadership term is ending.
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
        term.start_task("rules", controller.run(inputs, outputs));
        let synced = first_sync(
            may_serve,
            (catching_up, unread),
            term.tracker.clone(),
            self.health.clone(),
            origin.unread_rule_sets,
            common.sync_timeout,
        );
        term.start_task("first sync", synced);
    }
}

/// Decides when a new leader begins to serve operations, and keeps `unread_rule_sets` up to date.
/// Never ends. A replica that has copied the operations of an earlier leader serves them already.
///
/// The leader begins when all of these conditions are met:
///
/// - The operations of earlier leaders are restored.
/// - Every feed of the first rule sets has reported that its target was read, or that the read
///   failed.
/// - The operations that these feeds detected are in the index.
///
/// If the last two conditions are not met within the time `limit` after the restoration, the leader
/// serves the operations that it has detected so far.
async fn first_sync(
    restored: oneshot::Receiver<()>,
    (mut caught_up, mut unread): (
        watch::Receiver<Option<Arc<RuleSetsWithoutBook>>>,
        watch::Receiver<Arc<UnreadRuleSets>>,
    ),
    tracker: mpsc::Sender<Message>,
    health: Arc<Health>,
    unread_rule_sets: watch::Sender<Option<Arc<UnreadRuleSets>>>,
    limit: Duration,
) {
    // The sender is dropped only if the leadership term is ending.
    let _ = restored.await;
    let complete = async {
        // The channel is closed only if the leadership term is ending.
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
        // `unread_now` is read before the flush. So after the flush, the index contains all
        // operations that were detected before `unread_now` was sent.
        let unread_now = unread.borrow_and_update().clone();
        flush(&mut caught_up, &tracker).await;
        if caught_up.borrow().is_some() {
            unread_rule_sets.send_replace(Some(unread_now));
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

/// Sends a message to the tracker with the rule sets whose target has no rule book. Returns after
/// the tracker has processed this message and all earlier messages.
///
/// Does nothing if a feed of the first rule sets has not yet reported that its target was read, or
/// that the read failed.
async fn flush(
    caught_up: &mut watch::Receiver<Option<Arc<RuleSetsWithoutBook>>>,
    tracker: &mpsc::Sender<Message>,
) {
    let Some(without_book) = caught_up.borrow_and_update().clone() else {
        return;
    };
    let (done, flushed) = oneshot::channel();
    for message in [Message::AllRuleSetsRead(without_book), Message::Flush(done)] {
        if tracker.send(message).await.is_err() {
            return;
        }
    }
    let _ = flushed.await;
}
