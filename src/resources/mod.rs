//! Describes the resources that this server serves: names, table columns, selectable fields, and
//! the index of the objects. The other modules of the API work with any resource that has a
//! description of the type [`crate::index::Resource`]. There are four resources:
//!
//! - `inflightoperations`: operations.
//! - `activities`: whether a part of the cluster is idle.
//! - `operationrecords`: records of completed operations.
//! - `operationrulesets`: rule sets, only in a server without a cluster (the demo).

mod activities;
mod cells;
mod completeness;
pub mod gate_webhook;
mod hooks;
mod operations;
mod records;
mod rule_sets;
#[cfg(test)]
pub(crate) mod tests;
mod visibility;

pub use self::activities::activities;
pub use self::cells::SharedShortNames;
pub use self::operations::{LIVE_COLUMNS, inflight_operations};
pub use self::records::operation_records;
pub use self::rule_sets::operation_rule_sets;
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
    /// Returns the rule sets that may miss operations now, on the leader. The task that writes them
    /// to the index runs on the thread that evaluates rules. So the index does not have them yet
    /// while this thread is blocked. On a follower, the result has no rule sets.
    pub read_gaps: ReadGaps,
    /// The namespace of operations on cluster-scoped objects.
    pub cluster_namespace: Text,
    /// The readiness of this replica.
    pub readiness: Arc<Readiness>,
    /// Decides if a user may know the names of rule sets.
    pub authorize: Arc<dyn Authorize>,
}
