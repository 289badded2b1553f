//! Tests of the requests of `kubectl ifo support-bundle`. `transcripts/bundle.txt` shows what a bundle
//! contains.

use super::cluster::Cluster;
use super::fake_apiserver::{execute, json_response, plugin, serve};
use axum::response::IntoResponse as _;
use serde_json::json;
use std::sync::{Arc, Mutex};

#[test]
fn a_reached_limit_is_recorded_and_no_secret_is_requested() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let cluster = Cluster::read("operations: [1]");
    let (_runtime, address) = serve(move |request| {
        let path = request.uri().path();
        let line = format!("{} {}", request.method(), request.uri());
        seen.lock().expect("no test has panicked").push(line);
        if path.ends_with("/log") {
            return "2026-01-01T00:00:00Z line\n".repeat(10_000).into_response();
        }
        if path.ends_with("/events") || path.ends_with("/pods") {
            let items = [json!({"metadata": {"name": "ifo-1"}})];
            return json_response(&json!({"items": items, "metadata": {"continue": "token"}}));
        }
        cluster.answer(request)
    });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = plugin(address);
    command.args(["support-bundle", "--include-text", "-o"]);
    let output = execute(command.arg(folder.path().join("bundle/")));
    output.exits(0);
    output.says("note: incomplete, because a limit was reached: Event, Pod, log of ifo-1");
    let asked = asked.lock().expect("no test has panicked");
    assert!(asked.len() > 10, "{asked:?}");
    assert!(
        asked
            .iter()
            .all(|it| it.starts_with("GET ") && !it.contains("/secrets")),
        "{asked:?}"
    );
    // Without `tailLines`, the kubelet would begin with the oldest lines.
    let log = asked
        .iter()
        .find(|it| it.contains("/log?"))
        .expect("a log is read");
    assert!(log.contains("tailLines=10000&limitBytes=8388608"), "{log}");
}
