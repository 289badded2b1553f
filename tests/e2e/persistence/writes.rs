//! Test of the writes in persistence mode: the custom resource of an operation from the operation's
//! start to its end.

use super::{CR, persisting};
use crate::harness::{items, migrating, text};
use serde_json::Value;

#[test]
fn an_operation_is_written_at_its_start_and_end_and_then_retained() {
    persisting(async |persisting| {
        let cluster = persisting.cluster;
        let namespace = cluster.new_namespace("kept").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
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
