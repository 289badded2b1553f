//! Tests of OpenAPI and of the deletion of a namespace. One test checks the manifests in `deploy/` and
//! `rules/`. Tests of kubectl command lines are in the folder `kubectl`.

use crate::harness::{OPERATION, TestCluster, VM, eventually, migrating, ok_if, shared, text};
use serde_json::Value;

/// Creates a namespace with two VirtualMachines that migrate. Returns the namespace and the
/// operations.
async fn two_operations(cluster: &TestCluster, prefix: &str) -> (&'static str, Vec<Value>) {
    let namespace = cluster.namespace(prefix).await;
    cluster.ready_rule_set(&migrating(namespace)).await;
    cluster.machine(namespace, "a", "Migrating").await;
    cluster.machine(namespace, "b", "Migrating").await;
    let both = [("a", "Migrating"), ("b", "Migrating")];
    (namespace, cluster.until_operations(namespace, &both).await)
}

#[test]
fn the_openapi_of_the_cluster_has_the_live_group() {
    shared(async |cluster| {
        let group = "apis/live.ifo.kubevirt.io/v1alpha1";
        let url = eventually("OpenAPI v3", async || {
            let v3 = cluster.admin.get("/openapi/v3").await.ok();
            let url = v3["paths"][group]["serverRelativeURL"].as_str();
            url.map(str::to_owned)
                .ok_or_else(|| "the path is missing".to_owned())
        })
        .await;
        let document = cluster.admin.get(&url).await.ok();
        let schemas = document["components"]["schemas"].as_object();
        let schemas = schemas.expect("the document must have schemas");
        let of_kind = schemas.values().find(|schema| {
            let kinds = &schema["x-kubernetes-group-version-kind"];
            kinds
                .as_array()
                .is_some_and(|all| all.iter().any(|it| it["kind"] == OPERATION.kind))
        });
        let of_kind = of_kind.expect("the kind must have a schema");
        assert!(of_kind["properties"]["status"].is_object(), "{of_kind}");
        assert!(!text(of_kind, "/description").is_empty(), "{of_kind}");
    });
}

#[test]
fn a_namespace_can_be_deleted_while_the_server_runs() {
    shared(async |cluster| {
        let (namespace, _) = two_operations(cluster, "deleted").await;
        let path = format!("/api/v1/namespaces/{namespace}");
        cluster.admin.delete(&path).await.ok();
        eventually("the namespace is gone", async || {
            let answer = cluster.admin.get(&path).await;
            ok_if(answer.code == 404, answer)
        })
        .await;
        cluster.until_operations(namespace, &[]).await;
        cluster.admin.get(&VM.path(Some(namespace))).await.ok();
    });
}

#[test]
fn the_manifests_are_accepted_without_a_warning() {
    shared(async |cluster| {
        for folder in ["deploy", "rules"] {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            let folder = folder
                .to_str()
                .expect("the path of the repository is UTF-8");
            let args = [
                "create",
                "-k",
                folder,
                "--dry-run=server",
                "--warnings-as-errors",
            ];
            if let Err(error) = cluster.kubectl(&args).await {
                // The harness has already installed some of these objects. So the test ignores the
                // errors that report a conflict with an existing object.
                let other = error
                    .lines()
                    .filter(|line| line.contains("rror") || line.contains("arning"))
                    .filter(|line| {
                        !line.contains("AlreadyExists") && !line.contains("already exists")
                    })
                    .filter(|line| !line.contains("already allocated"));
                assert_eq!(other.count(), 0, "{error}");
            }
        }
    });
}
