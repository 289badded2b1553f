//! Test of two rollouts and a scale of a Deployment by the real controllers in
//! kube-controller-manager. The shipped rules must detect the start and the end of each rollout and
//! of the scale.

use crate::harness::{Kind, TestCluster, eventually, shared, text};
use serde_json::{Value, json};

const DEPLOYMENT: Kind = Kind {
    api_version: "apps/v1",
    kind: "Deployment",
    plural: "deployments",
};

#[test]
fn rollouts_and_a_scale_by_the_deployment_controller_appear_and_complete() {
    shared(async |cluster| {
        let namespace = cluster.namespace("rollout").await;
        let rules = cluster.shipped("rules", &DEPLOYMENT, namespace).await;
        cluster.ready_rule_set(&rules).await;

        let deployments = DEPLOYMENT.path(Some(namespace));
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
                },
            },
        });
        cluster.admin.post(&deployments, &deployment).await.ok();
        let first = in_flight(cluster, namespace, "Rollout").await;
        assert_eq!(first["spec"]["subject"]["kind"], "Deployment");
        complete(cluster, namespace).await;

        let image = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "web", "image": "example.com/web:2"},
        ]}}}});
        let path = format!("{deployments}/web");
        cluster.admin.merge(&path, &image).await.ok();
        let second = in_flight(cluster, namespace, "Rollout").await;
        assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
        assert_eq!(
            second["spec"]["subject"]["uid"],
            first["spec"]["subject"]["uid"]
        );
        complete(cluster, namespace).await;

        let scaled = json!({"spec": {"replicas": 3}});
        cluster.admin.merge(&path, &scaled).await.ok();
        in_flight(cluster, namespace, "Scaling").await;
        complete(cluster, namespace).await;
    });
}

/// Waits until the server lists an operation of this name, such as `Rollout`, and returns it.
async fn in_flight(cluster: &TestCluster, namespace: &str, operation: &str) -> Value {
    eventually(&format!("{operation} in {namespace}"), async || {
        let all = cluster.operations(namespace).await;
        let found = all
            .iter()
            .find(|it| text(it, "/spec/operation") == operation);
        found.cloned().ok_or(format!("{all:?}"))
    })
    .await
}

/// Does the work of the kubelets, because the cluster has no nodes: sets new Pods to ready, and
/// removes Pods that are being deleted. Repeats this until no operation in the namespace is left.
async fn complete(cluster: &TestCluster, namespace: &str) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let ready = json!({"status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ],
    }});
    eventually("the operation completes", async || {
        let list = cluster.admin.get(&pods).await.ok();
        for pod in list["items"].as_array().into_iter().flatten() {
            let name = text(pod, "/metadata/name");
            if pod["metadata"].get("deletionTimestamp").is_some() {
                let now = json!({"gracePeriodSeconds": 0});
                let path = format!("{pods}/{name}");
                let kind = "application/json";
                let sent = cluster
                    .admin
                    .send(http::Method::DELETE, &path, kind, now.to_string());
                // The Pod may already be deleted, so a failure is ignored.
                sent.await;
            } else if text(pod, "/status/phase") != "Running" {
                let path = format!("{pods}/{name}/status");
                // The Pod may already be deleted and replaced by another Pod, so a failure is
                // ignored.
                cluster.admin.merge(&path, &ready).await;
            }
        }
        let left = cluster.operations(namespace).await;
        crate::harness::ok_if(left.is_empty(), &left)
    })
    .await;
}
