//! Traffic for the tests of informers, which are clients that list and watch operations. The
//! traffic consists of random creations, changes and deletions of VirtualMachines. These changes
//! make operations start and end.

use crate::harness::informers::{Objects, list_operations};
use crate::harness::{TestCluster, VM, eventually, ok_if, text};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

/// Seed of the random choices. Two runs with the same seed can still differ, because their timing
/// differs.
const SEED: u64 = 0x1f0;
/// Largest number of VirtualMachines in each namespace.
const MACHINES: usize = 8;
/// Pause between two changes. There are about 35 changes per second, as in a busy cluster.
const PAUSE: Duration = Duration::from_millis(25);
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
const DISKS: [&str; 3] = ["x", "y", "z"];

/// The namespace and the name of a VirtualMachine.
type Id = (&'static str, String);

/// The status of a VirtualMachine, without the random progress of its copies.
#[derive(Clone, Debug, Default)]
struct Machine {
    status: &'static str,
    /// The disks that are being copied. The rules detect one operation for each of these disks.
    copies: Vec<&'static str>,
}

impl Machine {
    fn random(random: &mut fastrand::Rng) -> Self {
        let copies = DISKS.into_iter().filter(|_| random.u8(..4) == 0);
        Self {
            copies: copies.collect(),
            status: STATUSES[random.usize(..STATUSES.len())],
        }
    }

    fn json(&self, random: &mut fastrand::Rng) -> Value {
        let disk = |name: &&str| json!({"name": name, "copying": true, "done": random.u8(..=100)});
        json!({
            "printableStatus": self.status,
            "disks": self.copies.iter().map(disk).collect::<Vec<_>>(),
        })
    }
}

/// Makes random changes, and remembers which VirtualMachines must exist.
pub struct Traffic {
    cluster: &'static TestCluster,
    namespaces: Vec<&'static str>,
    random: fastrand::Rng,
    machines: BTreeMap<Id, Machine>,
}

impl Traffic {
    /// Creates namespaces and rule sets. The methods [`Self::steps`] and [`Self::during`] create
    /// the VirtualMachines.
    pub async fn start(cluster: &'static TestCluster) -> Self {
        let mut namespaces = Vec::new();
        for prefix in ["informed", "informed-x", "informed"] {
            namespaces.push(cluster.namespace(prefix).await);
        }
        let rule = |status: &str| {
            let expression = format!("object.status.printableStatus == '{status}'");
            json!({"operation": status, "expression": expression})
        };
        let copying = json!({
            "operation": "Copying", "forEach": "object.status.disks", "itemKey": "item.name",
            "expression": "item.copying", "progress": "item.done",
            "message": "'at ' + string(item.done)",
        });
        // Two rule sets detect migrations. If both detect the same migration, the server serves one
        // operation. In the first rule set, a migration supersedes `Starting` and `Stopping`: when
        // the migration starts, these operations end.
        let mut migrating = rule("Migrating");
        migrating["supersedes"] = json!(["Starting", "Stopping"]);
        let sets = [
            json!([rule("Starting"), rule("Stopping"), copying, migrating]),
            json!([rule("Migrating")]),
        ];
        for (set, rules) in sets.iter().enumerate() {
            let (group, version) = VM.group_version();
            let rule_set = json!({
                "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
                "metadata": {"name": format!("informed-{set}")},
                "spec": {
                    "component": "kubevirt", "namespaces": namespaces, "rules": rules,
                    "target": {"group": group, "version": version, "resource": VM.plural},
                },
            });
            cluster.ready_rule_set(&rule_set).await;
        }
        Self {
            cluster,
            namespaces,
            random: fastrand::Rng::with_seed(SEED),
            machines: BTreeMap::new(),
        }
    }

    /// Makes `count` changes.
    pub async fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step().await;
        }
    }

    /// Makes changes until `other` completes. Returns the result of `other`.
    pub async fn during<T>(&mut self, other: impl Future<Output = T>) -> T {
        let is_done = Cell::new(false);
        let other = async {
            let result = other.await;
            is_done.set(true);
            result
        };
        let steps = async {
            while !is_done.get() {
                self.step().await;
            }
        };
        futures::join!(other, steps).0
    }

    async fn step(&mut self) {
        tokio::time::sleep(PAUSE).await;
        let namespace = self.namespaces[self.random.usize(..self.namespaces.len())];
        let id = (namespace, format!("vm-{}", self.random.usize(..MACHINES)));
        let path = VM.path(Some(namespace));
        let one = format!("{path}/{}", id.1);
        if !self.machines.contains_key(&id) {
            let machine = Machine::random(&mut self.random);
            let object = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": id.1},
                "status": machine.json(&mut self.random),
            });
            self.cluster.admin.post(&path, &object).await.ok();
            self.machines.insert(id, machine);
        } else if self.random.u8(..5) == 0 {
            self.cluster.admin.delete(&one).await.ok();
            self.machines.remove(&id);
        } else {
            let mut machine = self.machines[&id].clone();
            // In half of the cases, only the progress of the copies changes.
            if self.random.bool() {
                machine = Machine::random(&mut self.random);
            }
            let patch = json!({"status": machine.json(&mut self.random)});
            self.cluster.admin.merge(&one, &patch).await.ok();
            self.machines.insert(id, machine);
        }
    }

    /// Deletes the VirtualMachine on which both informers know the most operations.
    /// `known_operations` contains the operations that each informer knows. Returns the UIDs of the
    /// operations on the deleted VirtualMachine that both informers know.
    pub async fn delete_with_operations(
        &mut self,
        known_operations: [&Objects; 2],
    ) -> BTreeSet<String> {
        let operations_of = |(namespace, name): &Id| {
            let [one, other] = known_operations.map(|objects| {
                let theirs = objects.values().filter(|it| {
                    text(it, "/metadata/namespace") == *namespace
                        && text(it, "/spec/subject/name") == name
                });
                let uids = theirs.map(|it| text(it, "/metadata/uid").to_owned());
                uids.collect::<BTreeSet<_>>()
            });
            &one & &other
        };
        let (id, uids) = (self.machines.keys())
            .map(|id| (id.clone(), operations_of(id)))
            .max_by_key(|(_, uids)| uids.len())
            .expect("earlier changes created VirtualMachines");
        assert!(!uids.is_empty(), "no VirtualMachine has an operation");
        let path = format!("{}/{}", VM.path(Some(id.0)), id.1);
        self.cluster.admin.delete(&path).await.ok();
        self.machines.remove(&id);
        uids
    }

    /// Waits until exactly the operations of the current VirtualMachines are listed. Returns the
    /// number of these operations.
    pub async fn wait_until_expected(&self) -> usize {
        let mut want: Vec<[&str; 4]> = Vec::new();
        for ((namespace, name), machine) in &self.machines {
            let (namespace, name) = (*namespace, name.as_str());
            let own = STATUSES[3..].contains(&machine.status);
            want.extend(own.then_some([namespace, name, machine.status, ""]));
            let copy = |disk: &&'static str| [namespace, name, "Copying", disk];
            want.extend(machine.copies.iter().map(copy));
        }
        want.sort_unstable();
        eventually("the expected operations are listed", async || {
            let all = list_operations(&self.cluster.admin).await?;
            let mut found: Vec<[&str; 4]> = (all.values())
                .map(|it| {
                    let subject = ["/metadata/namespace", "/spec/subject/name"];
                    let [namespace, name] = subject.map(|pointer| text(it, pointer));
                    let operation = text(it, "/spec/operation");
                    [namespace, name, operation, text(it, "/spec/item")]
                })
                .filter(|[namespace, ..]| self.namespaces.contains(namespace))
                .collect();
            found.sort_unstable();
            ok_if(found == want, format!("{found:?}, expected {want:?}"))
        })
        .await;
        want.len()
    }
}
