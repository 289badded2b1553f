//! Tests of the commands that show one line for a piece of work, and of the filter for nodes. A
//! piece of work is a group of operations with the same key `spec.work`, such as the operations of
//! one migration.

use super::tests_with_fake_apiserver::{
    RULE_SETS, execute, json_response, list_response, operation, plugin, serve, status_response,
    watched_rule_set,
};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::io::BufRead as _;

/// Path prefix of the live API.
const LIVE_GROUP: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/";

/// Returns the two operations of the piece of work `migration`, and one operation without a key.
pub fn migration() -> Vec<Value> {
    let mut machine = operation(1);
    machine["metadata"]["uid"] = json!("o-1");
    machine["spec"]["subject"]["uid"] = json!("machine");
    machine["spec"]["work"] = json!("migration");
    let mut instance = operation(2);
    instance["metadata"]["creationTimestamp"] = json!("2025-12-31T23:00:00Z");
    instance["spec"]["subject"]["kind"] = json!("VirtualMachineInstance");
    instance["spec"]["subject"]["uid"] = json!("instance");
    instance["spec"]["subject"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-1", "uid": "machine"}]);
    instance["spec"]["work"] = json!("migration");
    instance["status"]["progress"] = json!(45);
    instance["status"]["message"] = json!("copies memory");
    instance["status"]["nodes"] = json!(["worker-3", "worker-4"]);
    instance["status"]["expected"] =
        json!({"typicalSeconds": 125, "p95Seconds": 240, "runs": 37, "source": "History"});
    instance["status"]["conditions"] = json!([
        {"type": "Overdue", "status": "True", "reason": "TakesLong", "message": "twice the usual 2m5s",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]);
    vec![machine, instance, operation(3)]
}

pub fn parameter(request: &Request, name: &str) -> String {
    let query = request
        .uri()
        .query()
        .unwrap_or_default()
        .replace("%3D", "=");
    let query = query.replace("%2C", ",");
    let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// Answers as a cluster with these operations and the nodes `worker-3` and `worker-4`. If a list
/// has the field selector `status.nodes`, the answer contains only operations on this node.
pub fn answer(operations: &[Value], request: &Request) -> Response {
    let path = request.uri().path();
    match path {
        RULE_SETS => {
            let mut rule_set = watched_rule_set();
            rule_set["spec"]["nodes"] = json!("[object.status.nodeName]");
            json_response(&json!({"items": [rule_set]}))
        }
        "/api/v1/nodes" => json_response(&json!({"items": [
            {"metadata": {"name": "worker-3"}}, {"metadata": {"name": "worker-4"}},
        ]})),
        "/api/v1/nodes/worker-3" | "/api/v1/nodes/worker-4" => json_response(&json!({})),
        path if path.starts_with("/api/v1/nodes/") => {
            status_response(404, "NotFound", "nodes \"x\" not found")
        }
        path if path.starts_with(LIVE_GROUP) && path.ends_with("/inflightoperations") => {
            let fields = parameter(request, "fieldSelector");
            let mut fields = fields.split(',');
            let node = fields.find_map(|it| it.strip_prefix("status.nodes="));
            let has_node = |it: &&Value| {
                let nodes = it["status"]["nodes"].as_array();
                node.is_none_or(|node| nodes.is_some_and(|all| all.iter().any(|it| it == node)))
            };
            let selected: Vec<Value> = operations.iter().filter(has_node).cloned().collect();
            list_response(&selected, "")
        }
        _ => status_response(404, "NotFound", "404 page not found"),
    }
}

#[test]
fn a_piece_of_work_is_one_line_and_can_be_expanded() {
    let (_runtime, address) = serve(|request| answer(&migration(), request));
    let run = |args: &[&str]| execute(plugin(address).args(args));
    let list = run(&["list"]);
    let lines: Vec<&str> = list.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", list.stdout);
    for part in [
        "VirtualMachine/vm-1",
        "Migrating",
        "Progressing (overdue)",
        "45%",
        "copies memory",
    ] {
        assert!(lines[1].contains(part), "{part}: {}", list.stdout);
    }
    let wide = run(&["list", "-o", "wide"]).stdout;
    assert!(
        wide.contains("2m5s") && wide.contains("worker-3,worker-4"),
        "{wide}"
    );

    let expanded = run(&["list", "--expand"]).stdout;
    assert_eq!(expanded.lines().count(), 5, "{expanded}");
    assert!(
        expanded.contains("└ VirtualMachineInstance/vm-2"),
        "{expanded}"
    );

    // JSON, names and `get` show each operation of a piece of work.
    assert_eq!(run(&["list", "-o", "name"]).stdout.lines().count(), 3);
    let json = run(&["list", "-o", "json"]).json();
    assert_eq!(json["items"].as_array().map(Vec::len), Some(3));
    let get = run(&["get", "vm-2-migrating"]).stdout;
    assert!(get.contains("VirtualMachineInstance/vm-2"), "{get}");

    let summary = run(&["summary"]).stdout;
    assert!(summary.starts_with("2 active, 0 completed\n"), "{summary}");
    assert!(
        summary.contains("Blocked, failing, overdue or stalled:"),
        "{summary}"
    );
    assert!(run(&["summary", "--expand"]).stdout.starts_with("3 active"));
    let json = run(&["summary", "-o", "json"]).json();
    assert_eq!(json["total"]["active"], 3);
    assert_eq!(json["overdue"][0]["name"], "vm-2-migrating");
}

#[test]
fn a_description_has_the_times_of_the_operation() {
    let mut operations = migration();
    operations[1]["status"]["stateSince"] = json!("2026-01-01T00:00:00Z");
    operations[1]["status"]["lastProgress"] = json!("2026-01-01T00:00:00Z");
    operations[1]["status"]["estimatedCompletion"] = json!("2999-01-01T00:00:00Z");
    let (_runtime, address) = serve(move |request| answer(&operations, request));
    let text = execute(plugin(address).args(["describe", "vm-2-migrating"])).stdout;
    let text: Vec<&str> = text.split_whitespace().collect();
    let text = text.join(" ");
    for part in [
        "work: migration",
        "State: Progressing (overdue)",
        "stateSince: 2026-01-01T00:00:00Z",
        "lastProgress: 2026-01-01T00:00:00Z",
        "nodes: worker-3, worker-4",
        "Expected: 2m5s (37 runs, 95% within 4m)",
        "Time Left: about",
        "Overdue True",
        "twice the usual 2m5s",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn operations_are_filtered_by_node() {
    let (_runtime, address) = serve(|request| answer(&migration(), request));
    let run = |args: &[&str]| execute(plugin(address).args(args));
    let name = "inflightoperation.live.ifo.kubevirt.io/vm-2-migrating\n";
    for node in ["worker-3", "node/worker-4", "worker-3,worker-4"] {
        for command in ["list", "tree"] {
            let output = run(&[command, "--node", node, "-o", "name"]);
            assert_eq!(output.stdout, name, "{command} {node}: {}", output.stderr);
        }
        let summary = run(&["summary", "--node", node]).stdout;
        assert!(summary.starts_with("1 active"), "{summary}");
        let busy = run(&["wait", "--for=idle", "--timeout=0", "--node", node]);
        assert_eq!(busy.code, 1, "{}", busy.stderr);
    }
    for command in ["list", "summary", "tree", "wait"] {
        let unknown = run(&[command, "--node", "worker-9"]);
        assert_eq!(unknown.code, 2, "{command}: {}", unknown.stderr);
        assert!(
            unknown
                .stderr
                .contains("there is no node \"worker-9\"; did you mean \"worker-3\"?"),
            "{}",
            unknown.stderr
        );
    }
}

#[test]
fn idle_is_only_reported_if_a_rule_set_knows_nodes() {
    let idle = ["wait", "--for=idle", "--timeout=0", "--node", "worker-3"];
    let (_runtime, address) = serve(|request| answer(&[], request));
    let output = execute(plugin(address).args(idle));
    assert_eq!(output.code, 0, "{}", output.stderr);

    // No rule set yields nodes.
    let (_runtime, address) = serve(|request| match request.uri().path() {
        RULE_SETS => json_response(&json!({"items": [watched_rule_set()]})),
        _ => answer(&[], request),
    });
    let output = execute(plugin(address).args(idle));
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(
        output.stderr.contains("check --node worker-3"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_watch_ends_the_row_of_an_operation_that_leaves_the_node() {
    let mut moved = migration()[1].clone();
    moved["status"]["nodes"] = json!(["worker-4"]);
    let (_runtime, address) = serve(move |request| {
        let query = request.uri().query().unwrap_or_default();
        if !query.contains("watch=") {
            return answer(&migration(), request);
        }
        assert!(query.contains("status.nodes"), "{query}");
        // The operation no longer touches the selected node. A server that does not compare the
        // nodes before and after the change sends `MODIFIED` here instead of `DELETED`.
        let event = json!({"type": "MODIFIED", "object": moved}).to_string() + "\n";
        let events = futures::stream::once(async move { Ok::<_, std::io::Error>(event) });
        axum::body::Body::from_stream(futures::StreamExt::chain(
            events,
            futures::stream::pending(),
        ))
        .into_response()
    });
    let mut command = plugin(address);
    let mut child = command
        .args(["list", "-w", "--node", "worker-3"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the plugin can be started");
    let out = child.stdout.take().expect("the stream is piped");
    let mut lines = std::io::BufReader::new(out).lines();
    let mut next = || lines.next().expect("a line").expect("the output is UTF-8");
    assert!(next().starts_with("NAMESPACE"));
    assert!(next().contains("Progressing (overdue)"));
    let last = next();
    let _ = child.kill();
    let _ = child.wait();
    assert!(last.contains("Ended"), "{last}");
}
