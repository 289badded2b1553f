//! Tests of watches: initial events, changes, selectors, bookmarks, timeouts and errors.

use super::*;
use tokio::time::timeout;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// The client's side of a watch.
pub struct Stream {
    body: Body,
    /// The received bytes that `next` has not returned yet.
    rest: Vec<u8>,
}

impl Stream {
    pub async fn open(fixture: &Fixture, query: &str, headers: &[(&str, &str)]) -> Self {
        Self::open_path(fixture, ALL, query, headers).await
    }

    pub async fn open_path(
        fixture: &Fixture,
        path: &str,
        query: &str,
        headers: &[(&str, &str)],
    ) -> Self {
        let path = format!("{path}?watch=1&{query}");
        let response = fixture.send(request("GET", &path, headers)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/json");
        Self {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }

    /// Returns the next event. Returns None if the watch has ended without an error.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?;
            self.rest
                .extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
    }

    /// Returns the type, the name and the version of the next event, such as `ADDED w 105`. For an
    /// absent name or version, the text has a `-`.
    pub async fn next_summary(&mut self) -> String {
        let event = self.next().await.expect("the watch has ended");
        let metadata = &event["object"]["metadata"];
        format!(
            "{} {} {}",
            event["type"].as_str().unwrap(),
            metadata["name"].as_str().unwrap_or("-"),
            metadata["resourceVersion"].as_str().unwrap_or("-")
        )
    }

    /// Returns true if no event arrives for half a second.
    async fn stays_silent(&mut self) -> bool {
        timeout(Duration::from_millis(500), self.next())
            .await
            .is_err()
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_and_before_the_end() {
    let mut fixture = Fixture::filled();
    let query = "resourceVersion=105&allowWatchBookmarks=true&timeoutSeconds=100";
    let started = tokio::time::Instant::now();
    let mut stream = Stream::open(&fixture, query, &[]).await;
    fixture.put(106, "c", "c", |_| {});
    assert_eq!(stream.next_summary().await, "ADDED c 106");
    assert_eq!(stream.next_summary().await, "BOOKMARK - 106");
    assert_eq!(started.elapsed().as_secs(), 60);
    assert_eq!(stream.next_summary().await, "BOOKMARK - 106");
    assert_eq!(started.elapsed().as_secs(), 98);
    assert_eq!(stream.next().await, None);
    assert_eq!(started.elapsed().as_secs(), 100);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_advance_with_versions_outside_the_scope() {
    let mut fixture = Fixture::filled();
    let query = "resourceVersion=105&allowWatchBookmarks=true&fieldSelector=metadata.namespace%3Db";
    let mut stream = Stream::open(&fixture, query, &[]).await;
    assert!(stream.stays_silent().await);
    fixture.put(106, "a", "other", |_| {});
    assert_eq!(stream.next_summary().await, "BOOKMARK - 106");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_403_within_a_minute_after_its_user_lost_access() {
    let mut fixture = Fixture::filled();
    let user = [("x-user", "briefly")];
    let mut stream = Stream::open(&fixture, "resourceVersion=105", &user).await;
    // The first further authorization has no result, which does not end the watch.
    tokio::time::sleep(Duration::from_secs(59)).await;
    fixture.put(106, "c", "v", |_| {});
    assert_eq!(stream.next_summary().await, "ADDED v 106");
    assert_eq!(fixture.authorizer.count(), 2);
    tokio::time::sleep(Duration::from_mins(1)).await;
    fixture.put(107, "c", "u", |_| {});
    let error = stream.next().await.unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(error["object"]["code"], 403);
    assert!(stream.next().await.is_none());
}
