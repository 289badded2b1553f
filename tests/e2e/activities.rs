//! Tests of activities: the objects that tell whether a namespace, a node, a component or the
//! cluster is idle.

mod gates;

use crate::harness::{
    ACTIVITY, Caller, Cluster, POD, RULE_SET, TestCluster, alone, condition, eventually, is,
    migrating, ok_if, text,
};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

/// Waits until the condition `Idle` of an activity has this status, and returns the activity.
async fn until_idle(cluster: &Cluster, namespace: &str, name: &str, status: &str) -> Value {
    let path = ACTIVITY.one(Some(namespace), name);
    let what = format!("Idle={status}");
    cluster
        .admin
        .until_object(&what, &path, |it| is(it, "Idle", status))
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
/// rule set has the name of the namespace. The node of an operation has the name of its subject.
async fn namespace_with_rule_set(cluster: &Cluster, prefix: &str) -> &'static str {
    let namespace = cluster.new_namespace(prefix).await;
    let mut rules = migrating(namespace);
    rules["spec"]["component"] = json!(namespace);
    rules["spec"]["nodes"] = json!("[object.metadata.name]");
    cluster.ready_rule_set(&rules).await;
    namespace
}

/// Replaces the expression of the rule by one that fails on each VirtualMachine with a status.
async fn break_rule_set(cluster: &Cluster, name: &str) {
    let failing = json!({"spec": {"rules": [
        {"operation": "Migrating", "expression": "object.status.printableStatus > 5"},
    ]}});
    let path = RULE_SET.one(None, name);
    cluster.admin.merge(&path, &failing).await.ok();
}

/// A rule set that does not work can hide operations. The user may read operations, but not rule sets.
#[test]
fn while_a_rule_fails_lists_have_a_warning_and_nothing_is_idle() {
    without_other_rule_sets(async |cluster| {
        let namespace = namespace_with_rule_set(cluster, "incomplete").await;
        break_rule_set(cluster, namespace).await;
        let user = format!("{namespace}-user");
        cluster.grant_view(namespace, &user).await;
        until_idle(cluster, namespace, "namespace", "True").await;

        cluster.machine(namespace, "a", "Stopped").await;
        let failing = cluster
            .until_rule_set(namespace, "Ready", "EvaluationFailed")
            .await;
        let message = text(condition(&failing, "Ready"), "/message");
        assert!(
            message.contains("rules[Migrating].expression") && !message.contains("Stopped"),
            "the message has the place, but no value of the object: {message}"
        );
        let unknown = until_idle(cluster, namespace, "namespace", "Unknown").await;
        assert!(is(&unknown, "Idle", "RuleSetsNotWorking"), "{unknown}");
        let warning = async |options: &str| {
            let line = format!("get ifos -n {namespace}{options}");
            let output = cluster.kubectl_output(&line, String::new()).await;
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let place = format!("{namespace} (evaluation fails on 1 object)");
        let printed = warning("").await;
        assert!(
            printed.contains("Warning: ") && printed.contains(&place),
            "{printed}"
        );
        let printed = warning(&format!(" --as {user}")).await;
        assert!(
            printed.contains("not working, operations may be missing") && !printed.contains(" ("),
            "{printed}"
        );
    });
}

/// Runs `kubectl apply` or `kubectl delete` for files of `deploy/gates`.
async fn gates(cluster: &Cluster, verb: &str, files: &[&str]) {
    for file in files {
        let line = format!("{verb} -f deploy/gates/{file}.yaml");
        cluster.kubectl(&line).await;
    }
}

/// Tries to evict the Pod `p` in a dry run. Returns the status code and the answer. The status code is
/// 0 if the kube-apiserver does not answer.
pub async fn evict(caller: &Caller, namespace: &str) -> (u16, String) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
    });
    let path = format!("{}/eviction?dryRun=All", POD.one(Some(namespace), "p"));
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(eviction.to_string().into_bytes()));
    match caller
        .try_send(request.expect("the request is valid"))
        .await
    {
        Ok(answer) => (answer.code, format!("{answer:?}")),
        Err(error) => (0, error),
    }
}

/// Returns a client that the gates exempt.
fn rescuer(cluster: &Cluster) -> Caller {
    cluster.user("rescuer", &["system:masters", "ifo:break-glass"])
}

/// Repeats a request until it is refused with an answer that contains `reason`. Returns the answer.
async fn until_refused(reason: &str, mut request: impl AsyncFnMut() -> (u16, String)) -> String {
    eventually(&format!("a request is refused: {reason}"), async || {
        let (code, text) = request().await;
        ok_if(code >= 400 && text.contains(reason), &text).map(|()| text)
    })
    .await
}

/// Repeats a request until it is admitted.
async fn until_admitted(mut request: impl AsyncFnMut() -> (u16, String)) {
    eventually("a request is admitted", async || {
        let (code, text) = request().await;
        ok_if(matches!(code, 200 | 201), &text)
    })
    .await;
}

/// Tries evictions while `restart` runs. Fails if an eviction is admitted.
async fn assert_closed_during(
    cluster: &Cluster,
    namespace: &str,
    restart: impl Future<Output = ()>,
) {
    let evictions = async {
        for refused in 0.. {
            let (code, text) = evict(&cluster.admin, namespace).await;
            assert_ne!(code, 201, "{refused} evictions were refused before: {text}");
        }
    };
    tokio::select! {
        () = restart => {}
        () = evictions => {}
    }
}
