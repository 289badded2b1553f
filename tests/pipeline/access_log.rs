//! Tests of the access log: the server writes one line for each request if its verbosity is at
//! least 1. These lines must not contain credentials or text that could forge a log line.

use crate::demo::{Demo, OPERATIONS};
use crate::hostile_connections::token;

/// Sends a GET request with the token of the demo, and reads the answer to its end.
async fn get(demo: &Demo, path: &str) {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let _ = demo.client.request_text(request).await;
}

fn access_log(demo: &Demo) -> Vec<String> {
    let is_access = |line: &String| line.contains(" access: ");
    demo.log().into_iter().filter(is_access).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_logged_from_verbosity_1_without_credentials() {
    let demo = Demo::start(&["-v=1"]).await;
    demo.operations().await;
    let forged = "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/a%0a2026-01-01%20INFO%1b%5b2J/\
                  inflightoperations";
    get(&demo, forged).await;
    get(
        &demo,
        &format!("{OPERATIONS}?labelSelector=password%3Dhunter2"),
    )
    .await;
    let fields = [
        "user=\"ifo-demo\"",
        "verb=\"list\"",
        "resource=\"inflightoperations\"",
        "namespace=\"a",
        "code=200",
        "latency_ms=",
        "audit_id=\"",
        "client=127.0.0.1:",
    ];
    demo.wait_for_log(&fields).await;
    get(&demo, "/version").await;
    demo.wait_for_log(&["path=\"/version\""]).await;
    let log = demo.log().join("\n");
    assert!(!log.contains(&token(&demo)), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    assert!(
        !log.lines().any(|line| line.starts_with("2026-01-01")),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_not_logged_at_the_default_verbosity() {
    let demo = Demo::start(&[]).await;
    demo.operations().await;
    get(&demo, "/version").await;
    assert!(access_log(&demo).is_empty(), "{:#?}", demo.log());
}
