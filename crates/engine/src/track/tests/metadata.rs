//! Test of the metadata and the spec of an operation, which refer to its subject, to the owner of the
//! subject and to the rule set.

use super::rule_fields::fixture_with_rule_set;
use serde_json::json;

#[test]
fn labels_and_spec_name_the_subject_its_owner_and_the_rule_set() {
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
        "metadata": {"ownerReferences": [owner]}, "long": "with spaces ".repeat(10),
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
}
