//! Tests of activities: the objects that tell whether a namespace, a node, a component or the
//! cluster is idle. The gates in `deploy/gates` are admission policies that read them.

use crate::harness::{
    Kind, RULE_SET, TestCluster, alone, condition, eventually, migrating, ok_if, text,
};
use serde_json::{Value, json};

const ACTIVITY: Kind = Kind {
    api_version: "live.ifo.kubevirt.io/v1alpha1",
    kind: "Activity",
    plural: "activities",
};

/// Waits until the condition `Idle` of an activity has this status, and returns the activity.
async fn until_idle(cluster: &TestCluster, namespace: &str, name: &str, status: &str) -> Value {
    let path = format!("{}/{name}", ACTIVITY.path(Some(namespace)));
    eventually(&format!("{namespace}/{name} Idle={status}"), async || {
        let answer = cluster.admin.get(&path).await;
        ok_if(answer.code == 200, &answer)?;
        let activity = answer.ok();
        ok_if(condition(&activity, "Idle")["status"] == status, &activity)?;
        Ok(activity)
    })
    .await
}

/// Runs a test while no other test uses the cluster, and without the rule sets of earlier tests. A
/// broken rule set would make the activities unknown.
fn without_other_rule_sets(test: impl AsyncFnOnce(&'static TestCluster)) {
    alone(async |cluster| {
        cluster.admin.delete(&RULE_SET.path(None)).await.ok();
        test(cluster).await;
        cluster.admin.delete(&RULE_SET.path(None)).await.ok();
    });
}

/// Creates a namespace and a ready rule set that watches only this namespace. The component of the
/// rule set has the name of the namespace.
async fn namespace_with_rule_set(cluster: &TestCluster, prefix: &str) -> &'static str {
    let namespace = cluster.namespace(prefix).await;
    let mut rules = migrating(namespace);
    rules["spec"]["component"] = json!(namespace);
    rules["spec"]["nodes"] = json!("[object.metadata.name]");
    cluster.ready_rule_set(&rules).await;
    namespace
}

#[test]
fn an_activity_is_idle_exactly_while_nothing_is_in_flight() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "activity").await;
        until_idle(cluster, namespace, "namespace", "True").await;
        let component = format!("component.{namespace}");
        until_idle(cluster, "ifo-system", &component, "True").await;
        let wait = |condition: &str| {
            let condition = format!("--for=condition={condition}");
            let activity = format!("act/{component}");
            async move {
                let timeout = "--timeout=60s";
                cluster
                    .kubectl(&["wait", &condition, &activity, "-n", "ifo-system", timeout])
                    .await
            }
        };
        wait("Idle").await.expect("the component is idle");

        cluster.machine(namespace, "a", "Migrating").await;
        wait("Idle=false").await.expect("the component is busy");
        let busy = until_idle(cluster, namespace, "namespace", "False").await;
        assert_eq!(condition(&busy, "Idle")["reason"], "OperationsInFlight");
        assert_eq!(busy["status"]["operations"], 1);
        let [operation] = &*cluster.operations(namespace).await else {
            panic!("there is one operation");
        };
        assert_eq!(
            busy["status"]["oldest"]["name"],
            operation["metadata"]["name"]
        );
        let message = text(condition(&busy, "Idle"), "/message");
        assert!(message.contains("VirtualMachine/a Migrating"), "{message}");
        until_idle(cluster, "ifo-system", "cluster", "False").await;
        until_idle(cluster, "ifo-system", "node.a", "False").await;
        let table = cluster.kubectl(&["get", "act", "-n", namespace]).await;
        let table = table.expect("kubectl lists activities");
        assert!(
            table.contains("OPERATIONS") && table.contains("False"),
            "{table}"
        );

        cluster.set_status(namespace, "a", "Running").await;
        wait("Idle").await.expect("the component is idle again");
        until_idle(cluster, namespace, "namespace", "True").await;
        // No node has the name `a`, so its activity exists only while it is busy.
        let node = format!("{}/node.a", ACTIVITY.path(Some("ifo-system")));
        assert_eq!(cluster.admin.get(&node).await.code, 404);
    });
}

#[test]
fn an_activity_is_unknown_while_a_rule_fails() {
    without_other_rule_sets(async |cluster| {
        let namespace = cluster.namespace("activity-unknown").await;
        let mut rules = migrating(namespace);
        rules["spec"]["component"] = json!(namespace);
        rules["spec"]["rules"][0]["expression"] = json!("object.status.printableStatus > 5");
        cluster.ready_rule_set(&rules).await;
        until_idle(cluster, namespace, "namespace", "True").await;
        cluster.machine(namespace, "a", "Stopped").await;
        let unknown = until_idle(cluster, namespace, "namespace", "Unknown").await;
        assert_eq!(condition(&unknown, "Idle")["reason"], "RuleSetsNotWorking");
        let component = format!("component.{namespace}");
        until_idle(cluster, "ifo-system", &component, "Unknown").await;
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        let repaired = json!({"spec": {"rules": migrating(namespace)["spec"]["rules"]}});
        cluster.admin.merge(&path, &repaired).await.ok();
        until_idle(cluster, namespace, "namespace", "True").await;
    });
}

/// Applies the files of a gate: the policy, and the binding that refuses requests.
async fn apply_gate(cluster: &TestCluster, gate: &str) -> [String; 2] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/gates");
    let files = ["", "-deny"].map(|suffix| format!("{folder}/{gate}{suffix}.yaml"));
    for file in &files {
        let applied = cluster.kubectl(&["apply", "-f", file]).await;
        applied.expect("the gate is valid");
    }
    files
}

async fn delete_gate(cluster: &TestCluster, files: &[String]) {
    for file in files {
        let deleted = cluster.kubectl(&["delete", "-f", file]).await;
        deleted.expect("the gate exists");
    }
}

#[test]
fn the_eviction_gate_refuses_evictions_while_the_namespace_is_busy_or_unknown() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gate-eviction").await;
        let files = apply_gate(cluster, "eviction").await;
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "none"}], "nodeName": "none"},
        });
        eventually("a Pod is created", async || {
            let answer = cluster.admin.post(&pods, &pod).await;
            ok_if(answer.code == 201, answer)
        })
        .await;
        let evict = async || {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
            });
            let path = format!("{pods}/p/eviction?dryRun=All");
            let answer = cluster.admin.post(&path, &eviction).await;
            (answer.code, format!("{answer:?}"))
        };
        cluster.machine(namespace, "a", "Migrating").await;
        let (_, refused) = eventually("an eviction is refused", async || {
            let (code, text) = evict().await;
            ok_if(text.contains("OperationsInFlight"), &text)?;
            Ok((code, text))
        })
        .await;
        assert!(refused.contains("VirtualMachine/a Migrating"), "{refused}");

        cluster.set_status(namespace, "a", "Running").await;
        eventually("an eviction is admitted", async || {
            let (code, text) = evict().await;
            ok_if(code == 201, &text)
        })
        .await;

        // A rule that fails makes the activity unknown, which is refused as well.
        let path = format!("{}/{namespace}", RULE_SET.path(None));
        let failing = json!({"spec": {"rules": [
            {"operation": "Migrating", "expression": "object.status.printableStatus > 5"},
        ]}});
        cluster.admin.merge(&path, &failing).await.ok();
        eventually("an unknown activity is refused", async || {
            let (_, text) = evict().await;
            ok_if(text.contains("RuleSetsNotWorking"), &text)
        })
        .await;
        delete_gate(cluster, &files).await;
        eventually("without the gate, an eviction is admitted", async || {
            let (code, text) = evict().await;
            ok_if(code == 201, &text)
        })
        .await;
    });
}

#[test]
fn the_other_gates_refuse_while_something_is_in_flight() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "gates").await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gated"}});
        cluster.admin.post("/api/v1/nodes", &node).await.ok();
        until_idle(cluster, "ifo-system", "node.gated", "True").await;
        let mut files = Vec::new();
        for gate in ["cordon", "namespace-deletion", "start", "cluster-upgrade"] {
            files.extend(apply_gate(cluster, gate).await);
        }
        let cordon = async |is_cordoned: bool| {
            let patch = json!({"spec": {"unschedulable": is_cordoned}});
            let answer = cluster.admin.merge("/api/v1/nodes/gated", &patch).await;
            (answer.code, format!("{answer:?}"))
        };
        let namespace_path = format!("/api/v1/namespaces/{namespace}?dryRun=All");

        // The rule set takes the name of the VirtualMachine as the name of the node.
        cluster.machine(namespace, "gated", "Migrating").await;
        until_idle(cluster, "ifo-system", "node.gated", "False").await;
        eventually("cordon is refused", async || {
            let (code, text) = cordon(true).await;
            if code == 200 {
                cordon(false).await;
            }
            let is_refused = text.contains("node gated is not idle (OperationsInFlight)");
            ok_if(is_refused, &text)
        })
        .await;
        eventually("the deletion of the namespace is refused", async || {
            let answer = cluster.admin.delete(&namespace_path).await;
            let text = format!("{answer:?}");
            ok_if(text.contains("is not idle (OperationsInFlight)"), &text)
        })
        .await;

        cluster.set_status(namespace, "gated", "Running").await;
        eventually("cordon is admitted", async || {
            let (code, text) = cordon(true).await;
            ok_if(code == 200, &text)
        })
        .await;
        eventually("the deletion of the namespace is admitted", async || {
            let answer = cluster.admin.delete(&namespace_path).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
        delete_gate(cluster, &files).await;
        cluster.admin.delete("/api/v1/nodes/gated").await.ok();
    });
}
