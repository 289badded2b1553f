//! Tests of the memory under expensive requests: hundreds at once, of 60 KB each, from clients that
//! read no answer. Each test has its own server, so the peak belongs to the test.

use super::wire::{Way, Wire};
use super::{UNWRITTEN, peak_memory, resident};
use crate::harness::{Caller, OPERATION, alone};
use crate::persistence::Persisting;
use serde_json::json;
use std::time::Duration;

/// Number of concurrent requests, below the limit of one connection. Of the watches, a user's share
/// is served, and the others get a 429.
const STREAMS: usize = 400;
/// Name of a user who may list and watch.
const READER: &str = "hostile-reader";
const IDENTITY: [(&str, &str); 1] = [("x-remote-user", READER)];

/// Runs a flood against a new server. The flood may need at most half of the Deployment's memory
/// limit. The rest is for operations and for the server itself, which has about 45 MB before the
/// flood in a debug build and 15 MB in a release.
fn flooded(identity: bool, flood: impl AsyncFnOnce(&Way)) {
    alone(async |world| {
        let mut target = Persisting::start(world, &UNWRITTEN).await;
        if identity {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": READER},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER},
                ],
            });
            world.apply(&[binding]).await;
        }
        let server = &mut target.server;
        let way = Way::to(world, server, identity).await;
        let before = resident(server.pid(), "VmRSS:");
        flood(&way).await;
        Caller::new(server.stranger()).get("/livez").await.ok();
        let growth = peak_memory(server.pid()).saturating_sub(before);
        let most = server.memory_limit() / 2;
        assert!(
            growth < most,
            "{} MiB more than the {} MiB before",
            growth >> 20,
            before >> 20
        );
        assert!(server.is_running());
    });
}

/// Sends all these requests at once, and reads no answer.
async fn ask(way: &Way, headers: &[(&str, &str)], path: impl Fn(usize) -> String) -> Wire {
    let mut wire = way.connect(0).await;
    for number in 0..STREAMS {
        wire.get(&path(number), headers);
        wire.send().await.expect("the server reads");
    }
    wire
}

/// Does the same with several connections, and waits until all answers have begun.
async fn answered(
    way: &Way,
    connections: usize,
    headers: &[(&str, &str)],
    path: impl Fn(usize) -> String,
) {
    let mut wires = Vec::new();
    for number in 0..connections {
        let path = |of_wire| path(number * STREAMS + of_wire);
        wires.push(ask(way, headers, path).await);
    }
    for wire in &mut wires {
        wire.until("all are answered", |seen| seen.heads >= STREAMS)
            .await;
    }
}

/// A path with a selector for one of ten thousand values. Each path is different.
fn of_thousands(number: usize, more: &str) -> String {
    let values: Vec<String> = (0..10_000).map(|value| format!("v{value}")).collect();
    let values = values.join(",");
    let path = OPERATION.path(None);
    format!("{path}?{more}labelSelector=k%20in%20({values},n{number})")
}

#[test]
fn long_forbidden_paths_take_little_memory() {
    flooded(false, async |way| {
        // Each character takes six in JSON.
        let path = format!("/apis/g/v1/{}", "&".repeat(60_000));
        answered(way, 4, &[], |_| path.clone()).await;
    });
}

#[test]
fn long_unknown_paths_take_little_memory() {
    flooded(false, async |way| {
        let path = format!("/api/{}", "a".repeat(60_000));
        answered(way, 4, &[], |_| path.clone()).await;
    });
}

#[test]
fn thousands_of_query_options_take_little_memory() {
    flooded(true, async |way| {
        // Names of three letters: 64,000 bytes. A URL can have 1,534 more.
        let letters = || 'a'..='z';
        let options = letters().flat_map(|a| letters().map(move |b| (a, b)));
        let options = options.flat_map(|(a, b)| letters().map(move |c| format!("{a}{b}{c}")));
        let options = options.take(16_000).collect::<Vec<_>>().join("&");
        // Each is different, so each needs a review by the cluster.
        let path = OPERATION.path(None);
        let path = |number| format!("{path}?fieldSelector=metadata.name%3Dn{number}&{options}");
        answered(way, 1, &[], path).await;
        answered(way, 1, &IDENTITY, path).await;
        answered(way, 1, &IDENTITY, |number| path(number) + "&watch=1").await;
    });
}

#[test]
fn cancelled_selecting_lists_release_their_memory() {
    flooded(true, async |way| {
        for round in 0..5 {
            let each = |number| of_thousands(round * STREAMS + number, "");
            let mut wire = ask(way, &IDENTITY, each).await;
            // Enough time to send the reviews, but not to receive the answers.
            tokio::time::sleep(Duration::from_millis(30)).await;
            for number in 0..STREAMS {
                wire.reset(u32::try_from(1 + 2 * number).expect("it is small"));
            }
            // The server may have closed the connection because of the flood.
            let _ = wire.send().await;
        }
    });
}

#[test]
fn selecting_watches_take_little_memory() {
    flooded(true, async |way| {
        let each = |number| of_thousands(number, "watch=1&");
        answered(way, 1, &IDENTITY, each).await;
    });
}
