//! Tests of the API as clients see it: discovery, OpenAPI, lists in pages, refused writes, and the
//! deletion of a namespace. One test checks the manifests in `deploy/` and `rules/`. Tests of
//! informers are in the folder `informers`. Tests of kubectl command lines are in the folder
//! `kubectl`.

use crate::harness::{
    OPERATION, TestCluster, VM, eventually, migrating, ok_if, same_but_for_gaps, shared, text,
};
use serde_json::{Value, json};

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
fn kubectl_api_resources_lists_operations_and_rule_sets() {
    shared(async |cluster| {
        let live = [
            "api-resources",
            "--api-group=live.ifo.kubevirt.io",
            "-o",
            "wide",
        ];
        let table = cluster.kubectl(&live).await.expect("discovery must work");
        let mut rows = table.lines();
        let row = rows.find(|row| row.starts_with("inflightoperations"));
        let row = row.expect("the table must have a row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "inflightoperations",
                "ifo,ifos",
                "live.ifo.kubevirt.io/v1alpha1",
                "true",
                "InFlightOperation",
                "get,list,watch"
            ],
            "{table}"
        );
        let ours = ["api-resources", "--api-group=ifo.kubevirt.io"];
        let table = cluster.kubectl(&ours).await.expect("discovery must work");
        let row: Vec<&str> = table
            .lines()
            .nth(1)
            .unwrap_or("")
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            [
                "operationrulesets",
                "ors",
                "ifo.kubevirt.io/v1alpha1",
                "false",
                "OperationRuleSet"
            ],
            "{table}"
        );
    });
}

#[test]
fn kubectl_explain_describes_every_field() {
    shared(async |cluster| {
        // The kube-apiserver reads the OpenAPI document of `ifo-apiserver` some time after the
        // creation of the APIService. Until then, `kubectl explain` fails.
        let status = eventually("operations are documented", async || {
            cluster.kubectl(&["explain", "ifo.status"]).await
        })
        .await;
        for part in [
            "phase",
            "state",
            "startTimeSource",
            "lastDetected",
            "detectedBy",
            "conditions",
        ] {
            assert!(status.contains(part), "{part} in {status}");
        }
        let all = cluster.kubectl(&["explain", "ifo", "--recursive"]).await;
        let all = all.expect("operations must be documented");
        assert!(all.contains("subject") && all.contains("ruleSet"), "{all}");
        for path in [
            "ifo.spec.subject.uid",
            "ifo.status.state",
            "ors.spec.rules.expression",
        ] {
            let field = cluster
                .kubectl(&["explain", path])
                .await
                .expect("the field must be documented");
            let description = field.split("DESCRIPTION:").nth(1).unwrap_or("").trim();
            assert!(
                !description.is_empty() && !description.contains("<empty>"),
                "{path}: {field}"
            );
        }
    });
}

#[test]
fn kubectl_get_raw_reads_the_api() {
    shared(async |cluster| {
        let raw = ["get", "--raw", "/apis/live.ifo.kubevirt.io/v1alpha1"];
        let list = cluster.kubectl(&raw).await.expect("discovery must work");
        let list: Value = serde_json::from_str(&list).expect("discovery must return JSON");
        assert_eq!(list["kind"], "APIResourceList");
        assert_eq!(list["groupVersion"], OPERATION.api_version);
        assert_eq!(
            list["resources"].as_array().map(Vec::len),
            Some(3),
            "{list}"
        );
        let resource = &list["resources"][0];
        assert_eq!(resource["name"], OPERATION.plural);
        assert_eq!(resource["namespaced"], true);
        assert_eq!(resource["verbs"], json!(["get", "list", "watch"]));
        assert_eq!(resource["shortNames"], json!(["ifo", "ifos"]));
    });
}

#[test]
fn the_openapi_of_the_cluster_has_the_live_group_in_both_versions() {
    shared(async |cluster| {
        eventually("OpenAPI v2", async || {
            let v2 = cluster.admin.get("/openapi/v2").await.ok();
            let path =
                "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{namespace}/inflightoperations";
            ok_if(v2["paths"].get(path).is_some(), "the path is missing")
        })
        .await;
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
fn operations_cannot_be_written() {
    shared(async |cluster| {
        let (namespace, operations) = two_operations(cluster, "written").await;
        let path = OPERATION.path(Some(namespace));
        let one = format!("{path}/{}", text(&operations[0], "/metadata/name"));
        let mut new = operations[0].clone();
        new["metadata"] = json!({"name": "new", "namespace": namespace});
        cluster.admin.post(&path, &new).await.refused(405);
        cluster
            .admin
            .merge(&one, &json!({"status": {"phase": "Completed"}}))
            .await
            .refused(405);
        cluster.admin.delete(&one).await.refused(405);
        cluster.admin.delete(&path).await.refused(405);
        let error = cluster
            .kubectl(&["delete", "ifos", "--all", "-n", namespace])
            .await
            .expect_err("kubectl must not be able to delete operations");
        assert!(error.contains("MethodNotAllowed"), "{error}");
        let after = cluster.operations(namespace).await;
        assert_eq!(after.len(), operations.len(), "{after:?}");
        let mut pairs = after.iter().zip(&operations);
        assert!(
            pairs.all(|(one, other)| same_but_for_gaps(one, other)),
            "{after:?}"
        );
    });
}

#[test]
fn paged_lists_have_one_version_and_a_watch_continues_from_it() {
    shared(async |cluster| {
        let (namespace, operations) = two_operations(cluster, "pages").await;
        let path = OPERATION.path(Some(namespace));
        let first = cluster.admin.get(&format!("{path}?limit=1")).await.ok();
        let only = |list: &Value, operation: &Value| {
            assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
            assert!(same_but_for_gaps(&list["items"][0], operation), "{list}");
        };
        only(&first, &operations[0]);
        let version = text(&first, "/metadata/resourceVersion").to_owned();
        // An operation that starts between the two pages must not appear in the second page.
        cluster.machine(namespace, "c", "Migrating").await;
        let three = [("a", "Migrating"), ("b", "Migrating"), ("c", "Migrating")];
        let now = cluster.until_operations(namespace, &three).await;
        let token = text(&first, "/metadata/continue");
        let second = cluster
            .admin
            .get(&format!("{path}?limit=5&continue={token}"))
            .await
            .ok();
        only(&second, &operations[1]);
        assert_eq!(text(&second, "/metadata/resourceVersion"), version);
        let watch = format!("{path}?watch=1&resourceVersion={version}");
        let mut events = crate::harness::Events::of(&cluster.admin, &watch)
            .await
            .expect("an administrator must be allowed to watch");
        let event = events
            .until("an event with another type than MODIFIED", |all| {
                let mut events = all.iter();
                events.find(|event| event["type"] != "MODIFIED").cloned()
            })
            .await;
        assert_eq!(event["type"], "ADDED");
        assert!(same_but_for_gaps(&event["object"], &now[2]), "{event}");
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
