//! Tests which events a feed sends, and which requests it sends, for each script of the server.

use super::*;
use ifo_api::live::SubjectReference;

/// Asserts the events of a feed, and the queries of its requests. An event that begins with `lost` must
/// begin with the expected text. The query `5` stands for a watch from version 5, and `all` for the first
/// page of a list.
async fn check(script: Vec<Answer>, events: &str, queries: &[&str]) {
    let server = ScriptedServer::new(script);
    let expected: Vec<_> = events.split(" / ").collect();
    let found = next_events(&mut follow(&server), expected.len()).await;
    for (found, expected) in found.iter().zip(&expected) {
        let is_expected =
            found == expected || expected.starts_with("lost") && found.starts_with(expected);
        assert!(is_expected, "{events}: {expected}: {found}");
    }
    assert_eq!(found.len(), expected.len(), "{events}: {found:?}");
    let all = server.queries();
    let all = all.iter().map(|query| match &**query {
        "limit=100" => "all",
        query => query,
    });
    let all: Vec<_> = all.take(queries.len()).collect();
    assert_eq!(all, queries, "{events}");
}

#[tokio::test(start_paused = true)]
async fn the_state_is_listed_in_pages_and_then_watched() {
    let script = vec![
        page(&["a1", "b2"], "n+xt"),
        page(&["c3"], ""),
        open(&["~a6", "-a7"]),
    ];
    let queries = ["all", "limit=100&continue=n%2Bxt", "5"];
    let events = "reset / +a1 / +b2 / +c3 / synced / +a6 / -a7";
    check(script, events, &queries).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_completed_begins_again() {
    let expired = status(410, "Expired", "The provided continue parameter is too old");
    let script = vec![page(&["a1"], "next"), expired, page(&["a2"], ""), open(&[])];
    let queries = ["all", "limit=100&continue=next", "limit=500"];
    check(script, "reset / +a1 / reset / +a2 / synced", &queries).await;

    let script = vec![page(&["a1"], "same"); 3];
    check(script, "reset / +a1 / +a1 / lost: invalid data", &[]).await;

    // If a page does not arrive in time, it may be too large, so the next page is smaller. If the
    // connection breaks, the next page has the same size.
    let begun = &[r#"{"items":["#];
    for (first, query) in [(open(begun), "limit=20"), (breaks(begun), "all")] {
        let script = vec![first, page(&["b2"], ""), open(&[])];
        let events = "lost: unreachable / reset / +b2 / synced";
        check(script, events, &["all", query]).await;
    }

    for unreadable in ["<html>", "{}", r#"{"metadata":{},"items":"#] {
        check(vec![text(200, unreadable)], "lost: invalid data", &[]).await;
    }
    let script = vec![text(200, r#"{"metadata":{},"items":[]}"#)];
    check(script, "reset / lost: invalid data", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_from_the_last_event_or_bookmark() {
    let list = || page(&["a3"], "");
    let script = vec![
        list(),
        complete(&["~a6"]),
        complete(&["*8"]),
        open(&["~a9"]),
    ];
    let events = "reset / +a3 / synced / +a6 / +a9";
    check(script, events, &["all", "5", "6", "8"]).await;
    // A silent watch is opened again.
    let script = vec![list(), open(&["~a6"]), open(&["~a7"])];
    let events = "reset / +a3 / synced / +a6 / +a7";
    check(script, events, &["all", "5", "6"]).await;
    // An interruption without missed changes ends with `synced` only.
    let lost = "reset / +a3 / synced / lost: unreachable / synced";
    let script = vec![list(), breaks(&[]), open(&[])];
    check(script, lost, &["all", "5", "5"]).await;
    let script = vec![list(), breaks(&[]), open(&["-a7"])];
    check(script, &format!("{lost} / -a7"), &["all", "5", "5"]).await;
    // The changes during a long interruption are missing. The object `a` was deleted.
    let expired = [
        open(&[EXPIRED]),
        complete(&[EXPIRED]),
        status(410, "Expired", "too old"),
    ];
    for gone in expired {
        let script = vec![list(), breaks(&[]), gone.clone(), page(&[], "")];
        let events = "reset / +a3 / synced / lost: unreachable / reset / synced";
        check(script, events, &["all", "5", "5", "all"]).await;
        let script = vec![list(), gone, page(&["b4"], "")];
        let events = "reset / +a3 / synced / reset / +b4 / synced";
        check(script, events, &["all", "5", "all"]).await;
    }
    // If etcd was restored from a backup, the version of the watch can be higher than the newest version
    // of the server. Then the server sends nothing, not even a bookmark.
    let script = vec![list(), breaks(&[]), open(&[]), page(&[], "")];
    let events = format!("{lost} / reset / synced");
    check(script, &events, &["all", "5", "5", "all"]).await;
    // If a watch does not open, the feed reports a gap before the request fails.
    let script = vec![list(), answer(End::Hangs, &[]), open(&[])];
    let events = "reset / +a3 / synced / lost: unreachable: no answer yet / lost: unreachable: no answer within / synced";
    check(script, events, &["all", "5", "5"]).await;
    // The same applies to a page.
    let script = vec![list(), open(&[EXPIRED]), open(&["{"]), page(&["b4"], "")];
    let events = "reset / +a3 / synced / lost: unreachable: no list yet / lost: unreachable: no complete page / reset / +b4 / synced";
    check(script, events, &["all", "5", "all"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_cannot_be_decoded_is_a_gap_and_all_objects_are_read_again() {
    let not_an_object = r#"{"type":"ADDED","object":7}"#;
    let too_large = line("~l6").replace(
        r#""kind""#,
        &format!(r#""x":"{}","kind""#, "x".repeat(11 << 20)),
    );
    for line in ["<html>oops</html>", not_an_object, &too_large] {
        let script = vec![page(&["a3"], ""), open(&[line]), page(&[], "")];
        let events = "reset / +a3 / synced / lost: invalid data / reset / synced";
        check(script, events, &["all", "5", "all"]).await;
    }
    let item = format!(r#"{{"x":"{}"}}"#, "x".repeat(11 << 20));
    let listed = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);
    check(vec![text(200, &listed)], "reset / lost: invalid data", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_requested_in_smaller_pages() {
    let padding = "x".repeat(33 << 20);
    let page_of =
        format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{{"x":"{padding}"}}]}}"#);
    let huge = || text(200, &page_of);
    let script = vec![page(&["a1"], "next"), huge(), page(&["b2"], ""), open(&[])];
    let queries = ["all", "limit=100&continue=next", "limit=20&continue=next"];
    check(script, "reset / +a1 / +b2 / synced", &queries).await;
    // If a page with only one object is too large, the feed reports a gap.
    let script = vec![huge(), huge(), huge(), huge()];
    let queries = ["all", "limit=20", "limit=4", "limit=1"];
    check(script, "lost: invalid data", &queries).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_list_is_reported_with_its_reason_until_it_is_allowed() {
    let forbidden = || status(403, "Forbidden", "things is forbidden: User x cannot list");
    let script = vec![
        forbidden(),
        forbidden(),
        status(401, "Unauthorized", "Unauthorized"),
        text(404, "404 page not found\n"),
        status(429, "TooManyRequests", "storage is (re)initializing"),
        text(503, ""),
        status(500, "", "may quote an object"),
        page(&["a3"], ""),
    ];
    let forbidden = "lost: forbidden: things is forbidden: User x cannot list";
    let others = "lost: unauthorized: Unauthorized / lost: not found: 404 page not found / lost: refused with 429: storage is (re)initializing / lost: refused with 503: Service Unavailable / lost: refused with 500: Internal Server Error";
    let events = format!("{forbidden} / {forbidden} / {others} / reset / +a3 / synced");
    check(script, &events, &["all"; 8]).await;
}

#[tokio::test(start_paused = true)]
async fn failing_requests_are_repeated_with_back_off() {
    let began = tokio::time::Instant::now();
    check(Vec::new(), &["lost: unreachable"; 20].join(" / "), &[]).await;
    let each = began.elapsed() / 20;
    assert!(
        each > Duration::from_secs(2) && each < Duration::from_secs(5),
        "{each:?}"
    );

    // The server ends every watch at once.
    let script = [vec![page(&["a3"], "")], vec![complete(&[]); 50]].concat();
    let server = ScriptedServer::new(script);
    let mut feed = follow(&server);
    assert_eq!(next_events(&mut feed, 3).await, ["reset", "+a3", "synced"]);
    let read = async { while feed.next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_mins(1), read).await;
    let queries = server.queries().len();
    assert!((5..40).contains(&queries), "{queries} requests in a minute");
}

#[tokio::test]
async fn the_name_of_an_object_is_escaped_in_its_path() {
    let service = service_fn(async |request: Request<Body>| {
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Fb%23c";
        assert_eq!(request.uri().path(), path);
        let body = r#"{"kind":"Status","code":404,"reason":"NotFound"}"#;
        let answer = Response::builder().status(404);
        Ok::<_, io::Error>(
            answer
                .body(Body::from(body.to_owned().into_bytes()))
                .unwrap(),
        )
    });
    let connection = Connection::through(kube::Client::new(service, "default"));
    let target = Gvr {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        resource: "clusterroles".into(),
    };
    let object = SubjectReference {
        name: "a?b#c".into(),
        ..SubjectReference::default()
    };
    let cluster = ClusterFeed::new(connection, Duration::from_mins(1));
    assert!(!cluster.exists(&target, &object).await);
}
