//! Tests of restored operations in persistence mode. At its start, a server reads the custom
//! resources that an earlier server has written, and restores the operations in them. Each test
//! starts its own server, and connects directly to this server.

use crate::harness::{
    TestCluster, VM, alone_in_persistence_cluster, condition, eventually, migrating, ok_if, text,
};
use crate::persistence::{CR, Persisting, delete_custom_resources, immutable_fields};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns the operations in a namespace, by the name of their VirtualMachine.
fn of_namespace(namespace: &str, all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.into_values()
        .filter(|it| it["metadata"]["namespace"] == namespace)
        .map(|it| (text(&it, "/spec/subject/name").to_owned(), it))
        .collect()
}

/// Changes a label of a VirtualMachine until the newest time in its `managedFields` is later than
/// `start`, the start of its operation. The status stays the same, so the operation continues.
///
/// A server that does not restore the operation uses the newest time in `managedFields` as the
/// start of the operation. So after this change, only a restored operation has the start `start`.
async fn touch(cluster: &TestCluster, namespace: &str, name: &str, start: &str) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    eventually("managedFields have a later time", async || {
        #[expect(clippy::disallowed_methods, reason = "any value that rises")]
        let now = jiff::Timestamp::now().as_nanosecond().to_string();
        let patch = json!({"metadata": {"labels": {"touched": now}}});
        let machine = cluster.admin.merge(&path, &patch).await.ok();
        let last = last_change(&machine);
        ok_if(last > start, last)
    })
    .await;
}

/// Returns the time of the last change of an object, from its `managedFields`.
fn last_change(object: &Value) -> &str {
    let fields = object["metadata"]["managedFields"].as_array();
    let times = fields.into_iter().flatten().map(|it| text(it, "/time"));
    times.max().unwrap_or_default()
}

#[test]
fn delayed_changes_are_written_at_shutdown_and_restored() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let mut persisting = Persisting::start(cluster, &[]).await;
        let namespace = cluster.namespace("stopped").await;
        let mut rules = migrating(namespace);
        rules["spec"]["rules"][0]["debounce"] = json!("10m");
        cluster.ready_rule_set(&rules).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let state = |crs: &BTreeMap<String, Value>, uid: &str| {
            crs.get(uid).map(|cr| cr["status"]["state"].clone())
        };
        let settling = async |persisting: &Persisting, name: &str| {
            eventually("the operation settles", async || {
                let shown = of_namespace(namespace, persisting.live().await);
                ok_if(
                    shown
                        .get(name)
                        .is_some_and(|it| it["status"]["state"] == "Settling"),
                    &shown,
                )?;
                Ok(shown[name].clone())
            })
            .await
        };
        let started = eventually("the operation is listed", async || {
            let shown = of_namespace(namespace, persisting.live().await);
            shown
                .get("a")
                .cloned()
                .ok_or_else(|| "there is no operation".to_owned())
        })
        .await;
        let uid = immutable_fields(&started)[1];
        persisting.wait_until_equal().await;
        cluster.set_status(namespace, "a", "Running").await;
        let before = settling(&persisting, "a").await;
        // When an operation becomes `Settling`, the server delays the write of the custom resource.
        // Before the server exits, it must write this change.
        let delayed = crate::persistence::crs(cluster).await;
        assert_eq!(state(&delayed, uid), Some(json!("Progressing")));
        assert!(persisting.server.terminate().await.success());
        let written = crate::persistence::crs(cluster).await;
        assert_eq!(state(&written, uid), Some(json!("Settling")));

        persisting.start_again().await;
        let after = settling(&persisting, "a").await;
        assert_eq!(immutable_fields(&after), immutable_fields(&before));
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
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let mut persisting = Persisting::start(cluster, &[]).await;
        let namespace = cluster.namespace("killed").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        for name in ["a", "b", "c", "d"] {
            cluster.machine(namespace, name, "Migrating").await;
        }
        let shown =
            async |persisting: &Persisting| of_namespace(namespace, persisting.live().await);
        eventually("all operations are detected", async || {
            let shown = shown(&persisting).await;
            ok_if(shown.len() == 4, shown)
        })
        .await;
        cluster.set_status(namespace, "d", "Running").await;
        eventually("one operation has completed", async || {
            let shown = shown(&persisting).await;
            ok_if(shown["d"]["status"]["phase"] == "Completed", shown)
        })
        .await;
        let crs = persisting.wait_until_equal().await;
        let before = shown(&persisting).await;
        touch(cluster, namespace, "a", immutable_fields(&before["a"])[2]).await;
        persisting.server.kill().await;

        let changed = cluster.set_status(namespace, "b", "Running").await;
        let gone = format!("{}/c", VM.path(Some(namespace)));
        cluster.admin.delete(&gone).await.ok();
        // Another client creates a custom resource of an operation that never existed. The server
        // must not restore this operation.
        let mut forged = crs[immutable_fields(&before["a"])[1]].clone();
        forged["metadata"] = json!({
            "name": "forged",
            "annotations": {"ifo.kubevirt.io/live": format!("{namespace}/forged")},
        });
        cluster.create(&CR, None, &forged).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        persisting.start_again().await;

        let after = shown(&persisting).await;
        for name in ["a", "b", "d"] {
            assert_eq!(
                immutable_fields(&after[name]),
                immutable_fields(&before[name])
            );
        }
        assert_eq!(after["d"]["status"], before["d"]["status"]);
        let reason = |it: &Value| text(it, "/status/reason").to_owned();
        eventually(
            "the operations that ended while the server was down are completed",
            async || {
                let shown = shown(&persisting).await;
                let reasons: Vec<String> = shown.values().map(reason).collect();
                let expected = ["Migrating", "NotDetected", "SubjectDeleted", "NotDetected"];
                ok_if(reasons == expected, reasons)
            },
        )
        .await;
        // While the server was not running, the VirtualMachine `b` changed, and the debounce period
        // of its operation passed. The end of the operation must be the time of this change, and
        // not the time of the server's restart.
        let ended = shown(&persisting).await["b"]["status"]["completed"].clone();
        let ended: jiff::Timestamp = ended
            .as_str()
            .and_then(|time| time.parse().ok())
            .expect("a completed operation must have an end");
        let changed: jiff::Timestamp = last_change(&changed)
            .parse()
            .expect("managedFields have times");
        let after = ended.duration_since(changed).as_secs();
        assert!((0..=1).contains(&after), "{changed} {ended}");
        let path = format!("{}/forged", CR.path(None));
        cluster.admin.delete(&path).await.ok();
        persisting.wait_until_equal().await;
    });
}
