//! Runs the leader's pipeline (the tasks that detect operations) in each leadership term. A
//! leadership term is the time for which this replica leads. This module also updates the readiness
//! of this replica.

use super::spawn;
use super::start_detection::{DetectionSetup, PipelineInput};
use crate::index::{IndexReader, Writer};
use crate::replicate::{Leadership, Pipeline, ReplicaStatus, Succession};
use crate::serve::{Connections, Readiness};
use crate::tracker_task;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_engine::track::SharedBaselines;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Interval at which the readiness of this replica is checked.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// The function that [`ServerPipeline`] calls at the beginning of a leadership term. It starts the
/// tasks of the leader that are not part of the pipeline, and returns the inputs of the pipeline.
pub(super) type BeginTerm = Box<dyn FnMut(&mut LeaderTerm) -> PipelineInput + Send>;

/// One leadership term: the time for which this replica leads.
pub(super) struct LeaderTerm {
    /// Tasks that must not end before the term ends. If a task ends earlier, the process stops.
    pub(super) tasks: JoinSet<&'static str>,
    /// Tasks that finish their current work if the end of the term is orderly (see `ending`).
    pub(super) finishing_tasks: JoinSet<&'static str>,
    /// The queue of messages to the tracker.
    pub(super) tracker: mpsc::Sender<tracker_task::Message>,
    /// Cancelled at an orderly end of the term, for example because the process is stopping. Then
    /// the tasks in `finishing_tasks` finish their work. If another replica has taken the Lease, or
    /// if this replica could not renew it, the end is not orderly. Then all tasks are aborted.
    pub(super) ending: CancellationToken,
    /// The reader of the index.
    pub(super) operations: IndexReader,
    /// The durations of earlier runs of operations.
    pub(super) baselines: SharedBaselines,
}

impl LeaderTerm {
    /// Starts a task that must not end before the term ends.
    pub(super) fn start_task(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        spawn(&mut self.tasks, name, task);
    }
}

/// The pipeline that this server runs while it leads.
pub(super) struct ServerPipeline {
    pub(super) operations: IndexReader,
    pub(super) detection: DetectionSetup,
    pub(super) begin_term: BeginTerm,
    /// The tasks of the current term. `None` while this replica does not lead.
    pub(super) running: Option<TermTasks>,
}

/// The tasks of one leadership term, as in [`LeaderTerm`].
pub(super) struct TermTasks {
    tasks: JoinSet<&'static str>,
    finishing_tasks: JoinSet<&'static str>,
    ending: CancellationToken,
}

impl Pipeline for ServerPipeline {
    fn run<'a>(
        &'a mut self,
        writer: &'a mut Writer,
        leadership: &'a Leadership,
    ) -> BoxFuture<'a, Option<&'static str>> {
        let (tracker, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
        let mut term = LeaderTerm {
            tasks: JoinSet::new(),
            finishing_tasks: JoinSet::new(),
            tracker,
            ending: CancellationToken::new(),
            operations: self.operations.clone(),
            baselines: self.detection.baselines.clone(),
        };
        let origin = (self.begin_term)(&mut term);
        self.detection.start(&mut term, origin);
        let running = self.running.insert(TermTasks {
            tasks: term.tasks,
            finishing_tasks: term.finishing_tasks,
            ending: term.ending,
        });
        let metrics = self.detection.metrics.clone();
        let tracker = self.detection.tracker();
        async move {
            tokio::select! {
                () = tracker_task::run(tracker, writer, leadership, messages, metrics) => None,
                Some(ended) = running.tasks.join_next() => {
                    Some(ended.unwrap_or("a task of the leader that panicked"))
                }
            }
        }
        .boxed()
    }

    fn end(&mut self, is_orderly: bool) -> BoxFuture<'_, ()> {
        async move {
            if let Some(mut running) = self.running.take() {
                running.tasks.shutdown().await;
                if is_orderly {
                    running.ending.cancel();
                    while running.finishing_tasks.join_next().await.is_some() {}
                }
                running.finishing_tasks.shutdown().await;
            }
            self.detection.clear();
        }
        .boxed()
    }
}

/// Keeps the result of the readiness probe up to date. Never ends.
pub(super) async fn keep_readiness(
    replica_status: ReplicaStatus,
    readiness: Arc<Readiness>,
    connections: Arc<Connections>,
    mut in_sync: watch::Receiver<Option<crate::replicate::Term>>,
    succession: watch::Receiver<Succession>,
) {
    let mut impaired = None;
    loop {
        let is_in_sync = in_sync.borrow_and_update().is_some();
        let succession_now = *succession.borrow();
        if is_in_sync || succession_now == Succession::Loaded {
            // This replica has copied all operations. If it is in sync, it has the operations of
            // the leader. `Loaded` means: it has the operations of a server of release 0.1.0.
            readiness.set_synced();
        }
        if is_in_sync
            || replica_status.is_ready_without_leader(succession_now)
            || replica_status.is_unregistered()
        {
            readiness.set_has_joined();
        }
        let impairment = replica_status.impairment();
        if impaired != impairment {
            if let Some(reason) = impairment {
                tracing::warn!("this replica is not ready: {reason}");
                connections.close_client_connections();
            } else {
                tracing::info!("this replica is ready again");
            }
            impaired = impairment;
        }
        readiness.set_impaired(impairment.is_some());
        tokio::select! {
            changed = in_sync.changed() => if changed.is_err() {
                tokio::time::sleep(READINESS_INTERVAL).await;
            },
            () = tokio::time::sleep(READINESS_INTERVAL) => {}
        }
    }
}
