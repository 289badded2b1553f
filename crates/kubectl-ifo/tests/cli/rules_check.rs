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
    let lines = output.stderr.lines();
    let errors = lines.filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 5, "{}", output.stderr);
}

#[test]
fn a_rule_set_with_an_unknown_field_is_not_ok() {
    let text = r#"{
        "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
        "metadata": {"name": "typing-error"},
        "spec": {
            "component": "tests",
            "target": {"group": "", "version": "v1", "resource": "pods"},
            "rules": [{"operation": "A", "expression": "object.a", "mesage": "'a'"}]
        }
    }"#;
    let output = run_rules_with_input(&["check", "-"], text);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    let expected = "typing-error: spec.rules[] has no field 'mesage'; the nearest is 'message'\n";
    assert!(output.stderr.ends_with(expected), "{}", output.stderr);
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
            "    object.status.phas == 'Moving'",
            "                  ^",
            "error: misspelt.yaml: misspelt-rules: rules[Copying].itemKey: 1:6: object.status.parts[] has no field 'nam'; the nearest is 'name'",
            "    item.nam",
            "         ^",
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

/// Returns the text of a rule set with these fields of its only rule.
fn rule_set_with(fields: &str) -> String {
    format!(
        "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\nmetadata: {{name: x}}\n\
         spec:\n  component: c\n  target: {{group: example.io, version: v1, resource: widgets}}\n  \
         rules:\n  - operation: Moving\n    {fields}\n"
    )
}

#[test]
fn frequent_mistakes_are_shown_with_a_caret_and_a_hint() {
    for (fields, expected) in [
        (
            "expression: object.spec.paused = true",
            "error: -: x: rules[Moving].expression: 1:20: Syntax error: token recognition error at: '= ' (hint: write `==` to compare two values)\n    object.spec.paused = true\n                       ^\n",
        ),
        (
            "expression: object.a\n    state: Blocked",
            "error: -: x: rules[Moving].state: 1:1: undeclared reference to 'Blocked' (in container '') (hint: a string needs quotes inside the YAML quotes: \"'Blocked'\")\n    Blocked\n    ^\n",
        ),
        (
            "expression: object.a\n    message: Waiting for the node",
            "(hint: a string needs quotes inside the YAML quotes: \"'Waiting for the node'\")\n    Waiting for the node\n            ^\n",
        ),
        (
            "expression: \"object.a ? 'b': 'c' == 'd'\"\n    message: object.a ? 'b': 'c'",
            "error: -: line 10, column 28: mapping values are not allowed in this context (hint: quote the expression, because ': ' begins a value in YAML)\n        message: object.a ? 'b': 'c'\n                               ^\n",
        ),
        (
            "expression: object.a\n    message: 'Copied: ' + object.b",
            "Put the whole expression in double quotes)\n        message: 'Copied: ' + object.b\n                            ^\n",
        ),
        (
            "expression: true",
            "error: -: x: rules[Moving].expression is a boolean, not a string (hint: put quotes around the text: YAML reads true, on and yes as true, and false, off and no as false)\n",
        ),
        (
            "expression: object.a\n  variables:\n  - name: on\n    expression: object.a",
            "error: -: x: variables[0].name is a boolean, not a string (hint: put quotes around the text: YAML",
        ),
        (
            "expression: object.a\n  labels: {a: 1}",
            "error: -: x: labels.a is a number, not a string (hint: put quotes around the text)\n",
        ),
        (
            "message: object.a",
            "error: -: x: rules[Moving]: missing field `expression`\n",
        ),
        (
            "expression: object.a\n    supersedes: Moving",
            "error: -: x: rules[Moving].supersedes: invalid type: string \"Moving\", expected a list\n",
        ),
        (
            "expression: object.a\n  namespaces: [no]",
            "error: -: x: namespaces[0] is a boolean, not a string (hint: put quotes around the text: YAML",
        ),
        (
            "expression: object.a\n  labels: {a: }",
            "error: -: x: labels.a is empty, not a string (hint: an expression that begins with `!` or `&` needs quotes, because these characters have a meaning in YAML. Write \"\" for an empty text)\n",
        ),
        (
            "expression: !has(object.a)",
            "rules[Moving].expression is empty, not a string (hint: an expression that begins with `!`",
        ),
        (
            "expression: request.object.a == 1",
            "(hint: there is no admission request. Use `object`, which is the watched object)\n    request.object.a == 1\n    ^\n",
        ),
        (
            "expression: cel.bind(x, object.a, x == 1)",
            "(hint: `cel.bind` is not in Kubernetes' admission policies. Declare a variable in the list `variables`, and read it as variables.NAME)\n",
        ),
        (
            "expression: object.a\n    supersedes: [Movin]",
            "rules[Moving].supersedes: no rule of this component in the files detects Movin on this resource (hint: the most similar is Moving)\n",
        ),
    ] {
        let output = run_rules_with_input(&["check", "-"], &rule_set_with(fields));
        let is_warning = expected.contains("supersedes: no rule");
        assert_eq!(output.code, i32::from(!is_warning), "{}", output.stderr);
        assert!(
            output.stderr.contains(expected),
            "{expected}\n{}",
            output.stderr
        );
    }
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
        assert_eq!(output.code, 0, "{}", output.stderr);
        let warning = "no rule of this component in the files detects Copying on this resource";
        assert_eq!(output.stderr.contains(warning), has_warning, "{component}");
    }
}

#[test]
fn limits_that_never_apply_are_reported_as_warnings() {
    let limits = "progress: object.percent\n    expectedDuration: 1h\n    stalledAfter: 5m";
    for state in ["Blocked", "Failing"] {
        let rule_set = rule_set_with(&format!(
            "expression: object.a\n    state: \"'{state}'\"\n    {limits}"
        ));
        let output = run_rules_with_input(&["check", "-"], &rule_set);
        assert_eq!((output.code, output.stdout.as_str()), (0, "-: x: ok\n"));
        let warnings = [("expectedDuration", "overdue"), ("stalledAfter", "stalled")].map(|(field, marker)| {
            format!(
                "warning: -: x: rules[Moving].{field}: the operation can never be {marker}, because only time in the state Progressing counts, and the state is always {state}\n"
            )
        });
        assert_eq!(output.stderr, warnings.concat());
    }
    for state in [
        "\"'Progressing'\"",
        "\"object.a ? 'Blocked' : 'Progressing'\"",
        // Clients see the state `Progressing` for 10 minutes.
        "\"'Blocked'\"\n    stateAfter: 10m",
    ] {
        let rule_set = rule_set_with(&format!(
            "expression: object.a\n    state: {state}\n    {limits}"
        ));
        let output = run_rules_with_input(&["check", "-"], &rule_set);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    }
}

#[test]
fn wrong_names_of_types_and_resources_have_a_hint() {
    let correct = rule_set_with("expression: object.status.phase == 'Moving'");
    for (from, to, expected) in [
        (
            "v1alpha1",
            "v1beta1",
            "error: -: x: apiVersion \"ifo.kubevirt.io/v1beta1\" does not exist (hint: write ifo.kubevirt.io/v1alpha1)\n",
        ),
        (
            "ifo.kubevirt.io",
            "kubevirt.io",
            "apiVersion \"kubevirt.io/v1alpha1\" does not exist (hint: write ifo.kubevirt.io/v1alpha1)\n",
        ),
        (
            "OperationRuleSet",
            "OperationRuleset",
            "kind \"OperationRuleset\" does not exist (hint: write OperationRuleSet)\n",
        ),
        (
            "widgets",
            "Widget",
            "target: \"Widget\" is not a resource (hint: write the plural of the kind in lower case: widgets)\n",
        ),
        (
            "widgets",
            "widget",
            "target: \"widget\" is not a resource (hint: write the plural: widgets)\n",
        ),
    ] {
        let args = ["check", "-", "--schema", "crd.yaml"];
        let output = run_rules_with_input(&args, &correct.replace(from, to));
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(
            output.stderr.contains(expected),
            "{expected}\n{}",
            output.stderr
        );
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
          spec:
            type: object
            properties:
              replicas: {type: integer, nullable: true}
              size: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              ratio: {type: number}
              parts: {type: array, items: {type: object, properties: {weight: {type: integer}}}}
          status:
            type: object
            properties:
              phase: {type: string, enum: [Pending, Running, Failed]}
              since: {type: string, format: date-time}
              raw: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("crd.yaml");
    std::fs::write(&path, schema).expect("the file can be written");
    let check = |fields: &str| {
        let path = path.to_str().expect("the path is UTF-8");
        let args = ["check", "-", "--schema", path];
        run_rules_with_input(&args, &rule_set_with(fields))
    };
    for (fields, expected) in [
        (
            "expression: object.metadata.creationTimestamp < now",
            "error: -: x: rules[Moving].expression: 1:35: found no matching overload for '_<_' applied to '(string, timestamp)' (hint: convert the string: timestamp(…))\n    object.metadata.creationTimestamp < now\n                                      ^\n",
        ),
        (
            "expression: object.status.phase == 'Runing'",
            "rules[Moving].expression: 1:24: 'Runing' is not a possible value of the field; possible are 'Pending', 'Running', 'Failed' (hint: did you mean 'Running'?)\n    object.status.phase == 'Runing'\n                           ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    message: \"'replicas: ' + object.spec.replicas\"",
            "rules[Moving].message: 1:14: found no matching overload for '_+_' applied to '(string, int)' (hint: convert the other value to a string: string(…))\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    message: object.spec.replicas",
            "rules[Moving].message: 1:12: expected type 'string' but found 'int' (hint: convert the value to a string: string(…))\n",
        ),
        (
            "expression: item.weight == 'a'\n    forEach: object.spec.parts\n    itemKey: string(item.weight)",
            "rules[Moving].expression: 1:13: found no matching overload for '_==_' applied to '(int, string)'",
        ),
    ] {
        let output = check(fields);
        assert_eq!(output.code, 1, "{fields}");
        assert!(
            output.stderr.contains(expected),
            "{expected}\n{}",
            output.stderr
        );
        assert_eq!(
            output.stderr.matches("error: ").count(),
            1,
            "{}",
            output.stderr
        );
    }
    for fields in [
        "expression: object.spec.size == 1 || object.spec.size == '1'",
        "expression: object.spec.ratio > 1 && object.spec.ratio > 0.5 && object.spec.ratio + 1 > 0",
        "expression: object.spec.replicas == null || object.spec.replicas > 1",
        "expression: object.status.raw.a == 1 || object.status.raw.a == 'x'",
        "expression: timestamp(object.status.since) < now - duration('1h')",
        "expression: object.status.phase == 'Running'\n    startedAt: object.status.since\n    expectedDuration: 30m\n    progress: object.spec.replicas",
    ] {
        let output = check(fields);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{fields}");
    }
}
