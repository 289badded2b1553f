//! Tests of the writes in persistence mode. The tests check the custom resource of an operation
//! from the operation's start to its end, and count the writes.

use super::{CR, crs, persisting, writes};
use crate::harness::{NODE, eventually, items, migrating, ok_if, rule_set, text};
use serde_json::{Value, json};

#[test]
fn an_operation_is_written_at_its_start_and_end_and_then_retained() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let namespace = cluster.new_namespace("kept").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        persisting.wait_until_equal().await;
        let before = writes(cluster).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let selector = format!("?fieldSelector=spec.subject.namespace={namespace}");
        let path = format!("{}{selector}", CR.path(None));
        let until_phase = async |phase: &str| {
            let is = |list: &Value| list["items"][0]["status"]["phase"] == phase;
            let list = cluster.admin.until_object(phase, &path, is).await;
            items(&list)[0].clone()
        };
        let active = until_phase("Active").await;
        let managed = ["manager", "operation"];
        let managed =
            managed.map(|it| text(&active["metadata"]["managedFields"][0], &format!("/{it}")));
        assert_eq!(managed, ["ifo-persistence", "Apply"]);
        assert!(active["metadata"]["ownerReferences"].is_null(), "{active}");
        let live = persisting.live().await;
        let live = &live[text(&active, "/status/liveUID")];
        let name = text(&active, "/metadata/name");
        assert!(name.starts_with(text(live, "/metadata/name")), "{active}");

        cluster.set_status(namespace, "a", "Running").await;
        let completed = until_phase("Completed").await;
        assert_eq!(active["metadata"]["uid"], completed["metadata"]["uid"]);
        assert_eq!(active["status"]["started"], completed["status"]["started"]);
        assert!(completed["status"]["completed"].is_string(), "{completed}");
        assert!((writes(cluster).await - before - 2.0).abs() < 0.5);

        let selector = format!(
            "spec.operation=Migrating,status.phase=Completed,spec.subject.namespace={namespace}"
        );
        let get = "get inflightoperations.ifo.kubevirt.io --field-selector";
        let table = cluster.kubectl(&format!("{get} {selector}")).await;
        let header = table.lines().next().unwrap_or_default();
        let words: Vec<&str> = header.split_whitespace().collect();
        let columns = "NAME KIND NAMESPACE SUBJECT OPERATION PHASE STARTED COMPLETED";
        assert_eq!(words.join(" "), columns);
        assert_eq!(table.lines().count(), 2, "{table}");
    });
}

#[test]
fn an_operation_on_a_cluster_scoped_object_is_owned_by_it() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let name = cluster.new_namespace("noded").await;
        let rule = format!("object.spec.unschedulable && object.metadata.name == '{name}'");
        let rules = rule_set(name, &NODE, &[("Draining", &rule)]);
        cluster.ready_rule_set(&rules).await;
        let node = NODE.object(name, json!({"spec": {"unschedulable": true}}));
        let node = cluster.create(&NODE, None, &node).await;
        let find = async || {
            let mut crs = crs(cluster).await.into_values();
            crs.find(|cr| text(cr, "/spec/subject/name") == name)
        };
        let cr = eventually("the operation is written", async || {
            persisting.wait_until_equal().await;
            find()
                .await
                .ok_or_else(|| "there is no custom resource".to_owned())
        })
        .await;
        let owner = text(&cr, "/metadata/ownerReferences/0/uid");
        assert_eq!(owner, text(&node, "/metadata/uid"));
        cluster.admin.delete(&NODE.one(None, name)).await.ok();
        eventually(
            "the garbage collector deletes the custom resource",
            async || {
                let left = find().await;
                ok_if(left.is_none(), left)
            },
        )
        .await;
    });
}
