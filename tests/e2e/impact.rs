//! Test of `kubectl ifo impact` on a cluster: the kube-apiserver answers the dry-run evictions, and
//! evicts nothing.

use crate::harness::{Kind, NODE, POD, eventually, items, ok_if, shared};
use crate::plugin::run;
use serde_json::{Value, json};

const BUDGET: Kind = Kind::new("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");

#[test]
fn the_answers_to_dry_run_evictions_are_shown_and_no_pod_is_evicted() {
    shared(async |cluster| {
        // The namespace is also the name of the node. The budget allows no disruption of `guarded`.
        let namespace = cluster.new_namespace("impact").await;
        cluster
            .create(&NODE, None, &NODE.object(namespace, json!({})))
            .await;
        let selector = json!({"matchLabels": {"app": "guarded"}});
        let budget = json!({"spec": {"maxUnavailable": 0, "selector": selector}});
        let budget = BUDGET.object("budget", budget);
        cluster.create(&BUDGET, Some(namespace), &budget).await;
        for name in ["guarded", "free"] {
            let containers = json!([{"name": "web", "image": "example.com/web:1"}]);
            let pod = POD.object(
                name,
                json!({
                    "metadata": {"labels": {"app": name}},
                    "spec": {"nodeName": namespace, "containers": containers},
                }),
            );
            let pods = POD.path(Some(namespace));
            cluster.admin.create_when_served(&pods, &pod).await;
            // No kubelet runs. A budget has no effect on a Pod that is not running.
            let running = json!({"status": {"phase": "Running"}});
            let path = format!("{pods}/{name}/status");
            cluster.admin.merge(&path, &running).await.ok();
        }

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
        let is_deleted = |it: &Value| it["metadata"].get("deletionTimestamp").is_some();
        assert!(items(&pods).len() == 2 && !items(&pods).iter().any(is_deleted));

        // A user who may only read gets no answer to an eviction.
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        eventually("the user may list Pods", async || {
            let args = ["impact", namespace, "-n", namespace, "--as", &user];
            let said = run(cluster, &args).await;
            let missing = "missing: evictions: you may not create pods/eviction";
            ok_if(said.code == 3 && said.err.contains(missing), &said.err)
        })
        .await;
    });
}
