//! Measures the time between the first and the last of many watchers that receive a change.

use crate::Bench;
use crate::api::LIVE;
use crate::latency::at;
use crate::server::Server;
use anyhow::Context as _;
use http::Request;
use http_body_util::BodyExt as _;
use ifo::observe::{ConnectOptions, connect};
use kube::client::Body;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of HTTP/2 connections that the watchers share, as those of the aggregator do.
const CONNECTIONS: usize = 4;
/// Number of changes, and their rate per second.
const CHANGES: usize = 200;
const RATE: u32 = 10;

/// The times at which the first and the last watcher received a version, and the number of watchers
/// so far.
type Sightings = Arc<Mutex<HashMap<u64, (Instant, Instant, usize)>>>;

/// Measures the spread.
pub async fn spread(bench: &Bench, server: &Server) -> anyhow::Result<()> {
    let direct = server.direct(&bench.api).await?;
    let sightings = Sightings::default();
    let path = format!(
        "{LIVE}/inflightoperations?watch=1&sendInitialEvents=false\
        &resourceVersionMatch=NotOlderThan"
    );
    let mut watches = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = connect(&ConnectOptions {
            kubeconfig: Some(direct.kubeconfig.clone()),
            api_timeout: Duration::from_secs(30),
        })
        .await?;
        for _ in 0..bench.watchers / CONNECTIONS {
            let request = Request::get(&path).body(Body::empty())?;
            let response = connection.client.send(request).await?;
            anyhow::ensure!(response.status().is_success(), "{}", response.status());
            let sightings = sightings.clone();
            watches.push(tokio::spawn(async move {
                let mut body = response.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    for rv in frame.data_ref().into_iter().flat_map(|data| versions(data)) {
                        let now = Instant::now();
                        let mut sightings = sightings.lock().expect("nothing panics");
                        let seen = sightings.entry(rv).or_insert((now, now, 0));
                        seen.1 = now;
                        seen.2 += 1;
                    }
                }
            }));
        }
    }
    println!("{} watchers: {}", watches.len(), server.memory()?);
    let before = server.processor()?;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    for n in 0..CHANGES {
        tick.tick().await;
        let status = ["Running", "Migrating"][n % 2];
        bench.api.set(0, status, n).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let processor = server.processor_since(before)?;
    let sightings = sightings.lock().expect("nothing panics");
    let complete: Vec<_> = sightings
        .values()
        .filter(|(.., count)| *count == watches.len())
        .map(|(first, last, _)| *last - *first)
        .collect();
    let changes = u32::try_from(complete.len().max(1)).context("a few hundred")?;
    println!(
        "{} of {} changes seen by all; from the first watcher to the last: p50 {:.1?}, \
         p99 {:.1?}, at most {:.1?}; processor time for each change {:.2?}",
        complete.len(),
        sightings.len(),
        at(complete.iter().copied(), 50),
        at(complete.iter().copied(), 99),
        at(complete.iter().copied(), 100),
        processor / changes,
    );
    for watch in watches {
        watch.abort();
    }
    Ok(())
}

/// The versions in a part of a watch.
fn versions(data: &[u8]) -> impl Iterator<Item = u64> {
    const BEFORE: &[u8] = b"\"resourceVersion\":\"";
    memchr::memmem::find_iter(data, BEFORE).map(|at| {
        data[at + BEFORE.len()..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    })
}
