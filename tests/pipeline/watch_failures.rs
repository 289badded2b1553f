//! Tests of watches and lists that fail because a fake kube-apiserver sends invalid data. The
//! server must report each failure in the status of the rule set. When the data is valid again, the
//! server must recover.

use crate::demo::eventually;
use crate::fake_apiserver::{
    FakeApiServer, STREAM_HEADERS, Script, Step, event, failure, response, thing,
    watch_with_one_object,
};
use crate::start_ifo_apiserver::RunningServer;

/// Returns the name of a resource and the script for its requests. The script sends the invalid
/// data `bad` until the status of the rule set contains `WatchFailed` and `reported`. Then the
/// script sends valid data.
fn invalid_until_reported(
    name: &'static str,
    reported: &'static str,
    bad: impl Fn() -> Vec<Step> + Send + Sync + 'static,
) -> (&'static str, Script) {
    let script: Script = Box::new(move |request| {
        if request.statuses.contains("WatchFailed") && request.statuses.contains(reported) {
            watch_with_one_object(name)
        } else {
            bad()
        }
    });
    (name, script)
}

fn stream(body: impl Into<Vec<u8>>) -> Vec<Step> {
    vec![Step::send(STREAM_HEADERS), Step::send(body)]
}

fn error_event(code: impl std::fmt::Display) -> String {
    event(
        "ERROR",
        &format!(r#"{{"kind":"Status","code":{code},"reason":"Odd","message":"on purpose"}}"#),
    )
}

/// Returns an HTTP answer with a complete list. The list contains one object in the state `Busy`.
fn listed(name: &str) -> String {
    let item = thing(name, "Busy", 0);
    response(
        "200 OK",
        &format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{item}]}}"#),
    )
}

/// Valid and invalid values of the field `code` in an ERROR event.
const CODES: [&str; 22] = [
    "0", "-1", "7.5", "null", "200", "400", "401", "403", "404", "405", "406", "408", "409", "410",
    "413", "415", "422", "429", "500", "503", "65535", "65536",
];

/// Returns a script for each kind of invalid data, and one script, `fine`, with valid data only.
fn scripts() -> Vec<(&'static str, Script)> {
    let codes: Script = Box::new(|request| {
        let mut steps = watch_with_one_object("codes");
        // The script sends each code in its answers to two requests:
        //
        // - The first answer is the ERROR event, without initial events.
        // - The second answer contains the initial events, and then the ERROR event.
        //
        // If an ERROR event with a code other than 410 comes before the end of the initial events,
        // the ifo server sends a list request. After the last code, the script answers list
        // requests with a valid list.
        if let Some(code) = CODES.get(request.nth / 2) {
            let at = if request.nth % 2 == 0 { 1 } else { 3 };
            steps.truncate(at);
            steps.push(Step::send(error_event(code)));
        } else if !request.is_watch() {
            steps = vec![Step::send(listed("codes"))];
        }
        steps
    });
    // For this resource, the fake kube-apiserver does not support WatchList. It sends lists that
    // are cut off until the status of the rule set reports an invalid answer. After that,
    // it sends valid lists.
    let page: Script = Box::new(|request| {
        let is_reported = request.statuses.contains("invalid data");
        match (request.is_watch_list(), request.is_watch()) {
            (true, _) => vec![Step::send(failure(422, "Invalid"))],
            (_, true) => vec![Step::send(STREAM_HEADERS), Step::HoldOpen],
            _ if is_reported => vec![Step::send(listed("page"))],
            _ => vec![Step::send(response("200 OK", "{\"items\":"))],
        }
    });
    vec![
        invalid_until_reported("truncated", "within a line", || {
            stream(r#"{"type":"ADDED","object":{"metadata":{"na"#)
        }),
        invalid_until_reported("endless", "bytes", || {
            vec![
                Step::send(STREAM_HEADERS),
                Step::SendForever(vec![b'x'; 64 << 10]),
            ]
        }),
        invalid_until_reported("html", "invalid data", || {
            stream("<html>\n<body>no\n".repeat(20))
        }),
        invalid_until_reported("binary", "within a line", || {
            let head = STREAM_HEADERS.replace("json", "vnd.kubernetes.protobuf");
            vec![
                Step::send(head),
                Step::send(b"k8s\0\xff\xfe\x01".repeat(99)),
            ]
        }),
        invalid_until_reported("reset", "unreachable", || {
            let mut steps = stream(event("ADDED", &thing("reset", "Busy", 0)));
            steps.extend([Step::send(r#"{"type":"MODIF"#), Step::Reset]);
            steps
        }),
        invalid_until_reported("headers", "unreachable", || {
            vec![
                Step::send("HTTP/1.1 200 OK\r\n"),
                Step::SendForever(b"X-More: and more\r\n".repeat(100)),
            ]
        }),
        invalid_until_reported("header", "unreachable", || {
            vec![
                Step::send("HTTP/1.1 200 OK\r\nX-Long: "),
                Step::SendForever(vec![b'x'; 10_000]),
            ]
        }),
        invalid_until_reported("chunks", "unreachable", || {
            vec![Step::send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a number\r\n",
            )]
        }),
        invalid_until_reported("nonsense", "unreachable", || {
            vec![Step::send("\0\u{1}no HTTP\r\n\r\n")]
        }),
        invalid_until_reported("nothing", "unreachable", Vec::new),
        invalid_until_reported("bookmarks", "invalid data", || {
            stream(event("BOOKMARK", r#"{"kind":"Thing","metadata":{}}"#).repeat(20))
        }),
        invalid_until_reported("moved", "302", || {
            vec![Step::send(
                "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
            )]
        }),
        invalid_until_reported("forbidden", "Forbidden on purpose", || {
            vec![Step::send(failure(403, "Forbidden"))]
        }),
        invalid_until_reported("unavailable", "503", || {
            vec![Step::send(failure(503, "Unavailable"))]
        }),
        ("page", page),
        ("codes", codes),
        ("fine", Box::new(|_| watch_with_one_object("fine"))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_reports_any_watch_failure_and_recovers() {
    let api_server = FakeApiServer::start(scripts()).await;
    let mut server = RunningServer::start(&api_server).await;
    server
        .wait_until("the operation of the valid resource", |active| {
            active.contains(&"fine Busy".to_owned())
        })
        .await;
    let expected: Vec<_> = api_server
        .resources()
        .iter()
        .map(|name| format!("{name} Busy"))
        .collect();
    server
        .wait_until("the operations of all resources", |active| {
            active == expected
        })
        .await;
    eventually("requests after the last error code", async || {
        (api_server.request_count("codes") > 2 * CODES.len()).then_some(())
    })
    .await;
    server
        .wait_until("every operation after the last error code", |active| {
            active == expected
        })
        .await;
    assert!(!api_server.statuses_of("fine").contains("WatchFailed"));
    server.assert_healthy_within(256);
}
