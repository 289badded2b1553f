//! Tests of the command `rules eval`, which evaluates one expression on one object.

use super::{run_rules, run_rules_with_input};
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
fn an_error_is_printed_with_its_phase_and_position() {
    let json = |expression| {
        let output = run_rules(&[
            "eval",
            expression,
            "--object",
            "unexpected.yaml",
            "-O",
            "json",
        ]);
        assert_eq!(output.code, 1);
        output.json()
    };
    assert_eq!(
        json("object.status.phase ==\n obj"),
        json!({"error": {"phase": "compile", "message": "undeclared reference to 'obj' (in container '')", "line": 2, "column": 2}})
    );
    assert_eq!(
        json("object.status.nothing"),
        json!({"error": {"phase": "evaluate", "message": "no such key: nothing"}})
    );
    let output = run_rules(&["eval", "object.", "--object", "unexpected.yaml"]);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""));
    assert!(output.stderr.starts_with("error: 1:"), "{}", output.stderr);
}

#[test]
fn exactly_one_object_is_needed() {
    for (input, expected) in [
        ("", "error: -: there is no object in it\n"),
        (
            "a: 1\n---\nb: 2\n",
            "error: -: there are 2 objects in it, and not one\n",
        ),
        ("[1]", "error: -: not an object\n"),
    ] {
        let output = run_rules_with_input(&["eval", "1", "--object", "-"], input);
        assert_eq!((output.code, output.stderr.as_str()), (1, expected));
    }
}
