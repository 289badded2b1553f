//! Tests of the leader election in single scenarios, such as a crash of the leader or an edit of
//! the Lease.

use super::election_cluster::Cluster;
use crate::clock::simulated::Skew;
use crate::index::Rv;
use crate::replicate::simulation::Faults;
use crate::replicate::{Leadership, ReplicaRole};
use k8s_openapi::api::coordination::v1::Lease;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn leadership(cluster: &Cluster, index: usize) -> Leadership {
    match &*cluster.replicas[index].role.borrow() {
        ReplicaRole::Leading(leadership) => leadership.clone(),
        other => panic!("{other:?}"),
    }
}

/// Returns, for each replica, the name of the term in which it leads or follows. A term is the time
/// for which one leader holds the Lease. The name is None if the replica knows no leader.
fn terms(cluster: &Cluster) -> Vec<Option<String>> {
    let replicas = cluster.replicas.iter();
    replicas
        .map(|it| it.term().map(|it| it.to_string()))
        .collect()
}

fn annotate(lease: &mut Lease, key: &str, value: &str) {
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(format!("ifo.kubevirt.io/{key}"), value.into());
}

fn assert_no_violation(cluster: &Cluster) {
    assert_eq!(cluster.violations(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn first_leader_waits_for_one_lease_duration_and_fills_the_lease_as_kubernetes_does() {
    let mut cluster = Cluster::of(2);
    let begun = cluster
        .wait_until(MINUTE, |it| !it.leaders().is_empty())
        .await;
    let begun = begun.unwrap();
    assert!((seconds(8)..seconds(9)).contains(&begun), "{begun:?}");
    let leader = cluster.wait_until_settled(MINUTE).await;
    cluster.run_for(seconds(2)).await;
    let leadership = leadership(&cluster, leader);
    let lease = cluster.leases.lease().unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(&*leadership.term));
    let pod = &cluster.replicas[leader].pod;
    assert!(leadership.term.starts_with(&format!("{pod}_")));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(8), Some(1))
    );
    assert!(spec.acquire_time < spec.renew_time);
    let annotations = lease.metadata.annotations.unwrap();
    let note = &annotations["ifo.kubevirt.io/election"];
    let address = format!(r#""leaderAddress":"{pod}:8443""#);
    assert!(note.contains(&address), "{note}");
    let metrics = cluster.replicas[leader].metrics.render();
    assert!(metrics.contains("ifo_leader 1\n"), "{metrics}");
    assert!(metrics.contains("ifo_failovers_total 0\n"), "{metrics}");
    assert!(
        !metrics.contains("ifo_lease_renew_seconds_count 0\n"),
        "{metrics}"
    );
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn restarted_container_takes_over_the_lease_of_its_pod_at_once() {
    let mut cluster = Cluster::of(1);
    let leader = cluster.wait_for_leader(MINUTE).await;
    cluster.run_for(seconds(30)).await;
    let before = leadership(&cluster, leader);
    cluster.kill(leader);
    cluster.start("pod-0", Skew::NONE);
    cluster.wait_for_leader(milliseconds(100)).await;
    let after = leadership(&cluster, 0);
    assert_ne!(after.term, before.term);
    assert!(after.start > before.granted());
    let metrics = cluster.replicas[0].metrics.render();
    assert!(
        metrics.contains("ifo_failovers_total 0\n"),
        "a restart in the same Pod must not count as a failover: {metrics}"
    );
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn restarted_container_leaves_the_lease_to_a_replica_that_has_its_changes() {
    let mut cluster = Cluster::of(2);
    let leader = cluster.wait_for_leader(MINUTE).await;
    cluster.run_for(seconds(30)).await;
    let pod = cluster.kill(leader).pod;
    cluster.start(&pod, Skew::NONE);
    let successor = cluster.wait_for_leader(seconds(10)).await;
    assert_ne!(
        cluster.replicas[successor].pod, pod,
        "the restarted container must not lead, because its index is empty"
    );
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn acquisition_whose_answer_was_lost_is_repeated_with_a_new_term() {
    let mut cluster = Cluster::of(1);
    cluster.run_for(seconds(7)).await;
    cluster.leases.set_faults(Faults {
        lost_answers: 1.0,
        ..Faults::default()
    });
    cluster.run_for(seconds(3)).await;
    let holder = |it: &Cluster| it.leases.lease().unwrap().spec.unwrap().holder_identity;
    let lost = holder(&cluster).expect("the Lease was acquired");
    cluster.leases.set_faults(Faults::default());
    cluster.wait_for_leader(seconds(5)).await;
    assert_ne!(holder(&cluster), Some(lost));
    assert_eq!(
        cluster.terms(),
        1,
        "the acquisition without an answer must not count as a term"
    );
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_taken_at_once_by_a_replica_with_the_final_version() {
    let mut cluster = Cluster::of(3);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = leadership(&cluster, old);
    let version = cluster.replicas[old].terminate();
    let holder = |it: &Cluster| it.leases.lease()?.spec?.holder_identity;
    cluster
        .wait_until(seconds(1), |it| holder(it).is_none())
        .await
        .unwrap();
    assert_eq!(before.reserved(), Rv(0));
    for replica in &cluster.replicas {
        // Each follower reads the Lease soon, as it does when the leader's stream of changes ends.
        replica.wake.notify_one();
    }
    let took = cluster
        .wait_until(MINUTE, |it| !it.leaders().is_empty())
        .await
        .unwrap();
    assert!(took < seconds(1), "{took:?}");
    let new = cluster.wait_until_settled(seconds(3)).await;
    assert_ne!(new, old);
    assert!(leadership(&cluster, new).start > version);
    let metrics = cluster.replicas[new].metrics.render();
    assert!(metrics.contains("ifo_failovers_total 1\n"), "{metrics}");
    assert_eq!(cluster.terms(), 2);

    // After a replica has released the Lease, it only reads the Lease, and never leads again.
    assert!(matches!(
        &*cluster.replicas[old].role.borrow(),
        ReplicaRole::Following(_)
    ));
    let others: Vec<usize> = (0..3).rev().filter(|&it| it != old).collect();
    for other in others {
        cluster.kill(other);
    }
    cluster.leases.delete();
    assert_eq!(
        cluster
            .wait_until(MINUTE, |it| !it.leaders().is_empty())
            .await,
        None
    );
    assert_eq!(cluster.leases.lease(), None);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn successor_waits_for_the_final_version_for_at_most_10_s() {
    let mut cluster = Cluster::of(2);
    let old = cluster.wait_until_settled(MINUTE).await;
    let version = cluster.replicas[old].terminate();
    // Kills the only follower. No other replica has copied the changes of the last leader.
    cluster.kill(1 - old);
    cluster.run_for(seconds(1)).await;
    cluster.kill(0);
    cluster.start("new", Skew::NONE);
    assert_eq!(
        cluster
            .wait_until(seconds(9), |it| !it.leaders().is_empty())
            .await,
        None
    );
    let role = cluster.replicas[0].role.borrow().clone();
    let ReplicaRole::Vacant {
        last,
        final_version,
    } = role
    else {
        panic!("{role:?}");
    };
    assert_eq!(final_version, Some(version));
    assert_eq!(last.unwrap().address, format!("pod-{old}:8443"));
    cluster.wait_for_leader(seconds(2)).await;
}

#[tokio::test(start_paused = true)]
async fn successor_waits_for_three_retry_periods_if_no_replica_copied_the_last_leader() {
    let mut cluster = Cluster::of(1);
    let old = cluster.wait_for_leader(MINUTE).await;
    cluster.replicas[old].terminate();
    cluster.run_for(seconds(1)).await;
    cluster.kill(old);
    cluster.start("new", Skew::NONE);
    let took = cluster
        .wait_until(MINUTE, |it| !it.leaders().is_empty())
        .await;
    let took = took.unwrap();
    assert!((seconds(2)..seconds(5)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn restarted_container_waits_if_the_lease_of_its_pod_has_expired() {
    let mut cluster = Cluster::of(1);
    let old = cluster.wait_for_leader(MINUTE).await;
    cluster.kill(old);
    cluster.run_for(seconds(20)).await;
    cluster.start("pod-0", Skew::NONE);
    let took = cluster
        .wait_until(MINUTE, |it| !it.leaders().is_empty())
        .await;
    let took = took.unwrap();
    assert!((seconds(10)..seconds(12)).contains(&took), "{took:?}");
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn successor_takes_over_as_soon_as_it_has_the_final_version() {
    let mut cluster = Cluster::of(1);
    let old = cluster.wait_for_leader(MINUTE).await;
    let version = cluster.replicas[old].terminate();
    cluster.run_for(seconds(1)).await;
    cluster.kill(old);
    cluster.start("new", Skew::NONE);
    cluster.run_for(seconds(1)).await;
    cluster.replicas[0].head.store(version.0, Relaxed);
    cluster.wait_for_leader(milliseconds(100)).await;
}

#[tokio::test(start_paused = true)]
async fn replica_in_sync_takes_over_when_the_lease_expires_and_other_replicas_later() {
    for (is_in_sync, replicas, range) in [
        (true, 2, seconds(7)..seconds(9)),
        (false, 2, seconds(17)..seconds(19)),
        // The killed leader was the only replica, and no other replica was copying its changes. So
        // the new replica waits only 3 s after the Lease has expired, and not 10 s.
        (false, 1, seconds(10)..seconds(12)),
    ] {
        let mut cluster = Cluster::of(replicas);
        let old = cluster.wait_until_settled(MINUTE).await;
        let before = leadership(&cluster, old);
        cluster.kill(old);
        if !is_in_sync {
            if replicas > 1 {
                cluster.kill(0);
            }
            cluster.start("new", Skew::NONE);
        }
        let took = cluster
            .wait_until(MINUTE, |it| !it.leaders().is_empty())
            .await
            .unwrap();
        assert!(range.contains(&took), "{took:?}");
        assert!(leadership(&cluster, 0).start > before.granted());
        assert_no_violation(&cluster);
    }
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_stops_before_another_replica_leads() {
    let mut cluster = Cluster::of(2);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = leadership(&cluster, old);
    cluster.replicas[old].client.cut(true);
    let stopped = cluster
        .wait_until(MINUTE, |it| it.leaders().is_empty())
        .await
        .unwrap();
    assert!((seconds(3)..seconds(6)).contains(&stopped), "{stopped:?}");
    assert_eq!(before.reserved(), Rv(0));
    assert!(!before.reserved_above(Rv(0)).await);
    cluster.wait_for_leader(seconds(6)).await;
    cluster.replicas[old].client.cut(false);
    let new = cluster.wait_until_settled(seconds(5)).await;
    assert_ne!(new, old);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn leadership_ends_during_a_pause_of_the_virtual_machine() {
    let mut cluster = Cluster::of(1);
    let leader = cluster.wait_for_leader(MINUTE).await;
    let process = cluster.replicas[leader].process.clone();
    let before = leadership(&cluster, leader);
    let reserved = process.within(|| before.reserved());
    assert!(reserved > before.start);
    // No timer fires and no task runs between the pause and the checks.
    process.pause_machine_for(seconds(5));
    assert!(!process.within(|| before.is_valid()));
    assert_eq!(process.within(|| before.reserved()), Rv(0));
    cluster.run_for(seconds(3)).await;
    assert_ne!(leadership(&cluster, leader).term, before.term);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn renewals_reserve_versions_ahead_of_the_clock_and_ahead_of_the_newest_version() {
    let mut cluster = Cluster::of(1);
    let leader = cluster.wait_for_leader(MINUTE).await;
    let leadership = leadership(&cluster, leader);
    let process = cluster.replicas[leader].process.clone();
    let reserved = process.within(|| leadership.reserved());
    let ahead = Rv(reserved.0 + 2_000_000);
    let waiting = tokio::spawn({
        let (process, leadership) = (process.clone(), leadership.clone());
        async move {
            leadership
                .reserved_above(ahead)
                .await
                .then(|| process.within(|| leadership.reserved()))
        }
    });
    cluster.run_for(seconds(10)).await;
    assert!(waiting.await.unwrap().unwrap() > ahead);
    // The test sets the newest resourceVersion itself. So it first stops the task that issues
    // resourceVersions.
    cluster.replicas[leader].stop.send_replace(true);
    cluster.run_for(seconds(1)).await;
    let head = Rv(reserved.0 + 60_000_000);
    cluster.replicas[leader].head.store(head.0, Relaxed);
    cluster.run_for(seconds(2)).await;
    let reserved = process.within(|| leadership.reserved());
    assert_eq!(reserved, Rv(head.0 + 1_000_000));
}

#[tokio::test(start_paused = true)]
async fn takeover_whose_answer_was_lost_is_repeated_at_once() {
    let mut cluster = Cluster::of(2);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = cluster.leases.lease();
    cluster.kill(old);
    cluster.leases.set_faults(Faults {
        lost_answers: 1.0,
        ..Faults::default()
    });
    let holder = |lease: Option<Lease>| lease.unwrap().spec.unwrap().holder_identity;
    let before = holder(before);
    let is_taken = |it: &Cluster| holder(it.leases.lease()) != before;
    cluster.wait_until(MINUTE, is_taken).await.unwrap();
    cluster.leases.set_faults(Faults::default());
    cluster.wait_for_leader(seconds(5)).await;
    assert_eq!(
        cluster.terms(),
        2,
        "the acquisition without an answer must not count as a term"
    );
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn acquisition_answered_after_the_renew_deadline_does_not_start_a_term() {
    let mut cluster = Cluster::of(1);
    cluster.run_for(seconds(5)).await;
    cluster.leases.set_faults(Faults {
        delay: seconds(1),
        ..Faults::default()
    });
    let before = cluster.leases.writes();
    let written = |it: &Cluster| it.leases.writes() > before;
    cluster.wait_until(MINUTE, written).await.unwrap();
    assert_eq!(
        cluster.terms(),
        0,
        "no replica must lead before the answer arrives"
    );
    cluster.replicas[0].process.pause_machine_for(seconds(5));
    cluster.wait_for_leader(seconds(10)).await;
    assert_eq!(
        cluster.terms(),
        1,
        "the acquisition with a late answer must not count as a term"
    );
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_edits_by_other_clients_do_not_end_a_leadership() {
    let mut cluster = Cluster::of(2);
    cluster.wait_until_settled(MINUTE).await;
    let before = terms(&cluster);
    cluster.leases.set_faults(Faults {
        lost_answers: 1.0,
        ..Faults::default()
    });
    cluster.run_for(milliseconds(1_500)).await;
    cluster.leases.set_faults(Faults::default());
    cluster.run_for(seconds(10)).await;
    assert_eq!(terms(&cluster), before);
    for turn in 0..20 {
        cluster.leases.edit(|lease| {
            annotate(lease, "election", "garbage");
            annotate(lease, "somebody", &turn.to_string());
            lease.spec.as_mut().unwrap().lease_duration_seconds = Some(1);
        });
        cluster.run_for(milliseconds(700)).await;
    }
    assert_eq!(terms(&cluster), before);
    let lease = cluster.leases.lease().unwrap();
    let annotations = lease.metadata.annotations.unwrap();
    assert_eq!(annotations["ifo.kubevirt.io/somebody"], "19");
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn edits_by_other_clients_do_not_extend_the_lease_of_a_crashed_leader() {
    let mut cluster = Cluster::of(2);
    let old = cluster.wait_until_settled(MINUTE).await;
    cluster.kill(old);
    for turn in 0..20 {
        cluster
            .leases
            .edit(|lease| annotate(lease, "somebody", &turn.to_string()));
        cluster.run_for(milliseconds(500)).await;
    }
    assert_eq!(cluster.leaders().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn leader_stops_when_another_client_changes_the_holder() {
    let mut cluster = Cluster::of(3);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = leadership(&cluster, old);
    cluster.leases.edit(|lease| {
        lease.spec.as_mut().unwrap().holder_identity = Some("somebody".into());
    });
    cluster
        .wait_until(milliseconds(1_100), |it| it.leaders().is_empty())
        .await
        .unwrap();
    let new = cluster.wait_for_leader(seconds(20)).await;
    assert!(leadership(&cluster, new).start > before.granted());
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn leader_continues_if_a_user_removes_the_holder_from_the_lease() {
    let mut cluster = Cluster::of(3);
    cluster.wait_until_settled(MINUTE).await;
    let before = terms(&cluster);
    cluster
        .leases
        .edit(|lease| lease.spec.as_mut().unwrap().holder_identity = None);
    cluster.run_for(seconds(20)).await;
    assert_eq!(terms(&cluster), before);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_created_again_without_a_change_of_the_leader() {
    let mut cluster = Cluster::of(3);
    let leader = cluster.wait_until_settled(MINUTE).await;
    let before = terms(&cluster);
    for replica in 0..3 {
        // The replica that first notices the deletion creates the Lease again. For 3 s, only
        // `replica` reaches the kube-apiserver, so `replica` is the first. The 3 s are shorter than
        // the renew deadline of 5 s, so the leader still leads.
        let set_cut = |cluster: &Cluster, is_cut| {
            for (other, it) in cluster.replicas.iter().enumerate() {
                it.client.cut(is_cut && other != replica);
            }
        };
        set_cut(&cluster, true);
        cluster.leases.delete();
        cluster.replicas[replica].wake.notify_one();
        cluster.run_for(seconds(3)).await;
        let lease = cluster.leases.lease().expect("the replica has created it");
        // Only the leader creates a Lease with a holder.
        let holder = lease.spec.unwrap().holder_identity;
        assert_eq!(holder.is_some(), replica == leader);
        set_cut(&cluster, false);
        cluster.run_for(seconds(12)).await;
        assert_eq!(terms(&cluster), before);
        let lease = cluster.leases.lease().unwrap();
        assert!(lease.spec.unwrap().holder_identity.is_some());
    }
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn replica_takes_over_if_the_lease_is_deleted_while_the_leader_is_paused() {
    let mut cluster = Cluster::of(3);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = leadership(&cluster, old);
    cluster.replicas[old].process.pause_after(0);
    cluster.leases.delete();
    // The new replica has never seen the deleted Lease.
    cluster.start("new", Skew::NONE);
    cluster.run_for(seconds(20)).await;
    let new = cluster.wait_for_leader(seconds(1)).await;
    assert!(leadership(&cluster, new).start > before.granted());
    cluster.replicas[old].process.resume();
    cluster.run_for(seconds(20)).await;
    assert_eq!(cluster.terms(), 2);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn terms_share_no_version_after_the_lease_is_restored_from_a_backup() {
    let mut cluster = Cluster::of(3);
    let first = cluster.wait_until_settled(MINUTE).await;
    let backup = cluster.leases.lease();
    // The first leader loses its connection to the kube-apiserver for 12 s. In this time, another
    // replica becomes the leader. Then the first leader becomes a follower.
    cluster.replicas[first].client.cut(true);
    cluster.run_for(seconds(12)).await;
    cluster.replicas[first].client.cut(false);
    let second = cluster.wait_until_settled(seconds(5)).await;
    assert_ne!(second, first);
    cluster.run_for(MINUTE).await;
    cluster.leases.restore(backup);
    cluster.run_for(seconds(4)).await;
    assert_eq!(
        cluster.leaders(),
        [0_usize; 0],
        "no replica must lead, because the restored Lease names a term that is over"
    );
    cluster.wait_for_leader(seconds(20)).await;
    assert_eq!(cluster.terms(), 3);
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn reservation_more_than_a_day_ahead_is_ignored() {
    let mut cluster = Cluster::of(2);
    let old = cluster.wait_until_settled(MINUTE).await;
    let before = leadership(&cluster, old);
    cluster.kill(old);
    let version = |days: u64| before.start.0 + days * 86_400_000_000;
    let note = format!(r#"{{"reservedVersion": {}}}"#, version(2));
    cluster
        .leases
        .edit(|lease| annotate(lease, "election", &note));
    let new = cluster.wait_for_leader(seconds(20)).await;
    let start = leadership(&cluster, new).start;
    assert!(
        start > before.granted(),
        "the new term must start above the reservation that was seen earlier"
    );
    assert!(start.0 < version(1), "{start}");
    assert_no_violation(&cluster);
}

#[tokio::test(start_paused = true)]
async fn idle_replicas_write_the_lease_once_a_second() {
    let mut cluster = Cluster::of(2);
    cluster.wait_until_settled(MINUTE).await;
    let before = cluster.leases.writes();
    cluster.run_for(MINUTE).await;
    assert_eq!(cluster.leases.writes() - before, 60);
}
