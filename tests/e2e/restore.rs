//! Tests of the restore from custom resources at a start. The server runs beside the shared one,
//! and requests go to it directly.

use crate::harness::{VM, World, alone, condition, eventually, migrating, so, text};
use crate::persistence::{CR, Persisting, clear, identity, writes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn version(operation: &Value) -> u64 {
    let version = text(operation, "/metadata/resourceVersion");
    version.parse().expect("a resourceVersion is a number")
}

/// The custom resources of a namespace, by the name of their subject.
fn of_namespace(namespace: &str, all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.into_values()
        .filter(|it| it["metadata"]["namespace"] == namespace)
        .map(|it| (text(&it, "/spec/subject/name").to_owned(), it))
        .collect()
}

/// Changes a machine but not its status, until its managedFields have a later second than `start`.
/// A server without other knowledge takes that time as the start.
async fn touch(world: &World, namespace: &str, name: &str, start: &str) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    eventually("the machine has changed since", async || {
        #[expect(clippy::disallowed_methods, reason = "any value that rises")]
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        let patch = json!({"metadata": {"labels": {"touched": now}}});
        let machine = world.admin.merge(&path, &patch).await.ok();
        let last = last_change(&machine);
        so(last > start, last)
    })
    .await;
}

/// The time of the last change of an object in its managedFields.
fn last_change(object: &Value) -> &str {
    let fields = object["metadata"]["managedFields"].as_array();
    let times = fields.into_iter().flatten().map(|it| text(it, "/time"));
    times.max().unwrap_or_default()
}

/// Settings without custom resources and retention.
const PLAIN: [(&str, &str); 2] = [("PERSISTENCE", "off"), ("RETAIN_COMPLETED_IFOS", "false")];

#[test]
fn a_server_that_follows_a_stopped_one_keeps_names_and_writes_nothing() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let namespace = world.namespace("followed").await;
        world.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b", "over"] {
            world.machine(namespace, name, "Migrating").await;
        }
        let shown = async |server: &Persisting| of_namespace(namespace, server.live().await);
        // The condition of the rule set can come from another server.
        eventually("all are in flight", async || {
            let shown = shown(&persisting).await;
            so(shown.len() == 3, shown.len())
        })
        .await;
        world.set_status(namespace, "over", "Running").await;
        let before = eventually("two are in flight and one is over", async || {
            let shown = shown(&persisting).await;
            let phases: Vec<&str> = shown.values().map(|it| text(it, "/status/phase")).collect();
            so(phases == ["Active", "Active", "Completed"], &phases)?;
            Ok(shown)
        })
        .await;
        let crs = persisting.agreed().await;
        let written = writes(world).await;
        // A server that restores nothing uses this time as the start.
        touch(world, namespace, "a", identity(&before["a"])[2]).await;
        assert!(persisting.server.terminate().await.success());
        persisting.start_again().await;

        // Its first answer.
        let after = shown(&persisting).await;
        assert!(after.keys().eq(before.keys()), "{after:?}");
        for (name, operation) in &before {
            assert_eq!(identity(&after[name]), identity(operation));
        }
        // A server that reads the start from the subject always gets the same start.
        let source = match text(&before["a"], "/status/startTimeSource") {
            "Detected" => "Restored",
            seen => seen,
        };
        assert_eq!(after["a"]["status"]["startTimeSource"], source);
        assert_eq!(after["a"]["status"]["state"], "Progressing");
        assert!(version(&after["a"]) > version(&before["a"]));
        let after = persisting.agreed().await;
        let uids = |crs: &BTreeMap<String, Value>| -> Vec<String> {
            let own = crs.values().map(|cr| text(cr, "/metadata/uid").to_owned());
            own.collect()
        };
        assert_eq!(
            uids(&after),
            uids(&crs),
            "these are the same custom resources"
        );
        assert!((writes(world).await - written).abs() < 0.5);

        // A server without custom resources cannot know the earlier start.
        let alone = Persisting::start(world, &PLAIN).await;
        let anew = shown(&alone).await;
        assert_ne!(identity(&anew["a"]), identity(&before["a"]));
        drop(alone);

        world.set_status(namespace, "a", "Running").await;
        eventually("the new one writes on", async || {
            let crs = persisting.agreed().await;
            let cr = &crs[identity(&before["a"])[1]];
            so(cr["status"]["phase"] == "Completed", cr)
        })
        .await;
    });
}

#[test]
fn delayed_changes_are_written_at_shutdown_and_restored() {
    alone(async |world| {
        clear(world).await;
        let mut persisting = Persisting::start(world, &[]).await;
        let namespace = world.namespace("stopped").await;
        let mut rules = migrating(namespace);
        rules["spec"]["rules"][0]["debounce"] = json!("10m");
        world.ready_rule_set(&rules).await;
        world.machine(namespace, "a", "Migrating").await;
        let state = |crs: &BTreeMap<String, Value>, uid: &str| {
            crs.get(uid).map(|cr| cr["status"]["state"].clone())
        };
        let settling = async |persisting: &Persisting, name: &str| {
            eventually("it settles", async || {
                let shown = of_namespace(namespace, persisting.live().await);
                so(
                    shown
                        .get(name)
                        .is_some_and(|it| it["status"]["state"] == "Settling"),
                    &shown,
                )?;
                Ok(shown[name].clone())
            })
            .await
        };
        let started = eventually("it is shown", async || {
            let shown = of_namespace(namespace, persisting.live().await);
            shown
                .get("a")
                .cloned()
                .ok_or_else(|| "it is not".to_owned())
        })
        .await;
        let uid = identity(&started)[1];
        persisting.agreed().await;
        world.set_status(namespace, "a", "Running").await;
        let before = settling(&persisting, "a").await;
        let held_back = crate::persistence::crs(world).await;
        assert_eq!(state(&held_back, uid), Some(json!("Progressing")));
        assert!(persisting.server.terminate().await.success());
        let written = crate::persistence::crs(world).await;
        assert_eq!(state(&written, uid), Some(json!("Settling")));

        persisting.start_again().await;
        let after = settling(&persisting, "a").await;
        assert_eq!(identity(&after), identity(&before));
        assert_eq!(
            condition(&after, "Detected"),
            condition(&before, "Detected")
        );
        assert_eq!(
            after["status"]["lastDetected"],
            before["status"]["lastDetected"]
        );
    });
}

#[test]
fn a_killed_server_restores_everything_it_had_written() {
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

        let changed = world.set_status(namespace, "b", "Running").await;
        let gone = format!("{}/c", VM.path(Some(namespace)));
        world.admin.delete(&gone).await.ok();
        // A custom resource that another client has made up.
        let mut forged = crs[identity(&before["a"])[1]].clone();
        forged["metadata"] = json!({
            "name": "forged",
            "annotations": {"ifo.kubevirt.io/live": format!("{namespace}/forged")},
        });
        world.create(&CR, None, &forged).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
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
        // The debounce period ended while no server was running. So the operation ended when the
        // machine changed, and not when the next server started.
        let ended = shown(&persisting).await["b"]["status"]["completed"].clone();
        let ended: jiff::Timestamp = ended.as_str().unwrap_or_default().parse().expect("a time");
        let changed: jiff::Timestamp = last_change(&changed).parse().expect("a time");
        let after = ended.duration_since(changed).as_secs();
        assert!((0..=1).contains(&after), "{changed} {ended}");
        let path = format!("{}/forged", CR.path(None));
        world.admin.delete(&path).await.ok();
        persisting.agreed().await;
    });
}
