//! Tests of the command `rules eval`, which evaluates one expression on one object.

use super::run_rules_with_input;
use serde_json::json;

#[test]
fn a_value_is_printed_with_its_type() {
    let object = r#"{"n": 1, "t": "2026-11-21T10:00:00Z", "l": [{"a": "x"}, {"a": "y"}]}"#;
    for (expression, text, value) in [
        (
            "object.n + 1",
            "int 2\n",
            json!({"type": "int", "value": 2}),
        ),
        (
            "object.l.map(e, e.a)",
            "list [\"x\",\"y\"]\n",
            json!({"type": "list", "value": ["x", "y"]}),
        ),
        (
            "timestamp(object.t) < now",
            "bool true\n",
            json!({"type": "bool", "value": true}),
        ),
        (
            "timestamp(object.t)",
            "google.protobuf.Timestamp \"2026-11-21T10:00:00Z\"\n",
            json!({"type": "google.protobuf.Timestamp", "value": "2026-11-21T10:00:00Z"}),
        ),
        ("-1", "int -1\n", json!({"type": "int", "value": -1})),
    ] {
        let output = run_rules_with_input(&["eval", expression, "--object", "-"], object);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (0, text),
            "{}",
            output.stderr
        );
        let output =
            run_rules_with_input(&["eval", expression, "--object", "-", "-O", "json"], object);
        assert_eq!((output.code, output.json()), (0, value));
    }
}

#[test]
fn exactly_one_object_is_needed() {
    for (input, expected) in [
        ("", "error: -: expected one object, found 0\n"),
        (
            "a: 1\n---\nb: 2\n",
            "error: -: expected one object, found 2\n",
        ),
        ("[1]", "error: -: not an object\n"),
    ] {
        let output = run_rules_with_input(&["eval", "1", "--object", "-"], input);
        assert_eq!((output.code, output.stderr.as_str()), (1, expected));
    }
}

#[test]
fn a_failure_has_its_place_and_types_and_a_hint_has_a_caret() {
    let eval = |expression: &str| {
        run_rules_with_input(
            &["eval", expression, "--object", "-"],
            r#"{"a": "x", "b": 1}"#,
        )
    };
    assert_eq!(
        eval("object.a + object.b").stderr,
        "error: 1:10: no such overload: string + int\n    object.a + object.b\n             ^\n"
    );
    let missing = eval("object.c");
    assert_eq!((missing.code, missing.stdout.as_str()), (1, ""));
    assert_eq!(missing.stderr, "error: no such key: c\n");
    assert_eq!(
        eval("object.a = 'x'").stderr,
        "error: 1:10: Syntax error: token recognition error at: '= ' (hint: write `==` to compare two values)\n    object.a = 'x'\n             ^\n"
    );
}

#[test]
fn an_expression_uses_the_names_of_a_rule_set() {
    let folder = tempfile::tempdir().expect("a folder can be created");
    let rules = folder.path().join("rules.yaml");
    let text = "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\n\
                metadata: {name: r}\nspec:\n  component: c\n  \
                target: {group: x.example, version: v1, resource: plans}\n  \
                variables: [{name: machines, expression: object.machines}]\n  rules:\n  \
                - {operation: Plan, expression: size(variables.machines) > 0}\n  \
                - {operation: Copying, forEach: variables.machines, itemKey: item.name, \
                expression: item.done < 100}\n";
    std::fs::write(&rules, text).expect("the file can be written");
    let rules = rules.to_str().expect("the path is UTF-8");
    let object = r#"{"machines": [{"name": "a", "done": 1}, {"name": "b", "done": 2}]}"#;
    let eval = |arguments: &[&str]| {
        let all = [&["eval", "--object", "-"], arguments].concat();
        let output = run_rules_with_input(&all, object);
        (output.code, output.stdout, output.stderr)
    };
    let copying = ["--rules", rules, "--operation", "Copying"];
    let (_, stdout, stderr) = eval(&["variables.machines.size()", "--rules", rules]);
    assert_eq!(stdout, "int 2\n", "{stderr}");
    let (_, stdout, stderr) = eval(&[&["item.name"], &copying[..]].concat());
    assert_eq!(stdout, "string \"a\"\nstring \"b\"\n", "{stderr}");
    let (_, stdout, _) = eval(&[&["item.done", "-O", "json"], &copying[..]].concat());
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("the output is JSON");
    assert_eq!(json["items"][1], json!({"type": "int", "value": 2}));
    let (code, _, stderr) = eval(&["item", "--rules", rules, "--operation", "Coping"]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no rule with forEach has the operation Coping"),
        "{stderr}"
    );
    let (code, _, stderr) = eval(&["item", "--rules", rules, "--operation", "Plan"]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no rule with forEach has the operation Plan"),
        "{stderr}"
    );
    let time = "2026-01-31T12:00:00Z";
    let (_, stdout, stderr) = eval(&["now - timestamp('2026-01-31T11:44:16Z')", "--now", time]);
    assert_eq!(stdout, "google.protobuf.Duration \"944s\"\n", "{stderr}");
}
