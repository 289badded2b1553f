//! Tests of the writes in persistence mode. The tests check the custom resource of an operation
//! from the operation's start to its end, and count the writes.

use super::{CR, Persisting, crs, delete_custom_resources, writes};
use crate::harness::{
    NODE, alone_in_persistence_cluster, eventually, migrating, ok_if, rule_set, text,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[test]
fn an_operation_is_written_at_its_start_and_end_and_then_retained() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let persisting = Persisting::start(cluster, &[]).await;
        let namespace = cluster.namespace("kept").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        persisting.wait_until_equal().await;
        let before = writes(cluster).await;
        cluster.machine(namespace, "a", "Migrating").await;
        let selector = format!("?fieldSelector=spec.subject.namespace={namespace}");
        let path = format!("{}{selector}", CR.path(None));
        let wait_for_phase = async |phase: &str| {
            eventually(&format!("the custom resource is {phase}"), async || {
                let list = cluster.admin.get(&path).await.ok();
                ok_if(list["items"][0]["status"]["phase"] == phase, &list)?;
                Ok(list["items"][0].clone())
            })
            .await
        };
        let active = wait_for_phase("Active").await;
        assert_eq!(
            text(&active, "/metadata/managedFields/0/manager"),
            "ifo-persistence"
        );
        assert_eq!(
            text(&active, "/metadata/managedFields/0/operation"),
            "Apply"
        );
        assert!(active["metadata"]["ownerReferences"].is_null(), "{active}");
        let live = persisting.live().await;
        let live = &live[text(&active, "/status/liveUID")];
        assert!(
            text(&active, "/metadata/name").starts_with(text(live, "/metadata/name")),
            "{active}"
        );

        cluster.set_status(namespace, "a", "Running").await;
        let completed = wait_for_phase("Completed").await;
        assert_eq!(active["metadata"]["uid"], completed["metadata"]["uid"]);
        assert_eq!(active["status"]["started"], completed["status"]["started"]);
        assert!(completed["status"]["completed"].is_string(), "{completed}");
        assert!((writes(cluster).await - before - 2.0).abs() < 0.5);

        let columns = [
            "get",
            "inflightoperations.ifo.kubevirt.io",
            "--field-selector",
        ];
        let selector = format!(
            "spec.operation=Migrating,status.phase=Completed,spec.subject.namespace={namespace}"
        );
        let table = cluster
            .kubectl(&[columns[0], columns[1], columns[2], &selector])
            .await;
        let table = table.expect("kubectl must accept the field selector");
        let header: Vec<&str> = table
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            header,
            [
                "NAME",
                "KIND",
                "NAMESPACE",
                "SUBJECT",
                "OPERATION",
                "PHASE",
                "STARTED",
                "COMPLETED"
            ]
        );
        assert_eq!(table.lines().count(), 2, "{table}");
    });
}

#[test]
fn an_operation_on_a_cluster_scoped_object_is_owned_by_it() {
    alone_in_persistence_cluster(async |cluster| {
        delete_custom_resources(cluster).await;
        let persisting = Persisting::start(cluster, &[]).await;
        let name = cluster.namespace("noded").await;
        let rule = format!("object.spec.unschedulable && object.metadata.name == '{name}'");
        cluster
            .ready_rule_set(&rule_set(name, &NODE, &[("Draining", &rule)]))
            .await;
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"unschedulable": true},
        });
        let node = cluster.create(&NODE, None, &node).await;
        let of = |crs: BTreeMap<String, Value>| {
            let mut crs = crs.into_values();
            crs.find(|cr| text(cr, "/spec/subject/name") == name)
        };
        let cr = eventually("the operation is written", async || {
            of(persisting.wait_until_equal().await)
                .ok_or_else(|| "there is no custom resource".to_owned())
        })
        .await;
        assert_eq!(
            text(&cr, "/metadata/ownerReferences/0/uid"),
            text(&node, "/metadata/uid")
        );
        cluster
            .admin
            .delete(&format!("{}/{name}", NODE.path(None)))
            .await
            .ok();
        eventually(
            "the garbage collector deletes the custom resource",
            async || {
                let left = of(crs(cluster).await);
                ok_if(left.is_none(), left)
            },
        )
        .await;
    });
}
