//! Tests of the command `rules check`, which reports errors in rule sets with their positions.

use super::tests_with_fake_apiserver::{json_response, not_found, serve};
use super::{CommandOutput, run_rules, run_rules_with_input};
use serde_json::json;

/// Returns the text of a rule set with these fields of its only rule.
fn rule_set_with(fields: &str) -> String {
    format!(
        "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\nmetadata: {{name: x}}\n\
         spec:\n  component: c\n  target: {{group: example.io, version: v1, resource: widgets}}\n  \
         rules:\n  - operation: Moving\n    {fields}\n"
    )
}

fn check(fields: &str) -> CommandOutput {
    run_rules_with_input(&["check", "-"], &rule_set_with(fields))
}

#[test]
fn a_folder_is_validated_as_kustomize_installs_it() {
    let output = run_rules(&["check", "rules"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert_eq!(output.stdout, "rules/widgets.yaml: widget-rules: ok\n");
}

#[test]
fn all_errors_are_reported_with_their_position() {
    let output = run_rules(&[
        "check",
        "wrong.yaml",
        "unknown_field.yaml",
        "rules/optional.yaml",
    ]);
    assert_eq!(output.code, 1);
    assert_eq!(output.stdout, "rules/optional.yaml: gadget-rules: ok\n");
    let lines = output.stderr.lines().filter(|it| it.starts_with("error: "));
    let at = "error: wrong.yaml: wrong-rules: ";
    let mut expected = [
        "rules: operation \"Moving\" is declared twice",
        "rules[Moving].expression: 1:35: Syntax error",
        "rules[Moving].expression: 1:1: undeclared reference to 'subject'",
        "rules[Waiting].expression: 1:26: undeclared reference to 'upper'",
    ]
    .map(|it| format!("{at}{it}"))
    .to_vec();
    expected.push(
        "error: unknown_field.yaml: unknown-field: unknown field spec.rules.0.mesage".to_owned(),
    );
    let found: Vec<&str> = lines.collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for expected in expected {
        assert!(
            found.iter().any(|it| it.starts_with(&expected)),
            "{expected}: {found:#?}"
        );
    }
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
            "error: misspelt.yaml: misspelt-rules: rules[Moving].expression: 2:14: the schema has no field 'phas'; the nearest is 'phase'",
            "    object.status.phas == 'Moving'",
            "                 ^",
            "error: misspelt.yaml: misspelt-rules: rules[Copying].itemKey: 1:5: the schema has no field 'nam'; the nearest is 'name'",
            "    item.nam",
            "        ^",
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
fn mistakes_are_shown_with_a_caret_or_a_hint() {
    for (fields, expected) in [
        (
            "expression: object.spec.paused = true",
            "error: -: x: rules[Moving].expression: 1:20: Syntax error: token recognition error at: '= ' (hint: write `==` to compare two values)\n    object.spec.paused = true\n                       ^\n",
        ),
        (
            "expression: \"object.a ? 'b': 'c' == 'd'\"\n    message: object.a ? 'b': 'c'",
            "error: -: line 10, column 28: mapping values are not allowed in this context (hint: quote an expression that contains `: ` or begins with `!`, `{` or a quote)\n",
        ),
        (
            "expression: true",
            "error: -: x: spec.rules[0].expression: invalid type: boolean `true`, expected a string (hint: put quotes around the text)\n",
        ),
        (
            "expression: object.a\n    supersedes: Moving",
            "error: -: x: spec.rules[0].supersedes: invalid type: string \"Moving\", expected a sequence\n",
        ),
        (
            "expression: object.a\n    outcome: \"object.b ? 'Suceeded' : ''\"",
            "error: -: x: rules[Moving].outcome: 1:12: \"Suceeded\" is not one of Succeeded, Failed, Superseded (hint: did you mean 'Succeeded'?)\n    object.b ? 'Suceeded' : ''\n               ^\n",
        ),
        (
            "expression: item.moving\n    forEach: object.parts",
            "error: -: x: rules[Moving].expression: 1:6: the rule needs itemKey, because an element with fields cannot be a key (hint: for example, add itemKey: item.name)\n    item.moving\n         ^\n",
        ),
        (
            "expression: object.a\n    debounce: 5 minutes",
            "error: -: x: rules[Moving].debounce: \"5 minutes\" is not a duration such as 30s or 1h30m\n",
        ),
    ] {
        let output = check(fields);
        assert_eq!(output.stderr, expected, "{fields}");
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{fields}");
    }
}

#[test]
fn suspicious_rules_are_warnings() {
    let output = check("expression: object.a\n    supersedes: [Movin]");
    let expected = "rules[Moving].supersedes: no rule of this component in the files detects Movin on this resource (hint: the most similar is Moving)\n";
    assert_eq!(output.stderr, format!("warning: -: x: {expected}"));
    assert_eq!((output.code, output.stdout.as_str()), (0, "-: x: ok\n"));
}

#[test]
fn supersedes_names_only_operations_of_the_own_component() {
    let stops = rule_set_with("expression: object.a\n    supersedes: [Copying]");
    let copies = rule_set_with("expression: object.b")
        .replace("name: x", "name: copies")
        .replace("operation: Moving", "operation: Copying");
    for (component, has_warning) in [("c", false), ("other", true)] {
        let copies = copies.replace("component: c\n", &format!("component: {component}\n"));
        let both = format!("{stops}---\n{copies}");
        let output = run_rules_with_input(&["check", "-"], &both);
        output.exits(0);
        let warning = "no rule of this component in the files detects Copying on this resource";
        assert_eq!(output.stderr.contains(warning), has_warning, "{component}");
    }
}

#[test]
fn types_are_checked_with_a_schema() {
    let schema = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.io}
spec:
  group: example.io
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          phase: {type: string, enum: [Pending, Running]}
          parts: {type: array, items: {type: object, properties: {weight: {type: integer}}}}
";
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("crd.yaml");
    std::fs::write(&path, schema).expect("the file can be written");
    let path = path.to_str().expect("the path is UTF-8");
    for (fields, expected) in [
        (
            "expression: object.metadata.creationTimestamp < now",
            "error: -: x: rules[Moving].expression: 1:35: found no matching overload for '_<_' applied to '(string, timestamp)' (hint: convert the string: timestamp(…))\n    object.metadata.creationTimestamp < now\n                                      ^\n",
        ),
        (
            "expression: object.phase == 'Runing'",
            "error: -: x: rules[Moving].expression: 1:17: 'Runing' is not a possible value of the field; possible are 'Pending', 'Running' (hint: did you mean 'Running'?)\n    object.phase == 'Runing'\n                    ^\n",
        ),
        (
            "expression: variables.parts[0].weight == 'a'\n  variables: [{name: parts, expression: object.parts}]",
            "error: -: x: rules[Moving].expression: 1:27: found no matching overload for '_==_' applied to '(int, string)' (hint: convert the string: int(…))\n    variables.parts[0].weight == 'a'\n                              ^\n",
        ),
        (
            "expression: object.phase == 'Running'\n    forEach: object.parts",
            "error: -: x: rules[Moving].forEach: 1:1: the rule needs itemKey, because the elements are neither strings nor ints (hint: for example, add itemKey: item.name)\n    object.parts\n    ^\n",
        ),
        (
            "expression: item.weight > 1\n    forEach: object.parts\n    itemKey: item.weight",
            "",
        ),
    ] {
        let args = ["check", "-", "--schema", path];
        let output = run_rules_with_input(&args, &rule_set_with(fields));
        assert_eq!(output.stderr, expected);
        assert_eq!(output.code, i32::from(!expected.is_empty()));
    }
}

#[test]
fn wrong_names_of_types_and_resources_have_a_hint() {
    let correct = rule_set_with("expression: object.status.phase == 'Moving'");
    for (from, to, expected) in [
        (
            "v1alpha1",
            "v1beta1",
            "error: -: x: ifo.kubevirt.io/v1beta1 OperationRuleSet does not exist (hint: write ifo.kubevirt.io/v1alpha1 OperationRuleSet)\n",
        ),
        (
            "OperationRuleSet",
            "OperationRuleset",
            "error: -: x: ifo.kubevirt.io/v1alpha1 OperationRuleset does not exist (hint: write ifo.kubevirt.io/v1alpha1 OperationRuleSet)\n",
        ),
        (
            "widgets",
            "Widget",
            "error: -: x: target: \"Widget\" is not a resource (the plural of the kind in lower case)\n",
        ),
    ] {
        let output = run_rules_with_input(&["check", "-"], &correct.replace(from, to));
        assert_eq!((output.code, output.stderr.as_str()), (1, expected));
    }
}

#[test]
fn schemas_are_read_from_the_cluster() {
    let mark = json!({"group": "example.io", "version": "v1", "kind": "Widget"});
    let document = json!({
        "openapi": "3.0.0",
        "paths": {"/apis/example.io/v1/widgets": {"get": {"x-kubernetes-group-version-kind": mark}}},
        "components": {"schemas": {"Widget": {
            "x-kubernetes-group-version-kind": [mark], "properties": {"phase": {"type": "string"}},
        }}},
    });
    let index =
        json!({"paths": {"apis/example.io/v1": {"serverRelativeURL": "/openapi/v3/widgets"}}});
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        "/openapi/v3" => json_response(&index),
        "/openapi/v3/widgets" => json_response(&document),
        _ => not_found(),
    });
    let server = format!("http://{address}");
    for (from, to, code, expected) in [
        ("v1,", "v1,", 0, ""),
        (
            "object.phase",
            "object.phas",
            1,
            "error: -: x: rules[Moving].expression: 1:7: the schema has no field 'phas'; the nearest is 'phase'\n    object.phas == 'a'\n          ^\n",
        ),
        (
            "version: v1,",
            "version: v2,",
            0,
            "warning: -: x: target: the cluster does not serve example.io/v2\n",
        ),
        (
            "widgets",
            "gadgets",
            0,
            "note: -: x: no schema of example.io/v1/gadgets, so the fields in its expressions are not checked\n",
        ),
    ] {
        let rule_set = rule_set_with("expression: object.phase == 'a'").replace(from, to);
        let args = ["check", "-", "--cluster", "--server", &server];
        let output = run_rules_with_input(&args, &rule_set);
        assert_eq!((output.code, output.stderr.as_str()), (code, expected));
    }
}

#[test]
fn the_shipped_rule_sets_have_no_warning() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../rules");
    let files: Vec<_> = std::fs::read_dir(shipped)
        .expect("the folder exists")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir())
        // Unlike the kustomizations, the folders also have the optional rule sets.
        .flat_map(|folder| std::fs::read_dir(folder).expect("the folder can be read"))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| !path.ends_with("kustomization.yaml") && !path.ends_with("clusterrole.yaml"))
        .map(|path| path.display().to_string())
        .collect();
    let mut args = vec!["check"];
    args.extend(files.iter().map(String::as_str));
    let output = run_rules(&args);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.lines().count() > 50, "{}", output.stdout);
}
