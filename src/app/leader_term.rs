//! One leadership term, which is the time for which this replica leads. This module also updates the
//! readiness of this replica.

use super::spawn;
use crate::index::IndexReader;
use crate::replicate::ReplicaStatus;
use crate::tracker_task;
use aggregated_apiserver::serve::{Connections, Readiness};
use ifo_engine::track::SharedBaselines;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Interval at which the readiness of this replica is checked.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// One leadership term: the time for which this replica leads.
pub(super) struct LeaderTerm {
    /// Tasks that must not end before the term ends. If a task ends earlier, the process stops.
    pub(super) tasks: JoinSet<&'static str>,
    /// Tasks that finish their current work if the end of the term is orderly (see `ending`). If
    /// such a task ends before the end of the term, the process stops.
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

/// Keeps the result of the readiness probe up to date. Never ends.
pub(super) async fn keep_readiness(
    replica_status: ReplicaStatus,
    readiness: Arc<Readiness>,
    connections: Arc<Connections>,
    mut in_sync: watch::Receiver<Option<crate::replicate::Term>>,
) {
    let mut impaired = None;
    loop {
        let is_in_sync = in_sync.borrow_and_update().is_some();
        if is_in_sync {
            readiness.set_synced();
        }
        if is_in_sync
            || replica_status.is_ready_without_leader()
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
