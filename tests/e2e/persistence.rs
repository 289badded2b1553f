//! Tests of persistence mode, in which the server also writes each operation as a custom resource.
//! The tests check the custom resources. Some tests cause failures.
//!
//! Each test starts its own server, with the settings in `deploy/persistence`. The APIService refers to
//! the server of the cluster of these tests. So the tests send their requests directly to their own
//! server.

use crate::harness::{
    API_SERVICE, AS_ADMINISTRATOR, CRD, Caller, Kind, OPERATION, ServerProcess, TestCluster,
    alone_in_persistence_cluster, condition, eventually, is, items, migrating, ok_if, text,
};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The custom resource of an operation.
const CR: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// A server in persistence mode, and a client that connects to it directly.
struct Persisting {
    cluster: &'static TestCluster,
    server: ServerProcess,
    caller: Caller,
}

/// Runs a test with a server in persistence mode, and without the custom resources of earlier tests.
fn persisting(test: impl AsyncFnOnce(&mut Persisting)) {
    alone_in_persistence_cluster(async |cluster| {
        install(cluster).await;
        let deleted = cluster.admin.delete(&CR.path(None)).await;
        deleted.ok();
        let mut persisting = Persisting::start(cluster).await;
        test(&mut persisting).await;
    });
}

/// Installs the CRD of the custom resources, and the rights of the server.
async fn install(cluster: &TestCluster) {
    let mut objects = cluster.kustomize("deploy/crd-persistence").await;
    objects.extend(cluster.kustomize("deploy/persistence").await);
    let kinds = [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
    ];
    objects.retain(|it| kinds.contains(&text(it, "/kind")));
    cluster.apply(&objects).await;
    cluster.admin.until_code(&CR.path(None), 200).await;
}

impl Persisting {
    async fn start(cluster: &'static TestCluster) -> Self {
        let manifests = cluster.kustomize("deploy/persistence").await;
        let deployment = manifests.into_iter().find(|it| it["kind"] == "Deployment");
        let mut deployment = deployment.expect("deploy/persistence must have a Deployment");
        // The shared server holds the Lease. So this server gets no leader election, and leads at
        // the same time as the shared server.
        let pod = &mut deployment["spec"]["template"]["spec"];
        let args = pod["containers"][0]["args"].as_array_mut();
        let args = args.expect("the container must have arguments");
        for flag in ["--leader-elect", "--peer-token-file"] {
            args.retain(|arg| !arg.as_str().is_some_and(|arg| arg.starts_with(flag)));
        }
        let folder = format!("persisting-{}", uuid::Uuid::new_v4());
        let mut server = cluster.start_unready(&folder, &deployment).await;
        server.until_ready().await;
        Self {
            cluster,
            caller: cluster.front_proxy_of(server.stranger()),
            server,
        }
    }

    /// Waits until the server answers. Returns the operations that it serves, by UID.
    async fn live(&self) -> BTreeMap<String, Value> {
        let path = OPERATION.path(None);
        let list = eventually("the server answers", async || {
            let answer = self.caller.get_with(&path, &AS_ADMINISTRATOR).await;
            ok_if(answer.code == 200, answer.code)?;
            Ok(answer.body)
        })
        .await;
        by(&list, "/metadata/uid")
    }

    /// Returns the operations with a subject in this namespace, by UID.
    async fn live_in(&self, namespace: &str) -> BTreeMap<String, Value> {
        within(namespace, self.live().await)
    }

    /// Waits until the custom resources equal the operations that the server serves. Returns the
    /// custom resources by the UID of their operation.
    async fn wait_until_equal(&self) -> BTreeMap<String, Value> {
        eventually("the custom resources equal the operations", async || {
            let live = self.live().await;
            let crs = crs(self.cluster).await;
            let difference = first_difference(&live, &crs);
            ok_if(difference.is_none(), difference)?;
            Ok(crs)
        })
        .await
    }
}

/// Returns all custom resources by the UID of their operation. Fails if two custom resources have
/// the same operation.
async fn crs(cluster: &TestCluster) -> BTreeMap<String, Value> {
    // A kube-apiserver that has just started answers 429 for a while.
    let list = cluster.admin.until_code(&CR.path(None), 200).await;
    let all = by(&list, "/status/liveUID");
    assert_eq!(all.len(), items(&list).len());
    all
}

/// Returns the items of a list as a map. The key of an item is its string at the JSON pointer.
fn by(list: &Value, pointer: &str) -> BTreeMap<String, Value> {
    let keyed = |it: &Value| (text(it, pointer).to_owned(), it.clone());
    items(list).iter().map(keyed).collect()
}

/// Returns the operations or custom resources whose subject is in this namespace.
fn within(namespace: &str, mut all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.retain(|_, it| text(it, "/spec/subject/namespace") == namespace);
    all
}

/// Fields of the status that [`first_difference`] does not compare. The first two are only in custom
/// resources.
const NOT_COMPARED: [&str; 9] = [
    "started",
    "liveUID",
    "state",
    "stateSince",
    "estimatedCompletion",
    "lastDetected",
    "conditions",
    "subjectGeneration",
    "startTimeSource",
];

/// Describes the first difference between the operations (`live`) and the custom resources (`crs`).
/// Returns None if they are equal.
///
/// Does not compare fields that the server writes only together with others, nor the state. When an
/// operation becomes `Settling`, the server delays the write, so the custom resource still has the
/// previous state.
fn first_difference(
    live: &BTreeMap<String, Value>,
    crs: &BTreeMap<String, Value>,
) -> Option<String> {
    for (uid, operation) in live {
        let name = &operation["metadata"]["name"];
        let Some(cr) = crs.get(uid) else {
            return Some(format!("{name} has no custom resource"));
        };
        let labels = "/metadata/labels";
        let started = ("/metadata/creationTimestamp", "/status/started");
        let fields = [operation, cr].map(|it| it["status"].as_object());
        let fields = fields.into_iter().flatten().flat_map(|it| it.keys());
        let fields = fields.filter(|it| !NOT_COMPARED.contains(&it.as_str()));
        let status: BTreeSet<String> = fields.map(|it| format!("/status/{it}")).collect();
        let same = status.iter().map(|field| (field.as_str(), field.as_str()));
        for (live, custom) in [(labels, labels), ("/spec", "/spec"), started]
            .into_iter()
            .chain(same)
        {
            let (one, other) = (operation.pointer(live), cr.pointer(custom));
            if one != other {
                return Some(format!("{live} of {name} differs: {one:?}, {other:?}"));
            }
        }
    }
    let left = crs.iter().find(|(uid, _)| !live.contains_key(*uid));
    left.map(|(_, cr)| format!("{} has no operation", cr["metadata"]["name"]))
}

#[test]
fn an_operation_is_written_at_its_start_and_end_and_then_retained() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let namespace = cluster.new_namespace("kept").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let selector = format!("?fieldSelector=spec.subject.namespace={namespace}");
        let path = format!("{}{selector}", CR.path(None));
        let until_phase = async |phase: &str| {
            let is = |list: &Value| list["items"][0]["status"]["phase"] == phase;
            let list = cluster.admin.until_object(phase, &path, is).await;
            items(&list)[0].clone()
        };
        let active = until_phase("Active").await;
        let managed = ["manager", "operation"];
        let managed =
            managed.map(|it| text(&active["metadata"]["managedFields"][0], &format!("/{it}")));
        assert_eq!(managed, ["ifo-persistence", "Apply"]);
        assert!(active["metadata"]["ownerReferences"].is_null(), "{active}");
        let live = persisting.live().await;
        let live = &live[text(&active, "/status/liveUID")];
        let name = text(&active, "/metadata/name");
        assert!(name.starts_with(text(live, "/metadata/name")), "{active}");

        cluster.set_status(namespace, "a", "Running").await;
        let completed = until_phase("Completed").await;
        assert_eq!(active["metadata"]["uid"], completed["metadata"]["uid"]);
        assert_eq!(active["status"]["started"], completed["status"]["started"]);
        assert!(completed["status"]["completed"].is_string(), "{completed}");

        let selector = format!(
            "spec.operation=Migrating,status.phase=Completed,spec.subject.namespace={namespace}"
        );
        let get = "get inflightoperations.ifo.kubevirt.io --field-selector";
        let table = cluster.kubectl(&format!("{get} {selector}")).await;
        let header = table.lines().next().unwrap_or_default();
        let words: Vec<&str> = header.split_whitespace().collect();
        let columns = "NAME KIND NAMESPACE SUBJECT OPERATION PHASE STARTED COMPLETED";
        assert_eq!(words.join(" "), columns);
        assert_eq!(table.lines().count(), 2, "{table}");
    });
}

/// The CRD is missing, or the server has no right to write custom resources. The server must still serve
/// operations, and must report the missing CRD and the missing right. When writes succeed again, the
/// server must write all custom resources.
#[test]
fn without_the_crd_or_rights_operations_are_served_with_a_condition() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let namespace = cluster.new_namespace("no-crd").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let until_condition = async |value: &str| {
            let is =
                |it: &Value| is(it, "OperationsPersisted", value) && is(it, "Available", "True");
            let what = format!("OperationsPersisted is {value}");
            let found = cluster.admin.until_object(&what, API_SERVICE, is).await;
            condition(&found, "OperationsPersisted").clone()
        };
        until_condition("True").await;
        let definition = CRD.one(None, &format!("{}.ifo.kubevirt.io", CR.plural));
        cluster.admin.delete(&definition).await.ok();
        cluster.admin.until_code(&CR.path(None), 404).await;
        cluster.machine(namespace, "a", "Migrating").await;
        eventually("the operation is served", async || {
            let live = persisting.live_in(namespace).await;
            ok_if(!live.is_empty(), live)
        })
        .await;
        until_condition("CustomResourceDefinitionMissing").await;
        let log = persisting.server.log();
        assert!(log.contains("CustomResourceDefinitionMissing"), "{log}");
        install(cluster).await;
        until_condition("True").await;
        persisting.wait_until_equal().await;

        let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ifo-apiserver-persistence";
        let without = r#"[{"op": "remove", "path": "/rules/0"}]"#.to_owned();
        let kind = "application/json-patch+json";
        cluster
            .admin
            .send(Method::PATCH, role, kind, without)
            .await
            .ok();
        cluster.machine(namespace, "b", "Migrating").await;
        let found = until_condition("Forbidden").await;
        assert!(
            text(&found, "/message").contains("inflightoperations"),
            "{found}"
        );
        let log = persisting.server.log();
        let lines = log.lines();
        let failures = lines.filter(|line| line.contains("but not written as custom resources"));
        let forbidden = failures.filter(|line| line.contains("Forbidden"));
        assert_eq!(forbidden.count(), 1, "{log}");
        install(cluster).await;
        until_condition("True").await;
        persisting.wait_until_equal().await;
    });
}

/// Older versions wrote the custom resources with server-side apply.
#[test]
fn objects_of_server_side_apply_are_updated_without_their_old_labels_and_fields() {
    persisting(async |persisting| {
        let admin = &persisting.cluster.admin;
        let (namespace, _) = persisting.cluster.migrations("foreign", &["a"]).await;
        let cr = eventually("the operation is written", async || {
            let all = persisting.wait_until_equal().await;
            let own = within(namespace, all).into_values().next();
            own.ok_or_else(|| "there is no custom resource".to_owned())
        })
        .await;
        let path = CR.one(None, text(&cr, "/metadata/name"));
        persisting.server.kill().await;
        admin.delete(&path).await.ok();
        // managedFields then has an entry with the operation `Apply`.
        let mut applied = cr.clone();
        applied["metadata"] = json!({
            "name": cr["metadata"]["name"], "labels": cr["metadata"]["labels"],
            "annotations": cr["metadata"]["annotations"],
        });
        applied["metadata"]["labels"]["old"] = json!("a");
        applied["status"]["progress"] = json!(50);
        let apply = format!("{path}?fieldManager=ifo-persistence&force=true");
        let kind = "application/apply-patch+yaml";
        let answer = admin.send(Method::PATCH, &apply, kind, applied.to_string());
        answer.await.ok();
        let theirs = json!({"metadata": {"labels": {"team": "a"}}});
        admin.merge(&path, &theirs).await.ok();
        persisting.server.start_again().await;
        // The server restores the operation with its old label from the custom resource. At the
        // first evaluation of the rule, the server removes the label.
        let mut want = cr["metadata"]["labels"].clone();
        want["team"] = json!("a");
        let is_clean =
            |it: &Value| it["status"]["progress"].is_null() && it["metadata"]["labels"] == want;
        let what = "the old field and the old label are removed";
        admin.until_object(what, &path, is_clean).await;
    });
}
