//! Tests of watches in a server with 2,000 objects: watches with many initial events, and watches
//! that compare many objects with a selector.

use super::pauses::{MIN_RUNS, OBJECTS, put_many, start_counting_task};
use super::{Fixture, request};
use aggregated_apiserver::serve::REQUEST_TIMEOUT;
use axum::body::Body;
use http_body_util::BodyExt as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations?watch=1&\
                   allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&\
                   sendInitialEvents=true";

/// Starts a server with so many operations that the initial events need several chunks.
fn server_with_many() -> Fixture {
    let mut fixture = Fixture::new();
    put_many(&mut fixture, 1);
    fixture
}

async fn open(fixture: &Fixture, options: &str) -> Body {
    let path = format!("{ALL}{options}");
    fixture.send(request("GET", &path, &[])).await.into_body()
}

/// Returns the next chunk. Returns None if the body has ended without an error.
async fn next_chunk(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?;
    let bytes = frame.unwrap().into_data().unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_at_the_timeout_of_the_watch_and_after_one_minute() {
    let fixture = server_with_many();
    for (options, seconds) in [
        ("&timeoutSeconds=5", 5),
        ("", 60),
        ("&timeoutSeconds=90", 60),
    ] {
        let mut slow = open(&fixture, options).await;
        let seconds = Duration::from_secs(seconds);
        for _ in 0..5 {
            assert!(next_chunk(&mut slow).await.unwrap().contains("ADDED"));
            tokio::time::sleep(seconds.mul_f32(0.19)).await;
        }
        assert!(next_chunk(&mut slow).await.unwrap().contains("ADDED"));
        tokio::time::sleep(seconds.mul_f32(0.06)).await;
        // The test has waited 5 × 0.19 + 0.06 = 1.01 times the time limit. So the watch ends
        // without an error, and without the bookmark after the initial events.
        assert_eq!(next_chunk(&mut slow).await, None, "{options}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_authorized_again_while_it_sends_initial_events() {
    let fixture = server_with_many();
    let asked = request("GET", ALL, &[("x-user", "once")]);
    let mut watch = fixture.send(asked).await.into_body();
    assert!(next_chunk(&mut watch).await.unwrap().contains("ADDED"));
    tokio::time::sleep(Duration::from_secs(49)).await;
    assert!(next_chunk(&mut watch).await.unwrap().contains("ADDED"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refused = next_chunk(&mut watch).await.unwrap();
    assert!(refused.starts_with("{\"type\":\"ERROR\""), "{refused}");
    assert!(refused.contains("\"code\":403"), "{refused}");
    assert_eq!(next_chunk(&mut watch).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_after_initial_events_that_were_read_in_time() {
    let mut fixture = server_with_many();
    let mut watch = open(&fixture, "").await;
    let mut events = String::new();
    while !events.contains("initial-events-end") {
        events.push_str(&next_chunk(&mut watch).await.unwrap());
    }
    assert_eq!(events.matches("ADDED").count(), OBJECTS);
    tokio::time::sleep(REQUEST_TIMEOUT + Duration::from_secs(5)).await;
    put_many(&mut fixture, 2);
    assert!(next_chunk(&mut watch).await.unwrap().contains("BOOKMARK"));
    assert!(next_chunk(&mut watch).await.unwrap().contains("MODIFIED"));
}

#[tokio::test]
async fn a_watch_with_a_selector_yields_to_other_tasks() {
    let mut fixture = server_with_many();
    let runs = start_counting_task();
    let mut watch = open(&fixture, "&labelSelector=name%3Dlast").await;
    assert!(
        next_chunk(&mut watch)
            .await
            .unwrap()
            .contains("initial-events-end")
    );
    let initial = runs.swap(0, Ordering::Relaxed);
    assert!(initial >= MIN_RUNS, "{initial}");

    put_many(&mut fixture, 2);
    let next = fixture.live.head().0 + 1;
    fixture.put(next, "many", "last", |_| {});
    assert!(next_chunk(&mut watch).await.unwrap().contains("ADDED"));
    let later = runs.load(Ordering::Relaxed);
    assert!(later >= MIN_RUNS, "{later}");
}
