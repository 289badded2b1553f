//! A simulated cluster of replicas. Each has a real election, a writer that issues versions, and a
//! mirror that copies the head version of the leader.

use crate::clock::simulated::{Simulated, Skew, begin};
use crate::index::Rv;
use crate::replicate::simulation::{LeaseClient, Process, SimulatedLeases};
use crate::replicate::{Election, Leader, LeaderView, Leadership, Replica, Term, Timing};
use crate::telemetry::Metrics;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::sleep;

/// The wall clock at the beginning.
pub const BEGIN: &str = "2026-01-01T00:00:00Z";

pub struct Cluster {
    pub leases: SimulatedLeases,
    pub replicas: Vec<Simulation>,
    pub facts: Arc<Mutex<ObjectFacts>>,
    pub random: fastrand::Rng,
    _clock: Simulated,
}

/// The observations of all processes.
#[derive(Default)]
pub struct ObjectFacts {
    /// Each issued version, with its term.
    issued: BTreeMap<u64, Term>,
    /// Each leadership, with its process.
    terms: Vec<(Process, Leadership)>,
    /// Addresses of the running processes.
    peers: BTreeMap<String, Peer>,
    /// The violations.
    pub violations: Vec<String>,
}

/// The state of a replica for the other replicas.
#[derive(Clone)]
struct Peer {
    head: Arc<AtomicU64>,
    led: Arc<Mutex<Option<Term>>>,
    process: Process,
}

/// A replica.
pub struct Simulation {
    pub pod: String,
    pub process: Process,
    pub client: LeaseClient,
    pub head: Arc<AtomicU64>,
    pub standing: watch::Receiver<LeaderView>,
    pub may_begin: watch::Sender<bool>,
    pub metrics: Arc<Metrics>,
    pub wake: Arc<Notify>,
    release: Option<oneshot::Sender<Rv>>,
    /// Set at SIGTERM, which stops the writer.
    pub stop: watch::Sender<bool>,
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        Self {
            leases: SimulatedLeases::new(seed),
            replicas: Vec::new(),
            facts: Arc::default(),
            random: fastrand::Rng::with_seed(seed),
            _clock: begin(BEGIN.parse().expect("a time")),
        }
    }

    /// Creates a cluster of `replicas` with equal clocks.
    pub fn of(replicas: usize) -> Self {
        let mut cluster = Self::new(1);
        for pod in 0..replicas {
            cluster.start(&format!("pod-{pod}"), Skew::NONE);
        }
        cluster
    }

    /// Returns clocks of a machine that differ by up to `wall`.
    pub fn skew(&mut self, wall: Duration) -> Skew {
        let wall = i64::try_from(wall.as_millis()).expect("a short time");
        Skew {
            wall: SignedDuration::from_millis(self.random.i64(-wall..=wall)),
            boot: Duration::from_secs(self.random.u64(0..1_000_000)),
        }
    }

    /// Starts a replica. A replica with an existing name is the next container of that Pod.
    pub fn start(&mut self, pod: &str, skew: Skew) -> &Simulation {
        let simulation = Simulation::start(self, pod, skew);
        self.replicas.push(simulation);
        self.replicas.last().expect("it was just pushed")
    }

    /// Kills the replica and removes it.
    pub fn kill(&mut self, index: usize) -> Simulation {
        let replica = self.replicas.remove(index);
        replica.process.kill();
        let address = address(&replica.pod);
        self.facts.lock().unwrap().peers.remove(&address);
        replica
    }

    /// Returns the replicas that lead now, each by its own clock.
    pub fn leaders(&self) -> Vec<usize> {
        let leads = |it: &&usize| self.replicas[**it].leads();
        let all: Vec<usize> = (0..self.replicas.len()).collect();
        all.iter().filter(leads).copied().collect()
    }

    /// Lets time pass, and continuously checks that at most one replica leads.
    pub async fn pass(&mut self, time: Duration) {
        self.until(time, |_| false).await;
    }

    /// Lets time pass until the condition is true. Returns the elapsed time.
    pub async fn until(
        &mut self,
        time: Duration,
        mut is_done: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < time {
            let leaders = self.leaders();
            if leaders.len() > 1 {
                let pods: Vec<&str> = leaders.iter().map(|&it| &*self.replicas[it].pod).collect();
                self.violation(format!("{pods:?} lead at the same time"));
            }
            if is_done(self) {
                return Some(begun.elapsed());
            }
            sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Waits until a replica leads.
    pub async fn leader(&mut self, within: Duration) -> usize {
        let found = self.until(within, |it| !it.leaders().is_empty()).await;
        assert!(
            found.is_some(),
            "no replica leads within {within:?}: {:?}",
            self.leases.lease()
        );
        self.leaders()[0]
    }

    /// Waits until all replicas have the same leader and its head version.
    pub async fn settled(&mut self, within: Duration) -> usize {
        let found = self.until(within, |it| {
            let leaders = it.leaders();
            let [leader] = leaders[..] else { return false };
            let term = it.replicas[leader].term();
            it.replicas.iter().all(|replica| replica.term() == term)
        });
        let found = found.await;
        assert!(found.is_some(), "{:?}", self.leases.lease());
        // A mirror copies the head every 100 ms.
        self.pass(Duration::from_millis(300)).await;
        self.leaders()[0]
    }

    pub fn violation(&self, what: String) {
        let mut facts = self.facts.lock().unwrap();
        if !facts.violations.contains(&what) {
            facts.violations.push(what);
        }
    }

    /// Returns the violations.
    pub fn violations(&self) -> Vec<String> {
        let facts = self.facts.lock().unwrap();
        let mut violations = facts.violations.clone();
        let mut ranges: Vec<(Rv, Rv, &Term)> = facts
            .terms
            .iter()
            .map(|(_, it)| (it.start, it.granted(), &it.term))
            .collect();
        ranges.sort_by_key(|range| range.0);
        for pair in ranges.windows(2) {
            if pair[0].1 >= pair[1].0 {
                violations.push(format!("terms share versions: {pair:?}"));
            }
        }
        violations
    }

    /// Returns the number of terms.
    pub fn terms(&self) -> usize {
        self.facts.lock().unwrap().terms.len()
    }

    /// Returns the number of issued versions.
    pub fn issued(&self) -> usize {
        self.facts.lock().unwrap().issued.len()
    }
}

fn address(pod: &str) -> String {
    format!("{pod}:8443")
}

impl Simulation {
    fn start(cluster: &mut Cluster, pod: &str, skew: Skew) -> Self {
        let process = Process::new(skew);
        let client = cluster.leases.client();
        let head = Arc::new(AtomicU64::new(0));
        let (standing_sender, standing) = watch::channel(LeaderView::Unknown);
        let (in_sync, in_sync_receiver) = watch::channel(None);
        let (may_begin, may_begin_receiver) = watch::channel(true);
        let (release, released) = oneshot::channel();
        let (stop, stopped) = watch::channel(false);
        let (metrics, wake) = (Arc::new(Metrics::new()), Arc::new(Notify::new()));
        let (read_head, known) = (head.clone(), cluster.facts.clone());
        let replica = Replica {
            pod: Some(pod.to_owned()),
            address: address(pod),
            is_mirrored: Arc::new(move || known.lock().unwrap().peers.len() > 1),
            head: Arc::new(move || Rv(read_head.load(Relaxed))),
            in_sync: in_sync_receiver,
            may_begin: may_begin_receiver,
            wake: wake.clone(),
            answers: watch::Sender::default(),
        };
        let election = Election::with_random(
            client.clone(),
            Timing::default(),
            replica,
            metrics.clone(),
            cluster.random.fork(),
        );
        let peer = Peer {
            head: head.clone(),
            led: Arc::default(),
            process: process.clone(),
        };
        let facts = cluster.facts.clone();
        facts
            .lock()
            .unwrap()
            .peers
            .insert(address(pod), peer.clone());
        let writer = write(
            facts.clone(),
            peer,
            standing.clone(),
            stopped,
            cluster.random.fork(),
        );
        let mirror = mirror(facts, head.clone(), standing.clone(), in_sync);
        let run = election.run(standing_sender, released);
        let root = async move {
            tokio::join!(biased; run, writer, mirror);
        };
        tokio::spawn(process.run(root));
        Self {
            pod: pod.to_owned(),
            process,
            client,
            head,
            standing,
            may_begin,
            metrics,
            wake,
            release: Some(release),
            stop,
        }
    }

    /// Returns true if it leads, by its own clock.
    pub fn leads(&self) -> bool {
        let standing = self.standing.borrow();
        matches!(&*standing, LeaderView::Leading(it) if self.process.within(|| it.is_valid()))
    }

    /// Returns the term in which it leads or follows.
    pub fn term(&self) -> Option<Term> {
        match &*self.standing.borrow() {
            LeaderView::Leading(leadership) => Some(leadership.term.clone()),
            LeaderView::Following(leader) => Some(leader.term.clone()),
            LeaderView::Unknown | LeaderView::Vacant { .. } => None,
        }
    }

    /// Simulates SIGTERM: the writer stops, and then the election releases the Lease.
    pub fn terminate(&mut self) -> Rv {
        self.stop.send_replace(true);
        let version = Rv(self.head.load(Relaxed));
        if let Some(release) = self.release.take() {
            release.send(version).expect("the election runs");
        }
        version
    }
}

/// Issues versions while the replica leads. The process can be paused at every await.
async fn write(
    facts: Arc<Mutex<ObjectFacts>>,
    own: Peer,
    mut standing: watch::Receiver<LeaderView>,
    stop: watch::Receiver<bool>,
    mut random: fastrand::Rng,
) {
    loop {
        let now = standing.borrow_and_update().clone();
        if let LeaderView::Leading(leadership) = now {
            *own.led.lock().unwrap() = Some(leadership.term.clone());
            let known = (own.process.clone(), leadership.clone());
            facts.lock().unwrap().terms.push(known);
            lead(&facts, &own, &leadership, &stop, &mut random).await;
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
}

async fn lead(
    facts: &Mutex<ObjectFacts>,
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
        let before = facts
            .lock()
            .unwrap()
            .issued
            .insert(next.0, leadership.term.clone());
        if let Some(before) = before {
            let violation = format!("{next} was issued by {before} and {}", leadership.term);
            facts.lock().unwrap().violations.push(violation);
        }
        own.head.store(next.0, Relaxed);
        sleep(Duration::from_millis(random.u64(1..200))).await;
        // Usually the clock, and sometimes a burst that uses versions faster than the clock.
        let clock = u64::try_from(crate::clock::now().as_microsecond()).unwrap_or(0);
        let burst = if random.u8(..) < 8 { 700_000 } else { 0 };
        let most = leadership.reserved().0.max(next.0 + 1);
        next = Rv((next.0 + 1 + burst).max(clock).min(most));
    }
}

/// Copies the head version of the leader.
async fn mirror(
    facts: Arc<Mutex<ObjectFacts>>,
    head: Arc<AtomicU64>,
    standing: watch::Receiver<LeaderView>,
    in_sync: watch::Sender<Option<Term>>,
) {
    loop {
        let source: Option<Leader> = match &*standing.borrow() {
            LeaderView::Following(leader) => Some(leader.clone()),
            LeaderView::Vacant { last, .. } => last.clone(),
            LeaderView::Unknown | LeaderView::Leading(_) => None,
        };
        if let Some(leader) = source {
            let peer = facts.lock().unwrap().peers.get(&leader.address).cloned();
            if let Some(peer) = peer
                && peer.led.lock().unwrap().as_ref() == Some(&leader.term)
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
