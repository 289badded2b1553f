//! What a server that starts takes over: from one that runs, and from custom resources.
//!
//! The server that starts is one beside the shared one, asked directly.

use crate::harness::{VM, World, alone, eventually, migrating, so, text};
use crate::persistence::{CR, Persisting, clear};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What must be the same before and after.
fn identity(operation: &Value) -> [&str; 3] {
    [
        text(operation, "/metadata/name"),
        text(operation, "/metadata/uid"),
        text(operation, "/metadata/creationTimestamp"),
    ]
}

fn version(operation: &Value) -> u64 {
    let version = text(operation, "/metadata/resourceVersion");
    version.parse().expect("a resourceVersion is a number")
}

/// Those of a namespace, by the name of their subject.
fn of_namespace(namespace: &str, all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.into_values()
        .filter(|it| it["metadata"]["namespace"] == namespace)
        .map(|it| (text(&it, "/spec/subject/name").to_owned(), it))
        .collect()
}

/// Changes a machine without changing its status, until its managedFields tell of a later
/// second than `start`: whoever knows nothing takes that for the start.
async fn touch(world: &World, namespace: &str, name: &str, start: &str) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    eventually("the machine has changed since", async || {
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        let patch = json!({"metadata": {"labels": {"touched": now}}});
        let machine = world.admin.merge(&path, &patch).await.ok();
        let times = machine["metadata"]["managedFields"].as_array();
        let last = times
            .into_iter()
            .flatten()
            .map(|it| text(it, "/time"))
            .max();
        so(last.is_some_and(|last| last > start), last)
    })
    .await;
}

#[test]
fn a_rolling_update_keeps_names_uids_and_creation_times() {
    alone(async |world| {
        let namespace = world.namespace("rolling").await;
        world.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b"] {
            world.machine(namespace, name, "Migrating").await;
        }
        let before = world
            .until_operations(namespace, &[("a", "Migrating"), ("b", "Migrating")])
            .await;
        touch(world, namespace, "a", identity(&before[0])[2]).await;

        let off = ("PERSISTENCE", "off");
        let brief = ("RETAIN_COMPLETED_IFOS", "false");
        let from = ("RESTORE_FROM", &*world.server_url);
        let next = Persisting::start(world, &[off, brief, from]).await;
        // Its first answer.
        let after = of_namespace(namespace, next.live().await);
        for operation in &before {
            let restored = &after[text(operation, "/spec/subject/name")];
            assert_eq!(identity(restored), identity(operation));
            assert_eq!(restored["status"]["startTimeSource"], "Restored");
            assert_eq!(restored["status"]["state"], "Progressing");
            assert!(version(restored) > version(operation), "{restored}");
        }
        assert_eq!(after.len(), 2);

        // One that asks nobody does not know better.
        let alone = Persisting::start(world, &[off, brief]).await;
        let anew = of_namespace(namespace, alone.live().await);
        assert_ne!(identity(&anew["a"]), identity(&before[0]));

        world.set_status(namespace, "a", "Running").await;
        eventually("what was restored ends like any other", async || {
            let shown = of_namespace(namespace, next.live().await);
            so(shown.keys().eq(["b"]), shown)
        })
        .await;
    });
}

#[test]
fn a_server_that_was_killed_is_back_with_all_it_had_written() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let namespace = world.namespace("killed").await;
        world.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b", "c", "d"] {
            world.machine(namespace, name, "Migrating").await;
        }
        let shown =
            async |persisting: &Persisting| of_namespace(namespace, persisting.live().await);
        eventually("all are detected", async || {
            let shown = shown(&persisting).await;
            so(shown.len() == 4, shown)
        })
        .await;
        world.set_status(namespace, "d", "Running").await;
        eventually("one is over", async || {
            let shown = shown(&persisting).await;
            so(shown["d"]["status"]["phase"] == "Completed", shown)
        })
        .await;
        let crs = persisting.agreed().await;
        let before = shown(&persisting).await;
        touch(world, namespace, "a", identity(&before["a"])[2]).await;
        persisting.server.kill().await;

        world.set_status(namespace, "b", "Running").await;
        let gone = format!("{}/c", VM.path(Some(namespace)));
        world.admin.delete(&gone).await.ok();
        // Somebody makes one up.
        let mut forged = crs[identity(&before["a"])[1]].clone();
        forged["metadata"] = json!({
            "name": "forged",
            "annotations": {"ifo.kubevirt.io/live": format!("{namespace}/forged")},
        });
        world.create(&CR, None, &forged).await;
        persisting.start_again().await;

        let after = shown(&persisting).await;
        for name in ["a", "b", "d"] {
            assert_eq!(identity(&after[name]), identity(&before[name]));
        }
        assert_eq!(after["d"]["status"], before["d"]["status"]);
        let reason = |it: &Value| text(it, "/status/reason").to_owned();
        eventually("what has ended meanwhile is over", async || {
            let shown = shown(&persisting).await;
            let reasons: Vec<String> = shown.values().map(reason).collect();
            let expected = ["Migrating", "NotDetected", "SubjectDeleted", "NotDetected"];
            so(reasons == expected, reasons)
        })
        .await;
        let path = format!("{}/forged", CR.path(None));
        world.admin.delete(&path).await.ok();
        persisting.agreed().await;
    });
}
