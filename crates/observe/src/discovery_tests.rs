//! Tests discovery with a scripted API server. tokio's clock is paused, so the tests do not wait.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tower::service_fn;

const LIST: &str = r#"{"kind":"APIResourceList","resources":[
    {"name":"cows","kind":"Cow","namespaced":true,"verbs":["get","list","watch"]},
    {"name":"cows/status","kind":"Cow","namespaced":true,"verbs":["get"]},
    {"name":"barns","kind":"Barn","namespaced":false,"verbs":["list","watch"]},
    {"name":"milkings","kind":"Milking","namespaced":true,"verbs":["create"]}]}"#;

/// The answer of the API server to one request.
type Answer = (u16, &'static str);

const READY: Answer = (200, "ok");
const NOT_FOUND: Answer = (404, "");

/// Looks up a resource of the group `farm.io`. The group-version has the answers `first` and `second` to
/// the first request and to later ones, and the other paths have the answers `others`. Returns the
/// result, and the paths of all requests.
async fn look_up(
    resource: &str,
    (first, second): (Answer, Answer),
    others: &'static [(&'static str, Answer)],
) -> (Resolution, Vec<String>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requested);
    let server = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let mut log = log.lock().unwrap();
        let other = others.iter().find(|(other, _)| *other == path);
        let (code, text) = other.map_or(if log.is_empty() { first } else { second }, |it| it.1);
        log.push(path);
        let body = Body::from(text.as_bytes().to_vec());
        ready(Ok::<_, Infallible>(
            Response::builder().status(code).body(body).unwrap(),
        ))
    });
    let connection = Connection::through(Client::new(server, "default"));
    let gvr = Gvr {
        group: "farm.io".into(),
        version: "v1".into(),
        resource: resource.into(),
    };
    let resolution = Discovery::new(&connection).resolve(&gvr).await;
    let requested = requested.lock().unwrap().clone();
    (resolution, requested)
}

/// Formats a result: the kind, or the message.
fn brief(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Served { kind, namespaced } => format!("served {kind} {namespaced}"),
        Resolution::NotServed {
            message,
            group_served,
            similar_group,
        } => {
            format!("{group_served} {similar_group:?}: {message}")
        }
        Resolution::Unknown { .. } => "unknown".to_owned(),
    }
}

const LISTED: Answer = (200, LIST);
const GROUPS: Answer = (
    200,
    r#"{"groups": [{"name": "apps"}, {"name": "farms.io"}]}"#,
);
const OTHERS: Answer = (200, r#"{"groups": [{"name": "apps"}]}"#);

/// The resource, its answers, the answers of other paths, and the result.
type Case = (
    &'static str,
    (Answer, Answer),
    &'static [(&'static str, Answer)],
    &'static str,
);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("cows", (LISTED, NOT_FOUND), &[], "served Cow true"),
    ("barns", (LISTED, NOT_FOUND), &[], "served Barn false"),
    ("pigs", (LISTED, LISTED), &[("/readyz", READY)], "true None: farm.io/v1 has no resource pigs"),
    ("cow", (LISTED, LISTED), &[("/readyz", READY)], "true None: farm.io/v1 has no resource cow (hint: write the plural: cows)"),
    ("Cow", (LISTED, LISTED), &[("/readyz", READY)], "true None: farm.io/v1 has no resource Cow (hint: write the plural: cows)"),
    ("milkings", (LISTED, LISTED), &[("/readyz", READY)], "true None: farm.io/v1/milkings cannot be listed and watched"),
    // The server begins to serve the resource.
    ("cows", (NOT_FOUND, LISTED), &[("/readyz", READY), ("/apis/farm.io", NOT_FOUND)], "served Cow true"),
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", (500, "starting")), ("/apis/farm.io", NOT_FOUND)], "unknown"),
    ("cows", ((200, "<html>"), LISTED), &[], "unknown"),
    // The version or the group is missing.
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", READY), ("/apis/farm.io", (200, "{}"))], "true None: farm.io/v1 is not served"),
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", READY), ("/apis/farm.io", (503, ""))], "unknown"),
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", READY), ("/apis", GROUPS)], "false Some(\"farms.io\"): the cluster does not serve the API group farm.io"),
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", READY), ("/apis", OTHERS)], "false None: the cluster does not serve the API group farm.io"),
    ("cows", (NOT_FOUND, NOT_FOUND), &[("/readyz", READY), ("/apis", (200, "unreadable"))], "false None: the cluster does not serve the API group farm.io"),
];

#[tokio::test]
async fn a_resource_is_not_served_only_if_a_ready_server_says_so_twice() {
    for (resource, answers, others, expected) in CASES {
        let found = look_up(resource, *answers, others).await.0;
        assert_eq!(brief(&found), *expected, "{resource}: {others:?}");
    }
    let path = "/apis/farm.io/v1";
    let (_, requested) = look_up("pigs", (LISTED, LISTED), &[("/readyz", READY)]).await;
    assert_eq!(requested, [path, "/readyz", path]);
    // Any other answer is inconclusive.
    for code in [400, 401, 403, 410, 429, 500, 503] {
        let answer = (code, "not available");
        let (found, requested) = look_up("cows", (answer, answer), &[]).await;
        assert_eq!((&*brief(&found), requested.len()), ("unknown", 1), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn simultaneous_crd_changes_cause_one_signal_and_one_repeat() {
    let (send, changes) = futures::channel::mpsc::unbounded();
    let mut coalesced = Box::pin(coalesce(changes));
    for _ in 0..50 {
        send.unbounded_send(()).unwrap();
    }
    let began = tokio::time::Instant::now();
    coalesced.next().await.unwrap();
    assert_eq!(began.elapsed(), COALESCE_PERIOD);
    coalesced.next().await.unwrap();
    assert_eq!(began.elapsed(), COALESCE_PERIOD + SECOND_REPORT_DELAY);
    let third = timeout(Duration::from_mins(10), coalesced.next()).await;
    assert!(third.is_err(), "a change must be repeated only once");
}
