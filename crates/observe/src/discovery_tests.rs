//! Tests discovery with a scripted API server. tokio's clock is paused, so the tests do not wait.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use std::convert::Infallible;
use std::sync::Mutex;
use tower::service_fn;

/// The answer of the API server to a request for `/api`.
const CORE: &str = r#"{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
    {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","verbs":["list","watch"]}]}]}]}"#;

/// The answer of the API server to a request for `/apis`. The API server of `farm.io/v2` does not answer.
const GROUPS: &str = r#"{"items":[{"metadata":{"name":"farm.io"},"versions":[
    {"version":"v1","freshness":"Current","resources":[
        {"resource":"cows","responseKind":{"kind":"Cow"},"singularResource":"cow","scope":"Namespaced","verbs":["get","list","watch"]},
        {"resource":"milkings","responseKind":{"kind":"Milking"},"scope":"Namespaced","verbs":["create"]}]},
    {"version":"v2","freshness":"Stale","resources":[
        {"resource":"cows","responseKind":{"kind":"Cow"},"scope":"Namespaced","verbs":["list","watch"]}]}]}]}"#;

/// The path, the code and the body of an answer.
type Answer = (&'static str, u16, &'static str);

/// The answers of a working API server.
const WORKING: [Answer; 3] = [
    ("/readyz", 200, "ok"),
    ("/api", 200, CORE),
    ("/apis", 200, GROUPS),
];

/// Looks up resources, such as `farm.io/v1/cows`. Returns the results as text. If there are several
/// answers for a path, each request gets the next one, and further requests get the last one.
async fn look_up(answers: &'static [Answer], resources: &[&str]) -> Vec<String> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let mut asked = asked.lock().unwrap();
        let earlier = asked.iter().filter(|it| **it == path).count();
        let of_path = answers.iter().filter(|answer| answer.0 == path);
        let found = of_path.take(earlier + 1).last();
        let (_, code, text) = found.expect("the test has an answer for the path");
        asked.push(path.clone());
        let is_aggregated = (request.headers().get("accept"))
            .is_some_and(|it| it.to_str().unwrap().contains("as=APIGroupDiscoveryList"));
        assert_eq!(is_aggregated, path != "/readyz");
        let answer = Response::builder().status(*code);
        ready(Ok::<_, Infallible>(
            answer.body(Body::from(text.as_bytes().to_vec())).unwrap(),
        ))
    });
    let connection = Connection::through(Client::new(server, "default"));
    let targets = resources.iter().map(|resource| {
        let mut parts = resource.rsplit('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        let (resource, version, group) = (next(), next(), next());
        Arc::new(Gvr {
            group,
            version,
            resource,
        })
    });
    let results = Discovery::new(&connection).resolve(targets.collect()).await;
    results.into_iter().map(|(_, it)| brief(&it)).collect()
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
        Resolution::Unknown { message } => format!("unknown: {message}"),
    }
}

#[tokio::test]
async fn a_result_says_which_part_of_a_missing_resource_is_missing() {
    #[rustfmt::skip]
    let cases = [
        ("v1/nodes", "served Node false"),
        ("farm.io/v1/cows", "served Cow true"),
        ("farm.io/v2/cows", "served Cow true"),
        ("farm.io/v1/pigs", "true None: farm.io/v1 has no resource pigs"),
        ("farm.io/v1/cow", "true None: farm.io/v1 has no resource cow (hint: write the plural: cows)"),
        ("farm.io/v1/Cow", "true None: farm.io/v1 has no resource Cow (hint: write the plural: cows)"),
        ("farm.io/v1/milkings", "true None: farm.io/v1/milkings cannot be listed and watched"),
        ("farm.io/v2/pigs", "unknown: the API server of farm.io/v2 does not answer"),
        ("farm.io/v3/cows", "true None: farm.io/v3 is not served (served versions: v1, v2)"),
        ("v2/nodes", "true None: v2 is not served (served versions: v1)"),
        ("farms.io/v1/cows", "false Some(\"farm.io\"): the cluster does not serve the API group farms.io"),
        ("apps/v1/cows", "false None: the cluster does not serve the API group apps"),
    ];
    let (resources, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(look_up(&WORKING, &resources).await, expected);
}

#[tokio::test]
async fn a_resource_is_not_served_only_if_a_ready_server_says_so() {
    const STARTING: &[Answer] = &[("/readyz", 500, "starting"), WORKING[1], WORKING[2]];
    const FORBIDDEN: &[Answer] = &[("/readyz", 403, ""), WORKING[1], WORKING[2]];
    const RBAC_NOT_READ: &[Answer] = &[FORBIDDEN[0], WORKING[0], WORKING[1], WORKING[2]];
    const HOOKS_NOT_DONE: &[Answer] = &[FORBIDDEN[0], STARTING[0], WORKING[1], WORKING[2]];
    const NO_CORE: &[Answer] = &[WORKING[0], ("/api", 503, ""), WORKING[2]];
    const REFUSED: &[Answer] = &[WORKING[0], WORKING[1], ("/apis", 406, "")];
    const GARBLED: &[Answer] = &[WORKING[0], WORKING[1], ("/apis", 200, "<html>")];
    const NOT_AGGREGATED: &[Answer] = &[WORKING[0], WORKING[1], ("/apis", 200, r#"{"groups":[]}"#)];
    for (answers, expected) in [
        (STARTING, "unknown: the API server is not ready"),
        (FORBIDDEN, "true None: farm.io/v1 has no resource pigs"),
        (RBAC_NOT_READ, "unknown: the API server has just started"),
        (HOOKS_NOT_DONE, "unknown: the API server is not ready"),
        (NO_CORE, "unknown: refused with 503"),
        (REFUSED, "unknown: refused with 406"),
        (GARBLED, "unknown: discovery of /apis: "),
        (NOT_AGGREGATED, "unknown: discovery of /apis: no API groups"),
    ] {
        let found = &look_up(answers, &["farm.io/v1/pigs"]).await[0];
        assert!(found.starts_with(expected), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_reported_at_once_and_again_after_a_delay() {
    let (send, changes) = futures::channel::mpsc::unbounded();
    let mut reports = Box::pin(repeated(changes));
    let began = tokio::time::Instant::now();
    send.unbounded_send(()).unwrap();
    for expected in [Duration::ZERO, SECOND_REPORT_DELAY] {
        reports.next().await.unwrap();
        assert_eq!(began.elapsed(), expected);
    }
    let third = tokio::time::timeout(Duration::from_mins(10), reports.next()).await;
    assert!(third.is_err(), "a change must be repeated only once");
}
