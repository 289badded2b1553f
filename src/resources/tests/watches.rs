//! Tests of watches: initial events, changes, selectors, bookmarks, timeouts and errors.

use super::*;
use tokio::time::timeout;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";
const LIST: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";

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
async fn a_watch_from_a_version_delivers_the_later_changes() {
    let mut fixture = Fixture::filled();
    let mut stream = Stream::open(&fixture, "resourceVersion=104", &[]).await;
    assert_eq!(stream.next_summary().await, "ADDED w 105");
    assert!(stream.stays_silent().await);
    fixture.put(106, "b", "w", |object| {
        object["status"]["progress"] = json!(50);
    });
    fixture.delete(107, "b", "w");
    assert_eq!(stream.next_summary().await, "MODIFIED w 106");
    let deleted = stream.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], "107");
    assert_eq!(deleted["object"]["status"]["progress"], 50);
}

#[tokio::test(start_paused = true)]
async fn initial_events_are_ordered_and_end_with_a_bookmark_if_allowed() {
    let fixture = Fixture::filled();
    for query in [
        format!("{LIST}&allowWatchBookmarks=true"),
        format!("{LIST}&allowWatchBookmarks=true&resourceVersion=1"),
        "allowWatchBookmarks=1".to_owned(),
        "allowWatchBookmarks=1&resourceVersion=0".to_owned(),
    ] {
        let mut stream = Stream::open(&fixture, &query, &[]).await;
        for expected in ["z 103", "x 104", "y 102", "w 105", "x 101"] {
            assert_eq!(
                stream.next_summary().await,
                format!("ADDED {expected}"),
                "{query}"
            );
        }
        assert_eq!(
            stream.next().await.unwrap(),
            json!({ "type": "BOOKMARK", "object": {
                "kind": "InFlightOperation",
                "apiVersion": "live.ifo.kubevirt.io/v1alpha1",
                "metadata": {
                    "annotations": { "k8s.io/initial-events-end": "true" },
                    "resourceVersion": "105",
                },
            } })
        );
    }
    let mut stream = Stream::open(&fixture, LIST, &[]).await;
    for _ in 0..5 {
        stream.next().await.unwrap();
    }
    assert!(stream.stays_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_initial_events_starts_now() {
    let mut fixture = Fixture::filled();
    let query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut stream = Stream::open(&fixture, query, &[]).await;
    assert!(stream.stays_silent().await);
    fixture.put(106, "c", "c", |_| {});
    assert_eq!(stream.next_summary().await, "ADDED c 106");
}

#[tokio::test(start_paused = true)]
async fn an_object_enters_and_leaves_a_selector() {
    let mut fixture = Fixture::filled();
    let query = "resourceVersion=105&fieldSelector=status.phase%3DCompleted";
    let mut stream = Stream::open(&fixture, query, &[]).await;
    let phase =
        |phase: &'static str| move |object: &mut Value| object["status"]["phase"] = json!(phase);
    fixture.put(106, "a", "x", phase("Completed"));
    fixture.put(107, "a", "y", phase("Active"));
    fixture.put(108, "a", "x", phase("Active"));
    fixture.put(109, "a", "x", phase("Completed"));
    fixture.delete(110, "a", "x");
    fixture.delete(111, "a", "y");
    assert_eq!(stream.next_summary().await, "ADDED x 106");
    let left = stream.next().await.unwrap();
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["resourceVersion"], "108");
    assert_eq!(left["object"]["status"]["phase"], "Completed");
    assert_eq!(stream.next_summary().await, "ADDED x 109");
    assert_eq!(stream.next_summary().await, "DELETED x 110");
    assert!(stream.stays_silent().await);
}

#[tokio::test(start_paused = true)]
async fn namespaces_names_and_deprecated_paths_restrict_a_watch() {
    let mut fixture = Fixture::filled();
    let path = format!("{BASE}/watch/namespaces/a/inflightoperations/x?resourceVersion=105");
    let body = fixture.send(request("GET", &path, &[])).await.into_body();
    let mut one = Stream {
        body,
        rest: Vec::new(),
    };
    let path = format!("{BASE}/namespaces/b/inflightoperations?watch&resourceVersion=105");
    let body = fixture.send(request("GET", &path, &[])).await.into_body();
    let mut namespace = Stream {
        body,
        rest: Vec::new(),
    };
    fixture.delete(106, "b", "x");
    fixture.delete(107, "a", "y");
    fixture.delete(108, "a", "x");
    assert_eq!(one.next_summary().await, "DELETED x 108");
    assert_eq!(namespace.next_summary().await, "DELETED x 106");
    assert!(one.stays_silent().await && namespace.stays_silent().await);
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
async fn a_watch_ends_cleanly_at_its_timeout_and_at_shutdown() {
    let fixture = Fixture::filled();
    for from in ["resourceVersion=105", ""] {
        let query = format!("{from}&timeoutSeconds=-1");
        let mut negative = Stream::open(&fixture, &query, &[]).await;
        assert_eq!(negative.next().await, None);
    }
    let mut unlimited = Stream::open(&fixture, "resourceVersion=105", &[]).await;
    assert!(unlimited.stays_silent().await);
    fixture.shutdown.cancel();
    assert_eq!(unlimited.next().await, None);
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

#[tokio::test(start_paused = true)]
async fn a_version_that_is_no_longer_available_is_an_error_event() {
    let mut fixture = Fixture::bounded(0);
    fixture.fill();
    let mut slow = Stream::open(&fixture, "resourceVersion=105", &[]).await;
    assert!(slow.stays_silent().await);
    for rv in 106..120 {
        fixture.put(rv, "c", "c", |object| {
            object["status"]["progress"] = json!(rv);
        });
    }
    let mut stream = Stream::open(&fixture, "resourceVersion=101", &[]).await;
    for stream in [&mut stream, &mut slow] {
        let event = stream.next().await.unwrap();
        assert_eq!(event["type"], "ERROR");
        assert_eq!(event["object"]["code"], 410);
        assert_eq!(event["object"]["reason"], "Expired");
        let message = event["object"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("too old resource version: 10"),
            "{message}"
        );
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_ends_a_watch_with_410_and_initial_events_with_504() {
    let fixture = Fixture::filled();
    let mut plain = Stream::open(&fixture, "resourceVersion=999", &[]).await;
    assert_eq!(plain.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(plain.next().await, None);
    let query = format!("{LIST}&allowWatchBookmarks=true&resourceVersion=999");
    let mut initial = Stream::open(&fixture, &query, &[]).await;
    assert_eq!(initial.next().await.unwrap()["object"]["code"], 504);
    assert_eq!(initial.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_table_watch_has_columns_in_the_first_event_only() {
    let mut fixture = Fixture::filled();
    let query = format!(
        "{LIST}&allowWatchBookmarks=true&includeObject=None&fieldSelector=metadata.name%3Dw"
    );
    let mut stream = Stream::open(&fixture, &query, &[("accept", TABLE)]).await;
    let first = stream.next().await.unwrap();
    let columns = first["object"]["columnDefinitions"].as_array().unwrap();
    assert_eq!(first["object"]["metadata"]["resourceVersion"], "105");
    assert_eq!(first["object"]["rows"][0]["object"], Value::Null);
    let end = stream.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["columnDefinitions"], Value::Null);
    let row = &end["object"]["rows"][0];
    assert_eq!(row["cells"][0], "");
    assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
    assert_eq!(
        row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    fixture.delete(1106, "b", "w");
    let deleted = stream.next().await.unwrap();
    assert_eq!(deleted["object"]["metadata"]["resourceVersion"], "1106");
    let cells = deleted["object"]["rows"][0]["cells"].as_array().unwrap();
    let name = columns.iter().position(|column| column["name"] == "Name");
    assert_eq!(cells[name.unwrap()], "w");
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_sends_the_version_of_a_deletion() {
    let mut fixture = Fixture::filled();
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let mut stream = Stream::open(&fixture, "resourceVersion=105", &[("accept", accept)]).await;
    fixture.delete(10_006, "b", "w");
    let event = stream.next().await.unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], "10006");
    assert_eq!(event["object"]["metadata"]["uid"], "uid-b-w");
    assert_eq!(event["object"].get("spec"), None);
}
