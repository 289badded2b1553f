//! Tests of `kubectl ifo impact` with a fake API server. `impact` shows the operations on a node,
//! and the Pods that a drain of the node affects. The fake API server fails a test if an eviction is
//! requested that is not a dry run.

use super::CommandOutput;
use super::pieces_of_work::{answer, migration};
use super::tests_with_fake_apiserver::{execute, json_response, plugin, serve, status_response};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/pods";

/// The refusal of an eviction because of a disruption budget.
const BUDGET: &str = "The disruption budget api needs 2 healthy pods and has 2 currently";

/// Returns a Pod on `worker-3`. `controller` is `Kind/name`, or empty.
fn pod(name: &str, controller: &str) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "shop"}, "status": {"phase": "Running"},
    });
    if let Some((kind, name)) = controller.split_once('/') {
        pod["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "u", "controller": true},
        ]);
    }
    pod
}

fn pods() -> Value {
    let mut mirror = pod("static", "Node/worker-3");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mut ended = pod("ended", "Job/backup");
    ended["status"]["phase"] = json!("Succeeded");
    json!({"items": [
        pod("api", "ReplicaSet/api"),
        pod("cache", "StatefulSet/cache"),
        pod("debug", ""),
        pod("virt-launcher-db", "VirtualMachineInstance/db"),
        pod("virt-launcher-web", "VirtualMachineInstance/web"),
        pod("agent", "DaemonSet/agent"),
        pod("gone", "ReplicaSet/gone"),
        mirror,
        ended,
    ]})
}

/// Returns the name of the Pod whose eviction is requested. None for other requests.
fn evicted(request: &Request) -> Option<&str> {
    let path = request.uri().path().strip_suffix("/eviction")?;
    assert_eq!(request.method(), "POST");
    assert_eq!(request.uri().query(), Some("dryRun=All"));
    path.strip_prefix("/api/v1/namespaces/shop/pods/")
}

/// Returns the refusal of an eviction because of a disruption budget.
fn budget_refusal() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}, "code": 429,
        "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": BUDGET}]},
    });
    (
        axum::http::StatusCode::TOO_MANY_REQUESTS,
        status.to_string(),
    )
        .into_response()
}

fn migrated() -> Response {
    let message = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the \
                   request: Eviction triggered evacuation of VMI \"shop/web\"";
    status_response(429, "TooManyRequests", message)
}

fn cluster(request: &Request) -> Response {
    match evicted(request) {
        Some("api") => return budget_refusal(),
        Some("virt-launcher-web") => return migrated(),
        Some("gone") => return status_response(404, "NotFound", "pods \"gone\" not found"),
        Some("cache" | "debug" | "virt-launcher-db") => return json_response(&json!({})),
        Some(other) => panic!("the eviction of {other} was requested"),
        None => {}
    }
    match request.uri().path() {
        PODS => {
            let query = request.uri().query().unwrap_or_default();
            assert!(
                query.contains("fieldSelector=spec.nodeName%3Dworker-3"),
                "{query}"
            );
            json_response(&pods())
        }
        _ => answer(&migration(), request),
    }
}

#[test]
fn the_impact_of_a_drain_has_operations_interruptions_and_blockers() {
    let (_runtime, address) = serve(cluster);
    let run = |args: &[&str]| execute(plugin(address).arg("impact").args(args));
    for node in ["worker-3", "node/worker-3"] {
        let output = run(&[node]);
        assert_eq!((output.code, &*output.stderr), (1, ""), "{}", output.stdout);
        let verdict = "Safe to drain worker-3: no. Pods block a drain: api in shop\n";
        assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
        assert_eq!(
            output.stdout.split_once("copies memory\n").map(|it| it.1),
            Some(
                "
A drain affects:
NAMESPACE   POD                 EFFECT
shop        api                 stays and blocks the drain: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget api needs 2 healthy pods and has 2 currently
shop        cache               evicted and created again by StatefulSet/cache
shop        debug               deleted and not created again, no controller
shop        virt-launcher-db    VirtualMachineInstance/db is shut down
shop        virt-launcher-web   VirtualMachineInstance/web is moved to another node
"
            ),
            "{}",
            output.stdout
        );
    }
    let json = run(&["worker-3", "-o", "json"]).json();
    assert_eq!(
        json["verdict"],
        json!({"safe": "False", "reasons": ["Pods block a drain: api in shop"]})
    );
    assert_eq!(json["operations"][0]["name"], "vm-2-migrating");
    assert_eq!(json["interrupted"][4]["effect"], "Migrated");
    assert_eq!(
        json["interrupted"][4]["controller"],
        "VirtualMachineInstance/web"
    );
    assert_eq!(json["blockers"][0]["name"], "api");
    assert_eq!(json["missing"], json!([]));
    let yaml = run(&["worker-3", "-o", "yaml"]).stdout;
    assert!(yaml.starts_with("node: worker-3\n"), "{yaml}");
    let unknown = run(&["worker-9"]);
    unknown.exits(2);
    assert_eq!(run(&["pod/a"]).code, 2);
}

/// Runs `impact` on a node with one Pod, whose eviction gets this answer. Other requests get the
/// answers of [`cluster`].
fn impact_of_one_pod(
    answer: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> CommandOutput {
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        path if path.ends_with("/eviction") => answer(),
        PODS => json_response(&json!({"items": [pod("api", "ReplicaSet/api")]})),
        _ => cluster(request),
    });
    execute(plugin(address).args(["impact", "worker-3"]))
}

#[test]
fn a_refused_eviction_blocks_a_drain_and_a_failed_one_is_a_missing_part() {
    let webhook = "admission webhook \"x.example.com\" denied the request: not now";
    let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let policy = "pods \"api\" is forbidden: ValidatingAdmissionPolicy 'ifo-eviction' with binding \
                  'ifo-eviction-deny' denied request: an operation is in flight";
    for (code, reason, message) in [
        (403, "Forbidden", policy),
        (422, "Invalid", policy),
        (403, "Forbidden", webhook),
        (429, "TooManyRequests", webhook),
        (500, "InternalError", several),
    ] {
        let output = impact_of_one_pod(move || status_response(code, reason, message));
        assert_eq!((output.code, &*output.stderr), (1, ""), "{message}");
        output.prints(message);
    }
    let right = "pods \"api\" is forbidden: User \"jane\" cannot create resource \"pods/eviction\"";
    for (code, message, missing) in [
        (403, right, "you may not create pods/eviction"),
        (429, "Too many requests", "Too many requests"),
        (500, "the storage is broken", "the storage is broken"),
    ] {
        let output = impact_of_one_pod(move || status_response(code, "x", message));
        assert_eq!(output.code, 3, "{}", output.stdout);
        output.says_first("missing: evictions: ");
        output.says(missing);
        output.prints("unknown, because the eviction failed");
    }
    let output = impact_of_one_pod(migrated);
    assert_eq!((output.code, &*output.stderr), (0, ""), "{}", output.stdout);
}

#[test]
fn a_missing_part_is_named_and_the_exit_code_is_3_unless_something_is_against_a_drain() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        PODS => status_response(403, "Forbidden", "no"),
        _ => cluster(request),
    });
    let output = execute(plugin(address).args(["impact", "worker-3"]));
    output.exits(3);
    assert_eq!(output.stderr, "missing: Pods: you may not list pods\n");
    let json = execute(plugin(address).args(["impact", "worker-3", "-o", "json"]));
    assert_eq!(json.code, 3);
    assert_eq!(json.json()["missing"][0]["part"], "Pods");

    // Without the API of the operations, the other parts are still shown.
    let (_runtime, address) = serve(|request| match request.uri().path() {
        path if path.contains("ifo.kubevirt.io") => {
            status_response(404, "NotFound", "404 page not found")
        }
        _ => cluster(request),
    });
    let output = execute(plugin(address).args(["impact", "worker-3"]));
    output.exits(1);
    output.prints(BUDGET);
    output.says_first("missing: operations: ");
}

/// Returns an operation on `worker-3` that began at the start of 2026.
fn on_node(kind: &str, name: &str, operation: &str, state: &str) -> Value {
    json!({
        "metadata": {"name": format!("{name}-{operation}"), "namespace": "ifo-system",
                     "uid": format!("{name}-{operation}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"operation": operation, "ruleSet": "r", "component": "c",
                 "subject": {"apiVersion": "v1", "kind": kind, "name": name}},
        "status": {"phase": "Active", "state": state, "reason": operation, "nodes": ["worker-3"]},
    })
}

/// Runs `impact` in a cluster with these operations, in which no Pod is on the node.
fn impact_with(operations: &[Value], args: &[&str]) -> CommandOutput {
    let operations = operations.to_vec();
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        path if path.ends_with("/pods") => json_response(&json!({"items": []})),
        "/api/v1/namespaces/shop" => json_response(&json!({})),
        _ => answer(&operations, request),
    });
    execute(plugin(address).args(["impact", "worker-3"]).args(args))
}

#[test]
fn a_volume_that_is_rebuilt_on_the_node_is_a_reason_against_a_drain() {
    let rebuilding = on_node("Volume", "pvc-1", "VolumeRebuilding", "Failing");
    let moving = on_node("Volume", "pvc-2", "Moving", "Progressing");
    let output = impact_with(&[rebuilding.clone(), moving.clone()], &[]);
    output.exits(1);
    let verdict = "Safe to drain worker-3: no. Operations do not progress: \
                   VolumeRebuilding of Volume/pvc-1 is Failing\n";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
    let mut waiting = on_node("Volume", "pvc-3", "Waiting", "Blocked");
    waiting["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
    let output = impact_with(&[waiting, rebuilding, moving], &[]);
    let verdict = "Safe to drain worker-3: no. Operations do not progress: \
                   Waiting of Volume/pvc-3 is Blocked, VolumeRebuilding of Volume/pvc-1 is Failing\n";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
}

#[test]
fn a_drain_is_safe_if_all_operations_on_the_node_progress() {
    // A cordon is the first step of a drain, so the verdict ignores the cordon of the node itself.
    let cordoned = on_node("Node", "worker-3", "Cordoned", "Held");
    let moving = on_node("Volume", "pvc-2", "Moving", "Progressing");
    let output = impact_with(&[cordoned, moving], &[]);
    assert_eq!((output.code, &*output.stderr), (0, ""), "{}", output.stdout);
    let verdict = "Safe to drain worker-3: yes\n";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
    for held in [
        on_node("Node", "worker-4", "Cordoned", "Held"),
        on_node("Deployment", "worker-3", "Rollout", "Held"),
    ] {
        let output = impact_with(&[held], &[]);
        assert_eq!(output.code, 1, "{}", output.stdout);
    }
}

#[test]
fn the_target_pod_of_a_running_migration_is_a_reason_against_a_drain() {
    let mut migrating = on_node(
        "VirtualMachineInstance",
        "web",
        "LiveMigrating",
        "Progressing",
    );
    migrating["status"]["instance"] = json!("m-1");
    for (uid, code) in [("m-1", 1), ("m-0", 0)] {
        let operations = vec![migrating.clone()];
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            PODS => {
                let mut target = pod("virt-launcher-web-2", "VirtualMachineInstance/web");
                target["metadata"]["labels"] = json!({"kubevirt.io/migrationJobUID": uid});
                json_response(&json!({"items": [target]}))
            }
            path if path.ends_with("/eviction") => json_response(&json!({})),
            _ => answer(&operations, request),
        });
        let output = execute(plugin(address).args(["impact", "worker-3"]));
        assert_eq!(
            (output.code, &*output.stderr),
            (code, ""),
            "{}",
            output.stdout
        );
        if code == 1 {
            output.prints("would fail: virt-launcher-web-2 in shop");
            output.prints("the migration of VirtualMachineInstance/web to this node fails");
        }
    }
}

#[test]
fn the_objects_of_one_namespace_cannot_show_that_a_drain_is_safe() {
    let output = impact_with(&[], &["-n", "shop"]);
    assert_eq!(output.code, 3, "{}", output.stdout);
    let verdict = "Safe to drain worker-3: unknown. \
                   Missing: other namespaces: only namespace shop was read\n";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
}
