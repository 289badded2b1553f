//! Tests of persistence mode, in which the server also writes each operation as a custom resource.
//! The tests check the custom resources, and the number of writes. Some tests cause failures.
//!
//! Each test starts its own server, with the settings in `deploy/persistence` and with the
//! ServiceAccount [`ACCOUNT`]. The APIService refers to the server that all end-to-end tests share.
//! So the tests of this folder send their requests directly to their own server.

mod changes_by_others;
mod failed_writes;
mod kills;
mod namespaces;
mod random_status_changes;
mod writes;

use crate::harness::{
    Caller, Kind, OPERATION, ServerProcess, TestCluster, eventually, ok_if, text,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The custom resource of an operation.
pub const CR: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// The ServiceAccount of the servers in these tests. The shared server has another ServiceAccount.
/// Other tests find the requests of the shared server in the audit log by the name of its
/// ServiceAccount.
const ACCOUNT: &str = "ifo-persisting";

/// A server in persistence mode, and a client that connects to it directly.
pub struct Persisting {
    cluster: &'static TestCluster,
    pub server: ServerProcess,
    kubeconfig: PathBuf,
    caller: Caller,
}

/// Returns the objects that a test must install, and the Deployment of the server. The objects
/// grant the server's rights to [`ACCOUNT`].
async fn manifests(cluster: &TestCluster) -> (Vec<Value>, Value) {
    let mut all = cluster.kustomize("deploy/crd-persistence").await;
    all.extend(cluster.kustomize("deploy/persistence").await);
    let deployment = all.iter().find(|it| it["kind"] == "Deployment");
    let deployment = deployment
        .expect("deploy/persistence must have a Deployment")
        .clone();
    let kinds = ["ClusterRole", "ServiceAccount", "CustomResourceDefinition"];
    let mut others: Vec<Value> = Vec::new();
    for mut it in all {
        let kind = text(&it, "/kind").to_owned();
        if kind.ends_with("Binding") {
            // The binding gets another name, and gives the same rights to [`ACCOUNT`].
            let name = text(&it, "/metadata/name").replace("ifo-apiserver", ACCOUNT);
            it["metadata"]["name"] = json!(format!("{name}-e2e"));
            for subject in it["subjects"].as_array_mut().into_iter().flatten() {
                subject["name"] = json!(ACCOUNT);
            }
            others.push(it);
        } else if kind == "ServiceAccount" {
            it["metadata"]["name"] = json!(ACCOUNT);
            others.push(it);
        } else if kinds.contains(&kind.as_str()) {
            others.push(it);
        }
    }
    (others, deployment)
}

/// Installs the CRD of the custom resources, and [`ACCOUNT`] with its rights.
pub async fn install(cluster: &TestCluster) {
    let (others, _) = manifests(cluster).await;
    cluster.apply(&others).await;
    eventually("custom resources are served", async || {
        let answer = cluster.admin.get(&CR.path(None)).await;
        ok_if(answer.code == 200, answer.code)
    })
    .await;
}

impl Persisting {
    /// Installs the necessary objects, and starts a server. The environment variables in `env`
    /// replace those in the Deployment.
    pub async fn start(cluster: &'static TestCluster, env: &[(&str, &str)]) -> Self {
        install(cluster).await;
        Self::start_only(cluster, env).await
    }

    /// Starts a server as [`Self::start`] does, but installs no objects.
    pub async fn start_only(cluster: &'static TestCluster, env: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (_, mut deployment) = manifests(cluster).await;
        let container = "/spec/template/spec/containers/0/env";
        let variables = deployment
            .pointer_mut(container)
            .and_then(Value::as_array_mut)
            .expect("the container must have a list of variables");
        for (name, value) in env {
            variables.retain(|it| it["name"] != *name);
            variables.push(json!({"name": name, "value": value}));
        }
        // The shared server holds the Lease. So this server gets no leader election, and leads at
        // the same time as the shared server.
        let args = deployment.pointer_mut("/spec/template/spec/containers/0/args");
        let args = args
            .and_then(Value::as_array_mut)
            .expect("the container must have a list of arguments");
        for flag in ["--leader-elect", "--peer-token-file"] {
            args.retain(|arg| !arg.as_str().is_some_and(|arg| arg.starts_with(flag)));
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = cluster
            .control_plane
            .addresses
            .dir
            .join(format!("persisting-{number}"));
        std::fs::create_dir_all(&dir).expect("the folder of the run is writable");
        let kubeconfig = dir.join("kubeconfig");
        cluster
            .kubeconfig_of("ifo-system", ACCOUNT, &kubeconfig)
            .await;
        let server = ServerProcess::start(&dir, &deployment, &kubeconfig).await;
        let caller = cluster.front_proxy_of(server.stranger());
        Self {
            cluster,
            server,
            kubeconfig,
            caller,
        }
    }

    /// Restarts the server after it has exited.
    pub async fn start_again(&mut self) {
        self.server.start_again(&self.kubeconfig).await;
    }

    /// Waits until the server answers. Returns the operations that it serves, by UID.
    pub async fn live(&self) -> BTreeMap<String, Value> {
        let identity = [
            ("X-Remote-User", "test"),
            ("X-Remote-Group", "system:masters"),
        ];
        let path = OPERATION.path(None);
        let list = eventually("the server answers", async || {
            let answer = self.caller.get_with(&path, &identity).await;
            ok_if(answer.code == 200, answer.code)?;
            Ok(answer.body)
        })
        .await;
        by(&list, "/metadata/uid")
    }

    /// Returns the sum of all series of a metric of this server.
    pub async fn metric(&self, name: &str) -> f64 {
        let identity = [
            ("X-Remote-User", "test"),
            ("X-Remote-Group", "system:masters"),
        ];
        let answer = self.caller.get_with("/metrics", &identity).await;
        sum(&answer.text, name, "")
    }

    /// Returns the log of this server.
    pub fn log(&self) -> String {
        let dir: &Path = self.kubeconfig.parent().expect("the file is in a folder");
        std::fs::read_to_string(dir.join("ifo-apiserver.log")).unwrap_or_default()
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
    let list = eventually("custom resources are served", async || {
        let answer = cluster.admin.get(&CR.path(None)).await;
        ok_if(answer.code == 200, answer.code)?;
        Ok(answer.body)
    })
    .await;
    let all = by(&list, "/status/liveUID");
    assert_eq!(Some(all.len()), list["items"].as_array().map(Vec::len));
    all
}

/// Returns the items of a list as a map. The key of an item is its string at the JSON pointer.
fn by(list: &Value, pointer: &str) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let uid = |it: &Value| text(it, pointer).to_owned();
    items.into_iter().map(|it| (uid(&it), it)).collect()
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
        let Some(cr) = crs.get(uid) else {
            return Some(format!(
                "{} has no custom resource",
                operation["metadata"]["name"]
            ));
        };
        let describe = |field: &str| {
            format!(
                "{field} of {} differs: operation status {}, custom resource status {}",
                operation["metadata"]["name"], operation["status"], cr["status"]
            )
        };
        if operation["metadata"]["labels"] != cr["metadata"]["labels"] {
            return Some(describe("labels"));
        }
        if operation["spec"] != cr["spec"] {
            return Some(describe("spec"));
        }
        if operation["metadata"]["creationTimestamp"] != cr["status"]["started"] {
            return Some(describe("start"));
        }
        for field in ["phase", "reason", "completed", "message", "progress"] {
            if operation["status"][field] != cr["status"][field] {
                return Some(describe(field));
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
    let text = cluster.admin.get("/metrics").await.text;
    text.lines()
        .filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains("group=\"ifo.kubevirt.io\"")
                && line.contains("resource=\"inflightoperations\"")
                && [
                    "APPLY",
                    "PATCH",
                    "POST",
                    "PUT",
                    "DELETE",
                    "DELETECOLLECTION",
                ]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        })
        .map(|line| sum(line, "apiserver_request_total", ""))
        .sum()
}

/// Returns the sum of the series of a metric. `text` is the answer to a request for `/metrics`.
/// The sum includes only lines that contain the text in the parameter `with`.
fn sum(text: &str, name: &str, with: &str) -> f64 {
    text.lines()
        .filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
                && line.contains(with)
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Deletes all custom resources of operations that earlier tests have left.
pub async fn delete_custom_resources(cluster: &TestCluster) {
    let answer = cluster.admin.delete(&CR.path(None)).await;
    assert!(matches!(answer.code, 200 | 404), "{}", answer.text);
}
