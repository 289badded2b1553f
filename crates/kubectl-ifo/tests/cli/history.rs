//! Tests of `kubectl ifo history` with a fake API server and with files. `history` lists completed
//! operations. It reads the records (`OperationRecord`) that `ifo-apiserver` keeps, and the custom
//! resources that `ifo-apiserver` writes in persistence mode.

use super::pieces_of_work::{answer, migration};
use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, json_response, list_response, operation, plugin, serve,
    status_response,
};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

pub const RECORDS: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/operationrecords";
const CRS: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Returns the record of an operation that began at 2026-01-01T00:00:00Z and ended `minute` minutes
/// later.
pub fn record(number: usize, minute: usize, outcome: &str) -> Value {
    let mut record = operation(number);
    record["kind"] = json!("OperationRecord");
    record["metadata"]["uid"] = json!(format!("uid-{number}"));
    record["metadata"]["labels"] = json!({"team": if number == 1 { "a" } else { "b" }});
    record["spec"]["initiator"] = json!("ann");
    record["status"] = json!({
        "queuedAt": "2025-12-31T23:59:18Z", "outcome": outcome, "reason": "Done", "message": format!("message {number}"),
        "started": "2026-01-01T00:00:00Z", "startTimeSource": "Detected",
        "completed": format!("2026-01-01T00:{minute:02}:00Z"), "durationSeconds": minute * 60,
        "nodes": [format!("worker-{number}")],
        "expected": {"typicalSeconds": 125, "runs": 37, "source": "History"},
    });
    record
}

/// Returns the custom resource of a completed operation. Its `liveUID` is the UID of the [`record`]
/// with the same number, so both are of the same operation.
fn custom_resource(number: usize, minute: usize) -> Value {
    let mut it = record(number, minute, "Failed");
    it["apiVersion"] = json!("ifo.kubevirt.io/v1alpha1");
    it["kind"] = json!("InFlightOperation");
    let name = it["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    it["metadata"] = json!({
        "name": name, "uid": "of the custom resource",
        "annotations": {"ifo.kubevirt.io/live": format!("shop/{name}")},
    });
    it["status"]["phase"] = json!("Completed");
    it["status"]["state"] = json!("Failed");
    it["status"]["liveUID"] = json!(format!("uid-{number}"));
    it
}

fn cluster(request: &Request) -> Response {
    match request.uri().path() {
        RECORDS
            if !request
                .uri()
                .query()
                .unwrap_or_default()
                .contains("continue=") =>
        {
            list_response(&[record(1, 1, "Succeeded"), record(2, 2, "Failed")], "next")
        }
        RECORDS => list_response(&[record(3, 3, "Ended")], ""),
        _ => answer(&[], request),
    }
}

#[test]
fn records_of_all_pages_are_shown_newest_first() {
    let (_runtime, address) = serve(cluster);
    let run = |args: &[&str]| execute(plugin(address).arg("history").args(args));
    let all = run(&[]);
    all.exits(0);
    assert_eq!(
        all.stdout,
        "\
NAMESPACE   SUBJECT               OPERATION   STATE       COMPLETED              DURATION   EXPECTED   MESSAGE
shop        VirtualMachine/vm-3   Migrating   Ended       2026-01-01T00:03:00Z   3m         2m5s       message 3
shop        VirtualMachine/vm-2   Migrating   Failed      2026-01-01T00:02:00Z   2m         2m5s       message 2
shop        VirtualMachine/vm-1   Migrating   Succeeded   2026-01-01T00:01:00Z   60s        2m5s       message 1
"
    );
    assert_eq!(all.stderr, "Records reach back to 2026-01-01T00:01:00Z.\n");
    for (args, expected) in [
        (&["--failed"][..], &["vm-2"][..]),
        (&["--node", "worker-3"], &["vm-3"]),
        (&["-l", "team=a"], &["vm-1"]),
        (&["-c", "kubevirt", "--since", "1h"], &[]),
        (&["-k", "VirtualMachine", "-A"], &["vm-3", "vm-2", "vm-1"]),
    ] {
        let mut all: Vec<&str> = args.to_vec();
        all.extend(["-o", "name"]);
        let names: Vec<String> = expected
            .iter()
            .map(|it| format!("operationrecord.live.ifo.kubevirt.io/{it}-migrating\n"))
            .collect();
        let output = run(&all);
        assert_eq!(output.stdout, names.concat(), "{args:?}: {}", output.stderr);
    }
    let wide = run(&["--failed", "-o", "wide"]).stdout;
    for part in ["message 2", "worker-2", "INITIATOR", "ann", "QUEUED", "42s"] {
        assert!(wide.contains(part), "{part}: {wide}");
    }
    let json = run(&["-o", "json", "--failed"]).json();
    assert_eq!(json["items"][0]["kind"], "OperationRecord");
    let recent = run(&["--since", "1h"]);
    recent.says("No completed operations that fit");
    let long = run(&["--since", "9999d"]);
    long.says("reach back only to");
    for wrong in [&["--since", "soon"][..], &["-l", "a=b c"], &["-o", "yamll"]] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn a_piece_of_work_in_flight_is_not_history() {
    let mut pending = record(7, 1, "Succeeded");
    pending["spec"]["work"] = json!("migration");
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        RECORDS => list_response(&[pending.clone()], ""),
        _ => answer(&migration(), request),
    });
    let output = execute(plugin(address).arg("history"));
    assert_eq!(output.stdout, "");
    output.says("still in flight are not shown");
}

#[test]
fn an_empty_history_without_rule_sets_is_explained() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        RULE_SETS => json_response(&json!({"items": []})),
        LIVE => {
            let mut empty = list_response(&[], "");
            let warning = "299 - \"no rule set is installed, so no operation can be detected\"";
            let warning = warning.parse().expect("a header");
            empty.headers_mut().insert("warning", warning);
            empty
        }
        _ => cluster(request),
    });
    let run = |component: &str| execute(plugin(address).args(["history", "-c", component]));
    let misspelt = run("kubvirt");
    let lines: Vec<&str> = misspelt.stderr.lines().collect();
    misspelt.exits(0);
    assert!(
        lines.len() == 3 && lines[0].starts_with("note: no OperationRuleSet is installed"),
        "{}",
        misspelt.stderr
    );
    let known = run("kubevirt");
    assert!(!known.stderr.contains("note:"), "{}", known.stderr);
}

#[test]
fn custom_resources_without_a_record_are_added() {
    let custom = [
        custom_resource(1, 1),
        custom_resource(9, 0),
        operation(8), // in flight
    ];
    let (_runtime, address) = serve(move |request| match request.uri().path() {
        CRS => list_response(&custom, ""),
        _ => cluster(request),
    });
    let output = execute(plugin(address).args(["history", "-o", "name"]));
    let names: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(names.len(), 4, "{}", output.stdout);
    assert_eq!(names[3], "inflightoperation.ifo.kubevirt.io/vm-9-migrating");
    assert_eq!(
        output.stderr,
        "Records reach back to 2026-01-01T00:00:00Z.\n"
    );
}

#[test]
fn a_server_without_records_is_reported_as_older() {
    let (_runtime, address) = serve(|request| answer(&[], request));
    let output = execute(plugin(address).arg("history"));
    assert_eq!(output.code, 1);
    output.says_first("error: this cluster does not serve operationrecords.live.ifo.kubevirt.io, because its release");
    let (_runtime, address) = serve(|request| match request.uri().path() {
        path if path.ends_with("/operationrecords") => {
            status_response(403, "Forbidden", "no: User \"cora\" cannot list it")
        }
        _ => answer(&[], request),
    });
    let refused = execute(plugin(address).arg("history"));
    assert_eq!(refused.code, 1);
    let expected = "you may not list operationrecords.live.ifo.kubevirt.io";
    refused.says(expected);
}

#[test]
fn records_are_read_from_files() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, value: &Value| {
        std::fs::write(folder.path().join(name), value.to_string())
            .expect("the folder is writable");
    };
    write("a.yaml", &record(1, 1, "Failed"));
    let history = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        execute(command.arg("history").arg("--from").arg(folder.path()))
    };
    let output = history();
    output.exits(0);
    output.prints("Failed");
    write("a.yaml", &operation(1));
    let output = history();
    output.says("does not contain operationrecords.live.ifo.kubevirt.io");
}
