//! Measures the cost of several replicas: processor time and memory of the leader and its
//! followers, the query to the leader before a read, and the time without a leader after a crash.

use crate::api::{Api, LIVE};
use crate::latency::at;
use crate::server::Server;
use crate::{Bench, Load, SETTLE};
use anyhow::Context as _;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The Lease of the replicas.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";

/// Number of reads of each kind.
const READS: usize = 1_000;

/// Interval at which the Lease is read while no replica leads.
const LOOK: Duration = Duration::from_millis(10);

/// Number of followers in the largest measurement.
const FOLLOWERS: usize = 2;

/// Measures a leader without followers, with one, and with two.
pub async fn cost(bench: &Bench) -> anyhow::Result<()> {
    let api = &bench.api;
    let leader = start(api, "leader-0").await?;
    leader.register(api).await?;
    leads(api, "leader-0").await?;
    let mut followers: Vec<Server> = Vec::new();
    loop {
        api.set_all(bench.subjects, "Running").await?;
        tokio::time::sleep(2 * SETTLE).await;
        println!("{} followers", followers.len());
        say_memory("without operations", &leader, &followers)?;
        let replicas = || std::iter::once(&leader).chain(&followers);
        let before: Vec<Duration> = replicas()
            .map(Server::processor)
            .collect::<Result<_, _>>()?;
        let events = bench.load(Load::Life, None).await?;
        tokio::time::sleep(SETTLE).await;
        for (place, (replica, before)) in replicas().zip(before).enumerate() {
            let what = format!("changes of state, {}", name(place));
            replica.say_processor(&what, before, events)?;
        }
        api.set_all(bench.subjects, "Migrating").await?;
        tokio::time::sleep(SETTLE).await;
        let with = format!("with {} operations", bench.subjects);
        say_memory(&with, &leader, &followers)?;
        if followers.len() == FOLLOWERS {
            break;
        }
        let pod = format!("follower-{}", followers.len());
        followers.push(start(api, &pod).await?);
    }
    reads(api, &leader, &followers[0]).await
}

/// Reads one operation at the leader, at a follower from its cache, and at a follower that
/// asks the leader first.
async fn reads(api: &Api, leader: &Server, follower: &Server) -> anyhow::Result<()> {
    let list = format!("{LIVE}/inflightoperations?limit=1");
    let list: Value = serde_json::from_slice(&api.get(&list).await?)?;
    let name = list["items"][0]["metadata"]["name"].as_str();
    let name = name.context("no operation is in flight")?;
    let path = format!("{LIVE}/namespaces/default/inflightoperations/{name}");
    let cached = format!("{path}?resourceVersion=0");
    for (what, server, path) in [
        ("leader", leader, &path),
        ("follower, resourceVersion=0", follower, &cached),
        ("follower, after a question to the leader", follower, &path),
    ] {
        let direct = server.direct(api).await?;
        direct.get(path).await?;
        let before = (leader.processor()?, follower.processor()?);
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let begun = Instant::now();
            direct.get(path).await?;
            times.push(begun.elapsed());
        }
        let each = u32::try_from(READS)?;
        let (of_leader, of_follower) = (
            leader.processor_since(before.0)? / each,
            follower.processor_since(before.1)? / each,
        );
        let (half, most) = (at(times.iter().copied(), 50), at(times.into_iter(), 99));
        println!(
            "get, {what}: p50 {half:.0?}, p99 {most:.0?}, processor time of the leader \
             {of_leader:.0?}, of the follower {of_follower:.0?}"
        );
    }
    Ok(())
}

/// Kills the leader of three replicas repeatedly. Measures the time from SIGKILL until another
/// replica holds the Lease.
pub async fn failover(api: &Api, kills: usize) -> anyhow::Result<()> {
    let mut replicas = Vec::new();
    for started in 0..3 {
        let pod = format!("replica-{started}");
        let server = start(api, &pod).await?;
        if replicas.is_empty() {
            // The other replicas read the CA in the APIService.
            server.register(api).await?;
        }
        replicas.push((server, pod));
    }
    let mut times = Vec::with_capacity(kills);
    for kill in 0..kills {
        let leader = until_held(api, |_| true).await?;
        // All replicas are in sync. The kill happens at a random time between two renewals.
        tokio::time::sleep(SETTLE + Duration::from_millis(fastrand::u64(0..1_000))).await;
        let index = replicas.iter().position(|(_, pod)| *pod == leader);
        let (mut server, _) = replicas.remove(index.context("the leader is unknown")?);
        server.kill()?;
        let begun = Instant::now();
        until_held(api, |holder| holder != leader).await?;
        times.push(begun.elapsed());
        let pod = format!("replica-{}", 3 + kill);
        replicas.push((start(api, &pod).await?, pod));
    }
    let within = |percent| at(times.iter().copied(), percent);
    println!(
        "another replica leads after {kills} kills of the leader: at least {:.1?}, p50 {:.1?}, \
         at most {:.1?}",
        within(0),
        within(50),
        within(100)
    );
    Ok(())
}

/// Starts a replica, and waits until it is ready.
async fn start(api: &Api, pod: &str) -> anyhow::Result<Server> {
    let replica = Server::start_replica(api, pod).await?;
    replica.direct(api).await?.until("/readyz").await?;
    Ok(replica)
}

async fn leads(api: &Api, pod: &str) -> anyhow::Result<()> {
    until_held(api, |holder| holder == pod).await.map(drop)
}

/// Waits until one of these Pods holds the Lease. Returns its UID.
async fn until_held(api: &Api, is_wanted: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    loop {
        // The Lease may not exist yet.
        let lease = api.get(LEASE).await.unwrap_or_default();
        let lease: Value = serde_json::from_slice(&lease).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str();
        let pod = holder.and_then(|holder| holder.split_once('_'));
        if let Some((pod, _)) = pod.filter(|(pod, _)| is_wanted(pod)) {
            return Ok(pod.to_owned());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn say_memory(when: &str, leader: &Server, followers: &[Server]) -> anyhow::Result<()> {
    for (place, replica) in std::iter::once(leader).chain(followers).enumerate() {
        println!("{when}, {}: {}", name(place), replica.memory()?);
    }
    Ok(())
}

fn name(place: usize) -> String {
    match place {
        0 => "leader".to_owned(),
        place => format!("follower {place}"),
    }
}
