//! Tests of the times of the leader election, and of edits of the Lease by other clients. The random
//! simulation in `random_replicas` proves that at most one replica leads and that all replicas
//! converge, but not how long this takes.

use crate::clock::simulated::{Simulated, begin};
use crate::index::Rv;
use crate::replicate::simulation::{Faults, SimulatedCluster, WholeReplica};
use crate::telemetry::testing::CapturedLog;
use k8s_openapi::api::coordination::v1::Lease;
use std::ops::Range;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn simulated_clock() -> Simulated {
    begin(
        "2026-01-01T00:00:00Z"
            .parse()
            .expect("the text is a timestamp"),
    )
}

/// Returns the contents of the annotation with which the leaders describe their terms.
fn election(cluster: &SimulatedCluster) -> String {
    let lease = cluster.environment.leases.lease();
    let annotations = lease.and_then(|it| it.metadata.annotations);
    annotations.unwrap_or_default()["ifo.kubevirt.io/election"].clone()
}

fn annotate(lease: &mut Lease, key: &str, value: &str) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(format!("ifo.kubevirt.io/{key}"), value.into());
}

/// What happens to the leader.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It is killed. No container replaces it.
    Crash,
    /// It is killed, the Lease is deleted, and another Pod starts.
    CrashAndDeletion,
    /// It is killed together with all followers. Another Pod starts.
    CrashOfAll,
    /// Its container restarts.
    Restart,
    /// Its container restarts after 20 seconds.
    LateRestart,
    /// It terminates, and releases the Lease.
    Release,
    /// It terminates. Then all replicas are killed, and another Pod starts.
    ReleaseOfAll,
    /// It loses its connection to the kube-apiserver.
    Cut,
}

#[tokio::test(start_paused = true)]
async fn the_time_without_a_leader_depends_on_how_the_last_leader_ended() {
    let cases: [(End, usize, Range<u32>); 10] = [
        // A follower with all changes takes over when the Lease expires.
        (End::Crash, 3, 7_000..9_500),
        (End::CrashAndDeletion, 2, 7_000..9_500),
        (End::CrashOfAll, 1, 10_000..12_500),
        // A replica could have copied the changes, so the new Pod waits for it for 10 seconds.
        (End::CrashOfAll, 3, 17_000..19_500),
        (End::Restart, 1, 0..500),
        // A follower with all changes leads, because the index of the new container is empty.
        (End::Restart, 3, 6_000..10_000),
        (End::LateRestart, 1, 10_000..12_500),
        (End::Release, 3, 0..2_000),
        (End::ReleaseOfAll, 1, 2_000..6_000),
        (End::Cut, 3, 6_000..11_000),
    ];
    for (end, replicas, range) in cases {
        let _clock = simulated_clock();
        let mut cluster = SimulatedCluster::calm(replicas);
        let first = cluster.until_leader(MINUTE).await;
        // No replica has the operations of an earlier leader.
        assert!(
            (11_000 * MILLISECOND..12_500 * MILLISECOND).contains(&first),
            "{first:?}"
        );
        cluster.run_for(Duration::from_secs(30)).await;
        let leader = cluster.leader().expect("a replica leads");
        let pod = cluster.replicas[leader].pod.clone();
        let pods = cluster
            .replicas
            .iter()
            .map(|it| it.pod.clone())
            .collect::<Vec<_>>();
        let term = cluster.replicas[leader].term();
        match end {
            End::Crash => cluster.replicas.remove(leader).kill(),
            End::CrashAndDeletion => {
                cluster.replicas.remove(leader).kill();
                cluster.environment.leases.delete();
                // This replica notices the deletion before the follower.
                cluster.start(None);
            }
            End::CrashOfAll => cluster.replicas.drain(..).for_each(WholeReplica::kill),
            End::Restart | End::LateRestart => {
                cluster.replicas.remove(leader).kill();
                if matches!(end, End::LateRestart) {
                    cluster.run_for(Duration::from_secs(20)).await;
                }
                cluster.start(Some(pod.clone()));
            }
            End::Release => cluster.replicas[leader].terminate(),
            End::ReleaseOfAll => {
                cluster.replicas[leader].terminate();
                cluster.run_for(Duration::from_secs(1)).await;
                cluster.replicas.drain(..).for_each(WholeReplica::kill);
            }
            End::Cut => cluster.replicas[leader].leases.cut(true),
        }
        if matches!(end, End::CrashOfAll | End::ReleaseOfAll) {
            cluster.start(None);
        }
        let took = cluster.until_other_term(term.as_ref(), MINUTE).await;
        let range = range.start * MILLISECOND..range.end * MILLISECOND;
        assert!(range.contains(&took), "{end:?} of {replicas}: {took:?}");
        let leader = cluster.leader().expect("a replica leads");
        let has_copy = pods.contains(&cluster.replicas[leader].pod);
        let none_has_copy = matches!(end, End::CrashOfAll | End::ReleaseOfAll);
        assert_eq!(has_copy, !none_has_copy, "{end:?}");
        let same_pod = cluster.replicas[leader].pod == pod;
        assert_eq!(
            same_pod,
            replicas == 1 && matches!(end, End::Restart | End::LateRestart),
            "{end:?}"
        );
        cluster.end();
    }
}

#[tokio::test(start_paused = true)]
async fn a_terminating_follower_that_acquires_the_lease_releases_it() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(2);
    cluster.until_leader(MINUTE).await;
    cluster.run_for(Duration::from_secs(30)).await;
    let leader = cluster.leader().expect("a replica leads");
    cluster.replicas[1 - leader].terminate();
    cluster.replicas[leader].terminate();
    cluster.run_for(Duration::from_secs(5)).await;
    let lease = cluster.environment.leases.lease().expect("it exists");
    let holder = lease.spec.and_then(|it| it.holder_identity);
    assert_eq!(holder.unwrap_or_default(), "");
    cluster.end();
}

#[tokio::test(start_paused = true)]
async fn edits_by_other_clients_and_lost_answers_do_not_end_a_leadership() {
    let edits: [fn(&SimulatedCluster); 5] = [
        |it| {
            it.environment
                .leases
                .edit(|lease| annotate(lease, "election", "garbage"));
        },
        |it| {
            it.environment
                .leases
                .edit(|lease| annotate(lease, "somebody", "x"));
        },
        |it| {
            let leases = &it.environment.leases;
            leases.edit(|lease| lease.spec.as_mut().unwrap().lease_duration_seconds = Some(1));
        },
        |it| {
            let leases = &it.environment.leases;
            leases.edit(|lease| lease.spec.as_mut().unwrap().holder_identity = None);
        },
        |it| it.environment.leases.delete(),
    ];
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(3);
    cluster.until_leader(MINUTE).await;
    let leader = cluster.leader().expect("a replica leads");
    let term = cluster.replicas[leader].term();
    let lost_answers = Faults {
        lost_answers: 1.0,
        ..Faults::default()
    };
    cluster.environment.leases.set_faults(lost_answers);
    cluster.run_for(1_500 * MILLISECOND).await;
    cluster.environment.leases.set_faults(Faults::default());
    for edit in edits {
        for _ in 0..5 {
            edit(&cluster);
            cluster.run_for(700 * MILLISECOND).await;
        }
        cluster.run_for(Duration::from_secs(10)).await;
        let terms = cluster.replicas.iter().map(WholeReplica::term);
        assert!(terms.into_iter().all(|it| it == term && it.is_some()));
    }
    // The leader renews the Lease once a second. No other replica writes it.
    let before = cluster.environment.leases.writes();
    cluster.run_for(MINUTE).await;
    let writes = cluster.environment.leases.writes() - before;
    assert!((58..=61).contains(&writes), "{writes}");
    // The leader notices another holder at its next renewal.
    cluster.environment.leases.edit(|lease| {
        lease.spec.as_mut().unwrap().holder_identity = Some("somebody".into());
    });
    cluster.run_for(1_200 * MILLISECOND).await;
    assert_eq!(cluster.leader(), None);
    cluster.until_leader(MINUTE).await;
    cluster.end();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_waits_for_an_answer_stops_when_its_leadership_ends() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(1);
    cluster.until_leader(MINUTE).await;
    cluster.run_for(Duration::from_secs(5)).await;
    let leases = cluster.environment.leases.clone();
    // The next renewal is refused as a conflict, so the leader reads the Lease.
    leases.edit(|lease| annotate(lease, "somebody", "x"));
    leases.set_faults(Faults {
        lost_reads: 1.0,
        ..Faults::default()
    });
    cluster.run_for(5_100 * MILLISECOND).await;
    assert_eq!(cluster.replicas[0].term(), None);
    cluster.end();
}

/// The kube-apiserver refuses each write of the Lease, for example because the namespace is missing.
#[tokio::test(start_paused = true)]
async fn a_lasting_refusal_is_logged_once() {
    let _clock = simulated_clock();
    let captured = CapturedLog::default();
    let log = captured.begin();
    let mut cluster = SimulatedCluster::calm(1);
    let leases = cluster.environment.leases.clone();
    leases.set_faults(Faults {
        conflicts: 1.0,
        ..Faults::default()
    });
    cluster.run_for(MINUTE).await;
    leases.set_faults(Faults::default());
    cluster.until_leader(MINUTE).await;
    cluster.end();
    drop(log);
    let lines = captured.lines().into_iter();
    let messages = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
    let messages: Vec<_> = messages.filter(|it| it.contains("the Lease")).collect();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(messages[0].starts_with("cannot write the Lease"));
    assert_eq!(messages[1], "the Lease can be read and written again");
}

#[tokio::test(start_paused = true)]
async fn edits_by_other_clients_do_not_extend_the_lease_of_a_crashed_leader() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(3);
    cluster.until_leader(MINUTE).await;
    cluster.run_for(Duration::from_secs(5)).await;
    let leader = cluster.leader().expect("a replica leads");
    // A reservation of more than a day ahead is ignored.
    let version = crate::clock::now().as_microsecond() + 2 * 86_400_000_000;
    let note = format!(r#"{{"reservedVersion": {version}}}"#);
    cluster.replicas.remove(leader).kill();
    for _ in 0..20 {
        let leases = &cluster.environment.leases;
        leases.edit(|lease| annotate(lease, "election", &note));
        cluster.run_for(500 * MILLISECOND).await;
    }
    cluster.until_leader(Duration::from_secs(15)).await;
    let leader = cluster.leader().expect("a replica leads");
    let head = cluster.replicas[leader].reader.head();
    assert!(
        head < Rv(u64::try_from(version).unwrap() - 86_400_000_000),
        "{head}"
    );
    cluster.end();
}

/// An administrator restores a Lease that names a leader whose term is over. The leader of the newest
/// term may still lead.
#[tokio::test(start_paused = true)]
async fn no_replica_leads_at_once_after_the_lease_is_restored_from_a_backup() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(3);
    cluster.until_leader(MINUTE).await;
    let first = cluster.leader().expect("a replica leads");
    let term = cluster.replicas[first].term();
    let backup = cluster.environment.leases.lease();
    cluster.replicas[first].leases.cut(true);
    cluster.until_other_term(term.as_ref(), MINUTE).await;
    cluster.replicas[first].leases.cut(false);
    cluster.run_for(MINUTE).await;
    cluster.environment.leases.restore(backup);
    cluster.run_for(4_000 * MILLISECOND).await;
    assert_eq!(cluster.leader(), None);
    cluster.until_leader(Duration::from_secs(20)).await;
    assert_eq!(cluster.environment.invariants.counts().0, 3);
    cluster.end();
}

/// Timers stand still while a virtual machine is paused. So the leader cannot rely on a timer.
#[tokio::test(start_paused = true)]
async fn a_leadership_ends_during_a_pause_of_the_virtual_machine() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(1);
    cluster.until_leader(MINUTE).await;
    cluster.run_for(Duration::from_secs(5)).await;
    assert!(cluster.replicas[0].leads());
    cluster.replicas[0]
        .process
        .pause_machine_for(Duration::from_secs(5));
    assert!(!cluster.replicas[0].leads());
    cluster.until_leader(MINUTE).await;
    cluster.end();
}

#[tokio::test(start_paused = true)]
async fn the_lease_has_the_fields_that_kubernetes_writes() {
    let _clock = simulated_clock();
    let mut cluster = SimulatedCluster::calm(1);
    cluster.until_leader(MINUTE).await;
    cluster.run_for(Duration::from_secs(2)).await;
    let replica = &cluster.replicas[0];
    let term = replica.term().expect("the replica leads").to_string();
    assert!(term.starts_with(&format!("{}_", replica.pod)));
    let spec = cluster.environment.leases.lease().unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity, Some(term));
    let numbers = (spec.lease_duration_seconds, spec.lease_transitions);
    assert_eq!(numbers, (Some(8), Some(1)));
    assert!(spec.acquire_time < spec.renew_time);
    let address = format!(r#""leaderAddress":"{}:8443""#, replica.pod);
    assert!(election(&cluster).contains(&address));
    let metrics = replica.metrics.render();
    for line in ["ifo_leader 1\n", "ifo_failovers_total 0\n"] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(
        !metrics.contains("ifo_lease_renew_seconds_count 0\n"),
        "{metrics}"
    );
    cluster.end();
}
