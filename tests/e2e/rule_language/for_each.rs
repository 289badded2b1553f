//! Tests of rules with `forEach`, which detect one operation for each item of a list in an object.

use super::event_lines;
use crate::harness::{VM, condition, migrating, shared, text};
use serde_json::{Value, json};

/// Returns a rule set with an operation for each volume of a VirtualMachine in this namespace.
fn volumes(namespace: &str) -> Value {
    let mut rules = migrating(namespace);
    rules["spec"]["rules"] = json!([{
        "operation": "Attaching",
        "forEach": "object.status.volumes",
        "itemKey": "item.name",
        "expression": "item.phase == 'Attaching'",
        "message": "item.message",
    }]);
    rules
}

fn machine(volumes: &Value) -> Value {
    json!({
        "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "a"},
        "status": {"volumes": volumes},
    })
}

#[test]
fn each_element_has_its_own_operation_that_settles_when_the_element_disappears() {
    shared(async |cluster| {
        let namespace = cluster.namespace("items").await;
        cluster.ready_rule_set(&volumes(namespace)).await;
        let mut events = cluster.watch(namespace).await;
        let volume = |name: &str, phase: &str| json!({"name": name, "phase": phase});
        let both = json!([
            volume("x", "Attaching"),
            volume("y", "Attaching"),
            volume("z", "Ready")
        ]);
        cluster.create(&VM, Some(namespace), &machine(&both)).await;
        let attaching = [("a", "Attaching"), ("a", "Attaching")];
        let operations = cluster.until_operations(namespace, &attaching).await;
        let mut items: Vec<&str> = operations
            .iter()
            .map(|operation| text(operation, "/spec/item"))
            .collect();
        items.sort_unstable();
        assert_eq!(items, ["x", "y"]);
        assert_ne!(
            operations[0]["metadata"]["name"],
            operations[1]["metadata"]["name"]
        );
        let select = format!(
            "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{namespace}/inflightoperations?fieldSelector=spec.item%3Dy"
        );
        let list = cluster.admin.get(&select).await.ok();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");

        let path = format!("{}/a", VM.path(Some(namespace)));
        let other = json!({"status": {"volumes": [volume("y", "Attaching")]}});
        cluster.admin.merge(&path, &other).await.ok();
        let over = "No rule detects the operation any more.";
        let want = [
            "ADDED Active Progressing Attaching -: ".to_owned(),
            "MODIFIED Active Settling Attaching -: ".to_owned(),
            format!("MODIFIED Completed Ended NotDetected -: {over}"),
            format!("DELETED Completed Ended NotDetected -: {over}"),
        ];
        let all = events
            .until("the operation on x has ended", |all| {
                (event_lines(all, "a", "Attaching", Some("x")) == want).then(|| all.to_vec())
            })
            .await;
        assert_eq!(event_lines(&all, "a", "Attaching", Some("y")), want[..1]);
    });
}

#[test]
fn an_element_without_a_key_is_reported_in_status_and_the_others_are_detected() {
    shared(async |cluster| {
        let namespace = cluster.namespace("nameless").await;
        cluster.ready_rule_set(&volumes(namespace)).await;
        let volumes = json!([
            {"name": ["x"], "phase": "Attaching"},
            {"name": "y", "phase": "Attaching"},
        ]);
        cluster
            .create(&VM, Some(namespace), &machine(&volumes))
            .await;
        let failed = cluster
            .rule_set_until(namespace, "EvaluationFailed", |it| {
                condition(it, "EvaluationFailed")["status"] == "True"
            })
            .await;
        let message = text(condition(&failed, "EvaluationFailed"), "/message");
        assert!(message.contains("rules[Attaching].itemKey"), "{message}");
        let operations = cluster
            .until_operations(namespace, &[("a", "Attaching")])
            .await;
        assert_eq!(operations[0]["spec"]["item"], "y");
    });
}
