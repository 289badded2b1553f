//! Test of `kubectl ifo impact` on a cluster: the kube-apiserver answers the dry-run evictions, and
//! evicts nothing.

use crate::harness::{Kind, TestCluster, eventually, ok_if, shared};
use crate::plugin::run;
use serde_json::{Value, json};

const NODE: Kind = Kind {
    api_version: "v1",
    kind: "Node",
    plural: "nodes",
};

const POD: Kind = Kind {
    api_version: "v1",
    kind: "Pod",
    plural: "pods",
};

const BUDGET: Kind = Kind {
    api_version: "policy/v1",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
};

/// Creates a node with two running Pods. A disruption budget allows no disruption of the Pod
/// `guarded`. Returns the namespace, which is also the name of the node.
async fn prepare(cluster: &TestCluster) -> &'static str {
    let namespace = cluster.namespace("impact").await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}});
    cluster.create(&NODE, None, &node).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
    });
    cluster.create(&BUDGET, Some(namespace), &budget).await;
    let pods = POD.path(Some(namespace));
    for name in ["guarded", "free"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": namespace,
                "containers": [{"name": "web", "image": "example.com/web:1"}],
            },
        });
        eventually("the service account exists", async || {
            let answer = cluster.admin.post(&pods, &pod).await;
            ok_if(answer.code == 201, answer)
        })
        .await;
        // No kubelet runs. A budget has no effect on a Pod that is not running.
        let running = json!({"status": {"phase": "Running"}});
        let path = format!("{pods}/{name}/status");
        cluster.admin.merge(&path, &running).await.ok();
    }
    namespace
}

#[test]
fn the_answers_to_dry_run_evictions_are_shown_and_no_pod_is_evicted() {
    shared(async |cluster| {
        let namespace = prepare(cluster).await;
        let said = run(cluster, &["impact", namespace, "-o", "json"]).await;
        assert_eq!(said.code, 1, "{}", said.err);
        let impact = said.json();
        let effect = |name: &str| {
            let mut pods = impact["interrupted"].as_array().expect("a list").iter();
            pods.find(|it| it["name"] == name).map(|it| &it["effect"])
        };
        assert_eq!(effect("guarded"), Some(&json!("Stays")), "{impact}");
        assert_eq!(effect("free"), Some(&json!("Deleted")), "{impact}");
        let blocker = &impact["blockers"][0];
        assert_eq!(blocker["name"], "guarded", "{impact}");
        let message = blocker["message"].as_str().unwrap_or_default();
        assert!(message.contains("disruption budget"), "{impact}");
        assert_eq!(impact["blockers"][1], Value::Null, "{impact}");

        let pods = cluster.admin.get(&POD.path(Some(namespace))).await.ok();
        let pods = pods["items"].as_array().expect("a list").clone();
        let is_deleted = |it: &Value| it["metadata"].get("deletionTimestamp").is_some();
        assert!(pods.len() == 2 && !pods.iter().any(is_deleted), "{pods:?}");

        // A user who may only read gets no answer to an eviction.
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        eventually("the user may list Pods", async || {
            let said = run(
                cluster,
                &["impact", namespace, "-n", namespace, "--as", &user],
            )
            .await;
            let missing = "missing: evictions: you may not create pods/eviction";
            ok_if(said.code == 3 && said.err.contains(missing), &said.err)
        })
        .await;
    });
}
