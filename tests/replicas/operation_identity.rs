//! Checks that operations keep their names, UIDs and creation timestamps through a disturbance.

use crate::cluster::Replicas;
use crate::harness::{eventually, text};
use crate::load::{Key, Load, operations};
use serde_json::Value;
use std::collections::BTreeMap;

/// Name, UID and creation timestamp.
pub fn identity(operation: &Value) -> [String; 3] {
    let fields = ["name", "uid", "creationTimestamp"];
    fields.map(|field| text(&operation["metadata"], &format!("/{field}")).to_owned())
}

/// Operations before a disturbance.
pub struct Held {
    /// The version of each operation's machine.
    machines: BTreeMap<Key, u64>,
    operations: BTreeMap<Key, Value>,
}

/// The operations in a list.
pub async fn held(replicas: &Replicas<'_>, load: &Load) -> Held {
    let machines = load.stable();
    let mut operations = eventually("operations are listed", async || {
        operations(&replicas.admin).await
    })
    .await;
    // A settling operation belongs to the machine's previous status, and may end.
    operations.retain(|_, it| it["status"]["state"] != "Settling");
    Held {
        machines,
        operations,
    }
}

impl Held {
    /// Fails if an operation was lost or replaced although its machine has kept its status.
    pub async fn must_be_unchanged(&self, replicas: &Replicas<'_>, load: &Load) {
        let after = eventually("operations are listed", async || {
            operations(&replicas.admin).await
        })
        .await;
        let machines = load.stable();
        let mut compared = 0;
        for (key, before) in &self.operations {
            let kept = |machines: &BTreeMap<Key, u64>| machines.get(key).copied();
            if kept(&self.machines).is_none() || kept(&self.machines) != kept(&machines) {
                continue;
            }
            compared += 1;
            let Some(after) = after.get(key) else {
                panic!("{key:?} is lost: {before}\n{}", replicas.logs());
            };
            assert!(
                identity(before) == identity(after),
                "{key:?} is another one: {before} {after}\n{}",
                replicas.logs()
            );
        }
        assert!(compared > 10, "{compared} operations are too few");
    }
}
