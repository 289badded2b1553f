//! Tests of the command `rules replay`, which evaluates rules on recorded watch events. All times
//! are seconds since the start of the recording.

use super::{CommandOutput, run_rules, run_rules_with_input, values_at};
use serde_json::{Value, json};

/// Replays the recording `stream.jsonl` with the rule sets in the folder `rules` and with `flags`.
/// The recording and the folder are in `tests/fixtures/cli`. Returns the JSON output.
fn replay(flags: &[&str]) -> Value {
    let args = ["replay", "rules", "--stream", "stream.jsonl", "-O", "json"];
    let output = run_rules(&[&args, flags].concat());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    output.json()
}

/// Replays the recording `stream` with the rule set in the YAML `rule_set` and with `flags`.
fn replay_rule_set(rule_set: &str, stream: &str, flags: &[&str]) -> CommandOutput {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rule_set).expect("the file can be written");
    let path = path.to_str().expect("the path is UTF-8");
    let args = ["replay", path, "--stream", "-"];
    run_rules_with_input(&[&args, flags].concat(), stream)
}

/// Returns the time and the state of each change of an operation, such as `10.0 Settling`.
fn timeline(operation: &Value) -> Vec<String> {
    let changes = operation["timeline"]
        .as_array()
        .expect("an operation has a timeline");
    changes
        .iter()
        .map(|it| {
            format!(
                "{} {}",
                it["t"],
                it["state"].as_str().expect("a change has a state")
            )
        })
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
                {"t": 2.5, "state": "Progressing", "reason": "Moving", "message": "to shelf", "progress": null, "overdue": false, "stalled": false},
                {"t": 4.0, "state": "Progressing", "reason": "Moving", "message": "to box", "progress": null, "overdue": false, "stalled": false},
                {
                    "t": 6.25, "state": "Succeeded", "reason": "Succeeded",
                    "message": "Succeeded. Before: to box", "progress": null,
                    "overdue": false, "stalled": false,
                },
            ],
        })
    );
    assert_eq!(
        values_at(operations, "/operation"),
        ["Moving", "Waiting", "Moving", "Copying"]
    );
    assert_eq!(
        values_at(operations, "/started"),
        [json!(2.5), json!(7.0), json!(11.0), json!(60.0)]
    );
    // The rule of `Waiting` does not match from 8 s to 9 s. This gap is shorter than the debounce
    // period (30 s), so the operation continues. From 10 s on, the rule does not match any more.
    // With `--hindsight`, the operation ends at 10 s.
    assert_eq!(
        values_at(operations, "/completed"),
        [json!(6.25), json!(10.0), json!(null), json!(null)]
    );
    assert_eq!(
        values_at(operations, "/state"),
        ["Succeeded", "Ended", "Progressing", "Progressing"]
    );
    assert_eq!(values_at(operations, "/item")[3], "x");
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
        values_at(operations, "/completed"),
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
    // The rule of `Waiting` does not match from 10 s on. The debounce period of 60 s would end at
    // 70 s, but the recording ends at 61 s.
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
fn a_delay_that_has_not_elapsed_at_the_end_of_the_recording_has_no_effect() {
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
    for flags in [&[][..], &["--hindsight"]] {
        let output = replay_rule_set(rule_set, &stream, &[&["-O", "json"], flags].concat());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        let json = output.json();
        let operations = &json["operations"];
        assert_eq!(values_at(operations, "/operation"), ["Moving", "Moving"]);
        // The recording ends at 20 s. At this time:
        //
        // - The object `a` has the state `Failing` for 9 s. `stateAfter` is 10 s.
        // - The rule of `Late` matches for 20 s. `appearAfter` is 25 s.
        //
        // So neither delay is over, and neither has an effect. With `--hindsight`, the clock of the
        // replay runs on until the debounce period of the object `b` is over. The operation on `b`
        // then ends, but the two delays still have no effect.
        assert_eq!(
            timeline(&operations[0]),
            ["0.0 Progressing", "10.0 Blocked"]
        );
        assert_eq!(operations[0]["completed"], json!(null));
        assert_eq!(operations[1]["completed"].is_null(), flags.is_empty());
    }
}

#[test]
fn overdue_and_stalled_operations_are_marked_in_recorded_time() {
    let rule_set = "
apiVersion: ifo.kubevirt.io/v1alpha1
kind: OperationRuleSet
metadata: {name: widget-rules}
spec:
  component: c
  target: {group: example.io, version: v1, resource: widgets}
  rules:
  - operation: Moving
    expression: object.percent < 100
    progress: object.percent
    expectedDuration: 40s
    stalledAfter: 20s
";
    let event = |t: u8, percent: u8| {
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"},
            "percent": percent,
        });
        json!({"t": t, "type": "MODIFIED", "object": object}).to_string() + "\n"
    };
    let stream = [event(0, 10), event(5, 20), event(30, 30), event(50, 30)].concat();
    let output = replay_rule_set(rule_set, &stream, &["-O", "json"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let timeline = &output.json()["operations"][0]["timeline"];
    let changes = ["/t", "/overdue", "/stalled"].map(|field| values_at(timeline, field));
    assert_eq!(
        changes,
        [
            [0.0, 5.0, 25.0, 30.0, 40.0, 50.0].map(|t| json!(t)),
            [false, false, false, false, true, true].map(|it| json!(it)),
            [false, false, true, false, false, true].map(|it| json!(it)),
        ]
    );
    let output = replay_rule_set(rule_set, &stream, &[]);
    output.prints("Progressing (overdue, stalled)");
}

#[test]
fn the_debounce_period_elapses_in_recorded_time() {
    let json = replay(&["--hindsight", "--debounce", "500ms"]);
    let operations = &json["operations"];
    assert_eq!(
        values_at(operations, "/operation"),
        ["Moving", "Waiting", "Waiting", "Moving", "Copying"]
    );
    assert_eq!(
        values_at(operations, "/completed")[1..3],
        [json!(8.0), json!(10.0)]
    );
    let json = replay(&["--debounce", "500ms"]);
    assert_eq!(
        values_at(&json["operations"], "/completed")[1..3],
        [json!(8.5), json!(10.5)]
    );
}

#[test]
fn output_of_kubectl_watch_is_replayed_in_order_without_times() {
    let output = run_rules(&["replay", "rules", "--stream", "printed.json", "-O", "json"]);
    output.exits(0);
    let json = output.json();
    let operations = &json["operations"];
    assert_eq!(values_at(operations, "/operation"), ["Moving", "Waiting"]);
    assert_eq!(values_at(operations, "/started"), [json!(1.0), json!(5.0)]);
    assert_eq!(
        values_at(operations, "/completed"),
        [json!(4.0), json!(null)]
    );
}

#[test]
fn the_table_has_one_line_for_each_operation() {
    let output = run_rules(&["replay", "rules", "--stream", "stream.jsonl"]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{}", output.stdout);
    assert!(lines[0].starts_with("STARTED   COMPLETED   SUBJECT        OPERATION"));
    assert!(lines[1].starts_with("2.500     6.250       Widget one/a   Moving"));
    assert!(lines[1].ends_with("to shelf; to box"));
    assert!(lines[2].starts_with("7.000     40.000      Widget one/a   Waiting"));
    assert!(lines[3].starts_with("11.000    -           Widget one/b   Moving"));
}

#[test]
fn a_truncated_recording_is_replayed_up_to_its_end() {
    let whole = include_str!("../../../../tests/fixtures/cli/stream.jsonl");
    let cut = &whole[..whole.len() - 20];
    let output = run_rules_with_input(&["replay", "rules", "--stream", "-", "-O", "json"], cut);
    assert_eq!(output.code, 1);
    output.says_first("error: -: event 12: EOF");
    assert_eq!(
        output.json()["operations"].as_array().map(Vec::len),
        Some(4)
    );
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
    let event = r#"{"type": "ADDED", "object": {"apiVersion": "example.io/v1", "kind": "Cow", "metadata": {"name": "a"}, "moving": true}}"#;
    let output = replay_rule_set(rule_set, event, &["-O", "json"]);
    output.exits(0);
    assert_eq!(
        values_at(&output.json()["operations"], "/operation"),
        ["Moving"]
    );
}

#[test]
fn a_failing_rule_fails_the_replay_but_hides_no_operation() {
    let event = r#"{"type": "ADDED", "object": {"apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {"name": "a"}, "status": {"phase": "Moving", "destination": 7}}}"#;
    let output = run_rules_with_input(&["replay", "rules", "--stream", "-", "-O", "json"], event);
    assert_eq!(
        (output.code, &*output.stderr),
        (
            1,
            "error: widget-rules: rules[Moving].message: a: 1:7: no such overload: string + int\n"
        )
    );
    assert_eq!(
        values_at(&output.json()["operations"], "/operation"),
        ["Moving"]
    );
}

#[test]
fn an_object_that_no_longer_matches_the_selector_is_distinguished_from_a_deleted_one() {
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
    let event = |t: u8, event_type: &str, name: &str, watched: &str| {
        let labels = json!({"watched": watched});
        let object = json!({
            "apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels},
            "moving": true,
        });
        json!({"t": t, "type": event_type, "object": object}).to_string() + "\n"
    };
    let stream = [
        event(0, "ADDED", "changed", "yes"),
        event(1, "ADDED", "deleted", "yes"),
        event(2, "ADDED", "left", "yes"),
        event(3, "ADDED", "never", "no"),
        event(4, "MODIFIED", "changed", "no"),
        event(5, "DELETED", "deleted", "yes"),
        // If an object stops matching the selector and later matches it again, a watch with this
        // selector delivers these two events.
        event(6, "DELETED", "left", "yes"),
        event(60, "ADDED", "left", "yes"),
    ]
    .concat();
    let output = replay_rule_set(rule_set, &stream, &["-O", "json"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let json = output.json();
    let operations = &json["operations"];
    assert_eq!(
        values_at(operations, "/reason"),
        ["SelectorLeft", "SubjectDeleted", "SelectorLeft", "Moving"]
    );
    assert_eq!(
        values_at(operations, "/completed"),
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
    // The object was written at second 8 of the recording (`managedFields`). The watch received the
    // change at second 11.
    let stream = event(0, 0, "") + &event(11, 8, "Moving");
    let output = run_rules_with_input(&["replay", "rules", "--stream", "-", "-O", "json"], &stream);
    output.exits(0);
    let json = output.json();
    assert_eq!(values_at(&json["operations"], "/started"), [json!(8.0)]);
    assert_eq!(
        values_at(&json["operations"], "/timeline/0/t"),
        [json!(11.0)]
    );
}
