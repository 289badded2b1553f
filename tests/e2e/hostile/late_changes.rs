//! The server evaluates the changes of a target too late. Operations can then be missing, so lists
//! must have a warning, and `kubectl ifo wait` must not succeed.

use super::too_many_operations::{
    attack, create_objects, rule_for_parts, until_ready, until_too_many,
};
use crate::harness::{CRD, Kind, TestCluster, alone, crd, eventually, migrating, ok_if};
use crate::many_targets::allow;
use crate::plugin::run;
use serde_json::{Value, json};

const GROUP: &str = "late.e2e.example.com";

const LATE: Kind = Kind {
    api_version: "late.e2e.example.com/v1",
    kind: "Late",
    plural: "lates",
};

const FLOW_SCHEMA: Kind = Kind {
    api_version: "flowcontrol.apiserver.k8s.io/v1",
    kind: "FlowSchema",
    plural: "flowschemas",
};

const PRIORITY_LEVEL: Kind = Kind {
    api_version: "flowcontrol.apiserver.k8s.io/v1",
    kind: "PriorityLevelConfiguration",
    plural: "prioritylevelconfigurations",
};

/// The name of the FlowSchema and of its priority level.
const BLOCKED: &str = "e2e-late-changes";

/// Makes the kube-apiserver hold the server's requests for the target. A watch that has begun
/// continues. The kube-apiserver refuses a request that it has held for about 15 seconds.
async fn hold_requests(cluster: &TestCluster) {
    let flow = json!({
        "apiVersion": FLOW_SCHEMA.api_version, "kind": FLOW_SCHEMA.kind,
        "metadata": {"name": BLOCKED},
        "spec": {
            "matchingPrecedence": 10,
            "priorityLevelConfiguration": {"name": BLOCKED},
            "rules": [{
                "subjects": [{
                    "kind": "ServiceAccount",
                    "serviceAccount": {"namespace": "ifo-system", "name": "ifo-apiserver"},
                }],
                "resourceRules": [{
                    "verbs": ["list", "watch"], "apiGroups": [GROUP], "resources": ["*"],
                    "namespaces": ["*"], "clusterScope": true,
                }],
            }],
        },
    });
    cluster.create(&FLOW_SCHEMA, None, &flow).await;
    let path = format!("{}/{BLOCKED}", FLOW_SCHEMA.path(None));
    eventually("the kube-apiserver uses the FlowSchema", async || {
        let flow = cluster.admin.get(&path).await.ok();
        let conditions = flow["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let is_used = conditions.any(|it| it["type"] == "Dangling" && it["status"] == "False");
        ok_if(is_used, flow)
    })
    .await;
}

/// Reverts [`hold_requests`].
async fn release_requests(cluster: &TestCluster) {
    let path = format!("{}/{BLOCKED}", FLOW_SCHEMA.path(None));
    cluster.admin.delete(&path).await.ok();
}

/// Sets the number of elements, and thus of operations, of the object.
async fn set_parts(cluster: &TestCluster, namespace: &str, count: usize) {
    let parts: Vec<String> = (0..count).map(|number| format!("part-{number}")).collect();
    let path = format!("{}/late-0", LATE.path(Some(namespace)));
    cluster
        .admin
        .merge(&path, &json!({"parts": parts}))
        .await
        .ok();
}

/// Makes the server list the target again while the kube-apiserver holds this list. Returns true if
/// the list of operations has the warning that the rule set is behind. Returns false if the
/// kube-apiserver has refused the held request before the test saw the warning.
async fn is_reported_as_behind(cluster: &TestCluster, namespace: &str) -> bool {
    // There is room for more operations after a bound was reached. So the server lists the target.
    set_parts(cluster, namespace, 300).await;
    until_too_many(cluster, namespace).await;
    hold_requests(cluster).await;
    set_parts(cluster, namespace, 0).await;
    let is_behind = eventually("the rule set is behind, or its watch fails", async || {
        let list = run(cluster, &["list", "-n", namespace]).await;
        let says = |reason: &str| list.err.contains(&format!("{namespace} ({reason}"));
        let is_behind = says("is behind by more than 5 s");
        let is_over = is_behind || says("target cannot be watched");
        ok_if(is_over, &list.err).map(|()| is_behind)
    })
    .await;
    if is_behind {
        let wait = ["wait", "-c", namespace, "-n", namespace, "--timeout=0"];
        let said = run(cluster, &wait).await;
        assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    }
    is_behind
}

#[test]
fn a_target_whose_changes_wait_is_reported_as_incomplete() {
    alone(async |cluster| {
        let namespace = cluster.namespace("late").await;
        let good = cluster.namespace("beside-late").await;
        cluster.ready_rule_set(&migrating(good)).await;
        allow(cluster, BLOCKED, GROUP).await;
        cluster.apply(&[crd(&LATE, "Namespaced")]).await;
        eventually("the target is served", async || {
            let answer = cluster.admin.get(&LATE.path(Some(namespace))).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
        let level = json!({
            "apiVersion": PRIORITY_LEVEL.api_version, "kind": PRIORITY_LEVEL.kind,
            "metadata": {"name": BLOCKED},
            "spec": {"type": "Limited", "limited": {
                "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0,
                "limitResponse": {
                    "type": "Queue",
                    "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 50},
                },
            }},
        });
        cluster.create(&PRIORITY_LEVEL, None, &level).await;
        create_objects(cluster, (&LATE, namespace), "late", 1, 0).await;
        let rules: Vec<Value> = vec![rule_for_parts("Late", "")];
        attack(cluster, namespace, namespace, &LATE, rules).await;
        until_ready(cluster, namespace).await;

        let mut is_reported = false;
        for _ in 0..5 {
            is_reported = is_reported_as_behind(cluster, namespace).await;
            if is_reported {
                // The rule sets of other targets are not affected.
                let said = run(cluster, &["wait", "-n", good, "--timeout=3m"]).await;
                assert_eq!(said.code, 0, "{}{}", said.out, said.err);
            }
            release_requests(cluster).await;
            until_ready(cluster, namespace).await;
            if is_reported {
                break;
            }
        }
        assert!(is_reported, "the server must report that it is behind");
        // The server can write the condition of the rule set before the index has the end of its gap.
        eventually("the rule set is not behind", async || {
            let list = run(cluster, &["list", "-n", namespace]).await;
            ok_if(list.code == 0 && !list.err.contains(namespace), list.err)
        })
        .await;

        for path in [
            format!("{}/{}.{GROUP}", CRD.path(None), LATE.plural),
            format!("{}/{BLOCKED}", PRIORITY_LEVEL.path(None)),
        ] {
            cluster.admin.delete(&path).await.ok();
        }
    });
}
