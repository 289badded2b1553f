//! Tests of `check`: the errors in rule sets, with their positions.

use super::{rules, rules_with};

#[test]
fn a_folder_is_validated_as_kustomize_installs_it() {
    let said = rules(&["check", "rules"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(said.out, "rules/widgets.yaml: widget-rules: ok\n");
}

#[test]
fn all_errors_are_reported_with_their_position() {
    let said = rules(&["check", "wrong.yaml", "rules/optional.yaml"]);
    assert_eq!(said.code, 1);
    assert_eq!(said.out, "rules/optional.yaml: gadget-rules: ok\n");
    let at = "error: wrong.yaml: wrong-rules: ";
    for expected in [
        "rules: operation \"Moving\" is declared twice\n",
        "rules[Moving].expression: 1:35: Syntax error",
        "rules[Moving].expression: 1:1: undeclared reference to 'subject'",
        "rules[Waiting].expression: 1:26: undeclared reference to 'upper'",
        "spec.rules[] has no field 'mesage'; the nearest is 'message'\n",
    ] {
        let expected = format!("{at}{expected}");
        assert!(said.err.contains(&expected), "{expected}: {}", said.err);
    }
    assert_eq!(said.err.lines().count(), 5, "{}", said.err);
}

#[test]
fn misspelled_fields_are_found_with_a_schema() {
    let blind = rules(&["check", "misspelt.yaml"]);
    assert_eq!((blind.code, blind.err.as_str()), (0, ""));
    let said = rules(&["check", "rules", "misspelt.yaml", "--schema", "crd.yaml"]);
    assert_eq!(said.code, 1);
    assert_eq!(said.out, "rules/widgets.yaml: widget-rules: ok\n");
    assert_eq!(
        said.err.lines().collect::<Vec<_>>(),
        [
            "error: misspelt.yaml: misspelt-rules: rules[Moving].expression: 2:15: object.status has no field 'phas'; the nearest is 'phase'",
            "error: misspelt.yaml: misspelt-rules: rules[Copying].itemKey: 1:6: object.status.parts[] has no field 'nam'; the nearest is 'name'",
        ]
    );
}

#[test]
fn a_schema_of_another_resource_is_reported_but_no_error() {
    let said = rules(&["check", "rules/optional.yaml", "--schema", "crd.yaml"]);
    assert_eq!(said.code, 0);
    assert!(said.err.contains("no schema of example.io/v1/gadgets"));
    let said = rules(&["check", "rules", "--schema", "objects.yaml"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("neither a CustomResourceDefinition nor"));
}

#[test]
fn standard_input_must_contain_a_rule_set() {
    let rule_set = r#"{"apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
        "metadata": {"name": "x"}, "spec": {"component": "c",
        "target": {"group": "g.io", "version": "v1", "resource": "things"},
        "rules": [{"operation": "Moving", "expression": "object.moving"}]}}"#;
    let said = rules_with(&["check", "-"], rule_set);
    assert_eq!((said.code, said.out.as_str()), (0, "-: x: ok\n"));
    let said = rules_with(
        &["check", "-"],
        "{kind: Pod, apiVersion: v1, metadata: {name: a}}",
    );
    assert_eq!(said.code, 1);
    assert_eq!(said.err, "error: no OperationRuleSet in the files\n");
}

#[test]
fn the_shipped_rule_sets_are_valid() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules");
    let said = rules(&["check", shipped]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.lines().count() > 5, "{}", said.out);
}
