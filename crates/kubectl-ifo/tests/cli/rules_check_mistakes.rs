//! Tests of the mistakes that `rules check` finds in rule sets whose expressions compile, and of
//! files with several errors.

use super::tests_with_fake_apiserver::{json_response, not_found, serve};
use super::{CommandOutput, run_rules, run_rules_with_input};
use serde_json::json;

/// Returns a rule set for widgets with one rule, which has these fields.
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
fn mistakes_that_can_never_work_are_errors() {
    for (fields, expected) in [
        (
            "expression: object.a\n    outcome: \"object.b ? 'Suceeded' : ''\"",
            "outcome: 1:12: \"Suceeded\" is not one of Succeeded, Failed, Superseded (hint: did you mean 'Succeeded'?)\n    object.b ? 'Suceeded' : ''\n               ^\n",
        ),
        (
            "expression: object.a\n    state: \"{'Running': 'Progresing'}[object.phase]\"",
            "state: 1:13: \"Progresing\" is not one of Progressing, Blocked, Held, Failing (hint: did you mean 'Progressing'?)\n    {'Running': 'Progresing'}[object.phase]\n                ^\n",
        ),
        (
            "expression: item.moving\n    forEach: object.parts",
            "expression: 1:6: the rule needs itemKey, because an element with fields cannot be a key (hint: for example, add itemKey: item.name)\n    item.moving\n         ^\n",
        ),
        (
            "expression: object.a\n    progress: string(object.done) + ' of ' + string(object.total)",
            "progress: 1:30: a text that contains \" of \" is not a number or a percentage (hint: compute the percentage, as in 100 * object.status.done / object.status.total)\n    string(object.done) + ' of ' + string(object.total)\n                                 ^\n",
        ),
        (
            "expression: object.a\n    debounce: 10",
            "debounce is a number, not a string (hint: write the duration with its unit, such as 10s)\n",
        ),
        (
            "expression: object.a\n    debounce: 5 minutes",
            "debounce: \"5 minutes\" is not a duration such as 30s or 1h30m (hint: write 5m)\n",
        ),
        (
            "expression: object.a\n    expectedDuration: 5 minutes",
            "expectedDuration: 1:1: \"5 minutes\" is not a duration (hint: write 5m)\n    5 minutes\n    ^\n",
        ),
    ] {
        let output = check(fields);
        let expected = format!("error: -: x: rules[Moving].{expected}");
        assert_eq!(output.stderr, expected, "{fields}");
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{fields}");
    }
}

#[test]
fn suspicious_expressions_are_warnings() {
    for (fields, expected) in [
        (
            "expression: object.phase != 'Done' || object.phase != 'Failed'",
            "rules[Moving].expression: 1:1: the expression is always true, so the operation is in flight as long as its object exists\n    object.phase != 'Done' || object.phase != 'Failed'\n    ^\n",
        ),
        (
            "expression: object.metadata.creationTimestamp < '2024-01-01T00:00:00Z'",
            "rules[Moving].expression: 1:35: this compares two texts, and not two times (hint: convert both texts, as in timestamp(object.metadata.creationTimestamp) < timestamp('2026-01-31T12:00:00Z'))\n    object.metadata.creationTimestamp < '2024-01-01T00:00:00Z'\n                                      ^\n",
        ),
    ] {
        let output = check(fields);
        let expected = format!("warning: -: x: {expected}");
        assert_eq!(output.stderr, expected, "{fields}");
        assert_eq!((output.code, output.stdout.as_str()), (0, "-: x: ok\n"));
    }
}

#[test]
fn a_group_similar_to_a_known_group_is_a_warning() {
    let check = |group: &str| {
        let rule_set = rule_set_with("expression: object.a").replace("example.io", group);
        run_rules_with_input(&["check", "-"], &rule_set)
    };
    let output = check("kubvirt.io");
    assert_eq!((output.code, output.stdout.as_str()), (0, "-: x: ok\n"));
    assert_eq!(
        output.stderr,
        "warning: -: x: target: the group \"kubvirt.io\" is not known (hint: did you mean kubevirt.io?)\n"
    );
    assert_eq!(check("kubevirt.io").stderr, "");
    assert_eq!(check("widgets.example.io").stderr, "");
}

#[test]
fn a_group_or_version_that_the_cluster_does_not_serve_is_a_warning() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        "/apis" => json_response(&json!({"groups": [
            {"name": "examples.io", "versions": [{"version": "v1"}]},
            {"name": "kubevirt.io", "versions": [{"version": "v1"}, {"version": "v1alpha3"}]},
        ]})),
        "/openapi/v3" => json_response(&json!({"paths": {}})),
        _ => not_found(),
    });
    let server = format!("http://{address}");
    for (group, version, expected) in [
        (
            "example.io",
            "v1",
            "warning: -: x: target: the cluster does not serve the group \"example.io\" (hint: did you mean examples.io?)\n",
        ),
        (
            "other.io",
            "v1",
            "warning: -: x: target: the cluster does not serve the group \"other.io\"\n",
        ),
        (
            "kubevirt.io",
            "v2",
            "warning: -: x: target: the cluster does not serve the version \"v2\" of the group \"kubevirt.io\" (hint: it serves v1, v1alpha3)\n",
        ),
        (
            "kubevirt.io",
            "v1",
            "note: -: x: no schema of kubevirt.io/v1/widgets, so the fields in its expressions are not checked\n",
        ),
    ] {
        let rule_set = rule_set_with("expression: object.a").replace(
            "group: example.io, version: v1",
            &format!("group: {group}, version: {version}"),
        );
        let args = ["check", "-", "--cluster", "--server", &server];
        let output = run_rules_with_input(&args, &rule_set);
        assert_eq!((output.code, output.stderr.as_str()), (0, expected));
    }
}

#[test]
fn objects_without_a_key_and_progress_that_is_text_are_found_with_a_schema() {
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
          status:
            type: object
            properties:
              phase: {type: string, enum: [Running, Done]}
              detail: {type: string}
              progress: {type: string}
              parts: {type: array, items: {type: object, properties: {name: {type: string}}}}
              names: {type: array, items: {type: string}}
";
    let folder = tempfile::tempdir().expect("a folder can be created");
    let path = folder.path().join("crd.yaml");
    std::fs::write(&path, schema).expect("the file can be written");
    let path = path.to_str().expect("the path is UTF-8");
    for (fields, code, expected) in [
        (
            "expression: object.status.phase == 'Running'\n    forEach: object.status.parts",
            1,
            "error: -: x: rules[Moving].forEach: 1:1: the rule needs itemKey, because the elements are neither strings nor ints (hint: for example, add itemKey: item.name)\n    object.status.parts\n    ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    progress: object.status.phase",
            1,
            "error: -: x: rules[Moving].progress: 1:1: the field 'phase' is never a number or a percentage, but one of Running, Done\n    object.status.phase\n    ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    progress: \"has(object.status.phase) ? object.status.phase : '0'\"",
            0,
            "warning: -: x: rules[Moving].progress: 1:1: the field 'phase' is never a number or a percentage, but one of Running, Done\n    has(object.status.phase) ? object.status.phase : '0'\n    ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    progress: object.status.detail",
            0,
            "warning: -: x: rules[Moving].progress: 1:1: the field 'detail' is a text (hint: the progress is known only if the text is a number or a percentage, such as 45.20%)\n    object.status.detail\n    ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    message: object.status",
            1,
            "error: -: x: rules[Moving].message: 1:7: expected type 'string' but found 'map'\n    object.status\n          ^\n",
        ),
        (
            "expression: object.status.phase == 'Running'\n    progress: object.status.progress",
            0,
            "",
        ),
        (
            "expression: object.status.phase == 'Running'\n    forEach: object.status.names",
            0,
            "",
        ),
    ] {
        let args = ["check", "-", "--schema", path];
        let output = run_rules_with_input(&args, &rule_set_with(fields));
        assert_eq!((output.code, output.stderr.as_str()), (code, expected));
    }
}

#[test]
fn all_errors_of_all_documents_are_reported_at_once() {
    let document = |name: &str, rules: &str| {
        format!(
            "---\napiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\nmetadata: {{name: {name}}}\n\
             spec:\n  component: c\n  target: {{group: example.io, version: v1, resource: widgets}}\n  \
             rules:\n{rules}\n"
        )
    };
    let rule_sets = [
        document(
            "first",
            "  - operation: A\n    expression: object.status.phas == 'x'\n  \
             - operation: B\n    expression: true\n    debounce: 10\n    state: Blocked\n  \
             - operation: C\n    expression: object.a == Yes && objct.b\n    outcome: \"object.a ? 'Suceeded' : 'Faild'\"",
        ),
        document(
            "second",
            "  - operation: A\n    expression: object.a ? 'b': c",
        ),
        document("third", "  - operation: A\n    expression: object.a = 1"),
        document("fourth", "  - operation: A\n    message: object.a: b"),
    ];
    let args = ["check", "-", "--schema", "crd.yaml"];
    let output = run_rules_with_input(&args, &rule_sets.concat());
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    let lines = output.stderr.lines();
    let errors: Vec<_> = lines.filter(|line| line.starts_with("error: ")).collect();
    let expected = [
        "error: -: line 27, column 31: mapping values are not allowed in this context",
        "error: -: line 47, column 22: mapping values are not allowed in this context",
        "error: -: first: rules[B].debounce is a number, not a string (hint: write the duration with its unit, such as 10s)",
        "error: -: first: rules[B].expression is a boolean, not a string",
        "error: -: first: rules[B].state: 1:1: undeclared reference to 'Blocked'",
        "error: -: first: rules[C].outcome: 1:12: \"Suceeded\" is not one of",
        "error: -: first: rules[C].outcome: 1:25: \"Faild\" is not one of",
        "error: -: first: rules[C].expression: 1:13: undeclared reference to 'Yes'",
        "error: -: first: rules[C].expression: 1:20: undeclared reference to 'objct'",
        "error: -: third: rules[A].expression: 1:10: Syntax error",
        "error: -: first: rules[A].expression: 1:15: object.status has no field 'phas'",
        "error: -: first: rules[C].outcome: 1:8: object has no field 'a'",
    ];
    for (found, expected) in errors.iter().zip(expected) {
        assert!(found.starts_with(expected), "{expected}: {errors:#?}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
}

#[test]
fn a_field_that_is_present_and_null_has_a_hint_at_the_evaluation() {
    let object = json!({"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "a"}, "status": {"parts": null}});
    let eval = |expression: &str| {
        let args = ["eval", expression, "--object", "-"];
        run_rules_with_input(&args, &object.to_string())
    };
    let failed = eval("object.?status.?parts.orValue({}).exists(p, true)");
    assert_eq!(failed.code, 1);
    assert!(
        failed.stderr.starts_with(
            "error: 1:41: got 'null_type', expected iterable type (hint: a field can be present and null, and `orValue` replaces only a missing field. Test for both: object.?a.orValue(null) == null)\n"
        ),
        "{}",
        failed.stderr
    );
    let corrected =
        eval("object.?status.?parts.orValue(null) != null && object.status.parts.exists(p, true)");
    assert_eq!(
        (corrected.code, corrected.stdout.as_str()),
        (0, "bool false\n")
    );
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
