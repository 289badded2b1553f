//! Tests of changes to custom resources by other clients.

use super::{CR, Persisting, clear, crs, writes};
use crate::harness::{World, alone, eventually, migrating, so, text};
use serde_json::{Value, json};

/// Creates one operation that is written.
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
fn a_recreated_custom_resource_is_adopted_at_its_next_change() {
    alone(async |world| {
        clear(world).await;
        let persisting = Persisting::start(world, &[]).await;
        let (namespace, cr) = written(world, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        // A backup is restored.
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
        // The server detects at once that this is a different object, without a comparison.
        let log = persisting.log();
        assert!(!log.contains("an operation cannot be written"), "{log}");
        let conflicts = persisting.metric("ifo_persistence_failures_total").await;
        assert!((conflicts - 1.0).abs() < 0.5, "{conflicts}");
    });
}

#[test]
fn foreign_labels_and_annotations_are_preserved() {
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
        // The server compares at its start, and writes new operations after that.
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
        // The server has not read this state, so its next change first gets a conflict.
        let theirs = json!({"metadata": {"labels": {"late": "c"}}});
        world.admin.merge(&path, &theirs).await.ok();
        world.set_status(namespace, "a", "Running").await;
        let after = eventually("its end is written", async || {
            let after = world.admin.get(&path).await.ok();
            so(after["status"]["phase"] == "Completed", &after["status"])?;
            Ok(after)
        })
        .await;
        assert_eq!(after["metadata"]["labels"]["team"], "a");
        assert_eq!(after["metadata"]["labels"]["late"], "c");
        assert_eq!(after["metadata"]["annotations"]["note"], "b");
        let conflicts = persisting.metric("ifo_persistence_failures_total").await;
        assert!((conflicts - 1.0).abs() < 0.5, "{conflicts}");
    });
}

#[test]
fn objects_of_release_0_1_0_are_updated_without_their_old_labels_and_fields() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let (_, cr) = written(world, &persisting).await;
        let path = format!("{}/{}", CR.path(None), text(&cr, "/metadata/name"));
        persisting.server.kill().await;
        world.admin.delete(&path).await.ok();
        // That release used server-side apply.
        let mut applied = json!({
            "apiVersion": cr["apiVersion"], "kind": cr["kind"],
            "metadata": {"name": cr["metadata"]["name"], "labels": cr["metadata"]["labels"],
                "annotations": cr["metadata"]["annotations"]},
            "spec": cr["spec"], "status": cr["status"],
        });
        applied["metadata"]["labels"]["old"] = json!("a");
        applied["status"]["progress"] = json!(50);
        let apply = format!("{path}?fieldManager=ifo-persistence&force=true");
        let kind = "application/apply-patch+yaml";
        let answer = world
            .admin
            .send(http::Method::PATCH, &apply, kind, applied.to_string())
            .await;
        answer.ok();
        let theirs = json!({"metadata": {"labels": {"team": "a"}}});
        world.admin.merge(&path, &theirs).await.ok();
        persisting.start_again().await;
        let labels = eventually("its progress is removed", async || {
            let after = world.admin.get(&path).await.ok();
            so(after["status"]["progress"].is_null(), &after["status"])?;
            Ok(after["metadata"]["labels"].clone())
        })
        .await;
        let mut want = cr["metadata"]["labels"].clone();
        want["team"] = json!("a");
        // The operation is restored with the old label from the custom resource. It changes when
        // the rule is evaluated.
        eventually("its old label is removed", async || {
            let after = world.admin.get(&path).await.ok();
            so(
                after["metadata"]["labels"] == want,
                (&labels, &after["metadata"]["labels"]),
            )
        })
        .await;
    });
}
