//! Tests the limit of large objects in memory, which all feeds of a cluster share. Also tests that
//! a feed stops working while its consumer does not read, and when its consumer drops the feed.

use super::*;
use futures::stream::select_all;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(10);

/// Returns feeds that are up to date. Their server sends this body to each watch.
async fn watching(number: usize, body: &[&str]) -> Vec<BoxStream<'static, Raw>> {
    let body = body.iter().map(|it| (*it).to_owned()).collect();
    let watch = Answer { body, ..open(&[]) };
    let script = [vec![page(&[], ""); number], vec![watch; number]];
    let mut feeds = feeds(&ScriptedServer::new(script.concat()), number);
    for feed in &mut feeds {
        assert_eq!(next_events(feed, 2).await, ["reset", "synced"]);
    }
    feeds
}

#[tokio::test(start_paused = true)]
async fn large_objects_of_many_feeds_are_read_one_at_a_time() {
    let padding = "x".repeat(100 << 10);
    let large = line("+l6").replace(r#""kind""#, &format!(r#""x":"{padding}","kind""#));
    // The line arrives in two frames. The first frame is so large that the feed needs a permit to keep
    // it.
    let (begin, rest) = large.split_at(80 << 10);
    let mut feeds = watching(5, &[begin, rest]).await;
    for round in 0..5 {
        // The event of this round, which contains the object.
        let mut held = None;
        for (number, feed) in feeds.iter_mut().enumerate().skip(round) {
            let event = timeout(SHORT, feed.next()).await;
            let is_read = matches!(event, Ok(Some(Raw::Applied(_))));
            assert_eq!(is_read, number == round, "{number} in round {round}");
            held = held.or(event.ok());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_many_feeds_are_read_one_at_a_time() {
    let script = [vec![page(&["a1"], ""); 2], vec![open(&[]); 2]].concat();
    let mut feeds = feeds(&ScriptedServer::new(script), 2);
    assert_eq!(next_events(&mut feeds[0], 2).await, ["reset", "+a1"]);
    let other = timeout(SHORT, feeds[1].next()).await;
    assert!(other.is_err(), "the first page is in memory: {other:?}");
    assert_eq!(next_events(&mut feeds[0], 1).await, ["synced"]);
    let all = ["reset", "+a1", "synced"];
    assert_eq!(next_events(&mut feeds[1], 3).await, all);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_waits_for_its_turn_reports_an_interruption_and_requests_a_new_page() {
    let script = [
        page(&[], ""),
        page(&["a1"], ""),
        open(&[EXPIRED]),
        page(&["a2"], ""),
        page(&["a3"], ""),
    ];
    let mut feeds = feeds(&ScriptedServer::new(script), 2);
    assert_eq!(next_events(&mut feeds[1], 2).await, ["reset", "synced"]);
    assert_eq!(next_events(&mut feeds[0], 2).await, ["reset", "+a1"]);
    let lost = ["lost: unreachable: no list yet"];
    assert_eq!(next_events(&mut feeds[1], 1).await, lost);
    let other = timeout(Duration::from_mins(1), feeds[1].next()).await;
    assert!(other.is_err(), "the first page is in memory: {other:?}");
    assert_eq!(next_events(&mut feeds[0], 1).await, ["synced"]);
    let all = ["reset", "+a3", "synced"];
    assert_eq!(next_events(&mut feeds[1], 3).await, all);
}

#[tokio::test(start_paused = true)]
async fn an_endless_large_object_releases_its_permit() {
    let begun = format!(
        r#"{{"type":"ADDED","object":{{"x":"{}"#,
        "x".repeat(80 << 10)
    );
    let mut all = select_all(watching(3, &[&begun]).await);
    for _ in 0..3 {
        let lost = timeout(Duration::from_hours(1), all.next()).await.unwrap();
        assert!(matches!(lost, Some(Raw::Lost(_))), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_server_and_a_dropped_feed_ends_its_watch() {
    let many: Vec<_> = (10..2_010).map(|n| format!("~a{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let server = ScriptedServer::new([page(&["a3"], ""), open(&many)]);
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
