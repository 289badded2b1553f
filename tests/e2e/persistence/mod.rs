//! Tests of persistence mode: the writes, their number, and the state after failures.
//!
//! Each test starts its own server beside the shared one, with the settings in `deploy/persistence`
//! and its own ServiceAccount. Requests go to it directly, because the registration belongs to the
//! shared server.

mod foreign;
mod kills;
mod life;
mod namespaces;
mod traffic;
mod trouble;

use crate::harness::{Caller, Kind, OPERATION, Server, World, eventually, so, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Operations as custom resources.
pub const CR: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};

/// The ServiceAccount of the servers in these tests. Other tests read the audit log of the shared
/// server's ServiceAccount.
const ACCOUNT: &str = "ifo-persisting";

/// A server in persistence mode.
pub struct Persisting {
    world: &'static World,
    pub server: Server,
    kubeconfig: PathBuf,
    caller: Caller,
}

/// The installed objects, except the server and its registration.
async fn manifests(world: &World) -> (Vec<Value>, Value) {
    let mut all = world.kustomize("deploy/crd-persistence").await;
    all.extend(world.kustomize("deploy/persistence").await);
    let deployment = all.iter().find(|it| it["kind"] == "Deployment");
    let deployment = deployment.expect("there is a Deployment").clone();
    let kinds = ["ClusterRole", "ServiceAccount", "CustomResourceDefinition"];
    let mut others: Vec<Value> = Vec::new();
    for mut it in all {
        let kind = text(&it, "/kind").to_owned();
        if kind.ends_with("Binding") {
            // The same rights for the other ServiceAccount.
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

/// Installs the objects in `deploy/persistence` except the server.
pub async fn install(world: &World) {
    let (others, _) = manifests(world).await;
    world.apply(&others).await;
    eventually("custom resources are served", async || {
        let answer = world.admin.get(&CR.path(None)).await;
        so(answer.code == 200, answer.code)
    })
    .await;
}

impl Persisting {
    /// Installs the necessary objects, and starts a server with these variables instead of those in
    /// its Deployment.
    pub async fn start(world: &'static World, env: &[(&str, &str)]) -> Self {
        install(world).await;
        Self::start_only(world, env).await
    }

    /// Starts a server without installing objects.
    pub async fn start_only(world: &'static World, env: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (_, mut deployment) = manifests(world).await;
        let container = "/spec/template/spec/containers/0/env";
        let variables = deployment.pointer_mut(container).expect("it has variables");
        let variables = variables.as_array_mut().expect("a list");
        for (name, value) in env {
            variables.retain(|it| it["name"] != *name);
            variables.push(json!({"name": name, "value": value}));
        }
        // The shared server holds the Lease of the namespace, and this server runs beside it.
        let args = deployment.pointer_mut("/spec/template/spec/containers/0/args");
        let args = args
            .and_then(Value::as_array_mut)
            .expect("it has arguments");
        for flag in ["--leader-elect", "--peer-token-file"] {
            args.retain(|arg| !arg.as_str().is_some_and(|arg| arg.starts_with(flag)));
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = world
            .control_plane
            .state
            .dir
            .join(format!("persisting-{number}"));
        std::fs::create_dir_all(&dir).expect("the run's folder is ours");
        let kubeconfig = dir.join("kubeconfig");
        world
            .kubeconfig_of("ifo-system", ACCOUNT, &kubeconfig)
            .await;
        let server = Server::start(&dir, &deployment, &kubeconfig).await;
        let caller = world.front_proxy_of(server.stranger());
        Self {
            world,
            server,
            kubeconfig,
            caller,
        }
    }

    pub async fn start_again(&mut self) {
        self.server.start_again(&self.kubeconfig).await;
    }

    /// The operations that it shows. Waits until there are any.
    pub async fn live(&self) -> BTreeMap<String, Value> {
        let identity = [
            ("X-Remote-User", "test"),
            ("X-Remote-Group", "system:masters"),
        ];
        let path = OPERATION.path(None);
        let list = eventually("the server answers", async || {
            let answer = self.caller.get_with(&path, &identity).await;
            so(answer.code == 200, answer.code)?;
            Ok(answer.body)
        })
        .await;
        by(&list, "/metadata/uid")
    }

    /// One of its metrics, as the sum over its series.
    pub async fn metric(&self, name: &str) -> f64 {
        let identity = [
            ("X-Remote-User", "test"),
            ("X-Remote-Group", "system:masters"),
        ];
        let answer = self.caller.get_with("/metrics", &identity).await;
        sum(&answer.text, name, "")
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        let dir: &Path = self.kubeconfig.parent().expect("it is in a folder");
        std::fs::read_to_string(dir.join("ifo-apiserver.log")).unwrap_or_default()
    }

    /// Waits until the shown operations and the custom resources agree. Returns the custom
    /// resources by the UID of the live operation.
    pub async fn agreed(&self) -> BTreeMap<String, Value> {
        self.agreed_but_for(|_| false).await
    }

    /// The same without custom resources of completed operations. An operation that only a previous
    /// server has detected may exist only as a custom resource.
    pub async fn agreed_but_for_history(&self) -> BTreeMap<String, Value> {
        self.agreed_but_for(|cr| cr["status"]["phase"] == "Completed")
            .await
    }

    async fn agreed_but_for(&self, alone: impl Fn(&Value) -> bool) -> BTreeMap<String, Value> {
        eventually("live operations and custom resources agree", async || {
            let live = self.live().await;
            let crs = crs(self.world).await;
            let differ = disagreement(&live, &crs, &alone);
            so(differ.is_none(), differ)?;
            Ok(crs)
        })
        .await
    }
}

/// All custom resources by the UID of the live operation.
pub async fn crs(world: &World) -> BTreeMap<String, Value> {
    // A kube-apiserver that has just started returns 429 for some time.
    let list = eventually("custom resources are served", async || {
        let answer = world.admin.get(&CR.path(None)).await;
        so(answer.code == 200, answer.code)?;
        Ok(answer.body)
    })
    .await;
    let all = by(&list, "/status/liveUID");
    assert_eq!(Some(all.len()), list["items"].as_array().map(Vec::len));
    all
}

fn by(list: &Value, pointer: &str) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let uid = |it: &Value| text(it, pointer).to_owned();
    items.into_iter().map(|it| (uid(&it), it)).collect()
}

/// The first difference. A settling operation is written as active.
fn disagreement(
    live: &BTreeMap<String, Value>,
    crs: &BTreeMap<String, Value>,
    alone: impl Fn(&Value) -> bool,
) -> Option<String> {
    for (uid, operation) in live {
        let Some(cr) = crs.get(uid) else {
            return Some(format!("{} is not written", operation["metadata"]["name"]));
        };
        let say = |field: &str| {
            format!(
                "{field} of {}: {} and {}",
                operation["metadata"]["name"], operation["status"], cr["status"]
            )
        };
        if operation["metadata"]["labels"] != cr["metadata"]["labels"] {
            return Some(say("labels"));
        }
        if operation["spec"] != cr["spec"] {
            return Some(say("spec"));
        }
        if operation["metadata"]["creationTimestamp"] != cr["status"]["started"] {
            return Some(say("start"));
        }
        for field in ["phase", "reason", "completed", "message", "progress"] {
            if operation["status"][field] != cr["status"][field] {
                return Some(say(field));
            }
        }
    }
    let left = |(uid, cr): &(&String, &Value)| !live.contains_key(*uid) && !alone(cr);
    let left = crs.iter().find(left);
    left.map(|(_, cr)| format!("{} is left", cr["metadata"]["name"]))
}

/// Two custom resources of the same subject, operation and item that are active at the same time,
/// if any. They would be one run that was written under two names.
pub fn doubled<'a>(crs: impl Iterator<Item = &'a Value>) -> Option<(&'a Value, &'a Value)> {
    let mut runs: BTreeMap<[String; 3], Vec<&Value>> = BTreeMap::new();
    for cr in crs {
        let fields = ["/spec/subject/uid", "/spec/operation", "/spec/item"];
        let identity = fields.map(|field| text(cr, field).to_owned());
        runs.entry(identity).or_default().push(cr);
    }
    let end = |cr: &'a Value| match text(cr, "/status/completed") {
        "" => "~", // It goes on: after every time.
        completed => completed,
    };
    runs.into_values().find_map(|mut runs| {
        runs.sort_by_key(|cr| text(cr, "/status/started"));
        let mut pairs = runs.windows(2);
        let pair = pairs.find(|pair| end(pair[0]) > text(pair[1], "/status/started"));
        pair.map(|pair| (pair[0], pair[1]))
    })
}

/// The fields of an operation that must not change.
pub fn identity(operation: &Value) -> [&str; 3] {
    [
        text(operation, "/metadata/name"),
        text(operation, "/metadata/uid"),
        text(operation, "/metadata/creationTimestamp"),
    ]
}

/// The number of writes of custom resources, from a metric of kube-apiserver.
pub async fn writes(world: &World) -> f64 {
    let text = world.admin.get("/metrics").await.text;
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

/// The sum of a metric's series whose line contains `with`.
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

/// Deletes the remains of the tests.
pub async fn clear(world: &World) {
    let answer = world.admin.delete(&CR.path(None)).await;
    assert!(matches!(answer.code, 200 | 404), "{}", answer.text);
}
