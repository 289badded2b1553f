//! Elects one leader among the replicas of this server, and copies the leader's operations to the
//! other replicas (followers).
//!
//! Only the leader detects operations and gives each change of the index its resourceVersion. The
//! result of the election is a [`LeaderView`]. A follower lists and watches the leader's
//! operations, and writes them to its own index.
//!
//! A clock alone cannot guarantee a single leader, because a process can be paused between a check
//! and the action after it. So the leader also reserves the resourceVersions that it may issue. See
//! [`Leadership::reserved`].

mod completeness;
mod election;
mod http;
pub mod leader_link;
mod leadership;
mod lease;
mod lease_contents;
mod mirror;
mod previous_release;
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
pub use lease::{ClusterLeases, LeaseError, LeaseStore, OWNER, Timing};
pub use mirror::Mirror;
pub use previous_release::{Predecessor, Succession};
pub use replica::{Pipeline, ReplicaTask};
pub use view::{ClusterContact, LeaderQueries, View, view};
