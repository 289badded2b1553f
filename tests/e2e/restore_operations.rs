//! Tests of restored operations in persistence mode. At its start, a server reads the custom
//! resources that an earlier server has written, and restores the operations in them. Each test
//! starts its own server, and connects directly to this server.

use crate::harness::{alone_in_persistence_cluster, condition, eventually, migrating, ok_if, text};
use crate::persistence::{Persisting, delete_custom_resources, immutable_fields};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the operations in a namespace, by the name of their VirtualMachine.
fn of_namespace(namespace: &str, all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    all.into_values()
        .filter(|it| it["metadata"]["namespace"] == namespace)
        .map(|it| (text(&it, "/spec/subject/name").to_owned(), it))
        .collect()
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
