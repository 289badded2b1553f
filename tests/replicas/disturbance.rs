//! The disturbances in the tests under load, such as a SIGKILL of the leader (the replica that
//! detects operations). Each disturbance also defines which requests of clients may fail.

use crate::cluster::Replicas;
use crate::harness::relay::Link;
use std::time::Duration;

/// Pause before and after each disturbance.
pub const CALM: Duration = Duration::from_secs(3);

/// Time for which a replica is paused or disconnected. It is twice the lease duration, which is 3 s
/// in the tests. So another replica becomes the leader in this time.
const TWICE_THE_LEASE: Duration = Duration::from_secs(6);

/// The role of the replica that is disturbed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    Leader,
    Follower,
}

/// A disturbance of the replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disturbance {
    /// The process gets a SIGTERM. The test then starts it again, as a kubelet does.
    Terminate(Role),
    /// The process gets a SIGKILL. The test then starts it again, as a kubelet does.
    Kill(Role),
    /// The process is stopped with SIGSTOP for [`TWICE_THE_LEASE`].
    Pause(Role),
    /// The relay, a proxy of the test, interrupts the connections of the replica to the
    /// kube-apiserver for [`TWICE_THE_LEASE`].
    Cut(Role, Link),
    /// The test replaces all replicas by new ones, one after the other.
    Update,
}

use Disturbance::{Cut, Kill, Pause, Terminate, Update};
use Role::{Follower, Leader};

/// The disturbances, in the order in which the test applies them. A longer test begins again after the
/// last one.
const ALL: [Disturbance; 9] = [
    Terminate(Leader),
    Kill(Leader),
    Pause(Leader),
    Cut(Leader, Link::Silent),
    Update,
    Kill(Follower),
    Pause(Follower),
    Cut(Follower, Link::Silent),
    Cut(Leader, Link::Refused),
];

/// Returns a plan of `count` disturbances.
pub fn plan(count: usize) -> Vec<Disturbance> {
    ALL.into_iter().cycle().take(count).collect()
}

impl Disturbance {
    /// Returns true if a read through the kube-apiserver may fail during this disturbance.
    /// `retried` is true if a second attempt of the read succeeded.
    pub fn allows(self, retried: bool) -> bool {
        match self {
            Terminate(_) | Update => false,
            // A request fails if the killed replica had not finished its answer. A second attempt
            // must succeed.
            Kill(_) => retried,
            // During `Pause` and `Cut`, the kube-apiserver may have connections to the disturbed
            // replica. It notices the disturbance only after up to 45 s.
            Pause(_) | Cut(..) => true,
        }
    }

    /// Returns true if the last changes of the leader can be lost, because no follower has received
    /// them. The function does not distinguish the roles. So it also returns true for most
    /// disturbances of a follower.
    pub fn may_lose_changes(self) -> bool {
        !matches!(self, Terminate(_) | Update)
    }

    /// Disturbs the replicas, and ends the disturbance.
    pub async fn apply(self, replicas: &mut Replicas<'_>) {
        match self {
            Terminate(role) => {
                let replica = replicas.begin_disturbance(role).await;
                let status = replicas.all[replica].server.terminate().await;
                assert!(status.success(), "{status}");
                replicas.all[replica].start_again().await;
            }
            Kill(role) => {
                let replica = replicas.begin_disturbance(role).await;
                replicas.all[replica].server.kill().await;
                replicas.all[replica].start_again().await;
            }
            Pause(role) => {
                let replica = replicas.begin_disturbance(role).await;
                replicas.all[replica].server.signal("STOP").await;
                tokio::time::sleep(TWICE_THE_LEASE).await;
                replicas.all[replica].server.signal("CONT").await;
            }
            Cut(role, link) => {
                let replica = replicas.begin_disturbance(role).await;
                replicas.all[replica].relay.set(link);
                tokio::time::sleep(TWICE_THE_LEASE).await;
                replicas.all[replica].relay.set(Link::Open);
            }
            Update => {
                for _ in 0..replicas.all.len() {
                    replicas.add().await;
                    replicas.remove_oldest().await;
                }
            }
        }
    }
}

impl Replicas<'_> {
    /// Selects a replica with the role `role`, and marks it as disturbed, so that requests to this
    /// replica may fail. Returns the index of the replica.
    async fn begin_disturbance(&self, role: Role) -> usize {
        let leader = self.leader().await;
        let others = (0..self.all.len()).filter(|it| *it != leader);
        let replica = match role {
            Leader => leader,
            Follower => {
                fastrand::choice(others.collect::<Vec<_>>()).expect("there are several replicas")
            }
        };
        self.all[replica].endpoint.disturb();
        replica
    }
}
