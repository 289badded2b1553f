//! Test of the memory for the first lists of many targets.

use crate::impostor::{Ask, Impostor, STREAM, Script, Step, failure};
use crate::server::Server;
use std::time::Duration;
use tokio::time::Instant;

/// Number of targets that are listed when the server starts.
const TARGETS: usize = 60;

/// Number of objects of each target. The peak depends on the amount that is read at once, not on
/// the number of objects. `make soak-memory` sets 5,000, which are 6 GB in total.
const OBJECTS: usize = 500;

/// Bytes of an object: a custom resource with a long status.
const SIZE: usize = 20_000;

/// Largest resident memory of the server in MiB: less than half of the Deployment's limit. A debug
/// build has about 45 MB before the first list.
const MOST: u64 = 120;

/// Time without progress after which the test fails.
const STUCK: Duration = Duration::from_mins(2);

fn objects() -> usize {
    let set = std::env::var("SOAK_OBJECTS").ok();
    set.map_or(OBJECTS, |text| text.parse().expect("a number of objects"))
}

/// The value of a parameter of a query.
fn parameter(query: &str, name: &str) -> Option<usize> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

/// An object in an array. The last object of a target is busy.
fn item(target: &str, number: usize, first: bool, last: bool) -> Vec<u8> {
    let state = if last { "Busy" } else { "Idle" };
    let comma = if first { "" } else { "," };
    let mut item = format!(
        r#"{comma}{{"apiVersion":"v1","kind":"Thing","metadata":{{"name":"n{number}","namespace":"shop","resourceVersion":"6","uid":"{target}-{number}"}},"status":{{"state":"{state}","conditions":["#
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

/// A page in the format of kube-apiserver for custom resources: `metadata` is the last field.
fn page(target: &'static str, from: usize, to: usize, all: usize) -> Vec<Step> {
    let next = if to < all {
        to.to_string()
    } else {
        String::new()
    };
    let items =
        (from..to).map(move |number| item(target, number, number == from, number + 1 == all));
    vec![
        Step::say(STREAM),
        Step::say(r#"{"apiVersion":"v1","items":["#),
        Step::Each(Box::new(items)),
        Step::say(format!(
            r#"],"kind":"ThingList","metadata":{{"continue":"{next}","resourceVersion":"7"}}}}"#
        )),
    ]
}

fn answer(target: &'static str, ask: &Ask, all: usize) -> Vec<Step> {
    if ask.is_watch_list() {
        return vec![Step::say(failure(422, "Invalid"))];
    }
    if ask.is_watch() {
        return vec![Step::say(STREAM), Step::Stay];
    }
    let from = parameter(&ask.query, "continue").unwrap_or(0);
    let limit = parameter(&ask.query, "limit").expect("lists are asked for in pages");
    page(target, from, all.min(from + limit), all)
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_targets_that_are_listed_at_once_stay_far_below_the_memory_limit() {
    let all = objects();
    let names: Vec<&'static str> = (0..TARGETS)
        .map(|number| &*format!("things{number:02}").leak())
        .collect();
    let script =
        |name| -> (&'static str, Script) { (name, Box::new(move |ask| answer(name, ask, all))) };
    let impostor = Impostor::start(names.iter().copied().map(script)).await;
    let mut server = Server::start(&impostor).await;
    let started = Instant::now();
    let asked = || names.iter().map(|name| impostor.asked(name)).sum::<usize>();
    let (mut before, mut moved) = (0, Instant::now());
    // The last object of a target is read last.
    let last = format!("n{} Busy", all - 1);
    let expected = vec![last; TARGETS];
    while server.active().await != expected {
        if asked() > before {
            (before, moved) = (asked(), Instant::now());
        }
        assert!(
            moved.elapsed() < STUCK,
            "no page was asked for after {before} requests; log: {:#?}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let peak = server.stayed_within(MOST);
    println!(
        "{TARGETS} targets with {all} objects of {SIZE} bytes: {} MB at the peak, {} s",
        peak / 1_000_000,
        started.elapsed().as_secs()
    );
}
