//! Tests of operations in a deleted namespace.

use super::{Persisting, clear, crs, identity};
use crate::harness::{World, alone, eventually, migrating, so, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn within(namespace: &str, mut all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.retain(|_, it| text(it, "/spec/subject/namespace") == namespace);
    all
}

/// A namespace with one active and one completed operation, both shown and written.
async fn populated(
    world: &World,
    persisting: &Persisting,
) -> (&'static str, BTreeMap<String, Value>) {
    let namespace = world.namespace("tenant").await;
    world.ready_rule_set(&migrating(namespace)).await;
    for name in ["active", "over"] {
        world.machine(namespace, name, "Migrating").await;
    }
    eventually("both are shown", async || {
        let shown = within(namespace, persisting.live().await);
        so(shown.len() == 2, shown.len())
    })
    .await;
    world.set_status(namespace, "over", "Running").await;
    let written = eventually("one is over", async || {
        let written = within(namespace, persisting.agreed().await);
        let mut phases: Vec<&str> = written
            .values()
            .map(|it| text(it, "/status/phase"))
            .collect();
        phases.sort_unstable();
        so(phases == ["Active", "Completed"], &phases)?;
        Ok(written)
    })
    .await;
    (namespace, written)
}

async fn delete(world: &World, namespace: &str) {
    let path = format!("/api/v1/namespaces/{namespace}");
    world.admin.delete(&path).await.ok();
    eventually("the namespace is gone", async || {
        let answer = world.admin.get(&path).await;
        so(answer.code == 404, answer.code)
    })
    .await;
}

#[test]
fn a_deleted_namespace_loses_its_operations_and_history() {
    alone(async |world| {
        clear(world).await;
        let persisting = Persisting::start(world, &[]).await;
        let (namespace, _) = populated(world, &persisting).await;
        delete(world, namespace).await;
        eventually("nothing of it is shown or written", async || {
            let shown = within(namespace, persisting.live().await);
            so(shown.is_empty(), shown)?;
            let written = within(namespace, crs(world).await);
            so(written.is_empty(), written)
        })
        .await;
    });
}

#[test]
fn a_namespace_recreated_without_a_server_shows_nothing_of_the_old_one() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let (again, old) = populated(world, &persisting).await;
        let (gone, _) = populated(world, &persisting).await;
        persisting.server.kill().await;
        delete(world, again).await;
        delete(world, gone).await;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": again},
        });
        world
            .admin
            .post("/api/v1/namespaces", &namespace)
            .await
            .ok();
        world.machine(again, "active", "Migrating").await;
        let mut written = within(again, crs(world).await);
        written.extend(within(gone, crs(world).await));
        assert_eq!(written.len(), 4, "nobody has removed them");

        persisting.start_again().await;
        let left = eventually("nothing of them is written", async || {
            // The operation is not shown at any time.
            let live = persisting.live().await;
            let shown = within(again, live.clone());
            assert!(shown.keys().all(|uid| !old.contains_key(uid)), "{shown:?}");
            assert_eq!(within(gone, live), BTreeMap::new());
            let all = crs(world).await;
            let left = within(gone, all.clone());
            so(left.is_empty(), left)?;
            let left = within(again, all);
            so(left.keys().all(|uid| !old.contains_key(uid)), &left)?;
            so(left.len() == 1, &left)?;
            Ok(left)
        })
        .await;
        let shown = within(again, persisting.live().await);
        let shown = shown.values().next().expect("the new one is");
        assert!(left.contains_key(identity(shown)[1]), "{shown}");
    });
}
