//! A simulated replica of the server. A test can pause and kill its simulated process.
//!
//! The process runs these real parts of the server:
//!
//! - the leader election
//! - the index, which has the operations in memory
//! - the mirror, which copies the leader's index
//! - the tracker, which turns detections into operations
//! - the persistence, which writes operations to custom resources

use super::invariants::{IndexObserver, Invariants};
use super::network::{Network, Peer, TOKEN};
use super::simulated_pipeline::{SimulatedPipeline, Subjects};
use super::{LeaseClient, SimulatedLeases, SimulatedProcess};
use crate::clock::simulated::Skew;
use crate::config::Timing;
use crate::demo::users::{DemoUser, DemoUsers};
use crate::index::{Bounds, IndexReader, Rv, index_from};
use crate::persist::fake_cluster::FakeCluster;
use crate::replicate::{
    Connect, Election, ElectionInputs, Mirror, ReplicaRole, ReplicaStatus, ReplicaTask, Term,
    peer_requests,
};
use crate::resources::{self, OperationHooks};
use crate::telemetry::Metrics;
use aggregated_apiserver::serve::{self, Readiness, ServerParameters};
use axum::Router;
use futures::FutureExt as _;
use ifo_api::completeness::Gaps;
use ifo_engine::track::Retention;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The bounds of the ring buffer with the latest changes. The bounds are small, so that the buffer
/// drops changes that clients and followers still need. This makes the clients and followers list
/// again.
const BOUNDS: Bounds = Bounds {
    bytes: 1 << 10,
    age: Duration::from_secs(30),
};

/// The simulated cluster around the replicas.
#[derive(Clone)]
pub struct ReplicaEnvironment {
    pub leases: SimulatedLeases,
    pub network: Network,
    pub subjects: Subjects,
    pub invariants: Invariants,
    pub retention: Option<Retention>,
    /// The custom resources. None if persistence mode is off.
    pub store: Option<FakeCluster>,
}

/// A simulated replica.
pub struct WholeReplica {
    pub pod: String,
    pub process: SimulatedProcess,
    pub leases: LeaseClient,
    /// True if the replica is cut off from the other replicas.
    pub is_cut: Arc<AtomicBool>,
    pub reader: IndexReader,
    pub observer: IndexObserver,
    pub metrics: Arc<Metrics>,
    pub status: ReplicaStatus,
    retire: CancellationToken,
    network: Network,
    address: String,
}

impl WholeReplica {
    /// Starts a replica in the Pod `pod`. If this Pod has had a replica before, the new replica is
    /// the next container of the Pod.
    pub fn start(
        environment: &ReplicaEnvironment,
        (pod, container): (&str, usize),
        skew: Skew,
        random: &mut fastrand::Rng,
    ) -> Self {
        let process = SimulatedProcess::new(skew);
        let (leases, is_cut) = (environment.leases.client(), Arc::<AtomicBool>::default());
        let address = format!("{pod}:8443");
        let (writer, reader) = process.within(|| index_from(BOUNDS, Rv(0)));
        let status = ReplicaStatus::new(reader.clone());
        let (metrics, readiness) = (Arc::new(Metrics::new()), Arc::new(Readiness::new()));
        let inputs = ElectionInputs {
            leases: leases.leases(),
            timing: Timing::default(),
            pod: Some(pod.to_owned()),
            address: address.clone(),
            status: status.clone(),
            metrics: metrics.clone(),
            random: random.fork(),
        };
        let election = process.within(|| Election::new(inputs));
        let links = environment.network.links(is_cut.clone(), random.fork());
        let retire = CancellationToken::new();
        let connect: Connect = Box::new(move |address| {
            let client = links.client(&address);
            async { Ok(client) }.boxed()
        });
        let task = ReplicaTask {
            writer,
            mirror: Some(Mirror::new(connect, status.clone())),
            replica_status: status.clone(),
            pipeline: SimulatedPipeline {
                operations: reader.clone(),
                subjects: environment.subjects.clone(),
                invariants: environment.invariants.clone(),
                readiness: readiness.clone(),
                retention: environment.retention,
                store: environment.store.clone(),
                metrics: metrics.clone(),
                random: random.fork(),
            },
            retire: retire.clone(),
            shutdown: CancellationToken::new(),
        };
        let (invariants, name) = (environment.invariants.clone(), format!("{pod}.{container}"));
        let observer = IndexObserver::new(name.clone(), reader.clone(), invariants.clone());
        let peer = Peer {
            process: process.clone(),
            router: router(&reader, &status, &readiness),
            replica_status: status.clone(),
            reader: reader.clone(),
            is_cut: is_cut.clone(),
            readiness: readiness.clone(),
        };
        environment.network.add(address.clone(), peer);
        let mut in_sync = status.in_sync().subscribe();
        let mark_ready = async move {
            // The wait cannot fail, because the status of the replica has the sender.
            let _ = in_sync.wait_for(Option::is_some).await;
            readiness.set_synced();
        };
        let root = async move {
            let ended = async {
                let ended = task.run().await;
                invariants.violation(format!("{name}: the task {ended:?} has ended"));
            };
            tokio::join!(biased; election.run(), ended, mark_ready);
        };
        tokio::spawn(process.run(root));
        Self {
            pod: pod.to_owned(),
            process,
            leases,
            is_cut,
            reader,
            observer,
            metrics,
            status,
            retire,
            network: environment.network.clone(),
            address,
        }
    }

    /// Returns true if this replica leads according to its own clock.
    pub fn leads(&self) -> bool {
        self.process.within(|| self.status.leads())
    }

    /// Returns the term in which this replica leads or follows.
    pub fn term(&self) -> Option<Term> {
        match &*self.status.role().borrow() {
            ReplicaRole::Leading(leadership) => Some(leadership.term.clone()),
            ReplicaRole::Following(leader) => Some(leader.term.clone()),
            ReplicaRole::Vacant(_) => None,
        }
    }

    /// Simulates SIGTERM.
    pub fn terminate(&self) {
        self.retire.cancel();
    }

    /// Simulates SIGKILL.
    pub fn kill(mut self) {
        self.observer.observe();
        self.process.kill();
        self.network.remove(&self.address);
    }

    /// Resumes the process of the replica, and restores the replica's connections.
    pub fn heal(&self) {
        self.process.resume();
        self.leases.cut(false);
        self.is_cut.store(false, Relaxed);
    }
}

/// Returns the router that answers the requests of other replicas.
fn router(reader: &IndexReader, status: &ReplicaStatus, readiness: &Arc<Readiness>) -> Router {
    let replica = DemoUser {
        name: "replica",
        namespace: None,
        token: TOKEN.to_owned(),
    };
    let users = Arc::new(DemoUsers(vec![replica]));
    let hooks = Arc::new(OperationHooks {
        reader: reader.clone(),
        replica_status: status.clone(),
        read_gaps: Arc::new(Gaps::default),
        cluster_namespace: "ifo-system".into(),
        readiness: readiness.clone(),
        authorize: users.clone(),
    });
    let server = ServerParameters {
        hooks,
        routes: peer_requests::routes(status.clone()),
        readiness: readiness.clone(),
        ..ServerParameters::new("ifo", users.clone(), users)
    };
    serve::router(server, vec![resources::inflight_operations(reader.clone())])
}
