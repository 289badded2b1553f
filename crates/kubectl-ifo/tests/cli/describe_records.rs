//! Tests of `kubectl ifo describe` for operations that have ended. The server no longer serves such
//! an operation, but it has a record of the operation.

use super::CommandOutput;
use super::history::{RECORDS, record};
use super::pieces_of_work::{answer, parameter};
use super::tests_with_fake_apiserver::{
    execute, list_response, operation, plugin, serve, status_response,
};
use axum::extract::Request;
use axum::response::Response;
use serde_json::{Value, json};

/// Answers as a cluster with an operation on `vm-1`. There are records of `vm-1`, `vm-2`, and two
/// records of `vm-3`.
fn cluster(request: &Request) -> Response {
    if request.uri().path() != RECORDS {
        return answer(&[operation(1)], request);
    }
    let mut later = record(3, 4, "Succeeded");
    later["metadata"]["name"] = json!("vm-3-later");
    let all = [
        record(1, 1, "Succeeded"),
        record(2, 2, "Failed"),
        record(3, 3, "Ended"),
        later,
    ];
    let selector = parameter(request, "fieldSelector");
    let (field, value) = selector
        .split_once('=')
        .expect("the plugin selects by a field");
    let pointer = format!("/{}", field.replace('.', "/"));
    let is_selected = |it: &&Value| it.pointer(&pointer).is_some_and(|it| it == value);
    let selected: Vec<Value> = all.iter().filter(is_selected).cloned().collect();
    list_response(&selected, "")
}

fn describe(args: &[&str]) -> CommandOutput {
    let (_runtime, address) = serve(cluster);
    execute(plugin(address).arg("describe").args(args))
}

#[test]
fn an_operation_that_has_ended_is_described_from_its_record() {
    let printed = "operationrecord.live.ifo.kubevirt.io/vm-2-migrating";
    for argument in ["vm-2-migrating", "VirtualMachine/vm-2", "vm/vm-2", printed] {
        let output = describe(&[argument]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        for part in [
            "vm-2-migrating",
            "Failed",
            "message 2",
            "2026-01-01T00:02:00Z",
            "worker-2",
        ] {
            assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
        }
        let note = "note: no such operation is in flight; showing the newest record\n";
        assert_eq!(output.stderr, note);
        let name = describe(&[argument, "-o", "name"]);
        assert_eq!(name.stdout, format!("{printed}\n"));
    }
    let json = describe(&["vm-2-migrating", "-o", "json"]).json();
    assert_eq!(json["kind"], "OperationRecord");
    assert_eq!(json["status"]["outcome"], "Failed");
}

#[test]
fn a_record_is_shown_only_if_the_server_no_longer_serves_an_operation() {
    for argument in ["vm-1-migrating", "VirtualMachine/vm-1"] {
        let output = describe(&[argument, "-o", "name"]);
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (
                "inflightoperation.live.ifo.kubevirt.io/vm-1-migrating\n",
                ""
            )
        );
    }
    // An object of the same name, but of another kind, has no record.
    let output = describe(&["Pod/vm-2"]);
    assert_eq!((output.code, &*output.stdout), (1, ""));
    assert!(
        output.stderr.contains("there is no operation on Pod/vm-2"),
        "{}",
        output.stderr
    );
}

#[test]
fn the_newest_record_of_a_subject_is_shown() {
    let output = describe(&["VirtualMachine/vm-3", "-o", "name"]);
    assert_eq!(
        output.stdout,
        "operationrecord.live.ifo.kubevirt.io/vm-3-later\n"
    );
    assert!(
        output.stderr.contains("number of earlier records: 1"),
        "{}",
        output.stderr
    );
    // Two arguments that name the same record show it once.
    let output = describe(&["VirtualMachine/vm-3", "vm-3-later", "-o", "name"]);
    assert_eq!(output.stdout.lines().count(), 1, "{}", output.stdout);
}

#[test]
fn records_that_cannot_be_read_are_named_in_the_error() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        RECORDS => status_response(500, "InternalError", "it broke"),
        _ => answer(&[], request),
    });
    let output = execute(plugin(address).args(["describe", "vm-2-migrating"]));
    assert_eq!((output.code, &*output.stdout), (1, ""));
    assert!(
        output.stderr.contains("records cannot be read: ") && output.stderr.contains("it broke"),
        "{}",
        output.stderr
    );
}
