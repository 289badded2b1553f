//! Tests of persistence mode, in which the server also writes each operation as a custom resource.
//! The tests check the custom resources, and the number of writes. Some tests cause failures.
//!
//! Each test starts its own server, with the settings in `deploy/persistence`. The APIService refers to
//! the server of the cluster of these tests. So the tests send their requests directly to their own
//! server.

mod changes_by_others;
mod failed_writes;
mod kills;
mod namespaces;
mod random_status_changes;
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

    /// Returns the sum of all series of a metric of this server.
    pub async fn metric(&self, name: &str) -> f64 {
        let answer = self.caller.get_with("/metrics", &AS_ADMINISTRATOR).await;
        sum(&answer.text, name)
    }

    /// Waits until the custom resources equal the operations that the server serves. Returns the
    /// custom resources by the UID of their operation.
    pub async fn wait_until_equal(&self) -> BTreeMap<String, Value> {
        self.wait_until_equal_except(|_| false).await
    }

    /// Waits as [`Self::wait_until_equal`] does, but allows custom resources of completed
    /// operations that the server does not list. For example, an earlier server has written an
    /// operation that the current server has never detected.
    pub async fn wait_until_equal_except_history(&self) -> BTreeMap<String, Value> {
        self.wait_until_equal_except(|cr| cr["status"]["phase"] == "Completed")
            .await
    }

    /// Waits as [`Self::wait_until_equal`] does. A custom resource for which `may_lack_operation`
    /// returns true may have no operation.
    async fn wait_until_equal_except(
        &self,
        may_lack_operation: impl Fn(&Value) -> bool,
    ) -> BTreeMap<String, Value> {
        eventually("the custom resources equal the operations", async || {
            let live = self.live().await;
            let crs = crs(self.cluster).await;
            let difference = first_difference(&live, &crs, &may_lack_operation);
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
/// Returns None if they are equal. A custom resource for which `may_lack_operation` returns true
/// may have no operation.
///
/// The field `state` is not compared. When an operation becomes `Settling`, the server delays the
/// write, so the custom resource still has the previous state.
fn first_difference(
    live: &BTreeMap<String, Value>,
    crs: &BTreeMap<String, Value>,
    may_lack_operation: impl Fn(&Value) -> bool,
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
    let left = |(uid, cr): &(&String, &Value)| !live.contains_key(*uid) && !may_lack_operation(cr);
    let left = crs.iter().find(left);
    left.map(|(_, cr)| format!("{} has no operation", cr["metadata"]["name"]))
}

/// Searches for two custom resources whose times from start to end overlap, and whose fields for
/// the subject, the name of the operation and the item are equal. If there are two, the server has
/// written one operation under two names. A rule with `forEach` gives each operation an item, such
/// as a disk.
pub fn find_duplicate<'a>(crs: impl Iterator<Item = &'a Value>) -> Option<(&'a Value, &'a Value)> {
    let mut runs: BTreeMap<[String; 3], Vec<&Value>> = BTreeMap::new();
    for cr in crs {
        let fields = ["/spec/subject/uid", "/spec/operation", "/spec/item"];
        let identity = fields.map(|field| text(cr, field).to_owned());
        runs.entry(identity).or_default().push(cr);
    }
    let end = |cr: &'a Value| match text(cr, "/status/completed") {
        "" => "~", // The operation is active. In text order, `~` is later than any time.
        completed => completed,
    };
    runs.into_values().find_map(|mut runs| {
        runs.sort_by_key(|cr| text(cr, "/status/started"));
        let mut pairs = runs.windows(2);
        let pair = pairs.find(|pair| end(pair[0]) > text(pair[1], "/status/started"));
        pair.map(|pair| (pair[0], pair[1]))
    })
}

/// Returns the fields that must not change during the life of an operation: name, UID and start.
pub fn immutable_fields(operation: &Value) -> [&str; 3] {
    [
        text(operation, "/metadata/name"),
        text(operation, "/metadata/uid"),
        text(operation, "/metadata/creationTimestamp"),
    ]
}

/// Returns the number of requests so far that wrote or deleted custom resources of operations. The
/// number is a metric of the kube-apiserver.
pub async fn writes(cluster: &TestCluster) -> f64 {
    let metrics = cluster.admin.get("/metrics").await.text;
    let verbs = [
        "APPLY",
        "PATCH",
        "POST",
        "PUT",
        "DELETE",
        "DELETECOLLECTION",
    ];
    let is_write = |line: &&str| {
        line.contains("group=\"ifo.kubevirt.io\"")
            && line.contains("resource=\"inflightoperations\"")
            && verbs
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    let lines: Vec<&str> = metrics.lines().filter(is_write).collect();
    sum(&lines.join("\n"), "apiserver_request_total")
}

/// Returns the sum of the series of a metric. `text` is the answer to a request for `/metrics`.
fn sum(text: &str, name: &str) -> f64 {
    let series = text.lines().filter_map(|line| line.strip_prefix(name));
    let series = series.filter(|rest| rest.starts_with(['{', ' ']));
    series
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
