//! Tests the feeds of a cluster. A feed lists and watches one resource. A scripted server takes the
//! place of the kube-apiserver, and answers each request with the next answer of its script.
//! tokio's clock is paused, so the tests do not wait.

use super::*;
use bytes::Bytes;
use futures::{StreamExt as _, future, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use ifo_api::Gvr;
use kube::client::Body;
use std::{collections::VecDeque, convert::Infallible, sync::Mutex};
use tower::service_fn;

/// The answer of the server to one request.
enum ScriptedAnswer {
    /// A status code and a complete body.
    Complete(u16, String),
    /// Status 200 and these lines. The connection stays open without further data.
    Open(Vec<String>),
    /// Status 200 and these lines. Then the connection breaks.
    Breaks(Vec<String>),
    /// No answer.
    Hangs,
}

struct ScriptedServer {
    script: Mutex<VecDeque<ScriptedAnswer>>,
    queries: Mutex<Vec<String>>,
}

impl ScriptedServer {
    fn new(script: impl IntoIterator<Item = ScriptedAnswer>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            queries: Mutex::default(),
        })
    }

    /// Returns the queries of the requests so far, without the random timeouts of watches.
    fn queries(&self) -> Vec<String> {
        let queries = self.queries.lock().unwrap();
        queries
            .iter()
            .map(|q| q.split("&timeoutSeconds=").next().unwrap().to_owned())
            .collect()
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Result<Response<Reply>, std::io::Error> {
        assert_eq!(
            request.uri().path(),
            "/apis/example.org/v1/namespaces/shop/things"
        );
        assert_eq!(request.headers()["accept-encoding"], "identity");
        self.queries
            .lock()
            .unwrap()
            .push(request.uri().query().unwrap_or_default().to_owned());
        let answer = self.script.lock().unwrap().pop_front();
        match answer {
            Some(ScriptedAnswer::Complete(code, text)) => {
                Ok(Response::builder().status(code).body(whole(text)).unwrap())
            }
            Some(ScriptedAnswer::Open(lines)) => Ok(Response::new(streamed(lines, None))),
            Some(ScriptedAnswer::Breaks(lines)) => {
                Ok(Response::new(streamed(lines, Some("reset by peer"))))
            }
            Some(ScriptedAnswer::Hangs) => future::pending().await,
            None => Err(std::io::Error::other("connection refused")),
        }
    }
}

type Reply = UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(text: String) -> Reply {
    Full::new(Bytes::from(text))
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

fn streamed(lines: Vec<String>, fault: Option<&'static str>) -> Reply {
    let frames = lines.into_iter().map(|l| Ok(Frame::data(Bytes::from(l))));
    let frames = stream::iter(frames).chain(match fault {
        Some(fault) => stream::iter([Err(std::io::Error::other(fault))]).left_stream(),
        None => stream::pending().right_stream(),
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

fn event(kind: &str, name: &str, version: u32) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{}}}\n",
        object(name, version)
    )
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"kind":"Thing","metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn bookmark(version: u32) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

fn end(version: u32) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{{\"resourceVersion\":\"{version}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
    )
}

fn page(objects: &[(&str, u32)], version: u32, next: &str) -> ScriptedAnswer {
    let items: Vec<_> = objects
        .iter()
        .map(|(name, version)| object(name, *version))
        .collect();
    ScriptedAnswer::Complete(
        200,
        format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{}]}}"#,
            items.join(",")
        ),
    )
}

fn status(code: u16, reason: &str, message: &str) -> ScriptedAnswer {
    ScriptedAnswer::Complete(
        code,
        format!(r#"{{"kind":"Status","code":{code},"reason":"{reason}","message":"{message}"}}"#),
    )
}

fn expired() -> String {
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"too old resource version: 1 (220)\",\"reason\":\"Expired\",\"code\":410}}\n".into()
}

/// Returns the lines of a `WatchList`, a watch that begins with all objects: the object `a`, the
/// bookmark with version 5 that ends these initial objects, and the lines `more`.
fn state(more: &[String]) -> Vec<String> {
    [&[event("ADDED", "a", 3), end(5)], more].concat()
}

fn follow(server: &Arc<ScriptedServer>) -> BoxStream<'static, Raw> {
    cluster(server).follow(source())
}

fn source() -> Source {
    Source {
        target: Arc::new(Gvr {
            group: "example.org".into(),
            version: "v1".into(),
            resource: "things".into(),
        }),
        namespace: Some("shop".into()),
    }
}

fn cluster(server: &Arc<ScriptedServer>) -> ClusterFeed {
    let server = Arc::clone(server);
    let client = kube::Client::new(
        service_fn(move |request| Arc::clone(&server).answer(request)),
        "default",
    );
    let metrics = Arc::new(Metrics::new());
    ClusterFeed::new(Connection::through(client), Duration::from_mins(1), metrics)
}

/// Returns the next `n` events as texts. For the object `a` with resourceVersion 3, the text is:
///
/// - `+a3` if the object was applied
/// - `-a3` if the object was deleted
/// - `!a3 99` if the object is too large and has 99 bytes
///
/// If no event arrives for an hour, the last text is `silence`.
async fn next_events(feed: &mut BoxStream<'static, Raw>, n: usize) -> Vec<String> {
    let hour = Duration::from_hours(1);
    let mut words = Vec::new();
    for _ in 0..n {
        let Ok(raw) = tokio::time::timeout(hour, feed.next()).await else {
            words.push("silence".into());
            return words;
        };
        let name = |json: &Bytes| {
            let value: serde_json::Value = serde_json::from_slice(json).unwrap();
            format!(
                "{}{}",
                value["metadata"]["name"].as_str().unwrap(),
                value["metadata"]["resourceVersion"].as_str().unwrap()
            )
        };
        words.push(match raw.expect("a feed never ends") {
            Raw::Reset => "reset".into(),
            Raw::Synced => "synced".into(),
            Raw::Applied(json) => format!("+{}", name(&json)),
            Raw::TooLarge { object, length } => format!("!{} {length}", name(&object)),
            Raw::Deleted(json) => format!("-{}", name(&json)),
            Raw::Lost(lost) => format!("lost: {lost}"),
        });
    }
    words
}

const WATCH_LIST: &str =
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

fn watch_from(version: u32) -> String {
    format!("watch=1&resourceVersion={version}&allowWatchBookmarks=true")
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_yields_the_state_and_then_the_changes() {
    let server = ScriptedServer::new([ScriptedAnswer::Open(state(&[
        event("MODIFIED", "a", 6),
        event("DELETED", "a", 7),
    ]))]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 5).await,
        ["reset", "+a3", "synced", "+a6", "-a7"]
    );
    assert_eq!(server.queries(), [WATCH_LIST]);
}

#[tokio::test(start_paused = true)]
async fn without_watch_list_support_the_state_is_listed_in_pages() {
    for code in [400, 422] {
        let server = ScriptedServer::new([
            status(code, "Invalid", "sendInitialEvents is forbidden for watch"),
            page(&[("a", 1), ("b", 2)], 9, "n+xt"),
            page(&[("c", 3)], 9, ""),
            ScriptedAnswer::Open(vec![event("DELETED", "a", 10)]),
        ]);
        let mut feed = follow(&server);
        assert_eq!(
            next_events(&mut feed, 6).await,
            ["reset", "+a1", "+b2", "+c3", "synced", "-a10"]
        );
        assert_eq!(
            server.queries(),
            [
                WATCH_LIST,
                "limit=100",
                "limit=100&continue=n%2Bxt",
                &watch_from(9)
            ]
        );
    }
}

/// A server that supports `WatchList` can also answer with 410. So the feed lists the objects this
/// time, and requests a `WatchList` again the next time.
#[tokio::test(start_paused = true)]
async fn after_a_410_to_a_watch_list_the_next_watch_list_is_tried() {
    let server = ScriptedServer::new([
        status(410, "Expired", "too old"),
        page(&[("a", 1)], 9, ""),
        ScriptedAnswer::Complete(200, expired()),
        ScriptedAnswer::Open(state(&[])),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 6).await,
        ["reset", "+a1", "synced", "reset", "+a3", "synced"]
    );
    assert_eq!(
        server.queries(),
        [WATCH_LIST, "limit=100", &watch_from(9), WATCH_LIST]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_send_initial_events_is_listed() {
    // In the first case, the server sends nothing after the object `a`. In the second case, the
    // server sends a periodic bookmark. The bookmark that ends the initial objects is missing in
    // both cases, so the feed lists the objects.
    for more in [vec![], vec![bookmark(4)]] {
        let server = ScriptedServer::new([
            ScriptedAnswer::Open([vec![event("ADDED", "a", 3)], more].concat()),
            page(&[("a", 3)], 9, ""),
            ScriptedAnswer::Open(vec![event("ADDED", "b", 10)]),
        ]);
        let mut feed = follow(&server);
        assert_eq!(
            next_events(&mut feed, 6).await,
            ["reset", "+a3", "reset", "+a3", "synced", "+b10"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_continue_token_restarts_the_list() {
    let server = ScriptedServer::new([
        status(422, "Invalid", "no"),
        page(&[("a", 1)], 9, "next"),
        status(410, "Expired", "The provided continue parameter is too old"),
        page(&[("a", 12)], 12, ""),
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 5).await,
        ["reset", "+a1", "reset", "+a12", "synced"]
    );
    assert_eq!(server.queries()[3], "limit=500");
}

#[tokio::test(start_paused = true)]
async fn an_endless_list_is_aborted() {
    let pages = (0..3).map(|_| page(&[("a", 1)], 9, "same"));
    let server = ScriptedServer::new([status(422, "Invalid", "no")].into_iter().chain(pages));
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 4).await;
    assert_eq!(events[..3], ["reset", "+a1", "+a1"]);
    assert!(events[3].starts_with("lost: invalid data"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_clean_end_the_watch_continues_from_the_last_event_or_bookmark() {
    let first = [event("ADDED", "a", 3), end(5), event("MODIFIED", "a", 6)].concat();
    let server = ScriptedServer::new([
        ScriptedAnswer::Complete(200, first),
        ScriptedAnswer::Complete(200, bookmark(8)),
        ScriptedAnswer::Open(vec![event("MODIFIED", "a", 9)]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 5).await,
        ["reset", "+a3", "synced", "+a6", "+a9"],
        "no interruption must be reported"
    );
    assert_eq!(
        server.queries(),
        [WATCH_LIST, &watch_from(6), &watch_from(8)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_truncated_initial_state_is_read_again() {
    let server = ScriptedServer::new([
        ScriptedAnswer::Complete(200, event("ADDED", "a", 30)),
        ScriptedAnswer::Open(state(&[])),
    ]);
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 6).await;
    assert_eq!(events[..2], ["reset", "+a30"]);
    assert!(events[2].starts_with("lost: unreachable"), "{events:?}");
    assert_eq!(events[3..], ["reset", "+a3", "synced"]);
    assert_eq!(server.queries(), [WATCH_LIST, WATCH_LIST]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_causes_a_relist_that_reveals_missed_deletes() {
    let again = vec![event("ADDED", "b", 20), end(25)];
    for gone in [
        ScriptedAnswer::Complete(200, expired()),
        status(410, "Expired", "too old"),
    ] {
        let server = ScriptedServer::new([
            ScriptedAnswer::Complete(200, state(&[]).concat()),
            gone,
            ScriptedAnswer::Open(again.clone()),
        ]);
        let mut feed = follow(&server);
        // `a` was deleted after the first `WatchList`, so the second `WatchList` contains only `b`.
        assert_eq!(
            next_events(&mut feed, 6).await,
            ["reset", "+a3", "synced", "reset", "+b20", "synced"]
        );
        assert_eq!(server.queries(), [WATCH_LIST, &watch_from(5), WATCH_LIST]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_that_a_resumed_watch_closes_ends_with_synced_only() {
    let quiet = ScriptedAnswer::Open(vec![]);
    let busy = ScriptedAnswer::Open(vec![event("DELETED", "a", 7)]);
    for (resumed, more) in [(quiet, None), (busy, Some("-a7"))] {
        let server = ScriptedServer::new([ScriptedAnswer::Breaks(state(&[])), resumed]);
        let mut feed = follow(&server);
        let mut expected = vec![
            "reset",
            "+a3",
            "synced",
            "lost: unreachable: reset by peer",
            "synced",
        ];
        expected.extend(more);
        let events = next_events(&mut feed, expected.len()).await;
        assert!(events[3].starts_with("lost: unreachable"), "{events:?}");
        expected.remove(3);
        let others: Vec<_> = events
            .iter()
            .filter(|word| !word.starts_with("lost"))
            .collect();
        assert_eq!(others, expected.iter().collect::<Vec<_>>());
        assert_eq!(server.queries(), [WATCH_LIST, &watch_from(5)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_gap_ends_only_after_the_relist() {
    let server = ScriptedServer::new([
        ScriptedAnswer::Breaks(state(&[])),
        ScriptedAnswer::Open(vec![expired()]),
        ScriptedAnswer::Open(vec![end(9)]),
    ]);
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 6).await;
    assert_eq!(events[..3], ["reset", "+a3", "synced"]);
    assert!(events[3].starts_with("lost"), "{events:?}");
    assert_eq!(events[4..], ["reset", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_lines_are_skipped_and_the_state_is_relisted_when_the_watch_ends() {
    let lines = [
        "<html>oops</html>\n".to_owned(),
        event("ADDED", "b", 6),
        "{\"type\":\"ADDED\",\"object\":7}\n".to_owned(),
    ];
    let server = ScriptedServer::new([
        ScriptedAnswer::Complete(200, state(&lines).concat()),
        ScriptedAnswer::Open(vec![end(9)]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 6).await,
        ["reset", "+a3", "synced", "+b6", "reset", "synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_invalid_lines_are_a_gap() {
    let garbage = vec!["nonsense\n".to_owned(); 20];
    let server = ScriptedServer::new([
        ScriptedAnswer::Open(state(&garbage)),
        ScriptedAnswer::Open(vec![end(9)]),
    ]);
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 6).await;
    assert!(events[3].starts_with("lost: invalid data"), "{events:?}");
    assert_eq!(events[4..], ["reset", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn an_over_long_line_is_skipped() {
    let long = format!(
        "{{\"type\":\"ADDED\",\"object\":{{\"x\":\"{}\"}}}}\n",
        "x".repeat(17 << 20)
    );
    let server =
        ScriptedServer::new([ScriptedAnswer::Open(state(&[long, event("ADDED", "b", 6)]))]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 4).await,
        ["reset", "+a3", "synced", "+b6"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_too_large_object_is_still_reported_as_existing() {
    let large = |kind: &str, version: u32| {
        format!(
            r#"{{"type":"{kind}","object":{{"metadata":{{"name":"l","uid":"u","resourceVersion":"{version}"}},"x":"{}"}}}}"#,
            "x".repeat(17 << 20)
        ) + "\n"
    };
    let length = large("ADDED", 4).len() - 1;
    let server = ScriptedServer::new([
        ScriptedAnswer::Breaks(vec![large("ADDED", 4), end(5), large("MODIFIED", 6)]),
        ScriptedAnswer::Open(vec![large("DELETED", 7)]),
    ]);
    let mut feed = follow(&server);
    let seen = format!("!l4 {length}");
    let changed = format!("!l6 {}", length + 3);
    let words = next_events(&mut feed, 7).await;
    assert_eq!(words[..4], ["reset", &seen, "synced", &changed]);
    assert!(words[4].starts_with("lost: unreachable"), "{words:?}");
    assert_eq!(words[5..], ["synced", "-l7"]);
    // The watch continued at the version of the large object, without another list.
    assert_eq!(server.queries(), [WATCH_LIST, &watch_from(6)]);
}

#[tokio::test(start_paused = true)]
async fn an_initial_state_with_an_unidentifiable_object_is_listed_instead() {
    let nameless = format!("{{\"x\":\"{}\"}}\n", "x".repeat(17 << 20));
    let item = format!(
        r#"{{"metadata":{{"name":"l","uid":"u","resourceVersion":"3"}},"x":"{}"}}"#,
        "x".repeat(17 << 20)
    );
    let listed = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);
    let server = ScriptedServer::new([
        ScriptedAnswer::Open(vec![nameless, end(5)]),
        ScriptedAnswer::Complete(200, listed),
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    let seen = format!("!l3 {}", item.len());
    assert_eq!(
        next_events(&mut feed, 4).await,
        ["reset", "reset", &seen, "synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_requested_in_smaller_pages() {
    let huge = || {
        let text = "x".repeat(33 << 20);
        let page =
            format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{{"x":"{text}"}}]}}"#);
        ScriptedAnswer::Complete(200, page)
    };
    let refused = || status(422, "Invalid", "no");
    let server = ScriptedServer::new([
        refused(),
        page(&[("a", 1)], 9, "next"),
        huge(),
        page(&[("b", 2)], 9, ""),
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 4).await,
        ["reset", "+a1", "+b2", "synced"]
    );
    let queries = [
        "limit=100",
        "limit=100&continue=next",
        "limit=20&continue=next",
    ];
    assert_eq!(server.queries()[1..4], queries);
    // A page with one object that is too large is a gap.
    let server = ScriptedServer::new([refused(), huge(), huge(), huge(), huge()]);
    let words = next_events(&mut follow(&server), 1).await;
    assert!(words[0].starts_with("lost: invalid data"), "{words:?}");
    assert_eq!(server.queries()[4], "limit=1");
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_reported_with_its_reason_until_it_is_allowed() {
    let forbidden = || status(403, "Forbidden", "things is forbidden: User x cannot list");
    let server = ScriptedServer::new([
        forbidden(),
        forbidden(),
        status(401, "Unauthorized", "Unauthorized"),
        ScriptedAnswer::Complete(404, "404 page not found\n".into()),
        status(429, "TooManyRequests", "storage is (re)initializing"),
        ScriptedAnswer::Open(state(&[])),
    ]);
    let mut feed = follow(&server);
    let expected = [
        "lost: forbidden: things is forbidden: User x cannot list",
        "lost: forbidden: things is forbidden: User x cannot list",
        "lost: unauthorized: Unauthorized",
        "lost: not found: 404 page not found",
        "lost: refused with 429: storage is (re)initializing",
        "reset",
        "+a3",
        "synced",
    ];
    assert_eq!(next_events(&mut feed, expected.len()).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_retried_with_back_off() {
    let server = ScriptedServer::new([]);
    let mut feed = follow(&server);
    let began = tokio::time::Instant::now();
    for word in next_events(&mut feed, 20).await {
        assert!(word.starts_with("lost: unreachable"), "{word}");
    }
    let each = began.elapsed() / 20;
    assert!(
        each > Duration::from_secs(2) && each < Duration::from_secs(5),
        "{each:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_retried_with_back_off() {
    let script = [ScriptedAnswer::Complete(200, state(&[]).concat())]
        .into_iter()
        .chain((0..50).map(|_| ScriptedAnswer::Complete(200, String::new())));
    let server = ScriptedServer::new(script);
    let mut feed = follow(&server);
    assert_eq!(next_events(&mut feed, 3).await, ["reset", "+a3", "synced"]);
    let _ = tokio::time::timeout(Duration::from_mins(1), async {
        while feed.next().await.is_some() {}
    })
    .await;
    let queries = server.queries().len();
    assert!((5..40).contains(&queries), "{queries} requests in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_reopened_without_a_gap() {
    let server = ScriptedServer::new([
        ScriptedAnswer::Open(state(&[event("MODIFIED", "a", 6)])),
        ScriptedAnswer::Open(vec![event("MODIFIED", "a", 7)]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 5).await,
        ["reset", "+a3", "synced", "+a6", "+a7"]
    );
    assert_eq!(server.queries(), [WATCH_LIST, &watch_from(6)]);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_without_a_bookmark_is_not_trusted() {
    // If etcd was restored from a backup, the resourceVersion from which the feed watches can be
    // higher than the newest version of the server. Then the server sends nothing, not even a
    // bookmark. So the feed reads all objects again.
    let server = ScriptedServer::new([
        ScriptedAnswer::Breaks(state(&[])),
        ScriptedAnswer::Open(vec![]),
        ScriptedAnswer::Open(vec![end(2)]),
    ]);
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 7).await;
    assert_eq!(events[4..], ["synced", "reset", "synced"], "{events:?}");
    assert_eq!(server.queries(), [WATCH_LIST, &watch_from(5), WATCH_LIST]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_open_is_a_gap_before_it_fails() {
    let server = ScriptedServer::new([
        ScriptedAnswer::Complete(200, state(&[]).concat()),
        ScriptedAnswer::Hangs,
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    let events = next_events(&mut feed, 6).await;
    assert_eq!(events[3], "lost: unreachable: no answer yet");
    assert!(
        events[4].starts_with("lost: unreachable: no answer within"),
        "{events:?}"
    );
    assert_eq!(events[5], "synced");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_server_and_loses_nothing() {
    let many: Vec<_> = (10..2_010).map(|n| event("MODIFIED", "a", n)).collect();
    let server = ScriptedServer::new([ScriptedAnswer::Open(state(&many))]);
    let mut feed = follow(&server);
    assert_eq!(next_events(&mut feed, 3).await, ["reset", "+a3", "synced"]);
    for n in 10..2_010 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(next_events(&mut feed, 1).await, [format!("+a{n}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_incomplete_page_the_pages_are_smaller() {
    let begun = format!(r#"{{"items":[{},"#, object("a", 1));
    let server = ScriptedServer::new([
        status(422, "Invalid", "no"),
        ScriptedAnswer::Breaks(vec![begun]),
        page(&[("b", 2)], 9, ""),
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    let words = next_events(&mut feed, 4).await;
    assert!(words[0].starts_with("lost: unreachable"), "{words:?}");
    assert_eq!(words[1..], ["reset", "+b2", "synced"]);
    // A large page may not arrive in time.
    assert_eq!(server.queries()[1..3], ["limit=100", "limit=20"]);
}

/// Returns `number` feeds of one cluster. The feeds share a [`ReadBudget`].
fn feeds(server: &Arc<ScriptedServer>, number: usize) -> Vec<BoxStream<'static, Raw>> {
    let cluster = cluster(server);
    (0..number).map(|_| cluster.follow(source())).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_lists_are_limited_and_each_gets_its_turn_beside_hanging_ones() {
    let refusals = (0..20).map(|_| status(422, "Invalid", "no"));
    let lists = (0..20).map(|_| ScriptedAnswer::Open(vec![r#"{"items":["#.to_owned()]));
    let server = ScriptedServer::new(refusals.chain(lists));
    let mut feeds = feeds(&server, 20);
    let lists = || {
        let queries = server.queries();
        queries.iter().filter(|query| *query == "limit=100").count()
    };
    let mut all = futures::stream::select_all(feeds.drain(..));
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, all.next()).await.is_err());
    assert_eq!(lists(), 8);
    // The first eight lists hang, and give up their permits after one minute. Then eight other
    // lists start, which also hang. The last four lists start after two minutes.
    let two_minutes = 120 * second;
    assert!(
        tokio::time::timeout(two_minutes, all.next()).await.is_err(),
        "a feed must not report an interruption before its first state"
    );
    assert_eq!(lists(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_waits_for_its_turn_to_list_reports_a_gap() {
    let hanging = (0..8).flat_map(|_| {
        [
            status(422, "Invalid", "no"),
            ScriptedAnswer::Open(vec![r#"{"items":["#.to_owned()]),
        ]
    });
    let first = [status(422, "Invalid", "no"), page(&[("a", 1)], 9, "")];
    let expired = [ScriptedAnswer::Open(vec![expired()]), page(&[], 19, "")];
    let server = ScriptedServer::new(first.into_iter().chain(hanging).chain(expired));
    let mut feeds = feeds(&server, 9);
    let mut feed = feeds.remove(0);
    assert_eq!(next_events(&mut feed, 3).await, ["reset", "+a1", "synced"]);
    for other in &mut feeds {
        let short = Duration::from_millis(10);
        assert!(tokio::time::timeout(short, other.next()).await.is_err());
    }
    assert_eq!(
        next_events(&mut feed, 3).await,
        [
            "lost: waiting for the lists of other resources to end",
            "reset",
            "synced"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn large_objects_of_many_feeds_are_read_one_at_a_time() {
    let large = |name: &str| {
        let padding = "x".repeat(100 << 10);
        let event = event("ADDED", name, 3);
        event.replace(r#""kind""#, &format!(r#""x":"{padding}","kind""#))
    };
    let answers = (0..5).map(|_| {
        let mut lines = vec![large("l"), end(5)];
        // The line arrives in two frames. The first frame is so large that the feed needs a permit
        // to keep it.
        let (begin, rest) = lines[0].split_at(80 << 10);
        lines.splice(0..1, [begin.to_owned(), rest.to_owned()]);
        ScriptedAnswer::Open(lines)
    });
    let server = ScriptedServer::new(answers);
    let mut feeds = feeds(&server, 5);
    let mut held = Vec::new();
    let short = Duration::from_millis(10);
    for (number, feed) in feeds.iter_mut().enumerate() {
        assert_eq!(feed.next().await, Some(Raw::Reset));
        match tokio::time::timeout(short, feed.next()).await {
            Ok(Some(Raw::Applied(object))) => held.push(object),
            other => assert!(number >= 1 && other.is_err(), "{number}: {other:?}"),
        }
    }
    assert_eq!(held.len(), 1);
    for feed in &mut feeds[1..] {
        // When the test drops a large object, the next feed may read its own large object.
        held.pop();
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
    let begun = || {
        let text = format!(
            r#"{{"type":"ADDED","object":{{"x":"{}"#,
            "x".repeat(80 << 10)
        );
        ScriptedAnswer::Open(vec![text])
    };
    let server = ScriptedServer::new([begun(), begun(), begun()]);
    let mut feeds = feeds(&server, 3);
    for feed in &mut feeds {
        assert_eq!(feed.next().await, Some(Raw::Reset));
    }
    let mut all = futures::stream::select_all(feeds);
    for _ in 0..3 {
        let hour = Duration::from_hours(1);
        let lost = tokio::time::timeout(hour, all.next()).await.unwrap();
        assert!(matches!(lost, Some(Raw::Lost(_))), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_list_is_a_gap() {
    for answer in ["<html>", "{}", r#"{"metadata":{},"items":[]}"#] {
        let server = ScriptedServer::new([
            status(422, "Invalid", "no"),
            ScriptedAnswer::Complete(200, answer.into()),
        ]);
        let mut feed = follow(&server);
        let words = next_events(&mut feed, 2).await;
        assert!(
            words
                .iter()
                .any(|word| word.starts_with("lost: invalid data")),
            "{words:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_initial_watch_state_leads_to_a_list() {
    // A kube-apiserver sends this error if its etcd does not support progress notifications.
    let fault = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"message\":\"required storage feature RequestWatchProgress is disabled\",\"code\":500}}\n";
    let server = ScriptedServer::new([
        ScriptedAnswer::Open(vec![fault.into()]),
        page(&[("a", 1)], 9, ""),
        ScriptedAnswer::Open(vec![]),
    ]);
    let mut feed = follow(&server);
    assert_eq!(
        next_events(&mut feed, 4).await,
        ["reset", "reset", "+a1", "synced"]
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_a_feed_ends_its_watch_and_releases_its_permit() {
    let server = ScriptedServer::new([ScriptedAnswer::Open(state(&[]))]);
    let mut feed = follow(&server);
    assert_eq!(next_events(&mut feed, 3).await.len(), 3);
    drop(feed);
    tokio::task::yield_now().await;
    assert_eq!(
        Arc::strong_count(&server),
        1,
        "a dropped feed must release its connection"
    );
}
