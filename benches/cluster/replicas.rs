//! Measures several replicas of the server: one leader, which detects operations, and followers,
//! which copy the leader's operations. The results are processor time, memory, the latency of
//! reads, and the time without a leader after a crash.

use crate::api_client::{Api, LIVE_API_PATH};
use crate::latency::percentile;
use crate::server::MeasuredServer;
use crate::{Bench, Load, SETTLE};
use anyhow::Context as _;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Path of the Lease with which the replicas elect their leader.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";

/// Number of reads in each measurement.
const READS: usize = 1_000;

/// Interval between two reads of the Lease while a benchmark waits for a leader.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Largest measured number of followers.
const MAX_FOLLOWERS: usize = 2;

/// Measures the processor time and the memory of the leader and of each follower, with zero, one
/// and two followers. Then measures reads of one operation.
pub async fn measure_cost(bench: &Bench) -> anyhow::Result<()> {
    let api = &bench.api;
    let leader = start_replica(api, "leader-0").await?;
    leader.register(api).await?;
    wait_for_leader(api, "leader-0").await?;
    let mut followers: Vec<MeasuredServer> = Vec::new();
    loop {
        api.set_all(bench.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        println!("{} followers", followers.len());
        print_memory("without operations", &leader, &followers)?;
        let replicas = || std::iter::once(&leader).chain(&followers);
        let before: Vec<Duration> = replicas()
            .map(MeasuredServer::processor_time)
            .collect::<Result<_, _>>()?;
        let events = bench
            .load(Load::StatusChange, bench.rate * bench.seconds, None)
            .await?;
        tokio::time::sleep(SETTLE).await;
        for (index, (replica, before)) in replicas().zip(before).enumerate() {
            let what = format!("status changes, {}", replica_name(index));
            replica.print_processor(&what, before, events)?;
        }
        api.set_all(bench.subjects, "Migrating").await?;
        tokio::time::sleep(SETTLE).await;
        let with = format!("with {} operations", bench.subjects);
        print_memory(&with, &leader, &followers)?;
        if followers.len() == MAX_FOLLOWERS {
            break;
        }
        let pod_uid = format!("follower-{}", followers.len());
        followers.push(start_replica(api, &pod_uid).await?);
    }
    measure_reads(api, &leader, &followers[0]).await
}

/// Measures reads of one operation from:
///
/// - the leader
/// - a follower that answers from its own copy
/// - a follower that first asks the leader for its newest resourceVersion (a state query)
async fn measure_reads(
    api: &Api,
    leader: &MeasuredServer,
    follower: &MeasuredServer,
) -> anyhow::Result<()> {
    let list = format!("{LIVE_API_PATH}/inflightoperations?limit=1");
    let list: Value = serde_json::from_slice(&api.get(&list).await?)?;
    let name = list["items"][0]["metadata"]["name"].as_str();
    let name = name.context("no operation is in flight")?;
    let path = format!("{LIVE_API_PATH}/namespaces/default/inflightoperations/{name}");
    let cached = format!("{path}?resourceVersion=0");
    for (what, server, path) in [
        ("leader", leader, &path),
        ("follower, resourceVersion=0", follower, &cached),
        (
            "follower, after a state query to the leader",
            follower,
            &path,
        ),
    ] {
        let direct = server.direct(api).await?;
        direct.get(path).await?;
        let before = (leader.processor_time()?, follower.processor_time()?);
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let start = Instant::now();
            direct.get(path).await?;
            times.push(start.elapsed());
        }
        let reads = u32::try_from(READS)?;
        let (of_leader, of_follower) = (
            leader.processor_time_since(before.0)? / reads,
            follower.processor_time_since(before.1)? / reads,
        );
        let p50 = percentile(times.iter().copied(), 50);
        let p99 = percentile(times.into_iter(), 99);
        println!(
            "get, {what}: p50 {p50:.0?}, p99 {p99:.0?}, processor time of the leader \
             {of_leader:.0?}, of the follower {of_follower:.0?}"
        );
    }
    Ok(())
}

/// Kills the leader of three replicas repeatedly. Measures the time from SIGKILL until another
/// replica holds the Lease.
pub async fn measure_failover(api: &Api, kills: usize) -> anyhow::Result<()> {
    let mut replicas = Vec::new();
    for started in 0..3 {
        let pod_uid = format!("replica-{started}");
        let server = start_replica(api, &pod_uid).await?;
        if replicas.is_empty() {
            // When the other replicas start, they read the CA from the APIService. So the
            // APIService must exist before they start.
            server.register(api).await?;
        }
        replicas.push((server, pod_uid));
    }
    let mut times = Vec::with_capacity(kills);
    for kill in 0..kills {
        let leader = wait_for_holder(api, |_| true).await?;
        // During `SETTLE`, the followers copy the operations of the new leader. The random part of
        // the pause moves the kill to a random time between two renewals of the Lease.
        tokio::time::sleep(SETTLE + Duration::from_millis(fastrand::u64(0..1_000))).await;
        let index = replicas.iter().position(|(_, pod_uid)| *pod_uid == leader);
        let (mut server, _) = replicas.remove(index.context("the leader is unknown")?);
        server.kill()?;
        let start = Instant::now();
        wait_for_holder(api, |holder| holder != leader).await?;
        times.push(start.elapsed());
        let pod_uid = format!("replica-{}", 3 + kill);
        replicas.push((start_replica(api, &pod_uid).await?, pod_uid));
    }
    let time_percentile = |percent| percentile(times.iter().copied(), percent);
    println!(
        "another replica leads after {kills} kills of the leader: at least {:.1?}, p50 {:.1?}, \
         at most {:.1?}",
        time_percentile(0),
        time_percentile(50),
        time_percentile(100)
    );
    Ok(())
}

/// Starts a replica, and waits until it is ready.
async fn start_replica(api: &Api, pod_uid: &str) -> anyhow::Result<MeasuredServer> {
    let replica = MeasuredServer::start_replica(api, pod_uid).await?;
    replica
        .direct(api)
        .await?
        .wait_until_served("/readyz")
        .await?;
    Ok(replica)
}

async fn wait_for_leader(api: &Api, pod_uid: &str) -> anyhow::Result<()> {
    wait_for_holder(api, |holder| holder == pod_uid)
        .await
        .map(drop)
}

/// Waits until a Pod holds the Lease and `is_wanted` returns true for the UID of this Pod. Returns
/// the UID.
async fn wait_for_holder(api: &Api, is_wanted: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    loop {
        // Before the first election, the Lease does not exist.
        let lease = api.get(LEASE).await.unwrap_or_default();
        let lease: Value = serde_json::from_slice(&lease).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str();
        let pod_uid = holder.and_then(|holder| holder.split_once('_'));
        if let Some((pod_uid, _)) = pod_uid.filter(|(pod_uid, _)| is_wanted(pod_uid)) {
            return Ok(pod_uid.to_owned());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_memory(
    when: &str,
    leader: &MeasuredServer,
    followers: &[MeasuredServer],
) -> anyhow::Result<()> {
    for (index, replica) in std::iter::once(leader).chain(followers).enumerate() {
        println!("{when}, {}: {}", replica_name(index), replica.memory()?);
    }
    Ok(())
}

fn replica_name(index: usize) -> String {
    match index {
        0 => "leader".to_owned(),
        index => format!("follower {index}"),
    }
}
