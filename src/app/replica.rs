//! The pipeline of a leader. The replica runs it in each term in which it leads.
//!
//! Input: the settings of detection. Output: an index that the tracker writes.

use super::detection::{DetectionSetup, PipelineInput};
use super::spawn;
use crate::index::{IndexReader, Writer};
use crate::replicate::{Leadership, Pipeline, Succession, View};
use crate::serve::{Connections, Health};
use crate::tracking;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Interval at which the readiness of this replica is checked.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// Creates the input of detection, once for each term.
pub(super) type BeginTerm = Box<dyn FnMut(&mut LeaderTerm) -> PipelineInput + Send>;

/// One term in which this replica leads.
pub(super) struct LeaderTerm {
    /// Tasks that end with the term and must not end earlier.
    pub(super) tasks: JoinSet<&'static str>,
    /// Tasks that may finish their current work when the term ends.
    pub(super) last: JoinSet<&'static str>,
    /// The queue to the tracker.
    pub(super) tracker: mpsc::Sender<tracking::Message>,
    /// Cancelled when the term is about to end in an orderly way.
    pub(super) ending: CancellationToken,
    /// The index at the beginning of the term.
    pub(super) operations: IndexReader,
}

impl LeaderTerm {
    /// Adds a task that must not end before the term does.
    pub(super) fn keep(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        spawn(&mut self.tasks, name, task);
    }
}

/// The pipeline of this server.
pub(super) struct ServerPipeline {
    pub(super) operations: IndexReader,
    pub(super) detection: DetectionSetup,
    pub(super) begin: BeginTerm,
    /// The tasks of the current term.
    pub(super) running: Option<TermTasks>,
}

/// The tasks of a term.
pub(super) struct TermTasks {
    tasks: JoinSet<&'static str>,
    last: JoinSet<&'static str>,
    ending: CancellationToken,
}

impl Pipeline for ServerPipeline {
    fn run<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        leadership: &'a Leadership,
    ) -> BoxFuture<'a, Option<&'static str>> {
        let (tracker, messages) = mpsc::channel(tracking::QUEUE_CAPACITY);
        let mut term = LeaderTerm {
            tasks: JoinSet::new(),
            last: JoinSet::new(),
            tracker,
            ending: CancellationToken::new(),
            operations: self.operations.clone(),
        };
        let origin = (self.begin)(&mut term);
        self.detection.start(&mut term, origin);
        let running = self.running.insert(TermTasks {
            tasks: term.tasks,
            last: term.last,
            ending: term.ending,
        });
        let metrics = self.detection.metrics.clone();
        let tracker = self.detection.tracker();
        async move {
            tokio::select! {
                () = tracking::run(tracker, writer, leadership, messages, metrics) => None,
                Some(ended) = running.tasks.join_next() => {
                    Some(ended.unwrap_or("a task of the leader"))
                }
            }
        }
        .boxed()
    }

    fn end(&mut self, in_order: bool) -> BoxFuture<'_, ()> {
        async move {
            if let Some(mut running) = self.running.take() {
                running.tasks.shutdown().await;
                if in_order {
                    running.ending.cancel();
                    while running.last.join_next().await.is_some() {}
                }
                running.last.shutdown().await;
            }
            self.detection.forget();
        }
        .boxed()
    }
}

/// Updates the readiness of this replica. Never ends.
pub(super) async fn keep_readiness(
    view: View,
    health: Arc<Health>,
    connections: Arc<Connections>,
    mut in_sync: watch::Receiver<Option<crate::replicate::Term>>,
    succeeded: watch::Receiver<Succession>,
) {
    let mut impaired = None;
    loop {
        let is_in_sync = in_sync.borrow_and_update().is_some();
        let succession = *succeeded.borrow();
        if is_in_sync || succession == Succession::Loaded {
            // A complete list of operations came from a leader that has read all targets.
            health.set_synced();
        }
        if is_in_sync || view.is_without_leader(succession) {
            health.set_has_joined();
        }
        let impairment = view.impairment();
        if impaired != impairment {
            if let Some(reason) = impairment {
                tracing::warn!("this replica is not ready: {reason}");
                connections.turn_away();
            } else {
                tracing::info!("this replica is ready again");
            }
            impaired = impairment;
        }
        health.set_impaired(impairment.is_some());
        tokio::select! {
            changed = in_sync.changed() => if changed.is_err() {
                tokio::time::sleep(READINESS_INTERVAL).await;
            },
            () = tokio::time::sleep(READINESS_INTERVAL) => {}
        }
    }
}
