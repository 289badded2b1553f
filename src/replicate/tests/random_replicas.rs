//! Tests of complete replicas and clients with random failures. The seed of a run determines all
//! random choices of the run.

use crate::clock::simulated::begin;
use crate::replicate::simulation::{
    Client, ClientCopy, Faults, NetworkFaults, SimulatedCluster, WholeReplica,
};
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

/// The shortest age of a backup of the Lease that is restored: the lease duration. A restarted container
/// continues a Lease that its Pod has renewed within the lease duration, because the Lease then comes from
/// no backup. To restore etcd takes longer than that.
const MIN_BACKUP_AGE: Duration = Duration::from_secs(8);

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("IFO_SEEDS").ok();
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    given.and_then(parse).unwrap_or(SEEDS)
}

/// Runs the failures of one seed on a new runtime, so that the runs do not affect each other. Returns
/// the cluster after the run, whose processes have ended.
fn run(seed: u64) -> SimulatedCluster {
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
            let cluster = run(seed);
            let violations = cluster.environment.invariants.violations();
            if !violations.is_empty() {
                let trace = cluster.trace.join("\n");
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
    let fingerprint = |seed| run(seed).environment.invariants.fingerprint();
    let first = fingerprint(0);
    assert_eq!(first, fingerprint(0));
    assert_ne!(first, fingerprint(1));
}

impl SimulatedCluster {
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
}

async fn run_with_random_failures(seed: u64) -> SimulatedCluster {
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
        lost_reads: 0.0,
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
    if let Some(difference) = cluster.difference() {
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
    cluster
}
