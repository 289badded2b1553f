//! Tests of the flags `--state` and `--failing`, which select operations by their state.

use super::pieces_of_work::parameter;
use super::tests_with_fake_apiserver::{
    LIVE, execute, list_response, not_found, operation, plugin, serve, serve_cluster,
};
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::io::BufRead as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

fn in_state(number: usize, state: &str) -> Value {
    let mut operation = operation(number);
    operation["status"]["state"] = json!(state);
    if ["Succeeded", "Failed"].contains(&state) {
        operation["status"]["phase"] = json!("Completed");
    }
    operation
}

fn one_of_each() -> Vec<Value> {
    let states = ["Progressing", "Blocked", "Failing", "Failed"];
    let numbered = states.iter().enumerate();
    numbered
        .map(|(number, state)| in_state(number, state))
        .collect()
}

#[test]
fn each_listing_command_selects_states() {
    let (_runtime, address) = serve_cluster(one_of_each());
    for command in ["list", "tree", "summary"] {
        for (flags, expected) in [
            (&["--failing"][..], &["vm-2"][..]),
            (&["--state", "failing"], &["vm-2"]),
            (&["--state", "Blocked,Failed"], &["vm-1", "vm-3"]),
            (&["--state", "Blocked", "--failing"], &["vm-1", "vm-2"]),
        ] {
            let output = execute(
                plugin(address)
                    .arg(command)
                    .args(flags)
                    .args(["-o", "json"]),
            );
            assert_eq!(output.code, 0, "{command} {flags:?}: {}", output.stderr);
            if command == "summary" {
                let total = &output.json()["total"];
                let counted = ["active", "completed"].map(|it| total[it].as_u64().unwrap_or(0));
                assert_eq!(
                    counted[0] + counted[1],
                    expected.len() as u64,
                    "{flags:?}: {total}"
                );
                continue;
            }
            let shown: Vec<&str> = ["vm-0", "vm-1", "vm-2", "vm-3"]
                .into_iter()
                .filter(|it| output.stdout.contains(&format!("{it}-migrating")))
                .collect();
            assert_eq!(shown, expected, "{command} {flags:?}");
        }
    }
}

#[test]
fn tables_show_the_worst_first_and_other_formats_are_sorted_by_subject() {
    let (_runtime, address) = serve_cluster(one_of_each());
    let worst_first = ["vm-2", "vm-1", "vm-0"];
    let by_subject = ["vm-0", "vm-1", "vm-2"];
    for (flags, expected) in [
        (&["list"][..], worst_first),
        (&["list", "-o", "wide"], worst_first),
        (&["list", "--sort-by", "subject"], by_subject),
        (&["list", "-o", "name"], by_subject),
        (&["list", "-o", "yaml"], by_subject),
        (&["tree"], by_subject),
    ] {
        let text = execute(plugin(address).args(flags)).stdout;
        let mut shown = by_subject;
        shown.sort_by_key(|it| text.find(*it));
        assert_eq!(shown, expected, "{flags:?}: {text}");
    }
}

#[test]
fn a_wrong_state_is_an_error_with_the_possible_values() {
    let (_runtime, address) = serve_cluster(one_of_each());
    for command in ["list", "tree", "summary", "top"] {
        let output = execute(plugin(address).args([command, "--state", "Faling"]));
        assert_eq!((output.code, &*output.stdout), (2, ""), "{command}");
        for part in ["'Failing'", "Blocked", "Superseded"] {
            assert!(output.stderr.contains(part), "{command}: {}", output.stderr);
        }
    }
    // A wait for one state would end when the operation changes its state.
    let output = execute(plugin(address).args(["wait", "--failing", "--timeout", "0"]));
    assert_eq!(output.code, 2, "{}", output.stderr);
    // `history` has only completed operations.
    let output = execute(plugin(address).args(["history", "--state", "Failing"]));
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(!output.stderr.contains("Progressing"), "{}", output.stderr);
}

#[test]
fn only_a_single_state_is_in_the_field_selector() {
    let selectors = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&selectors);
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        LIVE => {
            let selector = parameter(request, "fieldSelector");
            seen.lock().expect("no thread panics").push(selector);
            list_response(&one_of_each(), "")
        }
        _ => not_found(),
    });
    for (flags, expected) in [
        (
            &["--failing"][..],
            "status.phase=Active,status.state=Failing",
        ),
        (&["--state", "Succeeded"], "status.state=Succeeded"),
        (&["--state", "Blocked,Failing"], "status.phase=Active"),
    ] {
        selectors.lock().expect("no thread panics").clear();
        let output = execute(plugin(address).arg("list").args(flags));
        assert_eq!(output.code, 0, "{}", output.stderr);
        let sent = selectors.lock().expect("no thread panics");
        assert_eq!(sent.first().map(String::as_str), Some(expected), "{sent:?}");
    }
}

#[test]
fn a_watch_shows_when_an_operation_leaves_the_selected_states() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        LIVE if parameter(request, "watch") == "true" => {
            // The watch must not select a state, because it would then miss this change.
            assert_eq!(parameter(request, "fieldSelector"), "");
            let events =
                [(2, "Progressing"), (0, "Progressing"), (1, "Failing")].map(|(number, state)| {
                    let mut operation = in_state(number, state);
                    operation["metadata"]["resourceVersion"] = json!(format!("{}", 10 + number));
                    let event = json!({"type": "MODIFIED", "object": operation});
                    Ok::<_, std::io::Error>(Bytes::from(format!("{event}\n")))
                });
            let events = futures::stream::iter(events).chain(futures::stream::pending());
            Body::from_stream(events).into_response()
        }
        LIVE => list_response(&one_of_each(), ""),
        _ => not_found(),
    });
    let mut child = plugin(address)
        .args(["list", "--failing", "-w"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the plugin can be started");
    let stdout = child.stdout.take().expect("the stream is piped");
    let lines = std::io::BufReader::new(stdout).lines().skip(1).take(3);
    let lines: Vec<String> = lines
        .map(|it| it.expect("the plugin prints UTF-8"))
        .collect();
    child.kill().expect("the plugin still runs");
    child.wait().expect("the plugin is a child");
    assert_eq!(lines.len(), 3, "{lines:?}");
    // The change of `vm-0` is not printed, because it was never failing.
    for (line, (name, state)) in lines.iter().zip([
        ("vm-2", " Failing "),
        ("vm-2", " Progressing "),
        ("vm-1", " Failing "),
    ]) {
        assert!(line.contains(name) && line.contains(state), "{lines:?}");
    }
}
