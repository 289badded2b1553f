//! The tasks and channels of one leadership term, which is the time for which this replica leads.
//! This module also updates the readiness of this replica.

use super::Components;
use super::tasks::Tasks;
use crate::persist::UnsyncedRuleSets;
use crate::rules::{RuleSetEvent, StatusSink};
use crate::tracker_task;
use aggregated_apiserver::serve::Connections;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ifo_observe::{Feed, Resolve};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Interval at which the readiness of this replica is checked.
const READINESS_INTERVAL: Duration = Duration::from_millis(500);

/// The tasks and channels of one leadership term.
pub(super) struct LeaderTerm {
    /// Tasks that must not end before the term ends.
    pub(super) tasks: Tasks,
    /// The queue of messages to the tracker.
    pub(super) tracker: mpsc::Sender<tracker_task::Message>,
    /// Cancelled at an orderly end of the term, for example because the process is stopping. Then
    /// the tasks that have work to do finish this work. The end is not orderly if another replica
    /// has taken the Lease, or if this replica could not renew the Lease. Then all tasks are
    /// aborted.
    pub(super) ending: CancellationToken,
    /// The rule sets whose operations may be missing in the index, because the server has not read
    /// all objects of their targets. The value is `None` until the server has read or failed to
    /// read every target.
    ///
    /// Persistence mode writes operations as custom resources. From this value, persistence mode
    /// finds the custom resources whose operation has ended: the index does not contain the
    /// operation, and this value does not contain the rule set of the operation.
    pub(super) unsynced_rule_sets: watch::Sender<Option<Arc<UnsyncedRuleSets>>>,
}

/// The sources that the pipeline (the tasks that detect operations) reads, and the receivers of its
/// results.
pub(super) struct PipelineInput {
    pub(super) feed: Arc<dyn Feed>,
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) rule_sets: BoxStream<'static, RuleSetEvent>,
    pub(super) status: Arc<dyn StatusSink>,
    /// Completes when the tracker has received the operations of earlier leaders.
    pub(super) restored: BoxFuture<'static, ()>,
}

/// Keeps the result of the readiness probe up to date. When this replica becomes unready, also
/// closes the connections of clients. Never ends.
pub(super) async fn keep_readiness(shared: Components, connections: Arc<Connections>) {
    let (replica_status, readiness) = (shared.replica_status, shared.readiness);
    let mut in_sync = replica_status.in_sync().subscribe();
    let mut impaired = None;
    loop {
        if in_sync.borrow_and_update().is_some() {
            readiness.set_synced();
        }
        if replica_status.has_joined() {
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
            _ = in_sync.changed() => {}
            () = tokio::time::sleep(READINESS_INTERVAL) => {}
        }
    }
}
