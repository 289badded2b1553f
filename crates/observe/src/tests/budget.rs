//! Tests the limit of large objects in memory, which all feeds of a cluster share. Also tests that a slow or dropped consumer of a feed limits the work of the feed.

use super::*;
use futures::stream::select_all;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn large_objects_of_many_feeds_are_read_one_at_a_time() {
    let padding = "x".repeat(100 << 10);
    let large = line("+l3").replace(r#""kind""#, &format!(r#""x":"{padding}","kind""#));
    // The line arrives in two frames. The first frame is so large that the feed needs a permit to keep
    // it.
    let (begin, rest) = large.split_at(80 << 10);
    let body = vec![begin.to_owned(), rest.to_owned(), line("end5")];
    let server = ScriptedServer::new(vec![Answer { body, ..open(&[]) }; 5]);
    let mut feeds = feeds(&server, 5);
    let mut held = Vec::new();
    for (number, feed) in feeds.iter_mut().enumerate() {
        assert_eq!(feed.next().await, Some(Raw::Reset));
        match timeout(SHORT, feed.next()).await {
            Ok(Some(Raw::Applied(object))) => held.push(object),
            other => assert!(number >= 1 && other.is_err(), "{number}: {other:?}"),
        }
    }
    assert_eq!(held.len(), 1);
    for feed in &mut feeds[1..] {
        // When the test drops the last part of a large object, the next feed may read its own.
        let part = held.pop().map(|object| object.slice(1..3));
        assert!(timeout(SHORT, feed.next()).await.is_err());
        drop(part);
        let Some(Raw::Applied(object)) = feed.next().await else {
            panic!("no object")
        };
        held.push(object);
    }
    for feed in &mut feeds {
        assert_eq!(feed.next().await, Some(Raw::Synced));
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_large_object_releases_its_permit() {
    let begun = format!(
        r#"{{"type":"ADDED","object":{{"x":"{}"#,
        "x".repeat(80 << 10)
    );
    let body = vec![begun];
    let server = ScriptedServer::new(vec![Answer { body, ..open(&[]) }; 3]);
    let mut feeds = feeds(&server, 3);
    for feed in &mut feeds {
        assert_eq!(feed.next().await, Some(Raw::Reset));
    }
    let mut all = select_all(feeds);
    for _ in 0..3 {
        let lost = timeout(Duration::from_hours(1), all.next()).await.unwrap();
        assert!(matches!(lost, Some(Raw::Lost(_))), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_server_and_a_dropped_feed_ends_its_watch() {
    let many: Vec<_> = (10..2_010).map(|n| format!("~a{n}")).collect();
    let lines = ["+a3", "end5"]
        .into_iter()
        .chain(many.iter().map(String::as_str));
    let server = ScriptedServer::new([open(&lines.collect::<Vec<_>>())]);
    let mut feed = follow(&server);
    assert_eq!(next_events(&mut feed, 3).await, ["reset", "+a3", "synced"]);
    for n in 10..2_010 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(next_events(&mut feed, 1).await, [format!("+a{n}")]);
    }
    drop(feed);
    tokio::task::yield_now().await;
    let references = Arc::strong_count(&server);
    assert_eq!(references, 1, "a dropped feed must release its connection");
}
