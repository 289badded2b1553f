//! A watch over WebSocket through `kubectl proxy`, with a browser (Chromium), as dashboards do. If this
//! machine does not have a browser, the test is skipped with a message, also in CI.
//! `apt-get install chromium` installs it.

use crate::harness::{Cluster, OPERATION, print_skipped, shared};
use serde_json::Value;
use std::process::Stdio;
use tokio::process::Command;

/// Names of the program of the browser, in different distributions.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

#[test]
fn a_browser_watches_operations_through_kubectl_proxy() {
    shared(async |cluster| {
        let Some(browser) = first_installed(&BROWSERS).await else {
            print_skipped("the test with a browser", "Chromium is not installed");
            return;
        };
        let (namespace, _) = cluster.migrations("browser", &["a"]).await;
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/websocket_clients");
        let (_proxy, address) = proxy(cluster, &format!("--www {pages}")).await;
        let options: String = form_urlencoded::Serializer::new(String::new())
            .append_pair("namespace", namespace)
            .append_pair("watch", &watch_path(namespace))
            .append_pair("subprotocol", "base64.binary.k8s.io")
            .finish();
        let profile = tempfile::tempdir().expect("the temporary folder can be created");
        let _browser = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("http://{address}/static/watch.html?{options}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the browser can be started");
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/browser");
        let stored = cluster.admin.until_code(&path, 200).await;
        let data = &stored["data"];
        assert_eq!(data["opened"], "true", "{data}");
        assert_eq!(data["end"], "1000 true");
        assert_eq!(data["subprotocol"], "base64.binary.k8s.io");
        let messages = data["events"].as_str().expect("the events are a text");
        check(&serde_json::from_str(messages).expect("the page stores JSON"));
    });
}

fn watch_path(namespace: &str) -> String {
    format!(
        "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
         allowWatchBookmarks=true&timeoutSeconds=2",
        OPERATION.path(Some(namespace))
    )
}

/// Starts `kubectl proxy` on a free port. Returns its address.
async fn proxy(cluster: &Cluster, args: &str) -> (crate::harness::Lines, String) {
    let mut lines = cluster.kubectl_watch(&format!("proxy --port=0 {args}"));
    let address = lines.until("the address of the proxy", |lines| {
        let (_, address) = lines.first()?.split_once("Starting to serve on ")?;
        Some(address.trim().to_owned())
    });
    let address = address.await;
    (lines, address)
}

/// Checks the messages of a watch: the operation on `a`, and the bookmark after the initial events.
fn check(messages: &Value) {
    let messages = messages.as_array().expect("the messages are an array");
    let events = messages.iter().map(|message| {
        let text = message.as_str().expect("a message is a text");
        serde_json::from_str(text).expect("a message is one event in JSON")
    });
    let events: Vec<Value> = events.collect();
    assert!(events.len() >= 2, "{events:?}");
    assert_eq!(events[0]["type"], "ADDED", "{events:?}");
    assert_eq!(events[0]["object"]["spec"]["subject"]["name"], "a");
    let bookmarks = events.iter().filter(|event| {
        let annotations = &event["object"]["metadata"]["annotations"];
        event["type"] == "BOOKMARK" && annotations["k8s.io/initial-events-end"] == "true"
    });
    assert_eq!(bookmarks.count(), 1, "{events:?}");
}

async fn first_installed(programs: &[&'static str]) -> Option<&'static str> {
    for program in programs {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().await.is_ok_and(|status| status.success()) {
            return Some(program);
        }
    }
    None
}
