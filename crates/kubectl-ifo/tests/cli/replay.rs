//! Tests of `replay`, with recorded events in virtual time.

use super::{each, rules, rules_with};
use serde_json::{Value, json};

/// The operations that the rules detect in `stream.jsonl` with these flags.
fn replay(flags: &[&str]) -> Value {
    let args = ["replay", "rules", "--stream", "stream.jsonl", "-O", "json"];
    let said = rules(&[&args, flags].concat());
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    said.json()
}

/// Time and state of each change of an operation.
fn timeline(operation: &Value) -> Vec<String> {
    let changes = operation["timeline"].as_array().expect("a timeline");
    changes
        .iter()
        .map(|it| format!("{} {}", it["t"], it["state"].as_str().expect("a state")))
        .collect()
}

#[test]
fn operations_have_their_times_messages_and_ends() {
    let json = replay(&["--hindsight"]);
    let operations = &json["operations"];
    assert_eq!(
        operations[0],
        json!({
            "subject": {
                "apiVersion": "example.io/v1", "kind": "Widget", "namespace": "one", "name": "a", "uid": "uid-a",
            },
            "operation": "Moving", "item": null, "ruleSet": "widget-rules",
            "started": 2.5, "completed": 6.25, "state": "Succeeded", "reason": "Succeeded",
            "messages": ["to shelf", "to box"], "changes": 3,
            "timeline": [
                {"t": 2.5, "state": "Progressing", "reason": "Moving", "message": "to shelf", "progress": null},
                {"t": 4.0, "state": "Progressing", "reason": "Moving", "message": "to box", "progress": null},
                {
                    "t": 6.25, "state": "Succeeded", "reason": "Succeeded",
                    "message": "The subject reports that the operation succeeded.", "progress": null,
                },
            ],
        })
    );
    assert_eq!(
        each(operations, "/operation"),
        ["Moving", "Waiting", "Moving", "Copying"]
    );
    assert_eq!(
        each(operations, "/started"),
        [json!(2.5), json!(7.0), json!(11.0), json!(60.0)]
    );
    // The flap is shorter than the debounce period. The last end counts.
    assert_eq!(
        each(operations, "/completed"),
        [json!(6.25), json!(10.0), json!(null), json!(null)]
    );
    assert_eq!(
        each(operations, "/state"),
        ["Succeeded", "Ended", "Progressing", "Progressing"]
    );
    assert_eq!(each(operations, "/item")[3], "x");
    assert_eq!(
        timeline(&operations[1]),
        [
            "7.0 Blocked",
            "8.0 Settling",
            "9.0 Blocked",
            "10.0 Settling",
            "10.0 Ended"
        ]
    );
}

#[test]
fn completions_have_the_time_at_which_the_server_shows_them() {
    let json = replay(&[]);
    let operations = &json["operations"];
    assert_eq!(
        each(operations, "/completed"),
        [json!(6.25), json!(40.0), json!(null), json!(null)]
    );
    assert_eq!(
        timeline(&operations[1]),
        [
            "7.0 Blocked",
            "8.0 Settling",
            "9.0 Blocked",
            "10.0 Settling",
            "40.0 Ended"
        ]
    );
    assert_eq!(operations[1]["changes"], 5);
}

#[test]
fn operations_settling_at_the_end_of_the_recording_complete_only_in_hindsight() {
    // The stream ends at 61 s, the debounce at 70 s.
    let json = replay(&["--debounce", "60s"]);
    let waiting = &json["operations"][1];
    assert_eq!(waiting["completed"], json!(null));
    assert_eq!(waiting["state"], "Settling");
    assert_eq!(
        timeline(waiting).last().map(String::as_str),
        Some("10.0 Settling")
    );
    let json = replay(&["--debounce", "60s", "--hindsight"]);
    let waiting = &json["operations"][1];
    assert_eq!(waiting["completed"], json!(10.0));
    assert_eq!(waiting["state"], "Ended");
}

#[test]
fn a_state_that_waits_at_the_end_of_the_recording_is_not_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: widget-rules}
spec:
  component: c
  target: {group: example.io, version: v1, resource: widgets}
  rules:
  - {operation: Moving, expression: object.moving, state: object.state, stateAfter: 10s}
  - {operation: Late, expression: object.moving, appearAfter: 25s, supersedes: ['*']}
";
    std::fs::write(&path, rule_set).expect("written");
    let event = |t: u8, name: &str, moving: bool, state: &str| {
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name},
            "moving": moving, "state": state,
        });
        json!({"t": t, "type": "MODIFIED", "object": object}).to_string() + "\n"
    };
    let stream = [
        event(0, "a", true, "Blocked"),
        event(0, "b", true, "Blocked"),
        event(11, "a", true, "Failing"),
        event(20, "b", false, ""),
    ]
    .concat();
    let path = path.to_str().expect("a path");
    for flags in [&[][..], &["--hindsight"]] {
        let args = ["replay", path, "--stream", "-", "-O", "json"];
        let said = rules_with(&[&args, flags].concat(), &stream);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        let json = said.json();
        let operations = &json["operations"];
        assert_eq!(each(operations, "/operation"), ["Moving", "Moving"]);
        // Time passes only for the other operation.
        assert_eq!(
            timeline(&operations[0]),
            ["0.0 Progressing", "10.0 Blocked"]
        );
        assert_eq!(operations[0]["completed"], json!(null));
        assert_eq!(operations[1]["completed"].is_null(), flags.is_empty());
    }
}

#[test]
fn the_debounce_runs_in_recorded_time() {
    let json = replay(&["--hindsight", "--debounce", "500ms"]);
    let operations = &json["operations"];
    assert_eq!(
        each(operations, "/operation"),
        ["Moving", "Waiting", "Waiting", "Moving", "Copying"]
    );
    assert_eq!(
        each(operations, "/completed")[1..3],
        [json!(8.0), json!(10.0)]
    );
    let json = replay(&["--debounce", "500ms"]);
    assert_eq!(
        each(&json["operations"], "/completed")[1..3],
        [json!(8.5), json!(10.5)]
    );
}

#[test]
fn output_of_kubectl_watch_is_replayed_in_order_without_times() {
    let said = rules(&["replay", "rules", "--stream", "printed.json", "-O", "json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let json = said.json();
    let operations = &json["operations"];
    assert_eq!(each(operations, "/operation"), ["Moving", "Waiting"]);
    assert_eq!(each(operations, "/started"), [json!(1.0), json!(5.0)]);
    assert_eq!(each(operations, "/completed"), [json!(4.0), json!(null)]);
}

#[test]
fn the_table_has_a_line_for_each_operation() {
    let said = rules(&["replay", "rules", "--stream", "stream.jsonl"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 5, "{}", said.out);
    assert!(lines[0].starts_with("STARTED   COMPLETED   SUBJECT        OPERATION"));
    assert!(lines[1].starts_with("2.500     6.250       Widget one/a   Moving"));
    assert!(lines[1].ends_with("to shelf; to box"));
    assert!(lines[2].starts_with("7.000     40.000      Widget one/a   Waiting"));
    assert!(lines[3].starts_with("11.000    -           Widget one/b   Moving"));
}

#[test]
fn a_truncated_recording_is_replayed_up_to_its_break() {
    let whole = include_str!("../../../../tests/fixtures/cli/stream.jsonl");
    let cut = &whole[..whole.len() - 20];
    let said = rules_with(&["replay", "rules", "--stream", "-", "-O", "json"], cut);
    assert_eq!(said.code, 1);
    assert!(
        said.err.starts_with("error: -: event 12: EOF"),
        "{}",
        said.err
    );
    assert_eq!(said.json()["operations"].as_array().map(Vec::len), Some(4));
}

#[test]
fn the_resource_of_a_kind_comes_from_its_crd() {
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: kine-rules}
spec:
  component: c
  target: {group: example.io, version: v1, resource: kine}
  rules: [{operation: Moving, expression: object.moving}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kine.example.io}
spec: {group: example.io, names: {kind: Cow, plural: kine}}
";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rule_set).expect("written");
    let event = r#"{"type": "ADDED", "object": {"apiVersion": "example.io/v1", "kind": "Cow", "metadata": {"name": "a"}, "moving": true}}"#;
    let path = path.to_str().expect("a path");
    let said = rules_with(&["replay", path, "--stream", "-", "-O", "json"], event);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(each(&said.json()["operations"], "/operation"), ["Moving"]);
}

#[test]
fn a_failing_rule_fails_the_replay_but_hides_no_operation() {
    let event = r#"{"type": "ADDED", "object": {"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "a"}, "status": {"phase": "Moving", "destination": 7}}}"#;
    let said = rules_with(&["replay", "rules", "--stream", "-", "-O", "json"], event);
    assert_eq!(
        (said.code, &*said.err),
        (
            1,
            "error: widget-rules: rules[Moving].message: a: no such overload\n"
        )
    );
    assert_eq!(each(&said.json()["operations"], "/operation"), ["Moving"]);
}

#[test]
fn leaving_the_selection_is_distinguished_from_deletion() {
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: widget-rules}
spec:
  component: c
  target: {group: example.io, version: v1, resource: widgets}
  labelSelector: {matchLabels: {watched: 'yes'}}
  rules: [{operation: Moving, expression: object.moving}]
";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rule_set).expect("written");
    let event = |t: u8, kind: &str, name: &str, watched: &str| {
        let labels = json!({"watched": watched});
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels},
            "moving": true,
        });
        json!({"t": t, "type": kind, "object": object}).to_string() + "\n"
    };
    let stream = [
        event(0, "ADDED", "changed", "yes"),
        event(1, "ADDED", "deleted", "yes"),
        event(2, "ADDED", "left", "yes"),
        event(3, "ADDED", "never", "no"),
        event(4, "MODIFIED", "changed", "no"),
        event(5, "DELETED", "deleted", "yes"),
        // These are the events of a watch with the selector, for an object that stops matching and
        // matches again.
        event(6, "DELETED", "left", "yes"),
        event(60, "ADDED", "left", "yes"),
    ]
    .concat();
    let path = path.to_str().expect("a path");
    let said = rules_with(&["replay", path, "--stream", "-", "-O", "json"], &stream);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let json = said.json();
    let operations = &json["operations"];
    assert_eq!(
        each(operations, "/reason"),
        ["SelectorLeft", "SubjectDeleted", "SelectorLeft", "Moving"]
    );
    assert_eq!(
        each(operations, "/completed"),
        [json!(34.0), json!(5.0), json!(36.0), json!(null)]
    );
}

#[test]
fn without_a_start_expression_managed_fields_give_the_start() {
    let event = |t: u8, second: u8, phase: &str| {
        let time = format!("2026-11-21T10:00:{second:02}Z");
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "uid": "u", "managedFields": [{"manager": "m", "time": time}]},
            "status": {"phase": phase},
        });
        json!({"t": t, "type": "MODIFIED", "object": object}).to_string() + "\n"
    };
    // The object was changed at second 8 of the stream, and the watch showed that at second 11.
    let stream = event(0, 0, "") + &event(11, 8, "Moving");
    let said = rules_with(&["replay", "rules", "--stream", "-", "-O", "json"], &stream);
    assert_eq!(said.code, 0, "{}", said.err);
    let json = said.json();
    assert_eq!(each(&json["operations"], "/started"), [json!(8.0)]);
    assert_eq!(each(&json["operations"], "/timeline/0/t"), [json!(11.0)]);
}
