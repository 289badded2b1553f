//! kubectl, of today and of years ago: one table of command lines, and watches and waits
//! while an operation ends. What is printed is compared, not only that something is.

mod commands;
mod program;
mod table;
mod watches;

pub use program::Kubectl;
pub use watches::{is_log, is_open};

use crate::harness::{VM, World, rule_set, shared, skip, text};
use serde_json::{Value, json};

/// Three operations in a namespace of their own.
struct Scene {
    namespace: &'static str,
    /// Of the machines a, b and c, in this order.
    operations: Vec<Value>,
}

impl Scene {
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
        // Not in the order of their operations.
        let machines = [("a", "Starting"), ("b", "Migrating"), ("c", "Starting")];
        for (name, status) in machines {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
                "status": {"printableStatus": status, "message": "Half done.", "progress": 50},
            });
            world.create(&VM, Some(namespace), &machine).await;
        }
        let operations = world.until_operations(namespace, &machines).await;
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
