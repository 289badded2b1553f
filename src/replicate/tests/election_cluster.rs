//! A simulated cluster for tests of the leader election. Each replica runs the real election, but
//! has no operations. A leader only issues resourceVersions, and a follower only copies the
//! leader's newest resourceVersion.

use crate::clock::simulated::{Simulated, Skew, begin};
use crate::index::Rv;
use crate::replicate::simulation::{LeaseClient, SimulatedLeases, SimulatedProcess};
use crate::replicate::{Election, ElectionInputs, Leader, Leadership, ReplicaRole, Term, Timing};
use crate::telemetry::Metrics;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::sleep;

/// The time on the wall clock when a simulation starts.
pub const BEGIN: &str = "2026-01-01T00:00:00Z";

pub struct Cluster {
    pub leases: SimulatedLeases,
    pub replicas: Vec<ElectionOnlyReplica>,
    pub observations: Arc<Mutex<Observations>>,
    pub random: fastrand::Rng,
    _clock: Simulated,
}

/// The events of the simulation, and the violated invariants.
#[derive(Default)]
pub struct Observations {
    /// Each issued resourceVersion, with the term in which it was issued. A term is the time for
    /// which one leader holds the Lease.
    issued: BTreeMap<u64, Term>,
    /// All leaderships, each with the process that led.
    terms: Vec<(SimulatedProcess, Leadership)>,
    /// The running replicas by address.
    peers: BTreeMap<String, Peer>,
    /// The violations of invariants, such as two leaders at the same time.
    pub violations: Vec<String>,
}

/// The values of a replica that other replicas can read.
#[derive(Clone)]
struct Peer {
    /// The newest resourceVersion of the replica.
    head: Arc<AtomicU64>,
    /// The last term in which the replica led.
    last_own_term: Arc<Mutex<Option<Term>>>,
    process: SimulatedProcess,
}

/// A replica that runs only the election. It has no operations.
pub struct ElectionOnlyReplica {
    pub pod: String,
    pub process: SimulatedProcess,
    pub client: LeaseClient,
    pub head: Arc<AtomicU64>,
    pub role: watch::Receiver<ReplicaRole>,
    pub metrics: Arc<Metrics>,
    pub wake: Arc<Notify>,
    release: Option<oneshot::Sender<Rv>>,
    /// If the value is true, the replica issues no further resourceVersions.
    pub stop: watch::Sender<bool>,
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        Self {
            leases: SimulatedLeases::new(seed),
            replicas: Vec::new(),
            observations: Arc::default(),
            random: fastrand::Rng::with_seed(seed),
            _clock: begin(BEGIN.parse().expect("the text is a timestamp")),
        }
    }

    /// Creates a cluster of `replicas` replicas. Their clocks agree.
    pub fn of(replicas: usize) -> Self {
        let mut cluster = Self::new(1);
        for pod in 0..replicas {
            cluster.start(&format!("pod-{pod}"), Skew::NONE);
        }
        cluster
    }

    /// Starts a replica in the Pod `pod`. To simulate that a Pod's container is restarted, kill its
    /// replica, and then call this function with the same Pod.
    pub fn start(&mut self, pod: &str, skew: Skew) -> &ElectionOnlyReplica {
        let replica = ElectionOnlyReplica::start(self, pod, skew);
        self.replicas.push(replica);
        self.replicas.last().expect("it was just pushed")
    }

    /// Kills the replica, and removes it from the cluster.
    pub fn kill(&mut self, index: usize) -> ElectionOnlyReplica {
        let replica = self.replicas.remove(index);
        replica.process.kill();
        let address = address(&replica.pod);
        self.observations.lock().unwrap().peers.remove(&address);
        replica
    }

    /// Returns the positions in `replicas` of the replicas that lead now. Each replica decides this
    /// with its own clock.
    pub fn leaders(&self) -> Vec<usize> {
        let leads = |it: &&usize| self.replicas[**it].leads();
        let all: Vec<usize> = (0..self.replicas.len()).collect();
        all.iter().filter(leads).copied().collect()
    }

    /// Lets `time` pass. Records a violation if two replicas lead at the same time.
    pub async fn run_for(&mut self, time: Duration) {
        self.wait_until(time, |_| false).await;
    }

    /// Waits until `is_done` returns true, for at most `time`. Returns the elapsed time, or None
    /// after a timeout. Records a violation if two replicas lead at the same time.
    pub async fn wait_until(
        &mut self,
        time: Duration,
        mut is_done: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < time {
            let leaders = self.leaders();
            if leaders.len() > 1 {
                let pods: Vec<&str> = leaders.iter().map(|&it| &*self.replicas[it].pod).collect();
                self.record_violation(format!("{pods:?} lead at the same time"));
            }
            if is_done(self) {
                return Some(begun.elapsed());
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Waits until a replica leads, and returns its position in `replicas`. The test fails if no
    /// replica leads after the time `within`.
    pub async fn wait_for_leader(&mut self, within: Duration) -> usize {
        let found = self.wait_until(within, |it| !it.leaders().is_empty()).await;
        assert!(
            found.is_some(),
            "no replica led within {within:?}; the Lease: {:?}",
            self.leases.lease()
        );
        self.leaders()[0]
    }

    /// Waits until all replicas know the leader and have its newest resourceVersion. Returns the
    /// leader's position in `replicas`. The test fails if the replicas do not agree on a leader
    /// after the time `within`.
    pub async fn wait_until_settled(&mut self, within: Duration) -> usize {
        let found = self.wait_until(within, |it| {
            let leaders = it.leaders();
            let [leader] = leaders[..] else { return false };
            let term = it.replicas[leader].term();
            it.replicas.iter().all(|replica| replica.term() == term)
        });
        let found = found.await;
        assert!(
            found.is_some(),
            "the replicas did not agree on a leader; the Lease: {:?}",
            self.leases.lease()
        );
        // Each follower copies the leader's newest resourceVersion every 100 ms, so 300 ms are
        // enough.
        self.run_for(Duration::from_millis(300)).await;
        self.leaders()[0]
    }

    pub fn record_violation(&self, what: String) {
        let mut observations = self.observations.lock().unwrap();
        if !observations.violations.contains(&what) {
            observations.violations.push(what);
        }
    }

    /// Returns the recorded violations. If the reserved resourceVersions of two consecutive terms
    /// overlap, adds a violation.
    pub fn violations(&self) -> Vec<String> {
        let observations = self.observations.lock().unwrap();
        let mut violations = observations.violations.clone();
        let mut ranges: Vec<(Rv, Rv, &Term)> = observations
            .terms
            .iter()
            .map(|(_, it)| (it.start, it.granted(), &it.term))
            .collect();
        ranges.sort_by_key(|range| range.0);
        for pair in ranges.windows(2) {
            if pair[0].1 >= pair[1].0 {
                violations.push(format!("terms share reserved versions: {pair:?}"));
            }
        }
        violations
    }

    /// Returns the number of leadership terms.
    pub fn terms(&self) -> usize {
        self.observations.lock().unwrap().terms.len()
    }
}

fn address(pod: &str) -> String {
    format!("{pod}:8443")
}

impl ElectionOnlyReplica {
    fn start(cluster: &mut Cluster, pod: &str, skew: Skew) -> Self {
        let process = SimulatedProcess::new(skew);
        let client = cluster.leases.client();
        let head = Arc::new(AtomicU64::new(0));
        let (role_sender, role) = watch::channel(ReplicaRole::Unknown);
        let (in_sync, in_sync_receiver) = watch::channel(None);
        let (release, released) = oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let (metrics, wake) = (Arc::new(Metrics::new()), Arc::new(Notify::new()));
        let (read_head, known) = (head.clone(), cluster.observations.clone());
        let inputs = ElectionInputs {
            pod: Some(pod.to_owned()),
            address: address(pod),
            is_index_copied: Arc::new(move || known.lock().unwrap().peers.len() > 1),
            head: Arc::new(move || Rv(read_head.load(Relaxed))),
            in_sync: in_sync_receiver,
            wake: wake.clone(),
            cluster_contact: watch::Sender::default(),
        };
        let election = Election::with_random(
            client.clone(),
            Timing::default(),
            inputs,
            metrics.clone(),
            cluster.random.fork(),
        );
        let peer = Peer {
            head: head.clone(),
            last_own_term: Arc::default(),
            process: process.clone(),
        };
        let observations = cluster.observations.clone();
        observations
            .lock()
            .unwrap()
            .peers
            .insert(address(pod), peer.clone());
        let writer = issue_versions(
            observations.clone(),
            peer,
            role.clone(),
            stopped,
            cluster.random.fork(),
        );
        let mirror = copy_head(observations, head.clone(), role.clone(), in_sync);
        let run = election.run(role_sender, released);
        let root = async move {
            tokio::join!(biased; run, writer, mirror);
        };
        tokio::spawn(process.run(root));
        Self {
            pod: pod.to_owned(),
            process,
            client,
            head,
            role,
            metrics,
            wake,
            release: Some(release),
            stop,
        }
    }

    /// Returns true if this replica leads according to its own clock.
    pub fn leads(&self) -> bool {
        let role = self.role.borrow();
        matches!(&*role, ReplicaRole::Leading(it) if self.process.within(|| it.is_valid()))
    }

    /// Returns the term in which this replica leads or follows.
    pub fn term(&self) -> Option<Term> {
        match &*self.role.borrow() {
            ReplicaRole::Leading(leadership) => Some(leadership.term.clone()),
            ReplicaRole::Following(leader) => Some(leader.term.clone()),
            ReplicaRole::Unknown | ReplicaRole::Vacant { .. } => None,
        }
    }

    /// Simulates SIGTERM: the replica issues no further resourceVersions, and the election releases
    /// the Lease. Returns the last resourceVersion of this replica.
    pub fn terminate(&mut self) -> Rv {
        self.stop.send_replace(true);
        let version = Rv(self.head.load(Relaxed));
        if let Some(release) = self.release.take() {
            release
                .send(version)
                .expect("the election runs until the process is killed");
        }
        version
    }
}

/// Issues resourceVersions while the replica leads. The process can be paused at every await.
async fn issue_versions(
    observations: Arc<Mutex<Observations>>,
    own: Peer,
    mut role: watch::Receiver<ReplicaRole>,
    stop: watch::Receiver<bool>,
    mut random: fastrand::Rng,
) {
    loop {
        let now = role.borrow_and_update().clone();
        if let ReplicaRole::Leading(leadership) = now {
            *own.last_own_term.lock().unwrap() = Some(leadership.term.clone());
            let known = (own.process.clone(), leadership.clone());
            observations.lock().unwrap().terms.push(known);
            issue_in_term(&observations, &own, &leadership, &stop, &mut random).await;
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}

/// Issues resourceVersions until the leadership ends or `stop` is true.
async fn issue_in_term(
    observations: &Mutex<Observations>,
    own: &Peer,
    leadership: &Leadership,
    stop: &watch::Receiver<bool>,
    random: &mut fastrand::Rng,
) {
    let mut next = leadership.start;
    loop {
        let reserved = leadership.reserved();
        yield_now().await;
        if *stop.borrow() {
            return;
        }
        if next > reserved {
            if !leadership.reserved_above(next).await {
                return;
            }
            continue;
        }
        yield_now().await;
        let before = observations
            .lock()
            .unwrap()
            .issued
            .insert(next.0, leadership.term.clone());
        if let Some(before) = before {
            let violation = format!("{next} was issued by {before} and {}", leadership.term);
            observations.lock().unwrap().violations.push(violation);
        }
        own.head.store(next.0, Relaxed);
        sleep(Duration::from_millis(random.u64(1..200))).await;
        // A resourceVersion is a time in microseconds, and usually comes from the clock. In 8 of
        // 256 cases, the replica simulates a burst of 700,000 changes. The resourceVersions then
        // increase by 700 ms, but the sleep took less than 200 ms. So the resourceVersions get
        // ahead of the clock.
        let clock = u64::try_from(crate::clock::now().as_microsecond()).unwrap_or(0);
        let burst = if random.u8(..) < 8 { 700_000 } else { 0 };
        let most = leadership.reserved().0.max(next.0 + 1);
        next = Rv((next.0 + 1 + burst).max(clock).min(most));
    }
}

/// Copies the leader's newest resourceVersion every 100 ms, and sets `in_sync` to the leader's
/// term.
async fn copy_head(
    observations: Arc<Mutex<Observations>>,
    head: Arc<AtomicU64>,
    role: watch::Receiver<ReplicaRole>,
    in_sync: watch::Sender<Option<Term>>,
) {
    loop {
        let source: Option<Leader> = match &*role.borrow() {
            ReplicaRole::Following(leader) => Some(leader.clone()),
            ReplicaRole::Vacant { last, .. } => last.clone(),
            ReplicaRole::Unknown | ReplicaRole::Leading(_) => None,
        };
        if let Some(leader) = source {
            let peer = observations
                .lock()
                .unwrap()
                .peers
                .get(&leader.address)
                .cloned();
            if let Some(peer) = peer
                && peer.last_own_term.lock().unwrap().as_ref() == Some(&leader.term)
                && !Arc::ptr_eq(&peer.head, &head)
            {
                head.store(peer.head.load(Relaxed), Relaxed);
                in_sync.send_if_modified(|before| {
                    before.replace(leader.term.clone()) != Some(leader.term)
                });
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}
