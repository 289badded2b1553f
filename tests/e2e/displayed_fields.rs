//! Test of the rule fields `initiator`, `queuedAt` and `cancel`. Tests of the engine have the other
//! fields that an operation shows.

use crate::harness::{TestCluster, VM, columns, eventually, migrating, ok_if, shared};
use serde_json::{Value, json};

/// Returns the rule set of [`migrating`] for this namespace, with these additional fields in its
/// rule.
fn with(namespace: &str, fields: &Value) -> Value {
    let mut rules = migrating(namespace);
    let rule = rules["spec"]["rules"][0].as_object_mut();
    let rule = rule.expect("a rule is an object");
    rule.extend(fields.as_object().expect("fields are an object").clone());
    rules
}

async fn patch(cluster: &TestCluster, namespace: &str, name: &str, status: &Value) {
    let path = format!("{}/{name}", VM.path(Some(namespace)));
    cluster
        .admin
        .merge(&path, &json!({"status": status}))
        .await
        .ok();
}

/// A user chooses the name of the disk, so that it would be several commands without quotes.
#[test]
fn the_initiator_is_selectable_the_request_stays_and_the_command_to_stop_is_quoted() {
    shared(async |cluster| {
        let namespace = cluster.namespace("initiator").await;
        let fields = json!({
            "initiator": "object.status.by",
            "queuedAt": "object.status.requested",
            "cancel": "['virtctl', 'removevolume', object.metadata.name, '--volume-name', object.status.disk]",
        });
        cluster.ready_rule_set(&with(namespace, &fields)).await;
        for (name, by) in [("a", "ann"), ("b", "bob")] {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": name},
                "status": {"printableStatus": "Migrating", "by": by, "disk": "d'; rm -rf $HOME #",
                           "requested": "2020-01-01T00:00:00Z"},
            });
            cluster.create(&VM, Some(namespace), &machine).await;
        }
        let both = [("a", "Migrating"), ("b", "Migrating")];
        let operations = cluster.until_operations(namespace, &both).await;
        assert_eq!(operations[0]["spec"]["initiator"], "ann");
        assert_eq!(operations[0]["status"]["queuedAt"], "2020-01-01T00:00:00Z");
        assert_eq!(
            operations[0]["status"]["cancel"],
            r"virtctl removevolume a --volume-name 'd'\''; rm -rf $HOME #'"
        );
        // The initiator and the request of the start stay, and the command follows the object.
        let later = json!({"by": "eve", "disk": "e", "requested": "2021-01-01T00:00:00Z"});
        patch(cluster, namespace, "a", &later).await;
        eventually("the command changes", async || {
            let now = cluster.until_operations(namespace, &both).await.remove(0);
            let command = "virtctl removevolume a --volume-name e";
            ok_if(now["status"]["cancel"] == command, &now)?;
            ok_if(now["spec"]["initiator"] == "ann", &now)?;
            ok_if(now["status"]["queuedAt"] == "2020-01-01T00:00:00Z", &now)
        })
        .await;
        let get = ["get", "ifos", "-n", namespace, "-o", "wide"];
        for (by, subject) in [("ann", "a"), ("bob", "b")] {
            let selector = format!("--field-selector=spec.initiator={by}");
            let table = cluster.kubectl(&[&get[..], &[&selector]].concat()).await;
            let table = table.expect("kubectl lists operations");
            let rows: Vec<Vec<&str>> = table.lines().map(columns).collect();
            assert!(rows.len() == 2 && rows[0].contains(&"INITIATOR"), "{table}");
            let is_there = rows[1].contains(&by) && rows[1][2].ends_with(&format!("/{subject}"));
            assert!(is_there, "{table}");
        }
    });
}
