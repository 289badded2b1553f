//! Tests of `wait` while the answers of the server change.

use super::CommandOutput;
use super::cluster::{Cluster, is_watch, parameter, watch_response};
use super::fake_apiserver::{
    CUSTOM_RESOURCES, LIVE, RECORDS, RULE_SETS, execute, forbidden, list_response, not_found,
    operation, plugin, quiet_watch, serve, status_response,
};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `wait` with a server that counts the requests for which `counts` is true. `answer` gets
/// their number. If it returns None, a cluster without operations answers.
fn wait(
    args: &[&str],
    counts: fn(&Request) -> bool,
    answer: impl Fn(&Request, usize) -> Option<Response> + Clone + Send + Sync + 'static,
) -> CommandOutput {
    let cluster = Cluster::read("{}");
    let count = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |request| {
        let count = count.fetch_add(usize::from(counts(request)), Ordering::Relaxed);
        answer(request, count).unwrap_or_else(|| cluster.answer(request))
    });
    execute(plugin(address).arg("wait").args(args))
}

fn is_live_watch(request: &Request) -> bool {
    request.uri().path() == LIVE && is_watch(request)
}

fn is_activities(request: &Request) -> bool {
    request.uri().path().ends_with("/activities")
}

/// Returns a list with the activity of the cluster.
fn activity(idle: &str, operations: usize) -> Response {
    let oldest = json!({
        "namespace": "shop", "name": "vm-1-migrating", "started": "2026-01-01T00:00:00Z",
    });
    list_response(
        &[json!({
            "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "Activity",
            "metadata": {"name": "cluster", "namespace": "ifo-system", "resourceVersion": "7",
                         "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "conditions": [{"type": "Idle", "status": idle, "reason": "R", "message": "m",
                                "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "operations": operations, "blocked": 0, "failing": 0, "overdue": 0,
                "oldest": (operations > 0).then_some(oldest),
            },
        })],
        "",
    )
}

/// Returns the event that an operation has got this state.
fn change(kind: &str, number: usize, state: &str) -> Value {
    let mut operation = operation(number);
    operation["metadata"]["resourceVersion"] = json!("8");
    let is_completed = state != "Progressing";
    operation["status"] = json!({
        "phase": if is_completed { "Completed" } else { "Active" }, "state": state,
        "message": "no space left",
    });
    json!({"type": kind, "object": operation})
}

/// Returns the event that ends a watch with an error.
fn interruption() -> Value {
    json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "broken", "reason": "InternalError", "code": 500,
    }})
}

#[test]
fn wait_lists_operations_until_the_activity_is_idle() {
    let output = wait(
        &["--timeout=3m"],
        is_live_watch,
        |request, watches| match request.uri().path() {
            _ if is_activities(request) && watches > 0 => Some(activity("True", 0)),
            _ if is_activities(request) => Some(activity("False", 3)),
            _ if is_live_watch(request) => {
                let deleted = [1, 2, 3].map(|number| change("DELETED", number, "Ended"));
                Some(watch_response(&deleted))
            }
            LIVE => Some(list_response(
                &[operation(1), operation(2), operation(3)],
                "",
            )),
            _ => None,
        },
    );
    output.exits(0);
    output.says("waiting: 3 operations in flight, the oldest VirtualMachine/vm-1 in shop: Migr");
}

#[test]
fn the_quiet_period_begins_after_the_last_answer_that_something_was_in_flight() {
    // The server's clock is months behind the clock of this machine.
    let args = ["--quiet-period=10m", "--timeout=5s"];
    let output = wait(&args, is_activities, |request, reads| {
        let answer = if reads == 0 {
            ("False", 1)
        } else {
            ("True", 0)
        };
        is_activities(request).then(|| activity(answer.0, answer.1))
    });
    output.exits(1);
    output.says("but not yet");
}

/// Runs `wait --for=succeeded` while an operation is active and then ends as `changes` say. The lists
/// after the end have no operations.
fn wait_for_success(changes: Vec<Value>, record: Option<Value>) -> CommandOutput {
    let args = ["--for=succeeded", "--timeout=3m"];
    wait(
        &args,
        is_live_watch,
        move |request, watches| match request.uri().path() {
            RECORDS => Some(
                record
                    .as_ref()
                    .map_or_else(not_found, |it| list_response(std::slice::from_ref(it), "")),
            ),
            LIVE if is_watch(request) && watches == 0 => Some(watch_response(&changes)),
            LIVE if watches == 0 => Some(list_response(&[operation(1)], "")),
            _ => None,
        },
    )
}

#[test]
fn succeeded_depends_on_the_result_of_the_operation() {
    for (state, code, expected) in [
        ("Succeeded", 0, "succeeded: no operation in flight\n"),
        (
            "Failed",
            1,
            "failed: VirtualMachine/vm-1 in shop: Migrating: no space left",
        ),
        ("Ended", 3, "its result is unknown"),
    ] {
        let changes = ["MODIFIED", "DELETED"].map(|it| change(it, 1, state));
        let output = wait_for_success(changes.to_vec(), None);
        output.exits(code);
        assert!(
            (output.stdout + &output.stderr).contains(expected),
            "{state}"
        );
    }
    // One failure ends the wait, although another operation is active.
    let changes = [
        change("ADDED", 2, "Progressing"),
        change("MODIFIED", 1, "Failed"),
    ];
    wait_for_success(changes.to_vec(), None).exits(1);
}

#[test]
fn the_record_has_the_result_if_the_watch_was_interrupted_at_the_end() {
    for (outcome, code) in [(Some("Succeeded"), 0), (Some("Failed"), 1), (None, 3)] {
        let record = outcome.map(|outcome| {
            let mut record = operation(1);
            record["kind"] = json!("OperationRecord");
            record["status"] = json!({"outcome": outcome, "message": "no space left"});
            record
        });
        wait_for_success(vec![interruption()], record).exits(code);
    }
}

/// Runs `wait` in a cluster that serves operations only as custom resources. The operation is
/// active until the first watch, which has `changes`. The later lists have `listed`.
fn wait_with_custom_resources(
    goal: &str,
    changes: Vec<Value>,
    listed: Vec<Value>,
) -> CommandOutput {
    wait(
        &[goal, "--timeout=3m"],
        |request| request.uri().path() == CUSTOM_RESOURCES && is_watch(request),
        move |request, watches| match request.uri().path() {
            LIVE => Some(not_found()),
            CUSTOM_RESOURCES if is_watch(request) => Some(watch_response(&changes)),
            CUSTOM_RESOURCES if watches == 0 => Some(list_response(&[operation(1)], "")),
            CUSTOM_RESOURCES => Some(list_response(&listed, "")),
            _ => None,
        },
    )
}

#[test]
fn a_deleted_custom_resource_proves_neither_the_end_nor_the_success_of_its_operation() {
    for goal in ["--for=completed", "--for=succeeded"] {
        let deleted = vec![change("DELETED", 1, "Progressing")];
        // The watch delivers the deletion, or the watch is interrupted and the next list lacks the
        // custom resource.
        for changes in [deleted, vec![interruption()]] {
            let output = wait_with_custom_resources(goal, changes, Vec::new());
            output.exits(3);
            output.says("unknown: VirtualMachine/vm-1 in shop: Migrating: its custom resource was");
        }
        let completed = change("MODIFIED", 1, "Succeeded");
        let listed = vec![completed["object"].clone()];
        for changes in [vec![completed], vec![interruption()]] {
            wait_with_custom_resources(goal, changes, listed.clone()).exits(0);
        }
    }
}

#[test]
fn the_quiet_period_does_not_elapse_while_the_watch_is_broken() {
    // Only watches fail. Lists succeed and have no operations.
    let args = ["--quiet-period", "2s", "--timeout", "6s"];
    let output = wait(&args, is_live_watch, |request, _| {
        is_watch(request).then(|| status_response(503, "ServiceUnavailable", "no endpoints"))
    });
    output.exits(3);
    output.says("unknown: ");
}

#[test]
fn the_result_is_unknown_until_the_rule_sets_were_read() {
    for was_busy in [false, true] {
        let output = wait(
            &["--timeout", "5s"],
            is_live_watch,
            move |request, watches| match request.uri().path() {
                RULE_SETS => Some(quiet_watch()),
                LIVE if is_watch(request) => Some(watch_response(&[change("DELETED", 1, "Ended")])),
                LIVE if was_busy && watches == 0 => Some(list_response(&[operation(1)], "")),
                _ => None,
            },
        );
        output.exits(3);
        output.says("has not returned all operations and rule sets");
    }
}

#[test]
fn the_result_is_known_again_after_an_interruption_of_a_busy_watch() {
    let mut held = operation(1);
    held["status"]["state"] = json!("Held");
    let event = json!({"type": "MODIFIED", "object": held}).to_string() + "\n";
    let events = event.repeat(100);
    let args = ["--quiet-period", "10m", "--timeout", "6s"];
    let output = wait(&args, is_live_watch, move |request, watches| {
        match request.uri().path() {
            LIVE if is_watch(request) && watches == 0 => {
                Some(status_response(503, "ServiceUnavailable", "no endpoints"))
            }
            // For example, the APIService was replaced.
            LIVE if is_watch(request) && watches == 1 => Some(not_found()),
            LIVE if is_watch(request) => {
                // Changes arrive faster than the plugin reads them.
                let events = futures::stream::repeat(Ok::<_, Infallible>(events.clone()));
                Some(axum::body::Body::from_stream(events).into_response())
            }
            LIVE => Some(list_response(&[held.clone()], "")),
            _ => None,
        }
    });
    output.exits(1);
    output.says("but not yet for the quiet period");
}

#[test]
fn the_result_is_unknown_if_operations_end_and_rule_sets_cannot_be_read() {
    let args = ["-c", "kubevirt", "--timeout", "3m"];
    let output = wait(&args, is_live_watch, |request, watches| {
        match request.uri().path() {
            LIVE if is_watch(request) => Some(watch_response(&[change("DELETED", 1, "Ended")])),
            LIVE => {
                let operations = if watches == 0 {
                    vec![operation(1)]
                } else {
                    Vec::new()
                };
                let mut list = list_response(&operations, "");
                list.headers_mut().remove("ifo-complete");
                Some(list)
            }
            RULE_SETS => Some(forbidden(RULE_SETS)),
            _ => None,
        }
    });
    output.exits(3);
    output.says("unknown: operationrulesets.ifo.kubevirt.io is forbidden");
}

#[test]
fn an_error_that_differs_only_in_a_port_is_printed_once() {
    let output = wait(
        &["--timeout=5s"],
        |request| request.uri().path() == LIVE,
        |request, lists| {
            let message = format!("read tcp 10.0.0.1:{}->10.0.0.2:443: reset", 40_000 + lists);
            let is_list = request.uri().path() == LIVE;
            is_list.then(|| status_response(503, "ServiceUnavailable", &message))
        },
    );
    output.exits(3);
    let lines = output.stderr.matches("still unknown: ").count();
    assert_eq!(lines, 1, "{}", output.stderr);
}

/// Adds the header of `ifo-apiserver` while the watch of a target is interrupted.
fn incomplete(mut answer: Response) -> Response {
    let reason = json!({"notWorking": {"count": 1, "total": 1, "named": [
        {"name": "vm", "reason": "target cannot be watched"},
    ]}});
    let reason = reason.to_string().parse().expect("a header");
    answer.headers_mut().insert("ifo-incomplete", reason);
    answer
}

#[test]
fn a_list_is_incomplete_if_any_of_its_pages_is_incomplete() {
    for incomplete_page in [1, 2] {
        let (_runtime, address) = serve(move |request| {
            let (page, answer) = match (request.uri().path(), &*parameter(request, "continue")) {
                (LIVE, "next") => (2, list_response(&[operation(2)], "")),
                (LIVE, _) => (1, list_response(&[operation(1)], "next")),
                _ => return not_found(),
            };
            if page == incomplete_page {
                incomplete(answer)
            } else {
                answer
            }
        });
        let output = execute(plugin(address).arg("list"));
        output.exits(0);
        output.says("1 of 1 rule set is not working");
    }
}

#[test]
fn wait_does_not_trust_an_activity_or_a_list_that_no_leader_has_confirmed() {
    let output = wait(
        &["--timeout=0"],
        |_| false,
        |request, _| {
            let mut answer = match request.uri().path() {
                _ if is_activities(request) => activity("True", 0),
                LIVE => list_response(&[], ""),
                _ => return None,
            };
            let reason = "\"notConfirmed\"".parse().expect("a header");
            answer.headers_mut().insert("ifo-incomplete", reason);
            Some(answer)
        },
    );
    output.exits(3);
    output.says("unknown: no leader has confirmed that this answer is up to date");
}

#[test]
fn wait_does_not_trust_a_list_that_was_incomplete_when_it_was_read() {
    // The lists lack the operations in flight. The server is asked once more after each list, and
    // then all rule sets work.
    for timeout in ["0", "4s"] {
        let output = wait(
            &["--timeout", timeout],
            |_| false,
            |request, _| match request.uri().path() {
                LIVE if is_watch(request) => Some(quiet_watch()),
                LIVE if parameter(request, "limit") == "1" => {
                    Some(list_response(&[operation(1)], ""))
                }
                LIVE => Some(incomplete(list_response(&[], ""))),
                _ => None,
            },
        );
        output.exits(3);
        output.says("vm (target cannot be watched)");
    }
}
