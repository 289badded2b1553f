//! Tests of persistence mode, in which the server also writes each operation as a custom resource.
//! The tests check the custom resources. Some tests cause failures.
//!
//! Each test starts its own server, with the settings in `deploy/persistence`. The APIService refers to
//! the server of the cluster of these tests. So the tests send their requests directly to their own
//! server.

mod changes_by_others;
mod failed_writes;
mod writes;

use crate::harness::{
    AS_ADMINISTRATOR, Caller, Kind, OPERATION, ServerProcess, TestCluster,
    alone_in_persistence_cluster, eventually, items, ok_if, text,
};
use serde_json::Value;
use std::collections::BTreeMap;

/// The custom resource of an operation.
pub const CR: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// A server in persistence mode, and a client that connects to it directly.
pub struct Persisting {
    pub cluster: &'static TestCluster,
    pub server: ServerProcess,
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
    pub async fn live(&self) -> BTreeMap<String, Value> {
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
    pub async fn live_in(&self, namespace: &str) -> BTreeMap<String, Value> {
        within(namespace, self.live().await)
    }

    /// Waits until the custom resources equal the operations that the server serves. Returns the
    /// custom resources by the UID of their operation.
    pub async fn wait_until_equal(&self) -> BTreeMap<String, Value> {
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
pub async fn crs(cluster: &TestCluster) -> BTreeMap<String, Value> {
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

/// Describes the first difference between the operations (`live`) and the custom resources (`crs`).
/// Returns None if they are equal.
///
/// The field `state` is not compared. When an operation becomes `Settling`, the server delays the
/// write, so the custom resource still has the previous state.
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
        let status = ["phase", "reason", "completed", "message", "progress"];
        let status = status.map(|field| format!("/status/{field}"));
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
