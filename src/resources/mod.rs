//! Describes the resources that this server serves: names, table columns, selectable fields, and
//! the index of the objects. The library [`aggregated_apiserver`] serves any resource that has a
//! description of the type [`crate::index::Resource`]. There are three resources:
//!
//! - `inflightoperations`: operations.
//! - `activities`: whether a part of the cluster is idle.
//! - `operationrecords`: records of completed operations.
//!
//! Other modules report whether lists may lack operations (`completeness`), hide operations from
//! users (`visibility`), and answer an admission webhook ([`gate_webhook`]).

mod activities;
mod cells;
mod completeness;
pub mod gate_webhook;
mod hooks;
mod operations;
mod records;
#[cfg(test)]
pub(crate) mod tests;
mod visibility;

pub use self::activities::activities;
pub use self::cells::SharedShortNames;
pub(crate) use self::cells::columns;
pub use self::operations::{LIVE_COLUMNS, inflight_operations};
pub use self::records::operation_records;
pub use self::visibility::SubjectVisibility;

use crate::index::IndexReader;
use crate::replicate::ReplicaStatus;
use crate::tracker_task::ReadGaps;
use aggregated_apiserver::auth::Authorize;
use aggregated_apiserver::serve::Readiness;
use ifo_api::Text;
use std::sync::Arc;

/// The state on which the answers for operations, records and activities depend.
pub struct OperationHooks {
    /// The reader of the index with the operations.
    pub reader: IndexReader,
    /// The role of this replica, and the age of the data in its index. One replica, the leader,
    /// detects operations. The other replicas, the followers, copy the leader's index.
    pub replica_status: ReplicaStatus,
    /// On the leader, returns the rule sets that may miss operations now (the gaps). On a follower,
    /// returns no rule sets.
    ///
    /// The index also contains the gaps. But the task that writes them to the index runs on the
    /// thread that evaluates rules. While a long evaluation blocks this thread, the index lacks new
    /// gaps.
    pub read_gaps: ReadGaps,
    /// The namespace of operations on cluster-scoped objects.
    pub cluster_namespace: Text,
    /// The readiness of this replica.
    pub readiness: Arc<Readiness>,
    /// Decides if a user may know the names of rule sets.
    pub authorize: Arc<dyn Authorize>,
}
