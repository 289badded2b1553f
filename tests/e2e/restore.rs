//! What a server that starts takes over: from one that runs, and from custom resources.
//!
//! The server that starts is one beside the shared one, asked directly.

use crate::harness::{Kind, VM, World, alone, condition, eventually, migrating, so, text};
use crate::persistence::{CR, Persisting, clear, identity, writes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

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
        #[expect(clippy::disallowed_methods, reason = "any value that rises")]
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        let patch = json!({"metadata": {"labels": {"touched": now}}});
        let machine = world.admin.merge(&path, &patch).await.ok();
        let last = last_change(&machine);
        so(last > start, last)
    })
    .await;
}

/// When an object was last changed, as its managedFields tell.
fn last_change(object: &Value) -> &str {
    let fields = object["metadata"]["managedFields"].as_array();
    let times = fields.into_iter().flatten().map(|it| text(it, "/time"));
    times.max().unwrap_or_default()
}

/// Without custom resources, and nothing retained.
const PLAIN: [(&str, &str); 2] = [("PERSISTENCE", "off"), ("RETAIN_COMPLETED_IFOS", "false")];

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

        let from = ("RESTORE_FROM", &*world.server_url);
        let next = Persisting::start(world, &[PLAIN[0], PLAIN[1], from]).await;
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
        let alone = Persisting::start(world, &PLAIN).await;
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
fn a_rolling_update_in_persistence_mode_keeps_them_too_and_writes_nothing() {
    alone(async |world| {
        clear(world).await;
        let mut old = Persisting::start(world, &[]).await;
        let namespace = world.namespace("rolling").await;
        world.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b", "over"] {
            world.machine(namespace, name, "Migrating").await;
        }
        let shown = async |server: &Persisting| of_namespace(namespace, server.live().await);
        // The rule set may be ready because another server says so.
        eventually("all go on", async || {
            let shown = shown(&old).await;
            so(shown.len() == 3, shown.len())
        })
        .await;
        world.set_status(namespace, "over", "Running").await;
        let before = eventually("two go on and one is over", async || {
            let shown = shown(&old).await;
            let phases: Vec<&str> = shown.values().map(|it| text(it, "/status/phase")).collect();
            so(phases == ["Active", "Active", "Completed"], &phases)?;
            Ok(shown)
        })
        .await;
        let crs = old.agreed().await;
        let written = writes(world).await;
        touch(world, namespace, "a", identity(&before["a"])[2]).await;

        let from = ("RESTORE_FROM", &*old.server.url());
        let new = Persisting::start(world, &[from]).await;
        let same = async || {
            let after = shown(&new).await;
            assert!(after.keys().eq(before.keys()), "{after:?}");
            for (name, operation) in &before {
                assert_eq!(identity(&after[name]), identity(operation));
            }
        };
        same().await;
        assert!(old.server.terminate().await.success());
        same().await;
        let after = new.agreed().await;
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
        world.set_status(namespace, "a", "Running").await;
        eventually("the new one writes on", async || {
            let crs = new.agreed().await;
            let cr = &crs[identity(&before["a"])[1]];
            so(cr["status"]["phase"] == "Completed", cr)
        })
        .await;
    });
}

#[test]
fn another_replica_is_looked_for_behind_the_service_and_not_waited_for_long() {
    const SLICE: Kind = Kind {
        api_version: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
    };
    alone(async |world| {
        // Loopback is not allowed there; nobody has these (RFC 5737).
        let slice = json!({
            "apiVersion": SLICE.api_version, "kind": SLICE.kind, "addressType": "IPv4",
            "metadata": {
                "name": "elsewhere", "labels": {"kubernetes.io/service-name": "ifo-apiserver"},
            },
            "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}},
                {"addresses": ["192.0.2.2"], "conditions": {"ready": false, "serving": false}},
            ],
        });
        let namespace = Some("ifo-system");
        world.create(&SLICE, namespace, &slice).await;
        let server = Persisting::start(world, &PLAIN).await;
        let path = format!("{}/elsewhere", SLICE.path(namespace));
        world.admin.delete(&path).await.ok();
        let log = server.log();
        assert!(log.contains("https://192.0.2.1:8443"), "{log}");
        assert!(!log.contains("192.0.2.2"), "{log}");
        server.live().await;
    });
}

#[test]
fn what_a_server_held_back_is_written_when_it_stops_and_goes_on_where_it_was() {
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

        let changed = world.set_status(namespace, "b", "Running").await;
        let gone = format!("{}/c", VM.path(Some(namespace)));
        world.admin.delete(&gone).await.ok();
        // Somebody makes one up.
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
        // Its debounce was running while no server was: it ended when the machine changed,
        // and not when a server looked again.
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
