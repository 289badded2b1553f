//! The load of the tests with several replicas. The load changes VirtualMachines 20 times a second,
//! and computes the operations that the server must detect on them. It also creates and deletes
//! namespaces.

use crate::cluster::Replicas;
use crate::harness::{
    ApiAnswer, Caller, Cluster, DEADLINE, NAMESPACE as NAMESPACE_KIND, OPERATION, VM, eventually,
    ok_if, rule_set, text,
};
use crate::operation_identity::identity;
use crate::report::Report;
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Name of the count of created and deleted namespaces in the report.
pub const NAMESPACE: &str = "namespaces that were created and deleted";

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

/// The namespace and the name of a VirtualMachine.
pub type Id = (String, String);

/// An operation: its namespace, the name of its VirtualMachine, and the name of the operation.
pub type Key = (String, String, String);

#[derive(Clone, Copy, Debug)]
struct Machine {
    /// None if the VirtualMachine does not exist.
    status: Option<&'static str>,
    /// Counter of changes. [`set_status`] increments it before and after each change of the status.
    /// So the version is odd while the status changes.
    version: u64,
}

type Machines = Arc<Mutex<BTreeMap<Id, Machine>>>;

/// The running load.
pub struct Load {
    admin: Caller,
    machines: Machines,
    /// The name, UID and creation timestamp of each operation of a steady VirtualMachine.
    steady: BTreeMap<Key, [String; 3]>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Load {
    /// Creates the rule set, the namespaces and the steady VirtualMachines, and starts the load.
    pub async fn start(cluster: &Cluster, seed: u64) -> Self {
        let rule = |status: &str| {
            json!({
                "operation": status,
                "expression": format!("object.status.printableStatus == '{status}'"),
                "message": "'step ' + string(object.status.step)",
            })
        };
        let mut set = rule_set("load", &VM, &[]);
        set["spec"]["rules"] = STATUSES[..3].iter().copied().map(rule).collect();
        cluster.ready_rule_set(&set).await;
        let admin = &cluster.admin;
        let machines = Machines::default();
        for namespace in NAMESPACES {
            let object = NAMESPACE_KIND.object(namespace, json!({}));
            cluster.create(&NAMESPACE_KIND, None, &object).await;
            for number in 0..STEADY {
                let id = (namespace.to_owned(), format!("steady-{number}"));
                set_status(admin, &machines, &id, Some(MIGRATING), 0).await;
            }
        }
        let mut load = Self {
            admin: admin.clone(),
            steady: BTreeMap::new(),
            stop: watch::Sender::new(false),
            task: tokio::spawn(async {}),
            machines,
        };
        let steady = eventually("the steady VirtualMachines have operations", async || {
            let found = operations(&load.admin).await?;
            let keys: BTreeSet<&Key> = found.keys().collect();
            ok_if(load.expected().iter().eq(keys), &found)?;
            Ok(found)
        })
        .await;
        let identities = steady.into_iter().map(|(key, it)| (key, identity(&it)));
        load.steady = identities.collect();
        let random = fastrand::Rng::with_seed(seed);
        let run = run(
            admin.clone(),
            load.machines.clone(),
            random,
            load.stop.subscribe(),
        );
        load.task = tokio::spawn(run);
        load
    }

    /// Returns the operations of all VirtualMachines whose status does not change at the moment.
    /// The value is the version of the VirtualMachine (`Machine::version`).
    pub fn stable(&self) -> BTreeMap<Key, u64> {
        let machines = locked(&self.machines);
        let key = |(id, machine): (&Id, &Machine)| {
            let is_stable = machine.version.is_multiple_of(2);
            let operation = operation(machine).filter(|_| is_stable)?;
            let key = (id.0.clone(), id.1.clone(), operation.to_owned());
            Some((key, machine.version))
        };
        machines.iter().filter_map(key).collect()
    }

    /// Returns the operations that must exist, without those of VirtualMachines whose status
    /// changes at the moment.
    fn expected(&self) -> BTreeSet<Key> {
        self.stable().into_keys().collect()
    }

    /// Stops the load, and waits until every replica and the kube-apiserver list exactly the
    /// expected operations. Returns the number of operations.
    pub async fn stop_and_wait(&mut self, replicas: &Replicas<'_>) -> usize {
        self.stop.send_replace(true);
        let stopped = tokio::time::timeout(DEADLINE, &mut self.task).await;
        stopped
            .expect("the load must stop before the deadline")
            .expect("the load must not panic");
        let expected = self.expected();
        let endpoints = replicas.endpoints.all();
        let mut callers: Vec<&Caller> = endpoints.iter().map(|it| &it.caller.0).collect();
        callers.push(&self.admin);
        for caller in callers {
            eventually("the expected operations are listed", async || {
                let answer = caller.try_get(&OPERATION.path(None)).await?;
                let items = answer.body["items"].as_array();
                let completed = items.into_iter().flatten();
                let completed = completed.filter(|it| it["status"]["phase"] != "Active");
                // The replicas do not retain completed operations, so they must list no completed
                // operation.
                ok_if(
                    completed.clone().count() == 0,
                    completed.collect::<Vec<_>>(),
                )?;
                let found = operations(caller).await?;
                let keys: BTreeSet<&Key> = found.keys().collect();
                let missing: Vec<_> = expected.iter().filter(|it| !keys.contains(it)).collect();
                let extra: Vec<_> = keys.iter().filter(|it| !expected.contains(**it)).collect();
                ok_if(
                    missing.is_empty() && extra.is_empty(),
                    format!("missing: {missing:?}, unexpected: {extra:?}"),
                )?;
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

fn locked(machines: &Machines) -> MutexGuard<'_, BTreeMap<Id, Machine>> {
    machines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn operation(machine: &Machine) -> Option<&'static str> {
    machine
        .status
        .filter(|status| STATUSES[..3].contains(status))
}

/// Lists the operations in flight in the namespaces of the load.
pub async fn operations(caller: &Caller) -> Result<BTreeMap<Key, Value>, String> {
    let answer = caller.try_get(&OPERATION.path(None)).await?;
    ok_if(answer.code == 200, &answer)?;
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    let of_load = items.into_iter().filter(|it| {
        NAMESPACES.contains(&text(it, "/metadata/namespace")) && it["status"]["phase"] == "Active"
    });
    let keyed = of_load.map(|it| {
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

/// Changes VirtualMachines until `stop` is true.
async fn run(
    admin: Caller,
    machines: Machines,
    mut random: fastrand::Rng,
    stop: watch::Receiver<bool>,
) {
    let mut interval = tokio::time::interval(PAUSE);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut step = 0;
    while !*stop.borrow() {
        interval.tick().await;
        step += 1;
        let namespace = NAMESPACES[random.usize(..NAMESPACES.len())].to_owned();
        let number = random.usize(..MACHINES + STEADY);
        if let Some(steady) = number.checked_sub(MACHINES) {
            let path = VM.one(Some(&namespace), &format!("steady-{steady}"));
            let patch = json!({"status": {"step": step}});
            retry_until(&admin, Method::PATCH, &path, &patch, &[200]).await;
            continue;
        }
        let id = (namespace, format!("vm-{number}"));
        let status = match random.u8(..10) {
            0 => None,
            _ => Some(STATUSES[random.usize(..STATUSES.len())]),
        };
        set_status(&admin, &machines, &id, status, step).await;
    }
}

/// Gives a VirtualMachine the status `status`, and creates the VirtualMachine if needed. If
/// `status` is None, deletes the VirtualMachine.
async fn set_status(
    admin: &Caller,
    machines: &Machines,
    id: &Id,
    status: Option<&'static str>,
    step: u64,
) {
    let before = {
        let mut machines = locked(machines);
        let machine = machines.entry(id.clone()).or_insert(Machine {
            status: None,
            version: 0,
        });
        if machine.status == status {
            return;
        }
        machine.version += 1;
        machine.status
    };
    let all = VM.path(Some(&id.0));
    let one = format!("{all}/{}", id.1);
    let content = json!({"printableStatus": status, "step": step});
    match (before, status) {
        (None, Some(_)) => {
            let machine = VM.object(&id.1, json!({"status": content}));
            // 409 is also a success: an earlier attempt has created the VirtualMachine, but its
            // answer was lost.
            retry_until(admin, Method::POST, &all, &machine, &[201, 409]).await;
        }
        (Some(_), Some(_)) => {
            let patch = json!({"status": content});
            retry_until(admin, Method::PATCH, &one, &patch, &[200]).await;
        }
        (_, None) => {
            retry_until(admin, Method::DELETE, &one, &Value::Null, &[200, 404]).await;
        }
    }
    let mut machines = locked(machines);
    let machine = machines.get_mut(id).expect("entries are never removed");
    machine.status = status;
    machine.version += 1;
}

/// Repeats a request until the status code is one of `good`. Requests can fail, because the test
/// may restart the kube-apiserver.
async fn retry_until(
    admin: &Caller,
    method: Method,
    path: &str,
    body: &Value,
    good: &[u16],
) -> ApiAnswer {
    let kind = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    loop {
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header("Content-Type", kind)
            .body(Body::from(body.clone().into_bytes()))
            .expect("the request is valid");
        match admin.try_send(request).await {
            Ok(answer) if good.contains(&answer.code) => return answer,
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Repeatedly creates a namespace with an operation in it, and deletes the namespace. If an
/// aggregated API fails, Kubernetes cannot delete a namespace. So a deletion succeeds only if the
/// API of the replicas works.
pub async fn namespaces(admin: Caller, report: Arc<Report>, worker: usize) {
    for number in 0.. {
        let name = format!("passing-{worker}-{number}");
        let namespace = NAMESPACE_KIND.object(&name, json!({}));
        let (namespaces, path) = (NAMESPACE_KIND.path(None), NAMESPACE_KIND.one(None, &name));
        retry_until(&admin, Method::POST, &namespaces, &namespace, &[201, 409]).await;
        let status = json!({"printableStatus": MIGRATING, "step": 0});
        let machine = VM.object("a", json!({"status": status}));
        let machines = VM.path(Some(&name));
        retry_until(&admin, Method::POST, &machines, &machine, &[201, 409]).await;
        let deleted = [200, 202, 404, 409];
        retry_until(&admin, Method::DELETE, &path, &Value::Null, &deleted).await;
        let gone = retry_until(&admin, Method::GET, &path, &Value::Null, &[404]);
        match tokio::time::timeout(DEADLINE, gone).await {
            Ok(_) => report.count(NAMESPACE),
            Err(_) => report.violation(&format!("the namespace {name} was not deleted in time")),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
