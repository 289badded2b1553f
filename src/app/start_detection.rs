//! Starts the detection of operations on the leader:
//!
//! - The rule-set controller compiles rule sets to rule books. A rule book contains all rule sets
//!   of one target (a watched resource).
//! - The supervisor runs the feeds (the watches) of each target.
//! - The feeds send detections to the tracker, which turns the detections into operations.
//!
//! This module also decides when a new leader has detected enough operations to serve them.

use super::leader_term::{LeaderTerm, PipelineInput};
use super::server_pipeline::ServerPipeline;
use crate::clock;
use crate::detection::Supervisor;
use crate::persist::UnsyncedRuleSets;
use crate::rules::{Controller, Outputs, Report, compile_on_thread};
use crate::tracker_task::{ActivityWriter, send_gaps};
use aggregated_apiserver::serve::Readiness;
use ifo_engine::rules::{EvaluationInstant, EvaluationTime};
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

impl ServerPipeline {
    /// Creates a tracker without operations.
    pub(super) fn tracker(&self) -> Tracker {
        let common = &self.shared.common;
        let settings = TrackerSettings {
            debounce: common.debounce,
            retain: common.retain.then_some(Retention {
                age: common.retain_for,
                max_count: common.retain_max,
            }),
            max_records: common.history_max,
            cluster_namespace: self.shared.cluster_namespace(),
        };
        let metrics = self.shared.metrics.clone();
        Tracker::with_baselines(settings, metrics, self.shared.baselines.clone())
    }

    /// Creates the writer of activities.
    pub(super) fn activity_writer(&self) -> ActivityWriter {
        let shared = &self.shared;
        let reader = shared.replica_status.reader();
        ActivityWriter::new(shared.cluster_namespace(), reader)
    }

    /// Starts the supervisor, the rule-set controller and [`watch_sync_state`].
    pub(super) fn start_detection(&self, term: &mut LeaderTerm, input: PipelineInput) {
        let common = &self.shared.common;
        let (publications, published) = mpsc::channel(BOOKS_CAPACITY);
        let (feedback, reported) = mpsc::channel(FEEDBACK_CAPACITY);
        let supervisor = Supervisor {
            feed: input.feed,
            tracker: term.tracker.clone(),
            feedback,
            metrics: self.shared.metrics.clone(),
            resync: common.resync,
            stored_bytes: Arc::default(),
            time: Arc::new(EvaluationTime::new(|| EvaluationInstant {
                at: clock::steady(),
                used: clock::processor_time(),
            })),
        };
        term.tasks.start("supervisor", supervisor.run(published));
        let gaps = send_gaps(self.shared.read_gaps(), term.tracker.clone());
        term.tasks.start("gaps", gaps);
        let controller = Controller::new(
            input.resolve,
            Arc::new(compile_on_thread),
            common.requeue,
            common.allow_secrets,
        );
        let outputs = Outputs {
            publications,
            report: self.shared.report.clone(),
            status: input.status,
        };
        let synced = watch_sync_state(
            self.shared.report.subscribe(),
            term.tracker.clone(),
            self.shared.readiness.clone(),
            term.unsynced_rule_sets.clone(),
            common.sync_timeout,
        );
        // The controller starts after the operations of earlier leaders are restored. Without the
        // controller, no feed starts. So no operation is detected before the restoration is
        // complete.
        term.tasks.start("rules", async move {
            input.restored.await;
            tokio::select! {
                () = controller.run(input.rule_sets, reported, outputs) => {}
                () = synced => {}
            }
        });
    }
}

/// Decides when a new leader begins to serve operations, and keeps `unsynced_rule_sets` up to date.
/// Never ends. The caller must first restore the operations of earlier leaders.
///
/// A replica that copied the operations of an earlier leader already serves operations when it
/// becomes the leader. Any other new leader begins when both conditions are met:
///
/// - Every feed of the first listed rule sets has reported that it has read its target, or that the
///   read failed.
/// - The operations that these feeds detected are in the index.
///
/// If these conditions are not met within the time `limit`, the leader serves the operations that
/// it has detected so far.
async fn watch_sync_state(
    mut reports: watch::Receiver<Arc<Report>>,
    tracker: mpsc::Sender<Message>,
    readiness: Arc<Readiness>,
    unsynced_rule_sets: watch::Sender<Option<Arc<UnsyncedRuleSets>>>,
    limit: Duration,
) {
    let late = async {
        tokio::time::sleep(limit).await;
        if unsynced_rule_sets.borrow().is_none() {
            tracing::warn!(
                "not every target has been read within {} s; the operations that were detected so far are served",
                limit.as_secs()
            );
            readiness.set_synced();
        }
    };
    let following = async {
        let mut last = None;
        // The sender of the reports is never dropped.
        while reports.changed().await.is_ok() {
            // This task first takes the newest report of the rule-set controller. Then it sends a
            // `Flush` message to the tracker, and waits until the tracker has committed all earlier
            // messages. After that, the index contains all operations that feeds detected before
            // the controller sent the report.
            let report = reports.borrow_and_update().clone();
            let without_book = report.without_book.clone();
            let state = without_book.map(|it| (it, report.unsynced()));
            if let Some((without_book, unsynced)) = &state
                && state != last
            {
                // These calls fail only if the leadership term is ending.
                let (done, flushed) = oneshot::channel();
                let sent = Message::AllRuleBooksSent(without_book.clone());
                let _ = tracker.send(sent).await;
                let _ = tracker.send(Message::Flush(done)).await;
                let _ = flushed.await;
                readiness.set_synced();
                let unsynced = Some(Arc::new(unsynced.clone()));
                if unsynced_rule_sets.send_replace(unsynced).is_none() {
                    tracing::info!("every target has been read, or its read has failed");
                }
            }
            last = state;
        }
    };
    tokio::join!(late, following);
}
