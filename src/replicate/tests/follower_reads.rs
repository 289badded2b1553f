//! Tests of reads from a follower. A follower is a replica that copies the leader's index, which
//! has the operations in memory. The tests check:
//!
//! - how long a read waits until the copy is current
//! - the age of the copy that the follower reports
//! - the readiness of the replica

use crate::clock::simulated::{Simulated, begin};
use crate::index::{Bounds, Rv, index_from};
use crate::replicate::link::{Link, LinkError};
use crate::replicate::simulation::{Faults, NetworkFaults, SimulatedCluster, WholeReplica};
use crate::replicate::{Connect, Leader, Mirror, ReplicaRole, ReplicaStatus, Term};
use futures::FutureExt as _;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

pub(super) const BOUNDS: Bounds = Bounds {
    bytes: 1 << 20,
    age: Duration::from_mins(5),
};

pub(super) fn leader() -> Leader {
    Leader {
        term: Term::from("pod_1"),
        address: "leader:1".to_owned(),
    }
}

/// A simulated cluster with a leader and a follower that has copied its index.
struct Pair {
    cluster: SimulatedCluster,
    leader: usize,
    _clock: Simulated,
}

impl Pair {
    async fn start() -> Self {
        let clock = begin("2026-01-01T00:00:00Z".parse().unwrap());
        let mut cluster = SimulatedCluster::calm(2);
        cluster.until_leader(Duration::from_mins(1)).await;
        cluster.run_for(Duration::from_secs(10)).await;
        Self {
            leader: cluster.leader().unwrap(),
            cluster,
            _clock: clock,
        }
    }

    fn leader(&self) -> &WholeReplica {
        &self.cluster.replicas[self.leader]
    }

    fn follower(&self) -> &WholeReplica {
        &self.cluster.replicas[1 - self.leader]
    }

    async fn sleep(&mut self, seconds: u64) {
        self.cluster.run_for(Duration::from_secs(seconds)).await;
    }

    fn is_impaired(&self) -> bool {
        self.follower().status.impairment().is_some()
    }

    /// Sends a read to the follower. Returns the time for which the read waited.
    async fn read(&self) -> Duration {
        let begun = Instant::now();
        self.follower().status.wait_until_current().await;
        begun.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_has_all_changes_that_the_leader_had_when_the_read_arrived() {
    let pair = Pair::start().await;
    let delay = Duration::from_millis(200);
    let faults = NetworkFaults {
        delay,
        ..NetworkFaults::default()
    };
    pair.cluster.environment.network.set_faults(faults);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..30 {
        pair.cluster.environment.subjects.change(&mut random);
        let mut head = pair.leader().reader.head();
        let until = Instant::now() + Duration::from_secs(3);
        while pair.follower().reader.head() >= head && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
            head = pair.leader().reader.head();
        }
        // The leader has a change that the follower does not have yet.
        pair.read().await;
        assert!(pair.follower().reader.head() >= head);
    }
    // One state query serves all concurrent reads.
    let before = pair.follower().status.queries();
    futures::future::join_all((0..100).map(|_| pair.read())).await;
    let queries = pair.follower().status.queries() - before;
    assert!(
        (1..=2).contains(&queries),
        "{queries} queries for 100 reads"
    );
    pair.cluster.end();
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_leader_reads_do_not_wait_and_the_copy_becomes_stale() {
    let mut pair = Pair::start().await;
    pair.sleep(60).await;
    let lag = pair.follower().status.lag();
    assert!(lag <= Duration::from_secs(3), "{lag:?}");
    assert_eq!(pair.leader().status.lag(), Duration::ZERO);
    pair.follower().is_cut.store(true, Relaxed);
    assert_eq!(pair.read().await, Duration::from_secs(1));
    assert_eq!(pair.read().await, Duration::ZERO);
    assert!(!pair.is_impaired() && !pair.follower().status.is_stale());
    pair.sleep(12).await;
    assert!(pair.is_impaired() && !pair.follower().status.is_stale());
    pair.sleep(5).await;
    assert!(pair.follower().status.is_stale());
    pair.follower().heal();
    pair.sleep(10).await;
    assert!(!pair.is_impaired() && !pair.follower().status.is_stale());
    pair.cluster.end();
}

#[tokio::test(start_paused = true)]
async fn a_replica_is_unready_if_the_kube_apiserver_answers_the_leader_but_not_this_replica() {
    let mut pair = Pair::start().await;
    pair.follower().leases.cut(true);
    pair.sleep(9).await;
    assert!(!pair.is_impaired(), "a short interruption has no effect");
    pair.sleep(3).await;
    assert!(pair.is_impaired());
    // Without an answer, the leader may have stopped leading. Without a leader, no other replica
    // serves clients better.
    pair.follower().is_cut.store(true, Relaxed);
    pair.sleep(4).await;
    assert!(!pair.is_impaired());
    pair.follower().heal();
    pair.sleep(10).await;
    assert!(!pair.is_impaired());
    // Now the kube-apiserver answers no replica.
    pair.cluster
        .replicas
        .iter()
        .for_each(|it| it.leases.cut(true));
    for _ in 0..13 {
        pair.sleep(1).await;
        assert!(!pair.is_impaired());
    }
    pair.cluster.end();
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_replica_is_ready_only_with_a_copy_of_the_operations() {
    let mut pair = Pair::start().await;
    let ready = |it: &WholeReplica| it.status.has_joined();
    assert!(ready(pair.leader()) && ready(pair.follower()));
    // The new replica has no copy, like a container that was just restarted.
    let leader = pair.leader;
    pair.cluster.replicas.remove(leader).kill();
    // No replica can acquire the Lease.
    pair.cluster.environment.leases.set_faults(Faults {
        conflicts: 1.0,
        ..Faults::default()
    });
    pair.cluster.start(None);
    pair.sleep(30).await;
    assert_eq!(pair.cluster.leader(), None);
    for is_deleted in [false, true] {
        if is_deleted {
            pair.cluster.environment.leases.delete();
            pair.sleep(5).await;
        }
        let is_ready: Vec<bool> = pair.cluster.replicas.iter().map(ready).collect();
        assert_eq!(
            is_ready,
            [true, false],
            "the Lease is deleted: {is_deleted}"
        );
    }
    pair.cluster.end();
}

/// Returns a link to a leader that answers state queries only if `answers` is true, and sends no
/// changes.
fn broken_link(answers: bool) -> Link {
    let answer = move |_: Request<Body>| async move {
        if !answers {
            std::future::pending::<()>().await;
        }
        let answer = json!({"leading": true, "head": 7, "oldest": 7});
        Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
    };
    let client = Client::new(tower::service_fn(answer), "default");
    Link::new(client, &leader().term).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_reason_to_close_a_connection_names_the_part_that_fails() {
    for (answers, reason) in [
        (false, "the leader does not answer state queries"),
        (true, "the leader sends no objects and no changes"),
    ] {
        let (_writer, reader) = index_from(BOUNDS, Rv(0));
        let status = ReplicaStatus::new(reader);
        status.role().send_replace(ReplicaRole::Following(leader()));
        let closed = status.send_queries(&broken_link(answers)).await;
        assert_eq!(closed, LinkError::Failed(reason.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_registration_a_follower_is_not_impaired() {
    let (_writer, reader) = index_from(BOUNDS, Rv(0));
    let replica_status = ReplicaStatus::new(reader);
    replica_status
        .role()
        .send_replace(ReplicaRole::Following(leader()));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(replica_status.impairment().is_some());
    replica_status.set_interruption(Some(LinkError::NotRegistered));
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(replica_status.has_joined());
    assert_eq!(replica_status.impairment(), None);
    // A follower is impaired if it has not reached the leader for 10 s. These 10 s begin again when
    // the `APIService` is registered again.
    replica_status.set_interruption(Some(LinkError::NotRegistered));
    replica_status.set_interruption(None);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(replica_status.impairment(), None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(replica_status.impairment().is_some());
}

/// Returns a client of a leader that refuses all requests.
fn refused_client() -> Client {
    let answer = async |_: Request<Body>| {
        let refused = Response::builder().status(403).body(Body::empty());
        Ok::<_, Infallible>(refused.unwrap())
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn a_follower_whose_credentials_are_refused_names_the_flag_and_warns_once() {
    let written = crate::telemetry::testing::CapturedLog::default();
    let _log = written.begin();
    let (mut follower, reader) = index_from(BOUNDS, Rv(0));
    let leader = leader();
    let replica_status = ReplicaStatus::new(reader);
    let role = replica_status.role();
    role.send_replace(ReplicaRole::Following(leader.clone()));
    assert_eq!(replica_status.unready_reason(), None);
    let connect: Connect = Box::new(|_| async { Ok(refused_client()) }.boxed());
    let mut mirror = Mirror::new(connect, replica_status.clone());
    let following = mirror.follow(&mut follower, &leader);
    let ended = tokio::time::timeout(Duration::from_secs(5), following).await;
    assert!(ended.is_err(), "the follower tries again");
    let reason = replica_status.unready_reason().unwrap();
    assert!(
        reason.contains("403 Forbidden") && reason.contains("--peer-token-file"),
        "{reason}"
    );
    let lines = written.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["level"], "WARN");
    assert!(
        lines[0]["reason"]
            .as_str()
            .unwrap()
            .contains("--peer-token-file")
    );
    // A replica that no longer follows a leader needs no credentials for it.
    role.send_replace(ReplicaRole::Vacant(None));
    assert_eq!(replica_status.unready_reason(), None);
}
