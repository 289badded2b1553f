//! Tests of the command `rules check`, which reports errors in rule sets with their positions.

use super::{run_rules, run_rules_with_input};

#[test]
fn a_folder_is_validated_as_kustomize_installs_it() {
    let output = run_rules(&["check", "rules"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout, "rules/widgets.yaml: widget-rules: ok\n");
}

#[test]
fn all_errors_are_reported_with_their_position() {
    let output = run_rules(&["check", "wrong.yaml", "rules/optional.yaml"]);
    assert_eq!(output.code, 1);
    assert_eq!(output.stdout, "rules/optional.yaml: gadget-rules: ok\n");
    let at = "error: wrong.yaml: wrong-rules: ";
    for expected in [
        "rules: operation \"Moving\" is declared twice\n",
        "rules[Moving].expression: 1:35: Syntax error",
        "rules[Moving].expression: 1:1: undeclared reference to 'subject'",
        "rules[Waiting].expression: 1:26: undeclared reference to 'upper'",
        "spec.rules[] has no field 'mesage'; the nearest is 'message'\n",
    ] {
        let expected = format!("{at}{expected}");
        assert!(
            output.stderr.contains(&expected),
            "{expected}: {}",
            output.stderr
        );
    }
    let errors = output.stderr.lines().filter(|it| it.starts_with("error: "));
    assert_eq!(errors.count(), 5, "{}", output.stderr);
    // The lines of an expression and the caret are below the error.
    let excerpt = "\n    ^\n";
    assert!(output.stderr.contains(excerpt), "{}", output.stderr);
}

/// Returns a rule set with one rule. `fields` are the lines of its fields after the operation.
fn rule_set(api_version: &str, resource: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|it| format!("      {it}\n")).collect();
    format!(
        "apiVersion: {api_version}\nkind: OperationRuleSet\nmetadata: {{name: r}}\nspec:\n  \
         component: c\n  target: {{group: apps, version: v1, resource: {resource}}}\n  rules:\n    \
         - operation: Moving\n{fields}"
    )
}

#[test]
fn frequent_mistakes_are_reported_with_a_hint() {
    const VERSION: &str = "ifo.kubevirt.io/v1alpha1";
    const PAUSED: &str = "expression: \"object.spec.paused\"";
    for (rule_set, error, hint) in [
        (
            rule_set(
                VERSION,
                "deployments",
                &["expression: \"object.spec.paused = true\""],
            ),
            "1:20: Syntax error",
            "write `==`",
        ),
        (
            rule_set(VERSION, "deployments", &[PAUSED, "state: Blocked"]),
            "rules[Moving].state: 1:1: undeclared reference to 'Blocked'",
            "\"'Blocked'\"",
        ),
        (
            rule_set(VERSION, "deployments", &[PAUSED, "message: Please wait"]),
            "rules[Moving].message: 1:8: Syntax error",
            "\"'Please wait'\"",
        ),
        (
            rule_set(VERSION, "deployments", &["expression: a ? 'b': 'c' == 'b'"]),
            "mapping values are not allowed",
            "in quotes",
        ),
        (
            rule_set(VERSION, "deployments", &["expression: true"]),
            "spec.rules[0].expression is a boolean",
            "expression: \"true\"",
        ),
        (
            rule_set(VERSION, "Deployment", &[PAUSED]),
            "\"Deployment\" is not a resource",
            "\"deployments\"",
        ),
        (
            rule_set("ifo.kubevirt.io/v1", "deployments", &[PAUSED]),
            "apiVersion \"ifo.kubevirt.io/v1\" does not exist",
            VERSION,
        ),
        (
            rule_set(
                VERSION,
                "deployments",
                &["expression: \"request.name == 'a'\""],
            ),
            "undeclared reference to 'request'",
            "no admission request",
        ),
    ] {
        let output = run_rules_with_input(&["check", "-"], &rule_set);
        assert_eq!(output.code, 1, "{rule_set}");
        assert!(output.stderr.contains(error), "{error}: {}", output.stderr);
        let (_, found) = output.stderr.split_once("(hint: ").expect(error);
        assert!(found.contains(hint), "{hint}: {}", output.stderr);
    }
    let unknown = rule_set(VERSION, "deployments", &[PAUSED, "supersedes: [Movin]"]);
    let output = run_rules_with_input(&["check", "-"], &unknown);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stderr.starts_with("warning: "), "{}", output.stderr);
    assert!(
        output.stderr.contains("the most similar is Moving"),
        "{}",
        output.stderr
    );
}

#[test]
fn misspelled_fields_are_found_with_a_schema() {
    let without_schema = run_rules(&["check", "misspelt.yaml"]);
    assert_eq!(
        (without_schema.code, without_schema.stderr.as_str()),
        (0, "")
    );
    let output = run_rules(&["check", "rules", "misspelt.yaml", "--schema", "crd.yaml"]);
    assert_eq!(output.code, 1);
    assert_eq!(output.stdout, "rules/widgets.yaml: widget-rules: ok\n");
    assert_eq!(
        output.stderr.lines().collect::<Vec<_>>(),
        [
            "error: misspelt.yaml: misspelt-rules: rules[Moving].expression: 2:15: object.status has no field 'phas'; the nearest is 'phase'",
            "error: misspelt.yaml: misspelt-rules: rules[Copying].itemKey: 1:6: object.status.parts[] has no field 'nam'; the nearest is 'name'",
        ]
    );
}

#[test]
fn a_schema_of_another_resource_is_reported_but_is_not_an_error() {
    let output = run_rules(&["check", "rules/optional.yaml", "--schema", "crd.yaml"]);
    assert_eq!(output.code, 0);
    assert!(output.stderr.contains("no schema of example.io/v1/gadgets"));
    let output = run_rules(&["check", "rules", "--schema", "objects.yaml"]);
    assert_eq!(output.code, 1);
    assert!(
        output
            .stderr
            .contains("neither a CustomResourceDefinition nor")
    );
}

#[test]
fn standard_input_must_contain_a_rule_set() {
    let rule_set = r#"{"apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
        "metadata": {"name": "x"}, "spec": {"component": "c",
        "target": {"group": "g.io", "version": "v1", "resource": "things"},
        "rules": [{"operation": "Moving", "expression": "object.moving"}]}}"#;
    let output = run_rules_with_input(&["check", "-"], rule_set);
    assert_eq!((output.code, output.stdout.as_str()), (0, "-: x: ok\n"));
    let output = run_rules_with_input(
        &["check", "-"],
        "{kind: Pod, apiVersion: v1, metadata: {name: a}}",
    );
    assert_eq!(output.code, 1);
    assert_eq!(output.stderr, "error: no OperationRuleSet in the files\n");
}

#[test]
fn the_shipped_rule_sets_are_valid() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules");
    let output = run_rules(&["check", shipped]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.lines().count() > 5, "{}", output.stdout);
}
