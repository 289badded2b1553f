//! Test of the server's memory while the server starts and lists many resources with large objects.

use crate::fake_apiserver::{FakeApiServer, ObjectRequest, Script, Step, list};
use crate::running_server::RunningServer;
use std::time::Duration;
use tokio::time::Instant;

/// Number of targets: resources that rule sets name. The server lists all targets at its start.
const TARGETS: usize = 60;

/// Number of objects of each target. The server decodes one object after the other, so its peak
/// memory must not depend on this number. `make soak-memory` sets the number to 5,000: 6 GB of
/// objects in total.
const OBJECTS: usize = 500;

/// Size of an object in bytes. The objects consist mostly of a long list of conditions.
const SIZE: usize = 20_000;

/// Largest resident memory of the server in MiB that the test allows. The value is less than half
/// of the memory limit in the Deployment, which is 320 MiB. Before the first list, a debug build of
/// the server needs about 45 MB.
const MAX_MIB: u64 = 120;

/// If the server requests no further page for this time, the test fails.
const PROGRESS_TIMEOUT: Duration = Duration::from_mins(2);

fn objects() -> usize {
    let set = std::env::var("SOAK_OBJECTS").ok();
    set.map_or(OBJECTS, |text| {
        text.parse().expect("SOAK_OBJECTS must be a number")
    })
}

/// Returns the value of a query parameter. Returns None if the parameter is missing or is not a
/// number.
fn parameter(query: &str, name: &str) -> Option<usize> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

/// Returns an object. If `last` is true, the state of the object is `Busy`.
fn item(target: &str, number: usize, last: bool) -> Vec<u8> {
    let state = if last { "Busy" } else { "Idle" };
    let mut item = format!(
        r#"{{"apiVersion":"v1","kind":"Thing","metadata":{{"name":"n{number}","namespace":"shop","resourceVersion":"6","uid":"{target}-{number}"}},"status":{{"state":"{state}","conditions":["#
    )
    .into_bytes();
    let condition = format!(
        r#"{{"type":"Ready","status":"False","message":"{}"}},"#,
        "x".repeat(400)
    );
    while item.len() + condition.len() < SIZE {
        item.extend_from_slice(condition.as_bytes());
    }
    item.extend_from_slice(b"{}]}}");
    item
}

fn answer(target: &'static str, request: &ObjectRequest, all: usize) -> Vec<Step> {
    if request.is_watch() {
        return vec![Step::HoldOpen];
    }
    let from = parameter(&request.query, "continue").unwrap_or(0);
    let limit = parameter(&request.query, "limit").expect("the server must request lists in pages");
    let to = all.min(from + limit);
    let next = if to < all {
        to.to_string()
    } else {
        String::new()
    };
    let objects = (from..to).map(move |number| item(target, number, number + 1 == all));
    list(objects, &next)
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_targets_that_are_listed_at_once_stay_far_below_the_memory_limit() {
    let all = objects();
    let names: Vec<&'static str> = (0..TARGETS)
        .map(|number| &*format!("things{number:02}").leak())
        .collect();
    let script = |name| -> (&'static str, Script) {
        (name, Box::new(move |request| answer(name, request, all)))
    };
    let api_server = FakeApiServer::start(names.iter().copied().map(script)).await;
    let mut server = RunningServer::start(&api_server).await;
    let started = Instant::now();
    let requests = || {
        names
            .iter()
            .map(|name| api_server.request_count(name))
            .sum::<usize>()
    };
    let (mut before, mut last_progress) = (0, Instant::now());
    // Only the last object of each target has the state `Busy`. So when the operation of this
    // object exists, the server has read the whole target.
    let last = format!("n{} Busy", all - 1);
    let expected = vec![last; TARGETS];
    while server.active().await != expected {
        if requests() > before {
            (before, last_progress) = (requests(), Instant::now());
        }
        assert!(
            last_progress.elapsed() < PROGRESS_TIMEOUT,
            "the server requested no further page after {before} requests; log: {:#?}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let peak = server.assert_healthy_within(MAX_MIB);
    println!(
        "{TARGETS} targets with {all} objects of {SIZE} bytes: {} MB at the peak, {} s",
        peak / 1_000_000,
        started.elapsed().as_secs()
    );
}
