//! Watches over WebSocket through `kubectl proxy`, with clients that dashboards and scripts use: a
//! browser (Chromium) and the Python package websocket-client. If this machine does not have a
//! client, its test is skipped with a message, also in CI. `apt-get install chromium` and
//! `pip install websocket-client` install the clients. `IFO_PYTHON` can name another Python.

use crate::harness::{OPERATION, TestCluster, eventually, migrating, print_skipped, shared};
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
        let namespace = namespace_with_operation(cluster, "browser").await;
        let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/websocket_clients");
        let (_proxy, address) = proxy(cluster, &["--www", pages]).await;
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
        let stored = eventually("the browser stores the end of its watch", async || {
            let answer = cluster.admin.get(&path).await;
            if answer.code == 200 {
                Ok(answer.body)
            } else {
                Err(answer.text)
            }
        })
        .await;
        let data = &stored["data"];
        assert_eq!(data["opened"], "true", "{data}");
        assert_eq!(data["end"], "1000 true");
        assert_eq!(data["subprotocol"], "base64.binary.k8s.io");
        let messages = data["events"].as_str().expect("the events are a text");
        check(&serde_json::from_str(messages).expect("the page stores JSON"));
    });
}

#[test]
fn a_python_client_watches_operations_through_kubectl_proxy() {
    shared(async |cluster| {
        let python = std::env::var("IFO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        if !succeeds(
            &python,
            &["-c", "import websocket; websocket.create_connection"],
        )
        .await
        {
            let why = "the package websocket-client is not installed";
            print_skipped("the test with a Python client", why);
            return;
        }
        let namespace = namespace_with_operation(cluster, "python").await;
        let (_proxy, address) = proxy(cluster, &[]).await;
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/e2e/websocket_clients/watch.py"
        );
        let output = Command::new(python)
            .args([script, &address, &watch_path(namespace)])
            .output()
            .await
            .expect("Python can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("the script prints JSON");
        assert_eq!(result["end"], 1000);
        assert_eq!(result["subprotocol"], "base64.binary.k8s.io");
        check(&result["events"]);
    });
}

/// Creates a namespace with one operation in flight, on the VirtualMachine `a`.
async fn namespace_with_operation(cluster: &TestCluster, prefix: &str) -> &'static str {
    let namespace = cluster.namespace(prefix).await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    cluster.machine(namespace, "a", "Migrating").await;
    cluster
        .until_operations(namespace, &[("a", "Migrating")])
        .await;
    namespace
}

fn watch_path(namespace: &str) -> String {
    format!(
        "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
         allowWatchBookmarks=true&timeoutSeconds=2",
        OPERATION.path(Some(namespace))
    )
}

/// Starts `kubectl proxy` on a free port. Returns its address.
async fn proxy(cluster: &TestCluster, args: &[&str]) -> (crate::harness::Lines, String) {
    let mut lines = cluster.kubectl_watch(&[&["proxy", "--port=0"], args].concat());
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
        if succeeds(program, &["--version"]).await {
            return Some(program);
        }
    }
    None
}

async fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}
