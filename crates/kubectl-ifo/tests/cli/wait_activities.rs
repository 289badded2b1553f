//! Tests of `wait` with activities, and of the goal `succeeded`, with a fake API server.

use super::CommandOutput;
use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, json_response, list_response, not_found, operation, plugin,
    quiet_watch, serve, status_response, watched_rule_set,
};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const GROUP: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/";

/// The flags that select exactly the operations of one activity.
const SCOPES: [&[&str]; 4] = [
    &[],
    &["-n", "shop"],
    &["--node", "worker-3"],
    &["-c", "kubevirt"],
];

/// Returns the list with one activity.
fn activity(idle: &str, operations: usize) -> Response {
    let oldest = json!({
        "namespace": "shop", "name": "vm-1-migrating", "started": "2026-01-01T00:00:00Z",
    });
    json_response(&json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "ActivityList",
        "metadata": {"resourceVersion": "7"},
        "items": [{
            "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
            "metadata": {
                "name": "cluster", "namespace": "ifo-system", "resourceVersion": "7", "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "status": {
                "conditions": [{
                    "type": "Idle", "status": idle, "reason": "R", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "operations": operations, "blocked": 0, "failing": 0, "overdue": 0,
                "oldest": (operations > 0).then_some(oldest),
            },
        }],
    }))
}

fn rule_sets() -> Response {
    let mut rule_set = watched_rule_set();
    rule_set["spec"]["nodes"] = json!("[object.status.nodeName]");
    json_response(&json!({"items": [rule_set]}))
}

fn is_watch(request: &Request) -> bool {
    request.uri().query().unwrap_or_default().contains("watch=")
}

/// Returns an answer to a watch with these events after half a second. The answer then stays open.
fn events(events: &[Value]) -> Response {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    let lines = lines.join("\n") + "\n";
    let later = futures::stream::once(async move {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        Ok::<_, std::io::Error>(lines)
    });
    let events = futures::StreamExt::chain(later, futures::stream::pending());
    axum::body::Body::from_stream(events).into_response()
}

#[test]
fn wait_reads_the_activity_of_its_scope_and_lists_no_operations() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let (_runtime, address) = serve(move |request| {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        match path.strip_prefix(GROUP) {
            Some("activities") => {
                assert!(query.contains("fieldSelector=metadata.name%3D"), "{query}");
                activity("True", 0)
            }
            Some("namespaces/shop/activities") => activity("True", 0),
            Some(_) => {
                counted.fetch_add(1, Ordering::Relaxed);
                list_response(&[], "")
            }
            None if path == RULE_SETS => rule_sets(),
            None => not_found(),
        }
    });
    for scope in SCOPES {
        for more in [
            &["--timeout=0"][..],
            // The quiet period has ended long ago, because it counts from the lastTransitionTime.
            &["--quiet-period=30m", "--timeout=10s"],
        ] {
            let output = execute(plugin(address).args(["wait", "-q"]).args(scope).args(more));
            assert_eq!(output.code, 0, "{scope:?} {more:?}: {}", output.stderr);
        }
    }
    assert_eq!(lists.load(Ordering::Relaxed), 0);
    let output = execute(plugin(address).args(["wait", "--timeout=0"]));
    assert_eq!(output.stdout, "idle: no operation in flight\n");
    assert_eq!(lists.load(Ordering::Relaxed), 0);
    // No activity is about these operations.
    for more in [
        &["-n", "shop", "-c", "kubevirt"][..],
        &["-k", "vm"],
        &["-c", "kubevirt,olm"],
        &["--ignore-blocked"],
        &["--for=started"],
    ] {
        let before = lists.load(Ordering::Relaxed);
        execute(plugin(address).args(["wait", "--timeout=0"]).args(more));
        assert!(lists.load(Ordering::Relaxed) > before, "{more:?}");
    }
}

#[test]
fn wait_lists_operations_until_the_activity_is_idle() {
    let has_ended = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| {
        let is_over = has_ended.load(Ordering::Relaxed) == 1;
        match request.uri().path() {
            path if path.ends_with("/activities") && is_over => activity("True", 0),
            path if path.ends_with("/activities") => activity("False", 3),
            LIVE if is_watch(request) => {
                has_ended.store(1, Ordering::Relaxed);
                let deleted =
                    |number| json!({"type": "DELETED", "object": in_state(number, "Ended")});
                events(&[deleted(1), deleted(2), deleted(3)])
            }
            LIVE => list_response(&[operation(1), operation(2), operation(3)], ""),
            RULE_SETS => rule_sets(),
            _ => not_found(),
        }
    });
    let output = execute(plugin(address).args(["wait", "--timeout=3m"]));
    output.exits(0);
    let waiting = "waiting: 3 operations in flight, the oldest VirtualMachine/vm-1 in shop: Migr";
    output.says_first(waiting);
}

#[test]
fn the_quiet_period_begins_after_the_last_answer_that_something_was_in_flight() {
    let reads = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        // The server's clock is months behind the clock of this machine.
        path if path.ends_with("/activities") => match reads.fetch_add(1, Ordering::Relaxed) {
            0 => activity("False", 1),
            _ => activity("True", 0),
        },
        LIVE if is_watch(request) => quiet_watch(),
        LIVE => list_response(&[], ""),
        RULE_SETS => rule_sets(),
        _ => not_found(),
    });
    let quiet = ["--quiet-period=10m", "--timeout=5s"];
    let output = execute(plugin(address).arg("wait").args(quiet));
    output.exits(1);
    output.says("but not yet");
}

#[test]
fn a_busy_activity_gives_the_message_of_a_list() {
    for scope in SCOPES {
        let (_runtime, address) = serve(|request| match request.uri().path() {
            path if path.ends_with("/activities") => activity("False", 1),
            path if path.starts_with(GROUP) && is_watch(request) => quiet_watch(),
            path if path.starts_with(GROUP) => {
                let mut on_node = operation(1);
                on_node["status"]["nodes"] = json!(["worker-3"]);
                list_response(&[on_node], "")
            }
            _ => not_found(),
        });
        for (timeout, title) in [("0", "not idle"), ("2s", "timed out")] {
            let wait = ["wait", "--timeout", timeout];
            let output = execute(plugin(address).args(wait).args(scope));
            assert_eq!(output.code, 1, "{scope:?}: {}", output.stderr);
            let line = format!("{title}: VirtualMachine/vm-1 in shop: Migrating");
            output.says(&line);
            output.says("NAMESPACE   SUBJECT");
        }
    }
}

#[test]
fn lists_decide_if_the_activity_is_unknown_missing_or_refused() {
    let answers: [fn() -> Response; 5] = [
        || activity("Unknown", 0),
        || json_response(&json!({"kind": "ActivityList", "metadata": {}, "items": []})),
        || status_response(403, "Forbidden", "no"),
        || status_response(503, "ServiceUnavailable", "no detection"),
        not_found,
    ];
    for answer in answers {
        for is_complete in [true, false] {
            let (_runtime, address) = serve(move |request| match request.uri().path() {
                path if path.ends_with("/activities") => answer(),
                LIVE if is_watch(request) => quiet_watch(),
                LIVE => {
                    let mut list = list_response(&[], "");
                    let warning = "299 - \"1 of 1 rule set is not working, operations may be \
                                   missing: vm (does not compile)\"";
                    let (name, value) = if is_complete {
                        ("ifo-complete", "true")
                    } else {
                        ("warning", warning)
                    };
                    let value = value.parse().expect("a header");
                    list.headers_mut().remove("ifo-complete");
                    list.headers_mut().insert(name, value);
                    list
                }
                RULE_SETS => rule_sets(),
                _ => not_found(),
            });
            let output = execute(plugin(address).args(["wait", "--timeout=0"]));
            let expected = if is_complete { 0 } else { 3 };
            assert_eq!(output.code, expected, "{}", output.stderr);
            let is_named = output.stderr.contains("vm (does not compile)");
            assert_eq!(is_named, !is_complete, "{}", output.stderr);
        }
    }
}

#[test]
fn an_idle_activity_proves_nothing_if_no_rule_set_detects_such_operations() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        path if path.ends_with("/activities") => activity("True", 0),
        RULE_SETS => json_response(&json!({"items": [watched_rule_set()]})),
        _ => not_found(),
    });
    let wait = ["wait", "--timeout=0", "--node", "worker-3"];
    let output = execute(plugin(address).args(wait));
    output.exits(3);
    output.says("check --node worker-3");
}

/// Returns an operation with this state.
fn in_state(number: usize, state: &str) -> Value {
    let mut operation = operation(number);
    operation["metadata"]["resourceVersion"] = json!("8");
    operation["status"]["state"] = json!(state);
    operation["status"]["message"] = json!("no space left");
    let is_completed = ["Succeeded", "Failed", "Superseded", "Ended"].contains(&state);
    if is_completed {
        operation["status"]["phase"] = json!("Completed");
    }
    operation
}

/// Runs `wait --for=succeeded` while an operation is active and then ends as `changes` say. The lists
/// after the end have no operations.
fn wait_for_success(changes: Vec<Value>, record: Option<Value>) -> CommandOutput {
    let has_ended = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE if is_watch(request) => {
            if has_ended.swap(1, Ordering::Relaxed) == 0 {
                events(&changes)
            } else {
                quiet_watch()
            }
        }
        LIVE if has_ended.load(Ordering::Relaxed) == 0 => list_response(&[operation(1)], ""),
        LIVE => list_response(&[], ""),
        path if path.ends_with("/operationrecords/vm-1-migrating") => {
            record.as_ref().map_or_else(not_found, json_response)
        }
        RULE_SETS => rule_sets(),
        _ => not_found(),
    });
    execute(plugin(address).args(["wait", "--for=succeeded", "--timeout=3m"]))
}

#[test]
fn succeeded_depends_on_the_result_of_the_operation() {
    let end = |state: &str| {
        let modified = json!({"type": "MODIFIED", "object": in_state(1, state)});
        let deleted = json!({"type": "DELETED", "object": in_state(1, state)});
        wait_for_success(vec![modified, deleted], None)
    };
    let succeeded = end("Succeeded");
    assert_eq!(
        (succeeded.code, &*succeeded.stdout),
        (0, "succeeded: all operations have succeeded\n"),
        "{}",
        succeeded.stderr
    );
    let failed = end("Failed");
    assert_eq!(
        (failed.code, failed.stderr.lines().last()),
        (
            1,
            Some("failed: VirtualMachine/vm-1 in shop: Migrating: no space left")
        )
    );
    let unknown = end("Ended");
    unknown.exits(3);
    unknown.says("its result is unknown");
}

#[test]
fn one_failure_ends_the_wait_although_another_operation_is_active() {
    let output = wait_for_success(
        vec![
            json!({"type": "ADDED", "object": in_state(2, "Progressing")}),
            json!({"type": "MODIFIED", "object": in_state(1, "Failed")}),
        ],
        None,
    );
    output.exits(1);
}

#[test]
fn the_record_has_the_result_if_the_watch_was_interrupted_at_the_end() {
    let error = || {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "broken", "reason": "InternalError", "code": 500,
        });
        json!({"type": "ERROR", "object": status})
    };
    let mut record = operation(1);
    for (outcome, code) in [("Succeeded", 0), ("Failed", 1)] {
        record["kind"] = json!("OperationRecord");
        record["status"] = json!({"outcome": outcome, "message": "no space left"});
        let output = wait_for_success(vec![error()], Some(record.clone()));
        assert_eq!(output.code, code, "{}", output.stderr);
    }
    let unknown = wait_for_success(vec![error()], None);
    unknown.exits(3);
}

#[test]
fn succeeded_waits_for_an_operation_and_refuses_to_ignore_failures() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE => list_response(&[in_state(1, "Succeeded")], ""),
        RULE_SETS => rule_sets(),
        _ => not_found(),
    });
    let wait = ["wait", "--for=succeeded", "--timeout=0"];
    let before = execute(plugin(address).args(wait));
    let line = "not succeeded: no operation has started\n";
    assert_eq!((before.code, &*before.stderr), (1, line));
    let contradictory = execute(plugin(address).args(wait).arg("--ignore-failing"));
    contradictory.exits(2);
}
