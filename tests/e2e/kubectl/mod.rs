//! kubectl, of today and of years ago: one table of command lines, and watches and waits
//! while an operation ends. What is printed is compared, not only that something is.

mod commands;
mod program;
mod table;
mod watches;

pub use program::Kubectl;
pub use watches::{is_log, is_open};

use crate::harness::{VM, World, rule_set, same_but_for_gaps, shared, skip, text};
use serde_json::{Value, json};

/// What the machines of a scene do: not in the order of their operations.
const MACHINES: [(&str, &str); 3] = [("a", "Starting"), ("b", "Migrating"), ("c", "Starting")];

/// Three operations in a namespace of their own.
struct Scene {
    namespace: &'static str,
    /// Of the machines a, b and c, in this order.
    operations: Vec<Value>,
}

impl Scene {
    /// Its operations as they are now.
    async fn again(&self, world: &World) -> Vec<Value> {
        world.until_operations(self.namespace, &MACHINES).await
    }

    /// Fails if anything but watch gaps has changed its operations to these.
    fn unchanged(&self, now: &[Value]) {
        assert_eq!(now.len(), self.operations.len(), "{now:?}");
        let mut pairs = now.iter().zip(&self.operations);
        assert!(
            pairs.all(|(one, other)| same_but_for_gaps(one, other)),
            "{now:?}"
        );
    }

    async fn set(world: &World, prefix: &str) -> Self {
        let namespace = world.namespace(prefix).await;
        let doing = |status: &str| {
            json!({
                "operation": status,
                "expression": format!("object.status.printableStatus == '{status}'"),
                "message": "object.status.message", "progress": "object.status.progress",
            })
        };
        let mut rules = rule_set(namespace, &VM, &[]);
        rules["spec"]["namespaces"] = json!([namespace]);
        rules["spec"]["labels"] = json!({"team": namespace});
        rules["spec"]["rules"] = json!([doing("Starting"), doing("Migrating")]);
        world.ready_rule_set(&rules).await;
        for (name, status) in MACHINES {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
                "status": {"printableStatus": status, "message": "Half done.", "progress": 50},
            });
            world.create(&VM, Some(namespace), &machine).await;
        }
        let operations = world.until_operations(namespace, &MACHINES).await;
        Self {
            namespace,
            operations,
        }
    }

    fn name(&self, of: usize) -> &str {
        text(&self.operations[of], "/metadata/name")
    }
}

#[test]
fn kubectl_of_today_understands_operations() {
    shared(async |world| {
        let kubectl = Kubectl::new(world);
        commands::all_answer(world, &kubectl).await;
    });
}

#[test]
fn kubectl_of_2020_understands_operations() {
    shared(async |world| match Kubectl::old(world).await {
        Ok(kubectl) => commands::all_answer(world, &kubectl).await,
        Err(why) => skip(&why),
    });
}

#[test]
fn kubectl_of_today_watches_operations_and_waits_for_them() {
    shared(async |world| {
        let kubectl = Kubectl::new(world);
        watches::all_see_the_end(world, &kubectl).await;
    });
}

#[test]
fn kubectl_of_2020_watches_operations_and_waits_for_them() {
    shared(async |world| match Kubectl::old(world).await {
        Ok(kubectl) => watches::all_see_the_end(world, &kubectl).await,
        Err(why) => skip(&why),
    });
}
