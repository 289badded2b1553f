//! Checks that operations keep their identity (name, UID and creation timestamp) during
//! disturbances, such as a SIGKILL of one replica of the server.

use crate::cluster::Replicas;
use crate::harness::{eventually, text};
use crate::load::{Key, Load, operations};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the name, the UID and the creation timestamp of an operation.
pub fn identity(operation: &Value) -> [String; 3] {
    let fields = ["name", "uid", "creationTimestamp"];
    fields.map(|field| text(&operation["metadata"], &format!("/{field}")).to_owned())
}

/// The VirtualMachines and their operations before a disturbance.
pub struct Snapshot {
    /// The version of the VirtualMachine of each expected operation, from `Load::stable`. The load
    /// increments the version when it changes the status. So if the version is the same, the status
    /// has not changed.
    machines: BTreeMap<Key, u64>,
    operations: BTreeMap<Key, Value>,
}

/// Lists the operations, and returns a snapshot of them.
pub async fn snapshot(replicas: &Replicas<'_>, load: &Load) -> Snapshot {
    let machines = load.stable();
    let mut operations = eventually("operations are listed", async || {
        operations(&replicas.admin).await
    })
    .await;
    // If the state of an operation is `Settling`, the rules no longer detect the operation, and it
    // may end during the disturbance. So the test does not compare this operation.
    operations.retain(|_, it| it["status"]["state"] != "Settling");
    Snapshot {
        machines,
        operations,
    }
}

impl Snapshot {
    /// Fails if an operation was lost or replaced although the status of its VirtualMachine has not
    /// changed.
    pub async fn assert_unchanged(&self, replicas: &Replicas<'_>, load: &Load) {
        let after = eventually("operations are listed", async || {
            operations(&replicas.admin).await
        })
        .await;
        let machines = load.stable();
        let mut compared = 0;
        for (key, before) in &self.operations {
            let version_before = self.machines.get(key);
            if version_before.is_none() || version_before != machines.get(key) {
                continue;
            }
            compared += 1;
            let Some(after) = after.get(key) else {
                panic!("operation {key:?} was lost: {before}\n{}", replicas.logs());
            };
            assert!(
                identity(before) == identity(after),
                "operation {key:?} was replaced by another one: {before} {after}\n{}",
                replicas.logs()
            );
        }
        assert!(compared > 10, "only {compared} operations were compared");
    }
}
