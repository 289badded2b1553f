//! Test with sixty targets. A target is a resource that the server watches because a rule set names
//! it. The server reads all targets at the same time, and must stay below its memory limit.

use crate::harness::{CRD, Kind, TestCluster, crd, eventually, ok_if, rule_set, shared, text};
use crate::hostile::peak_memory;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

/// Number of targets.
const TARGETS: usize = 60;
/// Number of objects of each target.
const OBJECTS: usize = 200;

/// Number of objects that the test creates at the same time.
pub const AT_ONCE: usize = 32;

const GROUP: &str = "many.e2e.example.com";

fn kinds() -> Vec<Kind> {
    let kind = |number: usize| Kind {
        api_version: "many.e2e.example.com/v1",
        // A `Kind` needs static strings, so the test leaks these names. They are few and short.
        kind: format!("Many{number:02}").leak(),
        plural: format!("many{number:02}s").leak(),
    };
    (0..TARGETS).map(kind).collect()
}

/// Gives the server the right to read all resources of an API group. `role` is the name of the
/// created ClusterRole.
pub async fn allow(cluster: &TestCluster, role: &str, group: &str) {
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role},
        "rules": [{"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{
            "kind": "ServiceAccount", "namespace": "ifo-system", "name": "ifo-apiserver",
        }],
    });
    cluster.apply(&[cluster_role, binding]).await;
}

/// Creates the objects of a target. The first object is `Busy`, so a rule detects an operation on
/// this object.
async fn fill(cluster: &TestCluster, kind: &Kind, namespace: &str) {
    let path = kind.path(Some(namespace));
    // The kube-apiserver serves a new resource some time after the creation of its CRD.
    eventually(&format!("{} are served", kind.plural), async || {
        let answer = cluster.admin.get(&path).await;
        ok_if(answer.code == 200, answer)
    })
    .await;
    let padding = "x".repeat(2_000);
    let create = async |number: usize| {
        let state = if number == 0 { "Busy" } else { "Idle" };
        let object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": format!("{}-{number}", kind.plural)},
            "padding": padding, "status": {"state": state},
        });
        cluster.admin.post(&path, &object).await.ok();
    };
    let creations = stream::iter((0..OBJECTS).map(create));
    creations.buffer_unordered(AT_ONCE).collect::<()>().await;
}

#[test]
fn sixty_targets_are_read_within_the_memory_limit() {
    shared(async |cluster| {
        let namespace = cluster.namespace("many").await;
        allow(cluster, "e2e-many-targets", GROUP).await;
        let kinds = kinds();
        let definitions: Vec<_> = kinds.iter().map(|kind| crd(kind, "Namespaced")).collect();
        cluster.apply(&definitions).await;
        stream::iter(&kinds)
            .for_each(|kind| fill(cluster, kind, namespace))
            .await;

        let rule_sets: Vec<Value> = kinds
            .iter()
            .map(|kind| {
                let rules = [("Busy", "object.status.state == 'Busy'")];
                rule_set(&format!("{namespace}-{}", kind.plural), kind, &rules)
            })
            .collect();
        cluster.apply(&rule_sets).await;
        let all = format!("{TARGETS} operations in {namespace}");
        let operations = eventually(&all, async || {
            let operations = cluster.operations(namespace).await;
            ok_if(operations.len() == TARGETS, operations.len())?;
            Ok(operations)
        })
        .await;
        assert!(
            operations
                .iter()
                .all(|it| text(it, "/spec/operation") == "Busy")
        );
        let server = cluster.server.lock().await;
        let peak = peak_memory(server.pid());
        assert!(
            peak < server.memory_limit(),
            "the server used {} MiB, which is above its memory limit",
            peak >> 20
        );
        drop(server);

        // After the CRDs are deleted, the server watches fewer resources during the other tests.
        for kind in &kinds {
            let path = format!("{}/{}.{GROUP}", CRD.path(None), kind.plural);
            cluster.admin.delete(&path).await.ok();
        }
    });
}
