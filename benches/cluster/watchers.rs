//! Measures how long the server needs to send one change to many watchers. The measured time begins
//! when the first watcher has received the change, and ends when the last watcher has received it.

use crate::Bench;
use crate::api_client::LIVE_API_PATH;
use crate::latency::percentile;
use crate::server::MeasuredServer;
use anyhow::Context as _;
use http::Request;
use http_body_util::BodyExt as _;
use ifo::observe::{ConnectOptions, connect};
use kube::client::Body;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of HTTP/2 connections that the watchers share. A kube-apiserver also forwards many
/// watches on few connections.
const CONNECTIONS: usize = 4;
/// Number of changes.
const CHANGES: usize = 200;
/// Number of changes per second.
const RATE: u32 = 10;

/// For each change, by its resourceVersion: the time at which the first watcher received it, the
/// time at which the last watcher received it, and the number of watchers that have received it.
type Sightings = Arc<Mutex<HashMap<u64, (Instant, Instant, usize)>>>;

/// Opens the watches, makes changes, and prints the results.
pub async fn measure_spread(bench: &Bench, server: &MeasuredServer) -> anyhow::Result<()> {
    let direct = server.direct(&bench.api).await?;
    let sightings = Sightings::default();
    let path = format!(
        "{LIVE_API_PATH}/inflightoperations?watch=1&sendInitialEvents=false\
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
                        let mut sightings = sightings.lock().expect("no watcher panics");
                        let (_, last, count) = sightings.entry(rv).or_insert((now, now, 0));
                        *last = now;
                        *count += 1;
                    }
                }
            }));
        }
    }
    println!("{} watchers: {}", watches.len(), server.memory()?);
    let before = server.processor_time()?;
    let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
    for n in 0..CHANGES {
        tick.tick().await;
        let status = ["Running", "Migrating"][n % 2];
        bench.api.set(0, status, n).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let processor = server.processor_time_since(before)?;
    let sightings = sightings.lock().expect("no watcher panics");
    let complete: Vec<_> = sightings
        .values()
        .filter(|(.., count)| *count == watches.len())
        .map(|(first, last, _)| *last - *first)
        .collect();
    let complete_count =
        u32::try_from(complete.len().max(1)).context("there are at most a few hundred changes")?;
    println!(
        "{} of {} changes were received by all watchers; from the first watcher to the last: p50 {:.1?}, \
         p99 {:.1?}, at most {:.1?}; processor time for each change {:.2?}",
        complete.len(),
        sightings.len(),
        percentile(complete.iter().copied(), 50),
        percentile(complete.iter().copied(), 99),
        percentile(complete.iter().copied(), 100),
        processor / complete_count,
    );
    for watch in watches {
        watch.abort();
    }
    Ok(())
}

/// Returns the resourceVersions in a chunk of a watch's body.
fn versions(data: &[u8]) -> impl Iterator<Item = u64> {
    const BEFORE: &[u8] = b"\"resourceVersion\":\"";
    memchr::memmem::find_iter(data, BEFORE).map(|at| {
        data[at + BEFORE.len()..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
    })
}
