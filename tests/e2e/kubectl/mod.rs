//! Tests of kubectl with operations. There are four tests: two with a current version of kubectl,
//! and the same two with an old version. The first of the two runs the command lines of a table.
//! The second runs `kubectl get -w` and `kubectl wait` while an operation ends. All tests compare
//! the output with the expected output.

mod command_lines;
mod commands;
mod program;
mod watches;

pub use program::Kubectl;
pub use watches::{is_log, wait_for_watch};

use crate::harness::{
    TestCluster, VM, eventually, ok_if, rule_set, same_but_for_gaps, shared, skip, text,
};
use serde_json::{Value, json};

/// The VirtualMachines of a [`Scene`], each with its operation. `Migrating` is before `Starting` in
/// alphabetical order. So with `--sort-by=.spec.operation`, kubectl must print `b` before `a` and
/// `c`.
const MACHINES: [(&str, &str); 3] = [("a", "Starting"), ("b", "Migrating"), ("c", "Starting")];

/// A new namespace with three operations.
struct Scene {
    namespace: &'static str,
    /// The operations of the VirtualMachines a, b and c, in this order.
    operations: Vec<Value>,
}

impl Scene {
    async fn wait_for_operations(&self, cluster: &TestCluster) -> Vec<Value> {
        cluster.until_operations(self.namespace, &MACHINES).await
    }

    /// Fails if `now` differs from the operations of the scene. A difference that only reports a
    /// watch gap (an interruption of the server's watch) is allowed.
    fn assert_unchanged(&self, now: &[Value]) {
        assert_eq!(now.len(), self.operations.len(), "{now:?}");
        let mut pairs = now.iter().zip(&self.operations);
        assert!(
            pairs.all(|(one, other)| same_but_for_gaps(one, other)),
            "{now:?}"
        );
    }

    async fn create(cluster: &TestCluster, prefix: &str) -> Self {
        let namespace = cluster.namespace(prefix).await;
        let rule = |status: &str| {
            json!({
                "operation": status,
                "expression": format!("object.status.printableStatus == '{status}'"),
                "message": "object.status.message", "progress": "object.status.progress",
            })
        };
        let mut rules = rule_set(namespace, &VM, &[]);
        rules["spec"]["namespaces"] = json!([namespace]);
        rules["spec"]["labels"] = json!({"team": namespace});
        rules["spec"]["rules"] = json!([rule("Starting"), rule("Migrating")]);
        cluster.ready_rule_set(&rules).await;
        for (name, status) in MACHINES {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
                "status": {"printableStatus": status, "message": "Half done.", "progress": 50},
            });
            cluster.create(&VM, Some(namespace), &machine).await;
        }
        let operations = cluster.until_operations(namespace, &MACHINES).await;
        Self {
            namespace,
            operations,
        }
    }

    fn name(&self, index: usize) -> &str {
        text(&self.operations[index], "/metadata/name")
    }
}

#[test]
fn current_kubectl_understands_operations() {
    shared(async |cluster| {
        let kubectl = Kubectl::new(cluster);
        // Only a kubectl since 1.27 reads the schemas in `/openapi/v3`.
        eventually("kubectl explain describes operations", async || {
            let output = kubectl.run(&["explain", "ifo"]).await;
            ok_if(output.succeeded, output.err)
        })
        .await;
        commands::compare_output(cluster, &kubectl, |_| true).await;
    });
}

#[test]
fn kubectl_of_2020_understands_operations() {
    shared(async |cluster| match Kubectl::old(cluster).await {
        Ok(kubectl) => {
            let is_understood = |line: &str| !line.starts_with("explain");
            commands::compare_output(cluster, &kubectl, is_understood).await;
        }
        Err(why) => skip(&why),
    });
}

#[test]
fn current_kubectl_watches_operations_and_waits_for_them() {
    shared(async |cluster| {
        let kubectl = Kubectl::new(cluster);
        watches::compare_output(cluster, &kubectl).await;
    });
}

#[test]
fn kubectl_of_2020_watches_operations_and_waits_for_them() {
    shared(async |cluster| match Kubectl::old(cluster).await {
        Ok(kubectl) => watches::compare_output(cluster, &kubectl).await,
        Err(why) => skip(&why),
    });
}
