//! Tests of watches with many initial events, or with many objects to compare.

use super::super::list::tests::{LEAST, MANY, put_many, turns};
use super::super::tests::{Fixture, request};
use super::*;
use axum::body::Body;
use http_body_util::BodyExt as _;
use std::sync::atomic::Ordering;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations?watch=1&\
                   allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&\
                   sendInitialEvents=true";

/// A server with more operations than fit into several chunks.
fn many() -> Fixture {
    let mut fixture = Fixture::new();
    put_many(&mut fixture, 1);
    fixture
}

async fn open(fixture: &Fixture, options: &str) -> Body {
    let path = format!("{ALL}{options}");
    fixture.send(request("GET", &path, &[])).await.into_body()
}

/// The next chunk. None at an orderly end.
async fn part(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?;
    let bytes = frame.unwrap().into_data().unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_at_the_timeout_and_after_the_time_of_a_list() {
    let fixture = many();
    for (options, seconds) in [
        ("&timeoutSeconds=5", 5),
        ("", 60),
        ("&timeoutSeconds=90", 60),
    ] {
        let mut slow = open(&fixture, options).await;
        let seconds = Duration::from_secs(seconds);
        for _ in 0..5 {
            assert!(part(&mut slow).await.unwrap().contains("ADDED"));
            tokio::time::sleep(seconds.mul_f32(0.19)).await;
        }
        assert!(part(&mut slow).await.unwrap().contains("ADDED"));
        tokio::time::sleep(seconds.mul_f32(0.06)).await;
        // Without an error, and without the bookmark that marks the end of the initial events.
        assert_eq!(part(&mut slow).await, None, "{options}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_after_initial_events_that_were_read_in_time() {
    let mut fixture = many();
    let mut watch = open(&fixture, "").await;
    let mut events = String::new();
    while !events.contains("initial-events-end") {
        events.push_str(&part(&mut watch).await.unwrap());
    }
    assert_eq!(events.matches("ADDED").count(), MANY);
    tokio::time::sleep(REQUEST_TIMEOUT + Duration::from_secs(5)).await;
    put_many(&mut fixture, 2);
    assert!(part(&mut watch).await.unwrap().contains("BOOKMARK"));
    assert!(part(&mut watch).await.unwrap().contains("MODIFIED"));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_initial_events() {
    let fixture = many();
    let mut slow = open(&fixture, "").await;
    assert!(part(&mut slow).await.unwrap().contains("ADDED"));
    fixture.shutdown.cancel();
    assert_eq!(part(&mut slow).await, None);
}

#[tokio::test]
async fn a_selecting_watch_yields_to_other_tasks() {
    let mut fixture = many();
    let turns = turns();
    let mut watch = open(&fixture, "&labelSelector=name%3Dlast").await;
    assert!(
        part(&mut watch)
            .await
            .unwrap()
            .contains("initial-events-end")
    );
    let initial = turns.swap(0, Ordering::Relaxed);
    assert!(initial >= LEAST, "{initial}");

    put_many(&mut fixture, 2);
    let next = fixture.live.head().0 + 1;
    fixture.put(next, "many", "last", |_| {});
    assert!(part(&mut watch).await.unwrap().contains("ADDED"));
    let later = turns.load(Ordering::Relaxed);
    assert!(later >= LEAST, "{later}");
}

#[tokio::test]
async fn a_batch_larger_than_the_ring_reaches_a_watch_that_is_up_to_date() {
    let mut fixture = Fixture::bounded(200 << 10);
    put_many(&mut fixture, 1);
    let mut watch = open(&fixture, "&fieldSelector=metadata.namespace%3Dmany").await;
    let mut events = String::new();
    while !events.contains("initial-events-end") {
        events.push_str(&part(&mut watch).await.unwrap());
    }
    put_many(&mut fixture, 2);
    events.clear();
    while events.matches("MODIFIED").count() < MANY {
        events.push_str(&part(&mut watch).await.unwrap());
        assert!(
            !events.contains("ERROR"),
            "the watch is told that it is too late"
        );
    }
}
