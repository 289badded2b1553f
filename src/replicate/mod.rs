//! Elects one leader among the replicas (processes) of this server, and copies the leader's
//! operations to the other replicas, which are called followers.
//!
//! Only the leader detects operations. The leader writes each change to its index (the operations
//! in memory), and gives the change a resourceVersion. A follower lists and watches the leader's
//! operations, and writes them to its own index with the same resourceVersions.
//!
//! The replicas use a Lease for the election. On each replica, the election publishes the result as
//! a [`ReplicaRole`].
//!
//! Suppose that a leader checks its Lease, and then its process is paused for a long time. When the
//! process continues, another replica may already lead. So a check of the Lease cannot keep two
//! replicas from issuing the same resourceVersion. For this reason, the leader reserves
//! resourceVersions in the Lease before it issues them. The next leader starts above the reserved
//! resourceVersions. See [`Leadership::reserved`].

mod connect;
mod election;
mod leadership;
mod lease;
mod leases;
pub mod link;
mod mirror;
pub mod peer_requests;
mod replica_status;
mod run_role;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use connect::LeaderAccess;
pub use election::{Election, ElectionInputs};
pub use leadership::{Leader, Leadership, ReplicaRole, Term};
pub use leases::{Leases, OWNER, owner};
pub use mirror::{Connect, Mirror};
pub use replica_status::ReplicaStatus;
pub use run_role::{Pipeline, ReplicaTask};
