//! What others do to custom resources.

use super::{CR, Persisting, clear, crs, writes};
use crate::harness::{World, alone, eventually, migrating, so, text};
use serde_json::{Value, json};

/// One operation, written.
async fn written(world: &World, persisting: &Persisting) -> (&'static str, Value) {
    let namespace = world.namespace("foreign").await;
    world.ready_rule_set(&migrating(namespace)).await;
    world.machine(namespace, "a", "Migrating").await;
    let cr = eventually("it is written", async || {
        persisting.agreed().await;
        of(world, namespace).await
    })
    .await;
    (namespace, cr)
}

async fn of(world: &World, namespace: &str) -> Result<Value, String> {
    let mut all = crs(world).await.into_values();
    let own = all.find(|cr| text(cr, "/spec/subject/namespace") == namespace);
    own.ok_or_else(|| "it is not".to_owned())
}

#[test]
fn one_that_was_made_anew_is_taken_for_ours_at_its_next_change() {
    alone(async |world| {
        clear(world).await;
        let persisting = Persisting::start(world, &[]).await;
        let (namespace, cr) = written(world, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        // A backup that is put back.
        let mut copy = cr.clone();
        for field in [
            "uid",
            "resourceVersion",
            "managedFields",
            "creationTimestamp",
        ] {
            let metadata = copy["metadata"].as_object_mut();
            metadata.expect("it has metadata").remove(field);
        }
        world.admin.delete(&path).await.ok();
        let made = world.create(&CR, None, &copy).await;
        assert_ne!(made["metadata"]["uid"], cr["metadata"]["uid"]);
        world.set_status(namespace, "a", "Running").await;
        eventually("its end is written", async || {
            let cr = of(world, namespace).await?;
            so(cr["status"]["phase"] == "Completed", &cr["status"])?;
            so(cr["metadata"]["uid"] == made["metadata"]["uid"], &cr)
        })
        .await;
        // It was told at once that this is another one, and not found by a comparison.
        let log = persisting.log();
        assert!(!log.contains("an operation cannot be written"), "{log}");
        let conflicts = persisting.metric("ifo_persistence_failures_total").await;
        assert!((conflicts - 1.0).abs() < 0.5, "{conflicts}");
    });
}

#[test]
fn labels_and_annotations_of_others_are_left_alone() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let (namespace, cr) = written(world, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        let theirs = json!({"metadata": {
            "labels": {"team": "a"}, "annotations": {"note": "b"},
        }});
        world.admin.merge(&path, &theirs).await.ok();
        persisting.server.kill().await;
        let before = writes(world).await;
        persisting.start_again().await;
        // It compares at its start; what is new is written after that.
        world.machine(namespace, "b", "Migrating").await;
        eventually("the new one is written", async || {
            let count = writes(world).await - before;
            so(count > 0.5, count)
        })
        .await;
        assert!((writes(world).await - before - 1.0).abs() < 0.5);
        let live = persisting.live().await;
        let shown = &live[text(&cr, "/status/liveUID")];
        assert!(shown["metadata"]["labels"]["team"].is_null(), "{shown}");
        let after = world.admin.get(&path).await.ok();
        assert_eq!(after["metadata"]["labels"]["team"], "a");
        assert_eq!(after["metadata"]["annotations"]["note"], "b");
    });
}
