//! The disturbances of the run, and the failed reads that each allows.

use crate::cluster::{Replicas, garble};
use crate::harness::relay::Link;
use serde_json::json;
use std::time::Duration;

/// Time without a disturbance before and after each one.
pub const CALM: Duration = Duration::from_secs(3);

/// Time for which a replica is paused or disconnected: twice the lease of the tests (3 s), so that
/// another replica leads before the end.
const TWICE_THE_LEASE: Duration = Duration::from_secs(6);

/// Selects the disturbed replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    Leader,
    Follower,
}

/// One disturbance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disturbance {
    /// SIGTERM, and a restart of the container.
    Terminate(Role),
    /// SIGKILL, and a restart of the container.
    Kill(Role),
    /// SIGSTOP, and SIGCONT after twice the lease.
    Pause(Role),
    /// The connections to the kube-apiserver are interrupted for twice the lease.
    Cut(Role, Link),
    /// All replicas are replaced by new ones, one after the other.
    Update,
    DeleteLease,
    /// Another client overwrites all annotations of the Lease.
    GarbleLease,
    /// Another client writes a nonexistent holder into the Lease.
    StealLease,
    RestartApiServer,
}

use Disturbance::{
    Cut, DeleteLease, GarbleLease, Kill, Pause, RestartApiServer, StealLease, Terminate, Update,
};
use Role::{Follower, Leader};

/// The disturbances in persistence mode.
pub const IN_PERSISTENCE_MODE: [Disturbance; 3] = [Kill(Leader), Pause(Leader), Update];

/// The disturbances of the run in CI.
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

/// The disturbances with these names, such as `Kill(Leader);Update`.
pub fn named(names: &str) -> Vec<Disturbance> {
    let find = |name: &str| {
        let mut all = ALL.into_iter();
        let found = all.find(|disturbance| format!("{disturbance:?}") == name);
        found.unwrap_or_else(|| panic!("no disturbance is named {name}: {ALL:?}"))
    };
    names.split(';').map(find).collect()
}

/// The first disturbances are fixed. Then all of them follow, in an order that the seed
/// determines, as often as the count needs it.
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
    /// Returns true if a read through the aggregator may fail during it (point 14 of the design).
    /// `retried` is true if the next read succeeded.
    pub fn allows(self, retried: bool) -> bool {
        match self {
            Terminate(_) | Update | DeleteLease | GarbleLease | StealLease => false,
            // The requests in flight to the killed replica fail.
            Kill(_) => retried,
            // The kube-apiserver can be connected to this replica, and notices after up to 45 s. Or
            // the kube-apiserver itself is stopped.
            Pause(_) | Cut(..) | RestartApiServer => true,
        }
    }

    /// Returns true if the last changes of the leader can be lost, because no follower has mirrored
    /// them (point 3 of the design).
    pub fn may_lose_changes(self) -> bool {
        !matches!(self, Terminate(_) | Update | GarbleLease)
    }

    /// Disturbs the replicas, and then ends the disturbance.
    pub async fn apply(self, replicas: &mut Replicas<'_>) {
        match self {
            Terminate(role) => {
                let replica = replicas.disturbed(role).await;
                let status = replicas.all[replica].server.terminate().await;
                assert!(status.success(), "{status}");
                replicas.all[replica].start_again().await;
            }
            Kill(role) => {
                let replica = replicas.disturbed(role).await;
                replicas.all[replica].server.kill().await;
                replicas.all[replica].start_again().await;
            }
            Pause(role) => {
                let replica = replicas.disturbed(role).await;
                replicas.all[replica].server.signal("STOP").await;
                tokio::time::sleep(TWICE_THE_LEASE).await;
                replicas.all[replica].server.signal("CONT").await;
            }
            Cut(role, link) => {
                let replica = replicas.disturbed(role).await;
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
                let restarted = replicas.control_plane.command("restart kube-apiserver");
                restarted.await.expect("it restarts");
            }
        }
    }
}

impl Replicas<'_> {
    /// Selects a replica of this role, and tells the clients that it is disturbed.
    async fn disturbed(&self, role: Role) -> usize {
        let leader = self.leader().await;
        let others = (0..self.all.len()).filter(|it| *it != leader);
        let replica = match role {
            Leader => leader,
            Follower => fastrand::choice(others.collect::<Vec<_>>()).expect("there are others"),
        };
        self.all[replica].endpoint.disturb();
        replica
    }
}
