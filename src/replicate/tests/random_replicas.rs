//! Tests of complete replicas and clients with random failures. The seed of a run determines all
//! random choices of the run.

use crate::clock::simulated::{Skew, begin};
use crate::index::{self, ReadVersion};
use crate::persist::fake_cluster::FakeCluster;
use crate::replicate::Term;
use crate::replicate::simulation::{
    Client, ClientCopy, Faults, Invariants, Network, NetworkFaults, ObjectHashes,
    ReplicaEnvironment, SimulatedLeases, Subjects, WholeReplica,
};
use ifo_api::Text;
use ifo_api::live::Phase;
use ifo_engine::track::Retention;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The seeds that the test runs. The environment variable `IFO_SEEDS=FROM..TO` selects other seeds.
const SEEDS: std::ops::Range<u64> = 0..100;

/// The time after the last failure within which all replicas and clients must have the same
/// operations.
///
/// After at most 25 s, a replica leads again. Then the new leader lists the subjects (the objects
/// that have operations), and ends old operations after the debounce period. In persistence mode,
/// the leader then writes the differences.
const CONVERGENCE_TIME: Duration = Duration::from_mins(1);

/// The time for which two replicas can lead after the Lease was restored from a backup. They must
/// never issue the same resourceVersion.
///
/// The restored Lease does not contain the latest renewals. So another replica may find that the
/// Lease has expired, and may acquire it. The first leader leads until it notices the new holder,
/// at most until its renew deadline (5 s).
const TWO_LEADERS_PERIOD: Duration = Duration::from_secs(5);

/// The shortest age of a backup of the Lease that is restored: the lease duration. A restarted container
/// continues a Lease that its Pod has renewed within the lease duration, because the Lease then comes from
/// no backup. To restore etcd takes longer than that.
const MIN_BACKUP_AGE: Duration = Duration::from_secs(8);

/// The time between two checks of all indexes.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("IFO_SEEDS").ok();
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    given.and_then(parse).unwrap_or(SEEDS)
}

/// Runs the failures of one seed on a new runtime, so that the runs do not affect each other.
fn run(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("the runtime needs no I/O");
    runtime.block_on(run_with_random_failures(seed))
}

#[test]
fn replicas_have_the_same_state_at_each_version_and_clients_converge() {
    let left = Mutex::new(seeds());
    let failed = Mutex::new(BTreeMap::new());
    let next = || left.lock().expect("no lock holder panics").next();
    let work = || {
        while let Some(seed) = next() {
            let Outcome {
                trace, violations, ..
            } = run(seed);
            if !violations.is_empty() {
                let trace = trace.join("\n");
                let report = format!("seed {seed}: {violations:#?}\n{trace}");
                failed
                    .lock()
                    .expect("no lock holder panics")
                    .insert(seed, report);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("no lock holder panics");
    let seeds: Vec<_> = failed.keys().collect();
    if let Some(first) = failed.values().next() {
        panic!("the seeds {seeds:?} failed, the first with:\n{first}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_of_complete_replicas() {
    let first = run(0).fingerprint;
    assert_eq!(first, run(0).fingerprint);
    assert_ne!(first, run(1).fingerprint);
}

/// The result of a run.
struct Outcome {
    trace: Vec<String>,
    violations: Vec<String>,
    fingerprint: u64,
}

/// The simulated cluster of one run.
pub(super) struct SimulatedCluster {
    pub environment: ReplicaEnvironment,
    pub replicas: Vec<WholeReplica>,
    clients: Vec<ClientCopy>,
    random: fastrand::Rng,
    begun: Instant,
    trace: Vec<String>,
    /// The number of Pods so far.
    pods: usize,
    /// The number of containers of all Pods so far.
    containers: usize,
    /// The largest difference between the wall clock of a machine and the simulated time.
    skew: Duration,
    /// True if the run may delete the Lease and restore older versions of the Lease.
    restores: bool,
    /// The backup of the Lease, and its time.
    backup: Option<(Lease, Instant)>,
    /// The time of the last restore of the Lease.
    restored: Option<Instant>,
}

impl SimulatedCluster {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let retention = Retention {
            age: Duration::from_secs(random.u64(5..120)),
            max_count: random.usize(1..6),
        };
        let store = random.bool().then(FakeCluster::default);
        let environment = ReplicaEnvironment {
            leases: SimulatedLeases::new(seed),
            network: Network::new(),
            subjects: Subjects::default(),
            invariants: Invariants::default(),
            retention: random.bool().then_some(retention),
            store,
        };
        let hour = Duration::from_hours(1);
        let skew = if random.bool() { hour } else { Duration::ZERO };
        // If the Lease was deleted or restored, a new leader may not know which resourceVersions
        // the last leader has reserved. Then the new leader computes its first resourceVersion from
        // its own clock. If this clock were behind the clock of the last leader, both leaders could
        // issue the same resourceVersion. So a run deletes or restores the Lease only if all clocks
        // agree.
        let restores = skew.is_zero() && random.bool();
        if restores {
            environment.invariants.lose_reservations();
        }
        Self {
            environment,
            replicas: Vec::new(),
            clients: Vec::new(),
            skew,
            restores,
            backup: None,
            restored: None,
            random,
            begun: Instant::now(),
            trace: Vec::new(),
            pods: 0,
            containers: 0,
        }
    }

    /// Creates a cluster with this number of replicas, in which nothing fails by itself.
    pub fn calm(replicas: usize) -> Self {
        let mut cluster = Self::new(1);
        cluster.environment.retention = None;
        cluster.environment.store = None;
        cluster.environment.invariants = Invariants::default();
        cluster.skew = Duration::ZERO;
        for _ in 0..replicas {
            cluster.start(None);
        }
        cluster
    }

    /// Waits until a replica leads, at most for `limit`. Returns the time that this took.
    pub async fn until_leader(&mut self, limit: Duration) -> Duration {
        self.until_other_term(None, limit).await
    }

    /// Waits until a replica leads in another term than `term`.
    pub async fn until_other_term(&mut self, term: Option<&Term>, limit: Duration) -> Duration {
        let begun = Instant::now();
        let leads = |it: &WholeReplica| it.leads() && it.term().as_ref() != term;
        while !self.replicas.iter().any(leads) {
            assert!(begun.elapsed() < limit, "no replica leads");
            self.run_for(CHECK_INTERVAL).await;
        }
        begun.elapsed()
    }

    /// Kills all replicas, and fails if an invariant was violated.
    pub fn end(mut self) {
        self.replicas.drain(..).for_each(WholeReplica::kill);
        assert_eq!(self.environment.invariants.violations(), [""; 0]);
    }

    /// Starts a replica in the next container of `pod`. If `pod` is None, starts it in a new Pod.
    pub fn start(&mut self, pod: Option<String>) {
        let pod = pod.unwrap_or_else(|| {
            self.pods += 1;
            format!("pod-{}", self.pods)
        });
        self.containers += 1;
        let wall = i64::try_from(self.skew.as_millis()).expect("an hour fits into 64 bits");
        let skew = Skew {
            wall: SignedDuration::from_millis(self.random.i64(-wall..=wall)),
            boot: Duration::from_secs(self.random.u64(0..1_000_000)),
        };
        let container = (&*pod, self.containers);
        let replica = WholeReplica::start(&self.environment, container, skew, &mut self.random);
        self.replicas.push(replica);
    }

    fn add_to_trace(&mut self, what: &str) {
        let (terms, versions) = self.environment.invariants.counts();
        let at = self.begun.elapsed();
        let line = format!("{at:?}: {what}; {terms} terms, {versions} versions");
        self.trace.push(line);
    }

    /// Lets `time` pass. Meanwhile, checks the indexes of all replicas, and checks that at most one
    /// replica leads.
    pub async fn run_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let leaders = self.replicas.iter().filter(|it| it.leads());
            let leaders: Vec<_> = leaders.map(|it| it.pod.as_str()).collect();
            let may_have_two_leaders = self
                .restored
                .is_some_and(|at| at.elapsed() < TWO_LEADERS_PERIOD);
            if leaders.len() > 1 && !may_have_two_leaders {
                let at = self.begun.elapsed();
                let violation = format!("{at:?}: {leaders:?} lead at the same time");
                self.environment.invariants.violation(violation);
            }
            for replica in &mut self.replicas {
                replica.observer.observe();
            }
            sleep(CHECK_INTERVAL).await;
        }
    }

    pub fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(WholeReplica::leads)
    }

    /// Injects one random failure.
    async fn inject_failure(&mut self) {
        let index = self.random.usize(0..self.replicas.len());
        // With a probability of one half, the failure affects the leader, if there is one.
        // Otherwise it affects a random replica.
        let hits_leader = self.random.bool();
        let index = self.leader().filter(|_| hits_leader).unwrap_or(index);
        let pod = self.replicas[index].pod.clone();
        let replica = &self.replicas[index];
        let what = match self.random.u8(0..if self.restores { 12 } else { 9 }) {
            0 | 1 => {
                replica.process.pause_after(self.random.u32(0..50));
                "pauses"
            }
            2 => {
                self.replicas.iter().for_each(WholeReplica::heal);
                "continues, like all other replicas"
            }
            3 => {
                replica.leases.cut(true);
                "is cut off from the kube-apiserver"
            }
            4 => {
                replica.is_cut.store(true, Relaxed);
                "is cut off from the other replicas"
            }
            5 => {
                self.replicas.remove(index).kill();
                self.start(Some(pod.clone()));
                "is killed, and restarts"
            }
            6 => {
                self.replicas.remove(index).kill();
                self.start(None);
                "is killed, and replaced"
            }
            7 => {
                replica.process.pause_after(self.random.u32(0..200));
                let time = Duration::from_millis(self.random.u64(1..20_000));
                self.run_for(time).await;
                // No other failure happens during this pause.
                self.replicas[index].process.resume();
                "was paused, and continues"
            }
            9 => {
                let lease = self.environment.leases.lease();
                self.backup = lease.map(|lease| (lease, Instant::now()));
                "runs while the Lease is backed up"
            }
            10 => {
                let (backup, taken) = self.backup.clone().unzip();
                let age = taken.map_or(MIN_BACKUP_AGE, |taken| taken.elapsed());
                self.run_for(MIN_BACKUP_AGE.saturating_sub(age)).await;
                self.environment.leases.restore(backup);
                self.restored = Some(Instant::now());
                "runs while the Lease is restored"
            }
            11 => {
                self.environment.leases.delete();
                "runs while the Lease is deleted"
            }
            _ => {
                replica.terminate();
                self.start(None);
                let time = Duration::from_millis(self.random.u64(0..8_000));
                self.run_for(time).await;
                self.replicas.remove(index).kill();
                "terminates, and is replaced"
            }
        };
        self.add_to_trace(&format!("{pod} {what}"));
    }

    /// Compares the leader's operations with the operations of the other replicas, the subjects,
    /// the copies of the clients, and the custom resources. Returns the first difference. Returns
    /// None if there is no difference.
    fn difference(&self) -> Option<String> {
        let Some(leader) = self.leader() else {
            return Some("no replica leads".to_owned());
        };
        let list = |replica: &WholeReplica| {
            let list = replica.reader.list(&index::OPERATIONS, ReadVersion::Latest);
            list.expect("the newest state is always available").1
        };
        let entries = list(&self.replicas[leader]);
        let expected = ObjectHashes::of(&entries);
        for replica in &self.replicas {
            let there = ObjectHashes::of(&list(replica));
            if there != expected {
                let (pod, leader) = (&replica.pod, &self.replicas[leader].pod);
                return Some(format!(
                    "{pod} has {there:?}, but the leader {leader} has {expected:?}"
                ));
            }
        }
        let mut subjects = Vec::new();
        let mut live = Vec::new();
        for entry in &entries {
            let operation = entry.object().operation();
            let operation = operation.expect("the index contains operations");
            if operation.status.phase == Phase::Active {
                subjects.push(operation.spec.subject.name.to_string());
                live.push(operation.metadata.uid.clone());
            }
        }
        subjects.sort_unstable();
        let wanted = self.environment.subjects.in_flight();
        if subjects != wanted {
            return Some(format!(
                "operations must be in flight on {wanted:?}, but the leader has them on {subjects:?}"
            ));
        }
        if let Some(client) = self.clients.iter().position(|it| !it.equals(&expected)) {
            return Some(format!(
                "client {client} does not have the state of the leader"
            ));
        }
        let store = self.environment.store.as_ref()?;
        let stored = store.lock();
        let statuses = stored.objects.values().filter_map(|cr| cr.status.as_ref());
        let active = statuses.filter(|status| status.live.phase == Phase::Active);
        let mut stored_uids: Vec<Text> = active.map(|it| it.live_uid.clone()).collect();
        stored_uids.sort_unstable();
        live.sort_unstable();
        (stored_uids != live).then(|| {
            format!(
                "the live operations are {live:?}, but the custom resources are {stored_uids:?}"
            )
        })
    }
}

async fn run_with_random_failures(seed: u64) -> Outcome {
    let _clock = begin(
        "2026-01-01T00:00:00Z"
            .parse()
            .expect("the text is a timestamp"),
    );
    let mut cluster = SimulatedCluster::new(seed);
    for _ in 0..3 {
        cluster.start(None);
    }
    let mut tasks = Vec::new();
    for number in 0..3 {
        let copy = ClientCopy::default();
        cluster.clients.push(copy.clone());
        let client = Client {
            name: format!("client-{number}"),
            network: cluster.environment.network.clone(),
            invariants: cluster.environment.invariants.clone(),
            random: cluster.random.fork(),
            copy,
        };
        tasks.push(tokio::spawn(client.run()));
    }
    let (subjects, mut random) = (cluster.environment.subjects.clone(), cluster.random.fork());
    let changes = tokio::spawn(async move {
        loop {
            subjects.change(&mut random);
            sleep(Duration::from_millis(random.u64(1..1_500))).await;
        }
    });
    cluster.run_for(Duration::from_secs(15)).await;
    let random = &mut cluster.random;
    cluster.environment.leases.set_faults(Faults {
        lost_requests: random.f64() * 0.1,
        lost_answers: random.f64() * 0.1,
        errors: random.f64() * 0.1,
        conflicts: random.f64() * 0.1,
        delay: Duration::from_millis(random.u64(1..1_000)),
    });
    cluster.environment.network.set_faults(NetworkFaults {
        lost: random.f64() * 0.03,
        reset: random.f64() * 0.03,
        delay: Duration::from_millis(random.u64(1..300)),
    });
    for _ in 0..cluster.random.usize(3..12) {
        cluster.inject_failure().await;
        let time = Duration::from_millis(cluster.random.u64(1..15_000));
        cluster.run_for(time).await;
        if let Some(rv) = cluster
            .environment
            .invariants
            .some_version(&mut cluster.random)
        {
            cluster.replicas.iter().for_each(|it| it.observer.check(rv));
        }
    }
    changes.abort();
    cluster.environment.leases.set_faults(Faults::default());
    cluster
        .environment
        .network
        .set_faults(NetworkFaults::default());
    cluster.replicas.iter().for_each(WholeReplica::heal);
    let healed = Instant::now();
    while cluster.difference().is_some() && healed.elapsed() < CONVERGENCE_TIME {
        cluster.run_for(Duration::from_secs(1)).await;
    }
    if cluster.difference().is_some() {
        let difference = cluster.difference().unwrap_or_default();
        let violation = format!("{CONVERGENCE_TIME:?} after the last failure: {difference}");
        cluster.environment.invariants.violation(violation);
    }
    cluster.add_to_trace("the end");
    // The clients and the replicas end before the simulated clock is dropped. Otherwise, a task
    // that runs later would read the real clock. `WholeReplica::kill` also checks the last changes
    // of each replica.
    for task in tasks {
        task.abort();
    }
    cluster.replicas.drain(..).for_each(WholeReplica::kill);
    Outcome {
        trace: cluster.trace,
        violations: cluster.environment.invariants.violations(),
        fingerprint: cluster.environment.invariants.fingerprint(),
    }
}
