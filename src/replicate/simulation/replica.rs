//! A complete simulated replica: the real election, mirror, index, tracker and persistence, in one
//! process that can be paused and killed.

use super::invariants::{Invariants, Observer};
use super::network::{Network, Peer};
use super::subjects::{SimulatedPipeline, Subjects};
use super::{LeaseClient, Process, SimulatedLeases};
use crate::clock::simulated::Skew;
use crate::index::{Bounds, IndexReader, Rv, index_from};
use crate::persist::fake::Fake;
use crate::replicate::{Election, LeaderView, Mirror, Replica, ReplicaTask, Term, Timing, view};
use crate::telemetry::Metrics;
use ifo_engine::track::Retention;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// The ring is small, so that versions become unavailable while clients and mirrors still need
/// them.
const BOUNDS: Bounds = Bounds {
    bytes: 1 << 10,
    age: Duration::from_secs(30),
};

/// The shared parts of all replicas.
#[derive(Clone)]
pub struct Surroundings {
    pub leases: SimulatedLeases,
    pub network: Network,
    pub subjects: Subjects,
    pub invariants: Invariants,
    pub retention: Option<Retention>,
    /// The custom resources, in persistence mode.
    pub store: Option<Fake>,
}

/// A replica.
pub struct WholeReplica {
    pub pod: String,
    pub process: Process,
    pub leases: LeaseClient,
    /// True if it is disconnected from the other replicas.
    pub is_cut: Arc<AtomicBool>,
    pub reader: IndexReader,
    pub observer: Observer,
    standing: watch::Receiver<LeaderView>,
    retire: CancellationToken,
    network: Network,
    address: String,
}

impl WholeReplica {
    /// Starts the replica. A replica with an existing name is the next container of that Pod.
    pub fn start(
        around: &Surroundings,
        (pod, container): (&str, usize),
        skew: Skew,
        random: &mut fastrand::Rng,
    ) -> Self {
        let process = Process::new(skew);
        let (leases, is_cut) = (around.leases.client(), Arc::<AtomicBool>::default());
        let address = format!("{pod}:8443");
        let (writer, reader) = process.within(|| index_from(BOUNDS, Rv(0)));
        let (standing_sender, standing) = watch::channel(LeaderView::Unknown);
        let (view, contact) = view(reader.clone(), standing.clone());
        let (in_sync, synced) = watch::channel::<Option<Term>>(None);
        let may_begin = watch::Sender::new(true);
        let (release, released) = oneshot::channel();
        let (metrics, wake) = (Arc::new(Metrics::new()), Arc::new(Notify::new()));
        let is_ready = Arc::<AtomicBool>::default();
        let (mirrored, read) = (view.clone(), reader.clone());
        let member = Replica {
            pod: Some(pod.to_owned()),
            address: address.clone(),
            is_mirrored: Arc::new(move || mirrored.is_mirrored()),
            head: Arc::new(move || read.head()),
            in_sync: synced.clone(),
            may_begin: may_begin.subscribe(),
            wake: wake.clone(),
            answers: view.answers(),
        };
        let (client, timing) = (leases.clone(), Timing::default());
        let election = process.within(|| {
            Election::with_random(client, timing, member, metrics.clone(), random.fork())
        });
        let links = Arc::new(around.network.links(is_cut.clone(), random.fork()));
        let retire = CancellationToken::new();
        let task = ReplicaTask {
            writer,
            operations: reader.clone(),
            standing: standing.clone(),
            mirror: Some(Mirror::new(links, in_sync, wake, contact)),
            predecessor: None,
            view: view.clone(),
            pipeline: SimulatedPipeline {
                operations: reader.clone(),
                subjects: around.subjects.clone(),
                invariants: around.invariants.clone(),
                is_ready: is_ready.clone(),
                retention: around.retention,
                store: around.store.clone(),
                metrics,
                random: random.fork(),
                persistence: None,
            },
            retire: retire.clone(),
            release: Some(release),
            shutdown: CancellationToken::new(),
        };
        let (invariants, name) = (around.invariants.clone(), format!("{pod}.{container}"));
        let observer = Observer::new(name.clone(), reader.clone(), invariants.clone());
        let peer = Peer {
            process: process.clone(),
            view,
            reader: reader.clone(),
            is_cut: is_cut.clone(),
            is_ready: is_ready.clone(),
        };
        around.network.add(address.clone(), peer);
        let join = async move {
            let mut synced = synced;
            // The mirror holds the sender.
            let _ = synced.wait_for(Option::is_some).await;
            is_ready.store(true, Relaxed);
        };
        let root = async move {
            let ended = async {
                let ended = task.run().await;
                invariants.violation(format!("{name}: {ended:?} ended"));
            };
            tokio::join!(biased; election.run(standing_sender, released), ended, join);
            drop(may_begin);
        };
        tokio::spawn(process.run(root));
        Self {
            pod: pod.to_owned(),
            process,
            leases,
            is_cut,
            reader,
            observer,
            standing,
            retire,
            network: around.network.clone(),
            address,
        }
    }

    /// Returns true if it leads, by its own clock.
    pub fn leads(&self) -> bool {
        let standing = self.standing.borrow();
        matches!(&*standing, LeaderView::Leading(it) if self.process.within(|| it.is_valid()))
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

    /// Ends all its disturbances.
    pub fn heal(&self) {
        self.process.resume();
        self.leases.cut(false);
        self.is_cut.store(false, Relaxed);
    }
}
