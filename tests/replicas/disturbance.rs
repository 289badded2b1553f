//! The disturbances in the tests under load, such as a SIGKILL of the leader (the replica that
//! detects operations). Each disturbance also defines which requests of clients may fail.

use crate::cluster::{Replicas, garble};
use crate::harness::relay::Link;
use serde_json::json;
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
    DeleteLease,
    /// Another client overwrites all annotations of the Lease with invalid values.
    GarbleLease,
    /// Another client writes a nonexistent holder into the Lease.
    StealLease,
    RestartApiServer,
}

use Disturbance::{
    Cut, DeleteLease, GarbleLease, Kill, Pause, RestartApiServer, StealLease, Terminate, Update,
};
use Role::{Follower, Leader};

/// The disturbances of the test in persistence mode.
pub const PERSISTENCE_PLAN: [Disturbance; 3] = [Kill(Leader), Pause(Leader), Update];

/// The disturbances with which every plan begins. A plan is a list of disturbances. Without the
/// variable `IFO_DISTURBANCES`, the plan contains exactly these six.
const FIRST: [Disturbance; 6] = [
    Terminate(Leader),
    Kill(Leader),
    Pause(Leader),
    Cut(Leader, Link::Silent),
    Update,
    StealLease,
];

/// All disturbances.
const ALL: [Disturbance; 15] = [
    Terminate(Leader),
    Terminate(Follower),
    Kill(Leader),
    Kill(Follower),
    Pause(Leader),
    Pause(Follower),
    Cut(Leader, Link::Silent),
    Cut(Leader, Link::Refused),
    Cut(Follower, Link::Silent),
    Cut(Follower, Link::Refused),
    Update,
    DeleteLease,
    GarbleLease,
    StealLease,
    RestartApiServer,
];

/// Returns the disturbances with these names. `names` is the value of the environment variable
/// `IFO_PLAN`, such as `Kill(Leader);Update`. Panics if a name is unknown.
pub fn parse_plan(names: &str) -> Vec<Disturbance> {
    let find = |name: &str| {
        let mut all = ALL.into_iter();
        let found = all.find(|disturbance| format!("{disturbance:?}") == name);
        found.unwrap_or_else(|| panic!("unknown disturbance {name}; the disturbances are {ALL:?}"))
    };
    names.split(';').map(find).collect()
}

/// Returns a plan of `count` disturbances: first [`FIRST`], then all disturbances in random order.
/// If the plan is still too short, adds all disturbances again, in another order. The seed
/// determines the order.
pub fn plan(count: usize, seed: u64) -> Vec<Disturbance> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut plan = FIRST.to_vec();
    while plan.len() < count {
        let mut round = ALL;
        random.shuffle(&mut round);
        plan.extend(round);
    }
    plan.truncate(count);
    plan
}

impl Disturbance {
    /// Returns true if a read through the kube-apiserver may fail during this disturbance.
    /// `retried` is true if a second attempt of the read succeeded.
    pub fn allows(self, retried: bool) -> bool {
        match self {
            Terminate(_) | Update | DeleteLease | GarbleLease | StealLease => false,
            // A request fails if the killed replica had not finished its answer. A second attempt
            // must succeed.
            Kill(_) => retried,
            // During `Pause` and `Cut`, the kube-apiserver may have connections to the disturbed
            // replica. It notices the disturbance only after up to 45 s. During `RestartApiServer`,
            // the kube-apiserver itself is stopped.
            Pause(_) | Cut(..) | RestartApiServer => true,
        }
    }

    /// Returns true if the last changes of the leader can be lost, because no follower has received
    /// them. The function does not distinguish the roles. So it also returns true for most
    /// disturbances of a follower.
    pub fn may_lose_changes(self) -> bool {
        !matches!(self, Terminate(_) | Update | GarbleLease)
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
            DeleteLease => replicas.delete_lease().await,
            GarbleLease => replicas.edit_lease(garble).await,
            StealLease => {
                let steal = |lease: &mut serde_json::Value| {
                    lease["spec"]["holderIdentity"] = json!("somebody-else");
                };
                replicas.edit_lease(steal).await;
            }
            RestartApiServer => {
                let restarted = replicas
                    .cluster
                    .control_plane
                    .command("restart kube-apiserver");
                restarted.await.expect("the kube-apiserver must restart");
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
