//! Elects a leader among the replicas and mirrors the leader's index on the followers.
//!
//! Input: the Lease of the replicas, and the leader's list and watch.
//! Output: the [`LeaderView`] of this replica and the versions that it may issue. On a follower,
//! also the leader's objects in the follower's own index.
//!
//! At most one replica leads. The leader detects operations and numbers the changes.
//!
//! A clock alone cannot guarantee a single leader, because a process can be paused between a
//! check and the action after it. So the leader also reserves the versions that it issues. See
//! [`Leadership::reserved`].

mod completeness;
mod election;
mod http;
mod leadership;
mod lease;
mod mirror;
pub mod peer;
mod predecessor;
mod record;
mod replica;
mod view;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use completeness::ReplicatedReporter;
pub use election::{Election, Replica};
pub use http::{HttpLinkFactory, PeerCredentials};
pub use leadership::{Leader, LeaderView, Leadership, Term};
pub use lease::{ClusterLeases, LeaseError, LeaseStore, Timing};
pub use mirror::Mirror;
pub use predecessor::{Predecessor, Succession};
pub use replica::{Pipeline, ReplicaTask};
pub use view::{ClusterContact, LeaderQueries, View, view};
