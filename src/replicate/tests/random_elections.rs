//! Tests of the leader election with random failures. The seed of a run determines all random
//! choices of the run.

use super::simulated_election_cluster::{Cluster, ElectionOnlyReplica};
use crate::replicate::simulation::Faults;
use std::time::Duration;

/// The seeds that the test runs. The environment variable `IFO_ELECTION_SEEDS=FROM..TO` selects
/// other seeds.
const SEEDS: std::ops::Range<u64> = 0..60;

/// The time after the last failure within which a replica must lead again. It is longer than
/// the sum of the following times:
///
/// - up to 8 s until the Lease of the last leader expires
/// - up to 10 s of additional wait, if no replica has all changes of this leader
/// - 2.5 s until a read of the Lease times out, because it gets no answer
const RECOVERY_TIME: Duration = Duration::from_secs(25);

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("IFO_ELECTION_SEEDS").ok();
    let parse = |text: String| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    };
    given.and_then(parse).unwrap_or(SEEDS)
}

/// Runs the failures of one seed on a new runtime, so that the runs do not affect each other.
/// Returns the trace of the run, and the violations of invariants.
fn run(seed: u64) -> (Vec<String>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("the runtime needs no I/O");
    runtime.block_on(run_with_random_failures(seed))
}

#[test]
fn random_failures_violate_no_invariant_of_the_election() {
    let mut failed = Vec::new();
    for seed in seeds() {
        let (trace, violations) = run(seed);
        if !violations.is_empty() {
            let trace = trace.join("\n");
            failed.push(format!("seed {seed}: {violations:#?}\n{trace}"));
        }
    }
    let count = failed.len();
    assert!(
        failed.is_empty(),
        "{count} seeds failed, the first is {}",
        failed[0]
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, _) = run(7);
    assert_eq!(first, run(7).0);
    assert!(first.len() > 10, "{first:?}");
    assert_ne!(first, run(8).0);
}

/// Injects random failures into three replicas. Returns the trace of the run, and the violations of
/// invariants.
async fn run_with_random_failures(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut cluster = Cluster::new(seed);
    let mut random = fastrand::Rng::with_seed(!seed);
    let begun = tokio::time::Instant::now();
    let mut trace = Vec::new();
    let mut pod_names_used = 0;
    while pod_names_used < 3 {
        let skew = cluster.skew(Duration::from_hours(1));
        cluster.start(&format!("pod-{pod_names_used}"), skew);
        pod_names_used += 1;
    }
    cluster.leases.set_faults(Faults {
        lost_requests: random.f64() * 0.1,
        lost_answers: random.f64() * 0.1,
        errors: random.f64() * 0.1,
        conflicts: random.f64() * 0.1,
        delay: Duration::from_millis(random.u64(1..2_000)),
    });
    for _ in 0..random.usize(5..25) {
        let index = random.usize(0..cluster.replicas.len());
        // With a probability of one half, the failure affects the leader, if there is one.
        // Otherwise it affects a random replica.
        let leader = cluster.leaders().first().copied();
        let index = leader.filter(|_| random.bool()).unwrap_or(index);
        let pod = cluster.replicas[index].pod.clone();
        let what = match random.u8(0..6) {
            0 | 1 => {
                cluster.replicas[index]
                    .process
                    .pause_after(random.u32(0..20));
                "pauses"
            }
            2 => {
                for replica in &cluster.replicas {
                    replica.process.resume();
                    replica.client.cut(false);
                }
                "continues, like all other replicas"
            }
            3 => {
                cluster.replicas[index].client.cut(true);
                "is cut off"
            }
            4 => {
                cluster.kill(index);
                let (skew, is_restart) = (cluster.skew(Duration::from_hours(1)), random.bool());
                let next = format!("pod-{pod_names_used}");
                cluster.start(if is_restart { &pod } else { &next }, skew);
                pod_names_used += usize::from(!is_restart);
                if is_restart {
                    "is killed, and restarts"
                } else {
                    "is killed, and replaced"
                }
            }
            _ => {
                cluster.replicas[index].terminate();
                cluster
                    .run_for(Duration::from_millis(random.u64(0..2_000)))
                    .await;
                cluster.kill(index);
                let skew = cluster.skew(Duration::from_hours(1));
                cluster.start(&format!("pod-{pod_names_used}"), skew);
                pod_names_used += 1;
                "terminates, and is replaced"
            }
        };
        let term = cluster.replicas.iter().find_map(ElectionOnlyReplica::term);
        let issued = cluster.issued();
        trace.push(format!(
            "{:?}: {pod} {what}; {term:?}, {issued} versions",
            begun.elapsed()
        ));
        cluster
            .run_for(Duration::from_millis(random.u64(1..12_000)))
            .await;
    }
    cluster.leases.set_faults(Faults::default());
    for replica in &cluster.replicas {
        replica.process.resume();
        replica.client.cut(false);
    }
    let found = cluster
        .wait_until(RECOVERY_TIME, |it| !it.leaders().is_empty())
        .await;
    if found.is_none() {
        cluster.record_violation(format!(
            "no replica led within {RECOVERY_TIME:?} after the last failure"
        ));
    }
    cluster.run_for(Duration::from_secs(5)).await;
    trace.push(format!(
        "{} terms, {} versions",
        cluster.terms(),
        cluster.issued()
    ));
    (trace, cluster.violations())
}
