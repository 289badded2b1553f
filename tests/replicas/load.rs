//! The load of the test with several replicas. The load changes VirtualMachines 20 times a second,
//! and computes the operations that the server must detect on them.

use crate::cluster::Replicas;
use crate::harness::{
    Caller, Cluster, DEADLINE, NAMESPACE, OPERATION, VM, eventually, ok_if, rule_set, text,
};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pause between two changes.
const PAUSE: Duration = Duration::from_millis(50);

const NAMESPACES: [&str; 3] = ["load-0", "load-1", "load-2"];

/// Number of VirtualMachines in each namespace that the load creates, changes and deletes.
const MACHINES: usize = 30;

/// Number of steady VirtualMachines in each namespace. They migrate during the whole test, so their
/// operations never end. The load changes only the messages of these operations.
const STEADY: usize = 5;

/// The status of a steady VirtualMachine.
const MIGRATING: &str = "Migrating";

/// The possible statuses of a VirtualMachine. The rules detect an operation for the first three
/// statuses, with the same name as the status. The last two statuses mean that there is no
/// operation.
const STATUSES: [&str; 5] = [MIGRATING, "Starting", "Stopping", "Running", "Stopped"];

/// An operation: its namespace, the name of its VirtualMachine, and the name of the operation.
type Key = (String, String, String);

/// The namespace and the name of each VirtualMachine, and its status.
type Machines = BTreeMap<(String, String), &'static str>;

/// The running load.
pub struct Load {
    admin: Caller,
    /// The name, UID and creation timestamp of each operation of a steady VirtualMachine.
    steady: BTreeMap<Key, [String; 3]>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Machines>,
}

impl Load {
    /// Creates the rule set, the namespaces and the steady VirtualMachines, and starts the load.
    pub async fn start(cluster: &Cluster) -> Self {
        let rule = |status: &str| {
            json!({
                "operation": status,
                "expression": format!("object.status.printableStatus == '{status}'"),
                "message": "'step ' + string(object.status.step)",
                "outcome": "'Succeeded'",
            })
        };
        let mut set = rule_set("load", &VM, &[]);
        set["spec"]["rules"] = STATUSES[..3].iter().copied().map(rule).collect();
        cluster.ready_rule_set(&set).await;
        let admin = cluster.admin.clone();
        let mut changes = Changes {
            admin: admin.clone(),
            machines: Machines::new(),
        };
        for namespace in NAMESPACES {
            let object = NAMESPACE.object(namespace, json!({}));
            cluster.create(&NAMESPACE, None, &object).await;
            for number in 0..STEADY {
                let name = format!("steady-{number}");
                changes.set(namespace, &name, Some(MIGRATING), 0).await;
            }
        }
        let expected = expected(&changes.machines);
        let steady = eventually("the steady VirtualMachines have operations", async || {
            let found = operations(&admin).await?;
            ok_if(found.keys().eq(&expected), &found)?;
            Ok(found)
        })
        .await;
        let steady = steady.into_iter();
        let stop = watch::Sender::new(false);
        Self {
            admin,
            steady: steady.map(|(key, it)| (key, identity(&it))).collect(),
            task: tokio::spawn(changes.run(stop.subscribe())),
            stop,
        }
    }

    /// Stops the load, and waits until every replica and the kube-apiserver list exactly the
    /// expected operations. Returns the number of operations.
    pub async fn stop_and_wait(&mut self, replicas: &Replicas<'_>) -> usize {
        self.stop.send_replace(true);
        let stopped = tokio::time::timeout(DEADLINE, &mut self.task).await;
        let stopped = stopped.expect("the load must stop before the deadline");
        let expected = expected(&stopped.expect("the load must not panic"));
        let endpoints = replicas.endpoints.all();
        let replicas = endpoints.iter().map(|it| &it.caller);
        for caller in replicas.chain([&self.admin]) {
            eventually("the expected operations are listed", async || {
                let found = operations(caller).await?;
                let keys: BTreeSet<Key> = found.keys().cloned().collect();
                let differences: Vec<_> = keys.symmetric_difference(&expected).collect();
                ok_if(differences.is_empty(), differences)?;
                for (key, before) in &self.steady {
                    assert_eq!(identity(&found[key]), *before, "{key:?}");
                }
                Ok(())
            })
            .await;
        }
        expected.len()
    }

    /// Fails if a client has received the end of a steady VirtualMachine's operation. `ended`
    /// contains the UIDs of all operations whose end this client has received.
    pub fn assert_steady_never_ended(&self, ended: &BTreeSet<String>) {
        for (key, [_, uid, _]) in &self.steady {
            assert!(!ended.contains(uid), "a client received the end of {key:?}");
        }
    }
}

/// Returns the name, the UID and the creation timestamp of an operation.
fn identity(operation: &Value) -> [String; 3] {
    let fields = ["name", "uid", "creationTimestamp"];
    fields.map(|field| text(&operation["metadata"], &format!("/{field}")).to_owned())
}

/// Returns the operations that the rules must detect on these VirtualMachines.
fn expected(machines: &Machines) -> BTreeSet<Key> {
    let busy = machines
        .iter()
        .filter(|(_, status)| STATUSES[..3].contains(status));
    busy.map(|((namespace, name), status)| (namespace.clone(), name.clone(), (*status).to_owned()))
        .collect()
}

/// Lists the operations. The replicas retain no completed operations, so all of them are in flight.
async fn operations(caller: &Caller) -> Result<BTreeMap<Key, Value>, String> {
    let answer = caller.try_get(&OPERATION.path(None)).await?;
    ok_if(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    let completed = items.iter().find(|it| it["status"]["phase"] != "Active");
    ok_if(completed.is_none(), completed)?;
    let keyed = items.into_iter().map(|it| {
        let fields = [
            "/metadata/namespace",
            "/spec/subject/name",
            "/spec/operation",
        ];
        let [namespace, name, operation] = fields.map(|field| text(&it, field).to_owned());
        ((namespace, name, operation), it)
    });
    Ok(keyed.collect())
}

/// The task that changes VirtualMachines.
struct Changes {
    admin: Caller,
    machines: Machines,
}

impl Changes {
    /// Changes VirtualMachines until `stop` is true. Returns the VirtualMachines.
    async fn run(mut self, stop: watch::Receiver<bool>) -> Machines {
        let mut interval = tokio::time::interval(PAUSE);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut step = 0;
        while !*stop.borrow() {
            interval.tick().await;
            step += 1;
            let namespace = NAMESPACES[fastrand::usize(..NAMESPACES.len())];
            let number = fastrand::usize(..MACHINES + STEADY);
            if let Some(steady) = number.checked_sub(MACHINES) {
                let name = format!("steady-{steady}");
                self.set(namespace, &name, Some(MIGRATING), step).await;
                continue;
            }
            let status = match fastrand::u8(..10) {
                0 => None,
                _ => Some(STATUSES[fastrand::usize(..STATUSES.len())]),
            };
            let name = format!("vm-{number}");
            self.set(namespace, &name, status, step).await;
        }
        self.machines
    }

    /// Gives a VirtualMachine the status `status`, and creates the VirtualMachine if needed. If
    /// `status` is None, deletes the VirtualMachine.
    async fn set(&mut self, namespace: &str, name: &str, status: Option<&'static str>, step: u64) {
        let id = (namespace.to_owned(), name.to_owned());
        let content = json!({"status": {"printableStatus": status, "step": step}});
        let (all, one) = (VM.path(Some(namespace)), VM.one(Some(namespace), name));
        match (self.machines.contains_key(&id), status) {
            (false, None) => {}
            (false, Some(_)) => {
                let machine = VM.object(name, content);
                // 409 is also a success: an earlier attempt has created the VirtualMachine, but its
                // answer was lost.
                self.repeat(Method::POST, &all, &machine, &[201, 409]).await;
            }
            (true, Some(_)) => self.repeat(Method::PATCH, &one, &content, &[200]).await,
            (true, None) => {
                self.repeat(Method::DELETE, &one, &json!({}), &[200, 404])
                    .await;
            }
        }
        match status {
            Some(status) => self.machines.insert(id, status),
            None => self.machines.remove(&id),
        };
    }

    /// Repeats a request until the status code is one of `good`.
    async fn repeat(&self, method: Method, path: &str, body: &Value, good: &[u16]) {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        loop {
            let request = Request::builder()
                .method(method.clone())
                .uri(path)
                .header("Content-Type", kind)
                .body(Body::from(body.to_string().into_bytes()))
                .expect("the request is valid");
            match self.admin.try_send(request).await {
                Ok(answer) if good.contains(&answer.code) => return,
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}
