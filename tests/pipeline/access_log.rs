//! The log of requests.

use crate::demo::{Demo, OPERATIONS};
use crate::listener::token;

/// A GET with the token; its answer is read to the end.
async fn get(demo: &Demo, path: &str) {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let _ = demo.client.request_text(request).await;
}

fn about_requests(demo: &Demo) -> Vec<String> {
    let about = |line: &String| line.contains(" access: ");
    demo.log().into_iter().filter(about).collect()
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
    demo.logged(&fields).await;
    get(&demo, "/version").await;
    demo.logged(&["path=\"/version\""]).await;
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
    assert!(about_requests(&demo).is_empty(), "{:#?}", demo.log());
}
