//! Tests with a kube-apiserver that answers watches with invalid data.

use crate::demo::eventually;
use crate::impostor::{Impostor, STREAM, Script, Step, event, failure, good, response, thing};
use crate::server::Server;

/// Sends invalid data until the status of the rule set reports it, and valid data after that.
fn until_told(
    name: &'static str,
    told: &'static str,
    bad: impl Fn() -> Vec<Step> + Send + Sync + 'static,
) -> (&'static str, Script) {
    let script: Script = Box::new(move |ask| {
        if ask.told.contains("WatchFailed") && ask.told.contains(told) {
            good(name)
        } else {
            bad()
        }
    });
    (name, script)
}

fn stream(body: impl Into<Vec<u8>>) -> Vec<Step> {
    vec![Step::say(STREAM), Step::say(body)]
}

fn error_event(code: impl std::fmt::Display) -> String {
    event(
        "ERROR",
        &format!(r#"{{"kind":"Status","code":{code},"reason":"Odd","message":"on purpose"}}"#),
    )
}

/// A complete list with a busy object of this name.
fn listed(name: &str) -> String {
    let item = thing(name, "Busy", 0);
    response(
        "200 OK",
        &format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{item}]}}"#),
    )
}

/// Valid and invalid values of the code in an ERROR event.
const CODES: [&str; 22] = [
    "0", "-1", "7.5", "null", "200", "400", "401", "403", "404", "405", "406", "408", "409", "410",
    "413", "415", "422", "429", "500", "503", "65535", "65536",
];

fn garbage() -> Vec<(&'static str, Script)> {
    let codes: Script = Box::new(|ask| {
        let mut steps = good("codes");
        // Every second error is within the initial state, which the server must then read in
        // another way.
        if let Some(code) = CODES.get(ask.nth / 2) {
            let at = if ask.nth % 2 == 0 { 1 } else { 3 };
            steps.truncate(at);
            steps.push(Step::say(error_event(code)));
        } else if !ask.is_watch() {
            steps = vec![Step::say(listed("codes"))];
        }
        steps
    });
    // The impostor supports no WatchList, and its pages are invalid.
    let page: Script = Box::new(|ask| {
        let told = ask.told.contains("unintelligible");
        match (ask.is_watch_list(), ask.is_watch()) {
            (true, _) => vec![Step::say(failure(422, "Invalid"))],
            (_, true) => vec![Step::say(STREAM), Step::Stay],
            _ if told => vec![Step::say(listed("page"))],
            _ => vec![Step::say(response("200 OK", "{\"items\":"))],
        }
    });
    vec![
        until_told("truncated", "within a line", || {
            stream(r#"{"type":"ADDED","object":{"metadata":{"na"#)
        }),
        until_told("endless", "bytes", || {
            vec![Step::say(STREAM), Step::Forever(vec![b'x'; 64 << 10])]
        }),
        until_told("html", "unintelligible", || {
            stream("<html>\n<body>no\n".repeat(20))
        }),
        until_told("binary", "within a line", || {
            let head = STREAM.replace("json", "vnd.kubernetes.protobuf");
            vec![Step::say(head), Step::say(b"k8s\0\xff\xfe\x01".repeat(99))]
        }),
        until_told("reset", "unreachable", || {
            let mut steps = stream(event("ADDED", &thing("reset", "Busy", 0)));
            steps.extend([Step::say(r#"{"type":"MODIF"#), Step::Reset]);
            steps
        }),
        until_told("headers", "unreachable", || {
            vec![
                Step::say("HTTP/1.1 200 OK\r\n"),
                Step::Forever(b"X-More: and more\r\n".repeat(100)),
            ]
        }),
        until_told("header", "unreachable", || {
            vec![
                Step::say("HTTP/1.1 200 OK\r\nX-Long: "),
                Step::Forever(vec![b'x'; 10_000]),
            ]
        }),
        until_told("chunks", "unreachable", || {
            vec![Step::say(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a number\r\n",
            )]
        }),
        until_told("nonsense", "unreachable", || {
            vec![Step::say("\0\u{1}no HTTP\r\n\r\n")]
        }),
        until_told("nothing", "unreachable", Vec::new),
        until_told("bookmarks", "unintelligible", || {
            stream(event("BOOKMARK", r#"{"kind":"Thing","metadata":{}}"#).repeat(20))
        }),
        until_told("moved", "302", || {
            vec![Step::say(
                "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
            )]
        }),
        until_told("forbidden", "Forbidden on purpose", || {
            vec![Step::say(failure(403, "Forbidden"))]
        }),
        until_told("unavailable", "503", || {
            vec![Step::say(failure(503, "Unavailable"))]
        }),
        ("page", page),
        ("codes", codes),
        ("fine", Box::new(|_| good("fine"))),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_reports_any_watch_failure_and_recovers() {
    let impostor = Impostor::start(garbage()).await;
    let mut server = Server::start(&impostor).await;
    server
        .until("what is fine does not wait for the rest", |active| {
            active.contains(&"fine Busy".to_owned())
        })
        .await;
    let expected: Vec<_> = impostor
        .resources()
        .iter()
        .map(|name| format!("{name} Busy"))
        .collect();
    server
        .until("every feed to recover", |active| active == expected)
        .await;
    eventually("every code to have been told", async || {
        (impostor.asked("codes") > 2 * CODES.len()).then_some(())
    })
    .await;
    server
        .until("every feed to go on", |active| active == expected)
        .await;
    assert!(!impostor.told("fine").contains("WatchFailed"));
    server.stayed_within(256);
}
