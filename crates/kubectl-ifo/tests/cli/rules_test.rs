//! Tests of the command `rules test`, which prints the operations that rules detect on given
//! objects.

use super::{run_rules, run_rules_with_input, values_at};
use serde_json::json;

#[test]
fn each_object_has_a_result_with_the_values_of_each_operation() {
    let output = run_rules(&["test", "rules", "--objects", "objects.yaml", "-O", "json"]);
    output.exits(0);
    let json = output.json();
    let results = &json["results"];
    assert_eq!(
        values_at(results, "/subject/name"),
        ["a", "b", "c", "other"]
    );
    assert_eq!(
        results[0],
        json!({
            "source": "objects.yaml",
            "subject": {
                "apiVersion": "example.io/v1", "kind": "Widget", "namespace": "one", "name": "a",
                "uid": "00000000-0000-0000-0000-00000000000a",
            },
            "operations": [
                {
                    "operation": "Moving", "item": null, "ruleSet": "widget-rules", "component": "example",
                    "state": "Progressing", "reason": "Moving", "message": "to shelf", "progress": 45,
                    "started": null, "labels": {"tier": "test"},
                },
                {
                    "operation": "Copying", "item": "x", "ruleSet": "widget-rules", "component": "example",
                    "state": "Progressing", "reason": "Copying", "message": "", "progress": null,
                    "started": null, "labels": {"tier": "test"},
                },
            ],
            "failures": [],
        })
    );
    assert_eq!(results[1]["operations"], json!([]));
    let waiting = &results[2]["operations"][0];
    assert_eq!(waiting["state"], "Blocked");
    assert_eq!(waiting["reason"], "WaitsForSpace");
    assert_eq!(waiting["started"], "2026-11-21T10:00:00Z");
    assert_eq!(results[3]["subject"]["kind"], "ConfigMap");
}

#[test]
fn failures_are_reported_as_results() {
    let output = run_rules(&[
        "test",
        "rules",
        "--objects",
        "unexpected.yaml",
        "-O",
        "json",
    ]);
    assert_eq!(output.code, 1);
    assert_eq!(
        output.stderr,
        "error: unexpected.yaml: Widget one/a: widget-rules: rules[Moving].message: 1:7: no such overload: string + int\n"
    );
    let result = &output.json()["results"][0];
    assert_eq!(result["operations"][0]["message"], "");
    assert_eq!(
        result["failures"],
        json!(["widget-rules: rules[Moving].message: 1:7: no such overload: string + int"])
    );
}

#[test]
fn the_table_has_one_line_for_each_operation() {
    let output = run_rules(&["test", "rules", "--objects", "objects.yaml"]);
    let lines: Vec<Vec<&str>> = output
        .stdout
        .lines()
        .map(|line| {
            line.split("   ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(lines.len(), 4, "{}", output.stdout);
    assert_eq!(
        lines[1],
        [
            "Widget one/a",
            "Moving",
            "Progressing",
            "45%",
            "widget-rules",
            "to shelf"
        ]
    );
    assert_eq!(
        lines[2],
        ["Widget one/a", "Copying/x", "Progressing", "widget-rules"]
    );
    assert_eq!(
        lines[3],
        [
            "Widget two/c",
            "Waiting",
            "Blocked",
            "2026-11-21T10:00:00Z",
            "widget-rules"
        ]
    );
    assert_eq!(
        output.stderr,
        "note: operations: 3; objects that rule sets watch: 3; other objects: 1\n"
    );
}

#[test]
fn yaml_and_json_output_are_equal() {
    let args = ["test", "rules", "--objects", "objects.yaml", "-O"];
    let json = run_rules(&[&args[..], &["json"]].concat()).json();
    let yaml = run_rules(&[&args[..], &["yaml"]].concat());
    let yaml: serde_json::Value = serde_saphyr::from_str(&yaml.stdout).expect("YAML");
    assert_eq!(yaml, json);
}

#[test]
fn expectations_are_compared_with_results() {
    let args = ["test", "rules", "--expect", "--objects"];
    let output = run_rules(&[&args[..], &["objects.yaml"]].concat());
    output.exits(0);
    let output = run_rules(&[&args[..], &["objects.yaml", "unexpected.yaml"]].concat());
    assert_eq!(output.code, 1);
    let errors: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.starts_with("error"))
        .collect();
    assert_eq!(
        errors,
        [
            "error: unexpected.yaml: Widget one/a: expected Waiting; found Moving",
            "error: unexpected.yaml: Widget one/a: widget-rules: rules[Moving].message: 1:7: no such overload: string + int",
        ]
    );
}

#[test]
fn a_comparison_without_expectations_fails() {
    let object = "{apiVersion: example.io/v1, kind: Widget, metadata: {name: a}}";
    let output = run_rules_with_input(&["test", "rules", "--expect", "--objects", "-"], object);
    output.exits(1);
    output.says("no object has the annotation ifo.kubevirt.io/expect");
    let without = run_rules_with_input(&["test", "rules", "--objects", "-"], object);
    without.exits(0);
}

#[test]
fn objects_are_read_from_a_must_gather_folder() {
    let output = run_rules(&["test", "rules", "--objects", "must-gather", "-O", "json"]);
    let json = output.json();
    let results = &json["results"];
    assert_eq!(
        values_at(results, "/subject/kind"),
        ["CustomResourceDefinition", "Widget", "Widget"]
    );
    // The results are in the order of the paths:
    //
    // - the CRD. It has no operation, so `values_at` returns `missing`.
    // - the object in the folder `widgets`
    // - the object in the file `widgets.yaml`
    let found: Vec<_> = values_at(results, "/operations/0/operation");
    assert_eq!(found, ["missing", "Waiting", "Moving"]);
    // The command reports the invalid file `cut.yaml`, and reads the other files.
    assert_eq!(output.code, 1);
    assert!(
        output
            .stderr
            .contains("error: must-gather/namespaces/one/cut.yaml: line 3")
    );
}

#[test]
fn the_plural_of_a_kind_without_a_crd_is_the_one_that_the_rule_set_names() {
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: gateway-rules}
spec:
  component: c
  target: {group: example.io, version: v1, resource: gateways}
  rules: [{operation: Moving, expression: object.moving}]
";
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rule_set).expect("the file can be written");
    let object = "{apiVersion: example.io/v1, kind: Gateway, metadata: {name: a}, moving: true}";
    let path = path.to_str().expect("the path is UTF-8");
    let args = ["test", path, "--objects", "-", "-O", "json"];
    let output = run_rules_with_input(&args, object);
    output.exits(0);
    let found = values_at(&output.json()["results"], "/operations/0/operation");
    assert_eq!(found, ["Moving"]);
}

/// A rule set for the resource `widgets` in the namespace `one`, with two variables.
const EXPLAINED: &str = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: explained}
spec:
  component: c
  target: {group: example.io, version: v1, resource: widgets}
  namespaces: [one]
  variables:
  - {name: idle, expression: object.status.phase == 'Idle' && object.spec.n > 3}
  - {name: age, expression: now - timestamp(object.metadata.creationTimestamp)}
  rules:
  - operation: Moving
    expression: object.status.phase in ['Idle', 'Moving'] && (variables.idle || object.spec.paused)
  - operation: Waiting
    expression: variables.age > duration('1h')
";

/// Returns the YAML of an object of the resource `widgets` in `namespace`.
fn widget(namespace: &str) -> String {
    format!(
        "\n---\napiVersion: example.io/v1\nkind: Widget\nmetadata: {{name: a, namespace: {namespace}, \
         creationTimestamp: 2026-01-01T00:00:00Z}}\nspec: {{n: 2, paused: false}}\n\
         status: {{phase: Idle}}\n"
    )
}

/// Runs `rules test --explain` with the rule set [`EXPLAINED`] and the flags `more`. The input is
/// the object of [`widget`]. `--now` sets the current time to 15m44s after its creation.
fn explain(namespace: &str, more: &[&str]) -> super::CommandOutput {
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, EXPLAINED).expect("the file can be written");
    let path = path.to_str().expect("the path is UTF-8");
    let mut args = vec!["test", path, "--explain", "--now", "2026-01-01T00:15:44Z"];
    args.extend(more);
    args.extend(["--objects", "-"]);
    run_rules_with_input(&args, &widget(namespace))
}

#[test]
fn explain_shows_the_clauses_that_decided_with_their_values() {
    let output = explain("one", &[]);
    output.exits(0);
    assert_eq!(
        output.stdout,
        "Widget one/a
  explained: Moving: not detected
    variables.idle = false
    in variables.idle: object.spec.n > 3 = false
      object.spec.n = 2
    object.spec.paused = false
  explained: Waiting: not detected
    variables.age > duration('1h') = false
      variables.age = \"944s\"
"
    );
    let other = explain("two", &[]);
    other.prints(
        "explained: Moving: not evaluated: the namespace of the object is not in `namespaces`\n",
    );
}

#[test]
fn explanations_are_lines_in_json() {
    let output = explain("one", &["-O", "json"]);
    let explanations = &output.json()["results"][0]["explanations"];
    assert_eq!(explanations[0], "  explained: Moving: not detected");
    assert_eq!(explanations[7], "      variables.age = \"944s\"");
}

#[test]
fn explain_names_an_element_whose_key_fails() {
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("rules.yaml");
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: keys}
spec:
  component: c
  target: {group: example.io, version: v1, resource: widgets}
  rules:
  - operation: Moving
    forEach: object.spec.items
    itemKey: item.id
    expression: item.moves
";
    std::fs::write(&path, rule_set).expect("the file can be written");
    let path = path.to_str().expect("the path is UTF-8");
    let widget = "
apiVersion: example.io/v1
kind: Widget
metadata: {name: a, namespace: one}
spec: {items: [{id: x, moves: true}, {moves: true}, {id: [1], moves: true}]}
";
    let args = ["test", path, "--explain", "--objects", "-"];
    let output = run_rules_with_input(&args, widget);
    let explanation = output.stdout.split("SUBJECT").next();
    assert_eq!(
        explanation,
        Some(
            "Widget one/a
  keys: Moving/x: detected
    item.moves = true
      item = {\"id\":\"x\",\"moves\":true}
  keys: Moving (itemKey): not detected
    item.id = (no such key: id)
      item = {\"moves\":true}
  keys: Moving (itemKey): failed: 1:5: expected type 'string or int' but found 'list'
    item.id = [1]
      item = {\"id\":[1],\"moves\":true}
"
        ),
        "{}",
        output.stderr
    );
}
