//! Tests of `kubectl ifo impact` with a fake API server. `impact` shows the operations on a node,
//! and the objects that a drain of the node affects.

use super::CommandOutput;
use super::pieces_of_work::{answer, migration};
use super::tests_with_fake_apiserver::{execute, json_response, plugin, serve, status_response};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";
const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";

fn cluster(request: &Request) -> Response {
    match request.uri().path() {
        "/api/v1/pods" => {
            let query = request.uri().query().unwrap_or_default();
            assert!(
                query.contains("fieldSelector=spec.nodeName%3Dworker-3"),
                "{query}"
            );
            json_response(&json!({"items": [
                {"metadata": {"name": "api", "namespace": "shop", "labels": {"app": "api"}, "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api", "uid": "u", "controller": true}]},
                 "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
                {"metadata": {"name": "debug", "namespace": "shop"}, "status": {"phase": "Running"}},
            ]}))
        }
        BUDGETS => json_response(&json!({"items": [{
            "metadata": {"name": "api", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "api"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2},
        }]})),
        MACHINES => json_response(&json!({"items": [
            {"metadata": {"name": "web", "namespace": "shop"}, "spec": {},
             "status": {"nodeName": "worker-3", "phase": "Running",
                        "conditions": [{"type": "LiveMigratable", "status": "True"}]}},
        ]})),
        "/apis/kubevirt.io/v1/kubevirts" => json_response(&json!({"items": [
            {"spec": {"configuration": {"evictionStrategy": "LiveMigrate"}}},
        ]})),
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
        let verdict = "Safe to drain worker-3: no. 1 object blocks a drain: PodDisruptionBudget/api in shop\n";
        assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
        assert_eq!(
            output.stdout.split_once("copies memory\n").map(|it| it.1),
            Some(
                "
A drain affects:
NAMESPACE   OBJECT                       EFFECT
shop        VirtualMachineInstance/web   migrated to another node (evictionStrategy LiveMigrate)
shop        Pod/api                      evicted and created again by ReplicaSet/api
shop        Pod/debug                    deleted and not created again, because it has no controller

These objects block a drain:
NAMESPACE   OBJECT                    REASON
shop        PodDisruptionBudget/api   disruptionsAllowed is 0 (healthy Pods: 2, required: 2); selects shop/api

kubectl drain refuses to start without these flags:
FLAG      PODS         REASON
--force   shop/debug   Pods without a controller are not created again
"
            ),
            "{}",
            output.stdout
        );
    }
    let json = run(&["worker-3", "-o", "json"]).json();
    assert_eq!(
        json["verdict"],
        json!({
            "safe": "False",
            "reasons": ["1 object blocks a drain: PodDisruptionBudget/api in shop"],
        })
    );
    assert_eq!(json["operations"][0]["name"], "vm-2-migrating");
    assert_eq!(json["interrupted"][0]["effect"], "Migrated");
    assert_eq!(json["blockers"][1]["flag"], "--force");
    assert_eq!(json["missing"], json!([]));
    let yaml = run(&["worker-3", "-o", "yaml"]).stdout;
    assert!(yaml.starts_with("node: worker-3\n"), "{yaml}");
    let unknown = run(&["worker-9"]);
    assert_eq!(unknown.code, 2, "{}", unknown.stderr);
    assert_eq!(run(&["pod/a"]).code, 2);
}

#[test]
fn in_a_cluster_without_kubevirt_the_answer_is_complete() {
    // To a user without rights, the kube-apiserver answers 403 even if it does not serve the
    // resource. After a 403, the plugin reads discovery to find out whether the resource exists.
    for list in [404, 403] {
        for discovery in [404, 200] {
            let (_runtime, address) = serve(move |request| match request.uri().path() {
                MACHINES if list == 404 => status_response(404, "NotFound", "404 page not found"),
                MACHINES => status_response(403, "Forbidden", "no"),
                "/apis/kubevirt.io/v1" if discovery == 404 => {
                    status_response(404, "NotFound", "404 page not found")
                }
                "/apis/kubevirt.io/v1" => json_response(&json!({
                    "kind": "APIResourceList", "groupVersion": "kubevirt.io/v1", "resources": [],
                })),
                _ => cluster(request),
            });
            let output = execute(plugin(address).args(["impact", "worker-3"]));
            assert_eq!(
                (output.code, &*output.stderr),
                (1, ""),
                "{list} {discovery}"
            );
            assert!(output.stdout.contains("Pod/api"), "{}", output.stdout);
            let json = execute(plugin(address).args(["impact", "worker-3", "-o", "json"])).json();
            assert_eq!(json["missing"], json!([]), "{list} {discovery}");
        }
    }
}

#[test]
fn virtual_machines_that_may_not_be_read_are_a_missing_part() {
    let discovered = |names: &[&str]| {
        let resources = names.iter();
        let resources = resources.map(|name| {
            json!({"name": name, "singularName": "", "namespaced": true, "kind": "X", "verbs": ["list"]})
        });
        json!({
            "kind": "APIResourceList", "groupVersion": "kubevirt.io/v1",
            "resources": resources.collect::<Vec<_>>(),
        })
    };
    let served = discovered(&["virtualmachineinstances"]);
    let unreadable = || status_response(500, "InternalError", "no");
    for is_discovered in [true, false] {
        let served = served.clone();
        let (_runtime, address) = serve(move |request| match request.uri().path() {
            MACHINES => status_response(403, "Forbidden", "no"),
            BUDGETS => json_response(&json!({"items": []})),
            "/apis/kubevirt.io/v1" if is_discovered => json_response(&served),
            "/apis/kubevirt.io/v1" => unreadable(),
            _ => cluster(request),
        });
        let output = execute(plugin(address).args(["impact", "worker-3"]));
        assert_eq!(output.code, 3, "{}", output.stdout);
        assert_eq!(
            output.stderr,
            "missing: VirtualMachineInstances: you may not list virtualmachineinstances.kubevirt.io\n"
        );
    }
}

#[test]
fn a_missing_part_is_named_and_the_exit_code_is_3_unless_something_is_against_a_drain() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        BUDGETS => status_response(403, "Forbidden", "no"),
        MACHINES => status_response(500, "InternalError", "the storage is broken"),
        _ => cluster(request),
    });
    let output = execute(plugin(address).args(["impact", "worker-3"]));
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(
        output
            .stdout
            .contains("unknown, because a part could not be read"),
        "{}",
        output.stdout
    );
    assert_eq!(
        output.stderr,
        "missing: PodDisruptionBudgets: you may not list poddisruptionbudgets.policy\n\
         missing: VirtualMachineInstances: the storage is broken\n"
    );
    let json = execute(plugin(address).args(["impact", "worker-3", "-o", "json"]));
    assert_eq!(json.code, 3);
    assert_eq!(json.json()["missing"][0]["part"], "PodDisruptionBudgets");

    // Without the API of the operations, the other parts are still shown.
    let (_runtime, address) = serve(|request| match request.uri().path() {
        path if path.contains("ifo.kubevirt.io") => {
            status_response(404, "NotFound", "404 page not found")
        }
        _ => cluster(request),
    });
    let output = execute(plugin(address).args(["impact", "worker-3"]));
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(
        output.stdout.contains("PodDisruptionBudget/api"),
        "{}",
        output.stdout
    );
    assert!(
        output.stderr.starts_with("missing: operations: "),
        "{}",
        output.stderr
    );
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

/// Runs `impact` in a cluster with these operations, in which no object blocks a drain.
fn impact_with(operations: &[Value], args: &[&str]) -> CommandOutput {
    let operations = operations.to_vec();
    let lists = ["/pods", "/poddisruptionbudgets", "/virtualmachineinstances"];
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        path if lists.iter().any(|it| path.ends_with(it)) => json_response(&json!({"items": []})),
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
    assert_eq!(output.code, 1, "{}", output.stderr);
    let verdict = "Safe to drain worker-3: no. 1 operation on the node is not Progressing: \
                   VolumeRebuilding of Volume/pvc-1 (Failing) ";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
    let mut waiting = on_node("Volume", "pvc-3", "Waiting", "Blocked");
    waiting["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:01Z");
    let output = impact_with(&[waiting, rebuilding, moving], &[]);
    let verdict = "Safe to drain worker-3: no. 2 operations on the node are not Progressing, \
                   the oldest is VolumeRebuilding of Volume/pvc-1 (Failing) ";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
}

#[test]
fn a_drain_is_safe_if_all_operations_on_the_node_progress() {
    // A cordon is the first step of a drain, so the verdict ignores the cordon of the node itself.
    let cordoned = on_node("Node", "worker-3", "Cordoned", "Held");
    let moving = on_node("Volume", "pvc-2", "Moving", "Progressing");
    let output = impact_with(&[cordoned, moving], &[]);
    assert_eq!((output.code, &*output.stderr), (0, ""), "{}", output.stdout);
    let verdict = "Safe to drain worker-3: yes. No operation on the node is in trouble, \
                   and no object blocks a drain\n";
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
fn the_objects_of_one_namespace_cannot_show_that_a_drain_is_safe() {
    let output = impact_with(&[], &["-n", "shop"]);
    assert_eq!(output.code, 3, "{}", output.stdout);
    let verdict = "Safe to drain worker-3: unknown. Only namespace shop was read\n";
    assert!(output.stdout.starts_with(verdict), "{}", output.stdout);
}
