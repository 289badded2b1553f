//! Tests with random schedules of complete replicas. Each is determined by its seed.

use crate::clock::simulated::{Skew, begin};
use crate::index::{ListScope, ReadVersion};
use crate::persist::fake::Fake;
use crate::replicate::simulation::{
    Client, Faults, Held, Invariants, Network, NetworkFaults, SimulatedLeases, State, Subjects,
    Surroundings, WholeReplica,
};
use ifo_api::live::{InFlightOperation, Phase};
use ifo_engine::track::Retention;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The seeds of the test. `IFO_SEEDS=FROM..TO` selects others.
const SEEDS: std::ops::Range<u64> = 0..100;

/// Time after the last disturbance within which all replicas and clients have the same state. A
/// replica leads again after 25 s. It reads the subjects, and an operation ends after its debounce
/// period. In persistence mode, the second comparison with the custom resources is 65 s later.
const PROMISE: Duration = Duration::from_secs(150);

/// Time after a restore of the Lease from a backup during which two replicas can lead. An
/// acknowledged renewal is lost, so another replica can find that the Lease has expired. The first
/// leader stays valid until the renew deadline. The test checks that the two leaders never issue
/// the same version.
const LEASE_LOST: Duration = Duration::from_secs(5);

/// Interval at which the indexes are checked.
const STEP: Duration = Duration::from_millis(50);

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("IFO_SEEDS").ok();
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    given.and_then(parse).unwrap_or(SEEDS)
}

/// Runs on a new runtime, so that no state of one run remains in the next.
fn run(seed: u64) -> Run {
    // Persistence uses random delays.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(schedule(seed))
}

#[test]
fn replicas_agree_at_each_version_and_clients_converge() {
    let left = Mutex::new(seeds());
    let failed = Mutex::new(BTreeMap::new());
    let next = || left.lock().expect("nothing panics that holds it").next();
    let work = || {
        while let Some(seed) = next() {
            let Run {
                trace, violations, ..
            } = run(seed);
            if !violations.is_empty() {
                let trace = trace.join("\n");
                let report = format!("seed {seed}: {violations:#?}\n{trace}");
                failed
                    .lock()
                    .expect("nothing panics that holds it")
                    .insert(seed, report);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("nothing panics that holds it");
    let seeds: Vec<_> = failed.keys().collect();
    if let Some(first) = failed.values().next() {
        panic!("the seeds {seeds:?} failed, the first with:\n{first}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_of_whole_replicas() {
    let fingerprints = |seeds: std::ops::Range<u64>| {
        let runs = seeds.map(|seed| (seed, run(seed).fingerprint));
        runs.collect::<BTreeMap<_, _>>()
    };
    let first = fingerprints(0..4);
    assert_eq!(first, fingerprints(0..4));
    assert_ne!(first[&0], first[&1]);
}

/// The result of a schedule.
struct Run {
    trace: Vec<String>,
    violations: Vec<String>,
    fingerprint: u64,
}

/// The cluster of a run.
struct Bench {
    around: Surroundings,
    replicas: Vec<WholeReplica>,
    clients: Vec<Held>,
    random: fastrand::Rng,
    begun: Instant,
    trace: Vec<String>,
    /// The number of Pods and containers so far.
    pods: usize,
    containers: usize,
    /// Largest difference of the machines' clocks.
    skew: Duration,
    /// True if the Lease is deleted and older versions are restored.
    restores: bool,
    backup: Option<Lease>,
    /// The time of the last restore of the Lease.
    restored: Option<Instant>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let retention = Retention {
            age: Duration::from_secs(random.u64(5..120)),
            most: random.usize(1..6),
        };
        let store = random.bool().then(Fake::default);
        if let Some(store) = &store {
            let namespaces = BTreeMap::from([("ns".to_owned(), Timestamp::UNIX_EPOCH)]);
            store.lock().namespaces = namespaces;
        }
        let around = Surroundings {
            leases: SimulatedLeases::new(seed),
            network: Network::new(),
            subjects: Subjects::default(),
            invariants: Invariants::default(),
            retention: random.bool().then_some(retention),
            store,
        };
        let hour = Duration::from_hours(1);
        let skew = if random.bool() { hour } else { Duration::ZERO };
        // A replica that has never seen a reservation can only use the clocks.
        let restores = skew.is_zero() && random.bool();
        if restores {
            around.invariants.lose_reservations();
        }
        Self {
            around,
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

    /// Starts a new Pod, or the next container of one.
    fn start(&mut self, pod: Option<String>) {
        let pod = pod.unwrap_or_else(|| {
            self.pods += 1;
            format!("pod-{}", self.pods)
        });
        self.containers += 1;
        let wall = i64::try_from(self.skew.as_millis()).expect("a short time");
        let skew = Skew {
            wall: SignedDuration::from_millis(self.random.i64(-wall..=wall)),
            boot: Duration::from_secs(self.random.u64(0..1_000_000)),
        };
        let container = (&*pod, self.containers);
        let replica = WholeReplica::start(&self.around, container, skew, &mut self.random);
        self.replicas.push(replica);
    }

    fn note(&mut self, what: &str) {
        let (terms, versions) = self.around.invariants.counts();
        let at = self.begun.elapsed();
        let line = format!("{at:?}: {what}; {terms} terms, {versions} versions");
        self.trace.push(line);
    }

    /// Lets time pass, and checks all indexes.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let leaders = self.replicas.iter().filter(|it| it.leads());
            let leaders: Vec<_> = leaders.map(|it| it.pod.as_str()).collect();
            let is_lease_lost = self.restored.is_some_and(|at| at.elapsed() < LEASE_LOST);
            if leaders.len() > 1 && !is_lease_lost {
                let at = self.begun.elapsed();
                let violation = format!("{at:?}: {leaders:?} lead at the same time");
                self.around.invariants.violation(violation);
            }
            for replica in &mut self.replicas {
                replica.observer.observe();
            }
            sleep(STEP).await;
        }
    }

    fn leader(&self) -> Option<usize> {
        self.replicas.iter().position(WholeReplica::leads)
    }

    /// One disturbance.
    async fn disturb(&mut self) {
        let index = self.random.usize(0..self.replicas.len());
        // Half of the disturbances affect the leader.
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
                "goes on, as all others"
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
                self.pass(time).await;
                // No other disturbance happens in between.
                self.replicas[index].process.resume();
                "was paused, and goes on"
            }
            9 => {
                self.backup = self.around.leases.lease();
                "sees a backup of the Lease"
            }
            10 => {
                self.around.leases.restore(self.backup.clone());
                self.restored = Some(Instant::now());
                "sees the Lease restored"
            }
            11 => {
                self.around.leases.delete();
                "sees the Lease deleted"
            }
            _ => {
                replica.terminate();
                self.start(None);
                let time = Duration::from_millis(self.random.u64(0..8_000));
                self.pass(time).await;
                self.replicas.remove(index).kill();
                "terminates, and is replaced"
            }
        };
        self.note(&format!("{pod} {what}"));
    }

    /// Returns the difference between the replicas, the clients, the custom resources and the
    /// expected state.
    fn difference(&self) -> Option<String> {
        let Some(leader) = self.leader() else {
            return Some("no replica leads".to_owned());
        };
        let list = |replica: &WholeReplica| {
            let list = replica.reader.list(&ListScope::All, ReadVersion::Latest);
            list.expect("the newest state").1
        };
        let entries = list(&self.replicas[leader]);
        let truth = State::of(&entries);
        for replica in &self.replicas {
            let there = State::of(&list(replica));
            if there != truth {
                let (pod, leader) = (&replica.pod, &self.replicas[leader].pod);
                return Some(format!(
                    "{pod} has {there:?}, and the leader {leader} {truth:?}"
                ));
            }
        }
        let mut subjects = Vec::new();
        let mut live = Vec::new();
        for entry in &entries {
            let operation: InFlightOperation =
                serde_json::from_slice(&entry.json()).expect("an operation");
            if operation.status.phase == Phase::Active {
                subjects.push(operation.spec.subject.name.clone());
                live.push(operation.metadata.uid.expect("it has a uid"));
            }
        }
        subjects.sort_unstable();
        let wanted = self.around.subjects.in_flight();
        if subjects != wanted {
            return Some(format!(
                "in flight are {wanted:?}, and shown are {subjects:?}"
            ));
        }
        if let Some(client) = self.clients.iter().position(|it| !it.is(&truth)) {
            return Some(format!("client {client} does not hold the truth"));
        }
        let store = self.around.store.as_ref()?;
        let cluster = store.lock();
        let statuses = cluster.objects.values().filter_map(|cr| cr.status.as_ref());
        let active = statuses.filter(|status| status.phase == Phase::Active);
        let mut stored: Vec<String> = active.map(|it| it.live_uid.clone()).collect();
        stored.sort_unstable();
        live.sort_unstable();
        (stored != live).then(|| format!("live are {live:?}, and in custom resources {stored:?}"))
    }
}

async fn schedule(seed: u64) -> Run {
    let _clock = begin("2026-01-01T00:00:00Z".parse().expect("a time"));
    let mut bench = Bench::new(seed);
    for _ in 0..3 {
        bench.start(None);
    }
    let mut tasks = Vec::new();
    for number in 0..3 {
        let held = Held::default();
        bench.clients.push(held.clone());
        let client = Client {
            name: format!("client-{number}"),
            network: bench.around.network.clone(),
            invariants: bench.around.invariants.clone(),
            random: bench.random.fork(),
            held,
        };
        tasks.push(tokio::spawn(client.run()));
    }
    let (subjects, mut random) = (bench.around.subjects.clone(), bench.random.fork());
    let changes = tokio::spawn(async move {
        loop {
            subjects.change(&mut random);
            sleep(Duration::from_millis(random.u64(1..1_500))).await;
        }
    });
    bench.pass(Duration::from_secs(15)).await;
    let random = &mut bench.random;
    bench.around.leases.set_faults(Faults {
        lost_requests: random.f64() * 0.1,
        lost_answers: random.f64() * 0.1,
        errors: random.f64() * 0.1,
        conflicts: random.f64() * 0.1,
        delay: Duration::from_millis(random.u64(1..1_000)),
    });
    bench.around.network.set_faults(NetworkFaults {
        lost: random.f64() * 0.03,
        reset: random.f64() * 0.03,
        delay: Duration::from_millis(random.u64(1..300)),
    });
    for _ in 0..bench.random.usize(3..12) {
        bench.disturb().await;
        let time = Duration::from_millis(bench.random.u64(1..15_000));
        bench.pass(time).await;
        if let Some(rv) = bench.around.invariants.some_version(&mut bench.random) {
            bench.replicas.iter().for_each(|it| it.observer.check(rv));
        }
    }
    changes.abort();
    bench.around.leases.set_faults(Faults::default());
    bench.around.network.set_faults(NetworkFaults::default());
    bench.replicas.iter().for_each(WholeReplica::heal);
    let healed = Instant::now();
    while bench.difference().is_some() && healed.elapsed() < PROMISE {
        bench.pass(Duration::from_secs(1)).await;
    }
    if bench.difference().is_some() {
        let difference = bench.difference().unwrap_or_default();
        let violation = format!("{PROMISE:?} after the last disturbance, {difference}");
        bench.around.invariants.violation(violation);
    }
    bench.note("the end");
    // The tasks would continue after the simulated clock is dropped.
    for task in tasks {
        task.abort();
    }
    bench.replicas.drain(..).for_each(WholeReplica::kill);
    Run {
        trace: bench.trace,
        violations: bench.around.invariants.violations(),
        fingerprint: bench.around.invariants.fingerprint(),
    }
}
