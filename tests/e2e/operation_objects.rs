//! Tests of operations from their start to their end, as clients of a real cluster see them.

use crate::harness::{
    Kind, NODE, StateAfterEvents, columns, condition, event_types, eventually, migrating, ok_if,
    rule_set, shared, text, without_gaps,
};
use serde_json::{Value, json};

/// The default columns that kubectl prints for operations.
const HEADER: [&str; 5] = ["SUBJECT", "OPERATION", "STATE", "AGE", "MESSAGE"];

/// A kind of Kubernetes with a short name.
const CLAIM: Kind = Kind {
    api_version: "v1",
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
};

#[test]
fn a_kind_is_shown_with_a_short_name_only_if_kubectl_finds_it_by_this_name() {
    shared(async |cluster| {
        let namespace = cluster.namespace("short-names").await;
        let mut rules = rule_set(
            "short-names",
            &CLAIM,
            &[("Filling", "object.metadata.name == 'disk'")],
        );
        rules["spec"]["namespaces"] = json!([namespace]);
        cluster.ready_rule_set(&rules).await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let disk = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        cluster.create(&CLAIM, Some(namespace), &disk).await;
        // The custom resource in this test has no short name.
        cluster.machine(namespace, "web", "Migrating").await;
        eventually("both subjects are shown", async || {
            let table = cluster.kubectl(&["get", "ifos", "-n", namespace]).await?;
            let subjects: Vec<&str> = table.lines().map(|line| columns(line)[0]).collect();
            let expected = ["SUBJECT", "pvc/disk", "VirtualMachine/web"];
            ok_if(subjects == expected, &table)
        })
        .await;
        let found = cluster
            .kubectl(&["get", "pvc/disk", "-n", namespace, "-o", "name"])
            .await;
        assert_eq!(found.as_deref(), Ok("persistentvolumeclaim/disk\n"));
    });
}

#[test]
fn a_migration_appears_on_kubectl_watches_and_disappears_after_the_debounce() {
    shared(async |cluster| {
        let namespace = cluster.namespace("appears").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "my-vm", "Running").await;
        let mut everywhere = cluster.kubectl_watch(&["get", "ifos", "-A", "-w"]);
        let mut here = cluster.kubectl_watch(&["get", "ifos", "-n", namespace, "-w"]);
        let mut events = cluster.watch(namespace).await;

        cluster.set_status(namespace, "my-vm", "Migrating").await;
        let mine = |lines: &[String], state: &str| -> Option<Vec<String>> {
            let row = lines.iter().map(|line| columns(line)).find(|row| {
                row.contains(&"VirtualMachine/my-vm")
                    && row.contains(&state)
                    && row[0] != "NAMESPACE"
            })?;
            Some(row.into_iter().map(str::to_owned).collect())
        };
        let row = here
            .until("the operation's row", |lines| mine(lines, "Progressing"))
            .await;
        let expected = ["VirtualMachine/my-vm", "Migrating", "Progressing"];
        assert_eq!(row[..3], expected, "{row:?}");
        let header = here.until("a header", |lines| lines.first().cloned()).await;
        assert_eq!(header.split_whitespace().collect::<Vec<_>>(), HEADER);
        let row = everywhere
            .until("the operation's row", |lines| {
                mine(lines, "Progressing").filter(|row| row[0] == namespace)
            })
            .await;
        assert_eq!(row[1..4], expected, "{row:?}");
        let header = everywhere
            .until("a header", |lines| lines.first().cloned())
            .await;
        let header: Vec<&str> = header.split_whitespace().collect();
        assert_eq!(header[0], "NAMESPACE");
        assert_eq!(header[1..], HEADER);

        let operation = cluster
            .until_operations(namespace, &[("my-vm", "Migrating")])
            .await
            .remove(0);
        let name = text(&operation, "/metadata/name");
        cluster.set_status(namespace, "my-vm", "Running").await;
        let gone = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"];
        let events = events
            .until(
                "the operation settles, completes and is deleted",
                |events| (event_types(events, name) == gone).then(|| events.to_vec()),
            )
            .await;
        assert!(StateAfterEvents::of(&events).objects.is_empty());
        let events = without_gaps(&events);
        assert_eq!(
            states(&events),
            ["Progressing", "Settling", "Ended", "Ended"]
        );
        let completed = &events[2]["object"];
        assert_eq!(completed["status"]["phase"], "Completed");
        assert_eq!(completed["status"]["reason"], "NotDetected");
        assert_eq!(condition(completed, "Completed")["status"], "True");
        assert_eq!(condition(completed, "Detected")["status"], "False");
        assert_eq!(condition(completed, "Progressing")["status"], "False");
        for field in ["/metadata/uid", "/metadata/creationTimestamp", "/spec"] {
            let seen = events.iter().map(|event| event["object"].pointer(field));
            assert!(
                seen.clone()
                    .all(|it| it.is_some() && it == operation.pointer(field)),
                "{field}: {:?}",
                seen.collect::<Vec<_>>()
            );
        }
        for watch in [&mut here, &mut everywhere] {
            watch
                .until("the completed operation", |lines| mine(lines, "Ended"))
                .await;
        }
        cluster.until_operations(namespace, &[]).await;
    });
}

fn states<'a>(events: &[&'a Value]) -> Vec<&'a str> {
    events
        .iter()
        .map(|event| text(event, "/object/status/state"))
        .collect()
}

#[test]
fn an_operation_on_a_cluster_scoped_subject_appears_in_ifo_system() {
    shared(async |cluster| {
        let name = cluster.namespace("node").await;
        let expression = format!("object.metadata.name == '{name}' && object.spec.unschedulable");
        let rules = rule_set(name, &NODE, &[("Draining", &expression)]);
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch("ifo-system").await;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"unschedulable": true},
        });
        let node = cluster.create(&NODE, None, &node).await;
        let find = |events: &[Value], kind: &str| {
            let mut of_node = events
                .iter()
                .filter(|it| text(it, "/object/spec/subject/name") == name);
            of_node.find(|it| it["type"] == kind).cloned()
        };
        let added = events
            .until("the operation appears", |all| find(all, "ADDED"))
            .await;
        let operation = &added["object"];
        assert_eq!(operation["metadata"]["namespace"], "ifo-system");
        assert_eq!(operation["spec"]["subject"]["kind"], "Node");
        assert_eq!(operation["spec"]["subject"].get("namespace"), None);
        let labels = &operation["metadata"]["labels"];
        assert_eq!(
            labels["ifo.kubevirt.io/subject-uid"],
            node["metadata"]["uid"]
        );
        assert_eq!(labels["ifo.kubevirt.io/subject-name"], name);

        let uncordoned = json!({"spec": {"unschedulable": null}});
        let path = format!("{}/{name}", NODE.path(None));
        cluster.admin.merge(&path, &uncordoned).await.ok();
        events
            .until("the operation is deleted", |all| find(all, "DELETED"))
            .await;
        cluster.admin.delete(&path).await.ok();
    });
}
