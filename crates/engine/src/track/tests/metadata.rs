//! Test of all fields of a new operation.

use super::fixture_with_rule_set;
use serde_json::json;

#[test]
fn an_operation_shows_its_subject_its_owner_the_rule_set_and_its_state() {
    let rule_set = "labels: {team: virt, ifo.kubevirt.io/correlation-group: fixed}\n\
        labelExpressions:\n\
        - {key: cut, expression: object.long}\n\
        - {key: missing, expression: object.absent}\n\
        - {key: ifo.kubevirt.io/correlation-group, expression: \"'computed'\"}\n\
        rules:\n- {operation: Migrating, expression: 'true'}";
    let mut fixture = fixture_with_rule_set(rule_set);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "Pool", "name": "owner", "uid": "uid-owner",
    });
    fixture.apply_object(json!({
        "metadata": {"generation": 7, "ownerReferences": [owner]}, "long": "with spaces ".repeat(10),
    }));
    let object = fixture.only_operation();
    let labels = serde_json::to_value(&object.metadata.labels).unwrap();
    let mut expected = json!({
        "cut": "with-spaces-with-spaces-with-spaces-with-spaces-with-s-611d6b7b", "team": "virt",
    });
    for (key, value) in [
        ("component", "kubevirt"),
        ("correlation-group", "fixed"),
        ("operation", "Migrating"),
        ("owner-group", "apps"),
        ("owner-kind", "Pool"),
        ("owner-name", "owner"),
        ("owner-uid", "uid-owner"),
        ("owner-version", "v1"),
        ("ruleset", "rules"),
        ("state", "Progressing"),
        ("subject-kind", "VirtualMachine"),
        ("subject-name", "vm"),
        ("subject-namespace", "ns"),
        ("subject-uid", "uid-vm"),
    ] {
        expected[format!("ifo.kubevirt.io/{key}")] = value.into();
    }
    assert_eq!(labels, expected);
    let subject = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "namespace": "ns",
        "uid": "uid-vm", "ownerReferences": [owner],
    });
    let expected = json!({
        "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt", "subject": subject,
    });
    assert_eq!(serde_json::to_value(&object.spec).unwrap(), expected);
    let expected = json!([{
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "uid-vm",
        "controller": true, "blockOwnerDeletion": false,
    }]);
    let owners = serde_json::to_value(&object.metadata.owner_references).unwrap();
    assert_eq!(owners, expected);
    let now = fixture.now.wall.to_string();
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": now, "observedGeneration": 7,
        })
    };
    let expected = json!({
        "phase": "Active", "state": "Progressing", "reason": "Migrating", "stateSince": now,
        "startTimeSource": "Detected", "lastDetected": now, "detectedBy": ["rules"],
        "subjectGeneration": 7, "conditions": [
            condition("Progressing", "True", "Migrating"),
            condition("Detected", "True", "RuleMatched"),
            condition("Completed", "False", "InFlight"),
        ],
    });
    assert_eq!(serde_json::to_value(&object.status).unwrap(), expected);
    assert!(object.metadata.name.starts_with("vm-migrating-"));
}
