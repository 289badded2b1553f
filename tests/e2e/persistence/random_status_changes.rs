//! Traffic for the tests of persistence mode: random changes of the status of VirtualMachines.
//! These changes let operations start and end.

use crate::harness::{TestCluster, VM, rule_set, text};
use serde_json::{Value, json};

/// The values of a VirtualMachine's status. The rules detect an operation for each of the last
/// three values.
const STATUSES: [&str; 6] = [
    "Running",
    "Stopped",
    "Paused",
    "Migrating",
    "Starting",
    "Stopping",
];

/// Largest number of requests that change VirtualMachines at the same time.
const AT_ONCE: usize = 8;

/// VirtualMachines in one namespace. `statuses` contains the expected status of each
/// VirtualMachine.
pub struct Traffic {
    cluster: &'static TestCluster,
    pub namespace: &'static str,
    random: fastrand::Rng,
    pub statuses: Vec<&'static str>,
}

impl Traffic {
    /// Creates VirtualMachines without operations, and a rule set with three operations. When one
    /// of these operations starts, the server ends any other operation on the same VirtualMachine
    /// (`supersedes`).
    pub async fn start(cluster: &'static TestCluster, machines: usize) -> Self {
        let namespace = cluster.new_namespace("persisted").await;
        let expression = |status: &str| format!("object.status.printableStatus == '{status}'");
        let operations = ["Migrating", "Starting", "Stopping"];
        let rules = operations.iter().map(|it| (*it, expression(it)));
        let rules: Vec<(&str, String)> = rules.collect();
        let rules: Vec<(&str, &str)> = rules.iter().map(|(a, b)| (*a, b.as_str())).collect();
        let mut set = rule_set(namespace, &VM, &rules);
        set["spec"]["namespaces"] = json!([namespace]);
        for rule in set["spec"]["rules"].as_array_mut().into_iter().flatten() {
            rule["supersedes"] = json!(["*"]);
        }
        cluster.ready_rule_set(&set).await;
        for number in 0..machines {
            cluster.machine(namespace, &name(number), "Running").await;
        }
        Self {
            cluster,
            namespace,
            random: fastrand::Rng::with_seed(7),
            statuses: vec!["Running"; machines],
        }
    }

    /// Makes `steps` changes as fast as possible. Ignores failed requests. After a failed request,
    /// the status of a VirtualMachine can differ from `statuses` until a call of [`Self::repeat`].
    pub async fn steps(&mut self, steps: usize) {
        let mut left = steps;
        while left > 0 {
            let mut batch: Vec<usize> = (0..self.statuses.len()).collect();
            self.random.shuffle(&mut batch);
            batch.truncate(AT_ONCE.min(left));
            left -= batch.len();
            let changes = batch.into_iter().map(|machine| {
                let status = STATUSES[self.random.usize(..STATUSES.len())];
                self.statuses[machine] = status;
                set(self.cluster, self.namespace, machine, status)
            });
            let changes: Vec<_> = changes.collect();
            futures::future::join_all(changes).await;
        }
    }

    /// Sets the status of each VirtualMachine to its value in `statuses`.
    pub async fn repeat(&self) {
        for (machine, status) in self.statuses.iter().enumerate() {
            let name = name(machine);
            self.cluster.set_status(self.namespace, &name, status).await;
        }
    }

    /// Returns the operations that must be active. Each entry is the name of the VirtualMachine and
    /// the name of the operation.
    pub fn expected_active(&self) -> Vec<(String, String)> {
        let operations = self.statuses.iter().enumerate();
        operations
            .filter(|(_, status)| status.ends_with("ing") && **status != "Running")
            .map(|(machine, status)| (name(machine), (*status).to_owned()))
            .collect()
    }

    /// Returns the active operations in the namespace of this traffic, in the form of
    /// [`Self::expected_active`]. `crs` contains custom resources or operations.
    pub fn active<'a>(&self, crs: impl Iterator<Item = &'a Value>) -> Vec<(String, String)> {
        let mut active: Vec<(String, String)> = crs
            .filter(|cr| cr["status"]["phase"] == "Active")
            .filter(|cr| text(cr, "/spec/subject/namespace") == self.namespace)
            .map(|cr| {
                let of = |pointer| text(cr, pointer).to_owned();
                (of("/spec/subject/name"), of("/spec/operation"))
            })
            .collect();
        active.sort();
        active
    }
}

fn name(machine: usize) -> String {
    format!("vm-{machine:03}")
}

async fn set(cluster: &TestCluster, namespace: &str, machine: usize, status: &str) {
    let path = VM.one(Some(namespace), &name(machine));
    let patch = json!({"status": {"printableStatus": status}}).to_string();
    let request = http::Request::patch(path)
        .header("Content-Type", "application/merge-patch+json")
        .body(kube::client::Body::from(patch.into_bytes()))
        .expect("the request is valid");
    // A test may have stopped the kube-apiserver, so this function ignores errors.
    let _ = cluster.admin.try_send(request).await;
}
