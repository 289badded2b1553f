//! Test of the shipped rules for Deckhouse virtualization. To start or stop a virtual machine, a
//! user of Deckhouse creates an object of the kind VirtualMachineOperation. This object is the
//! subject of an ifo operation. In this test, a request to stop supersedes a request to start.

use super::event_lines;
use crate::harness::{Kind, TestCluster, columns, shared, text};
use serde_json::{Value, json};

const VM_OPERATION: Kind = Kind {
    api_version: "virtualization.deckhouse.io/v1alpha2",
    kind: "VirtualMachineOperation",
    plural: "virtualmachineoperations",
};

/// Creates a VirtualMachineOperation for the virtual machine `db`. `kind` is the requested action,
/// such as `Start`.
async fn request_operation(
    cluster: &TestCluster,
    namespace: &str,
    name: &str,
    kind: &str,
) -> Value {
    let operation = json!({
        "apiVersion": VM_OPERATION.api_version, "kind": VM_OPERATION.kind,
        "metadata": {"name": name},
        "spec": {"type": kind, "virtualMachineName": "db"},
    });
    cluster
        .create(&VM_OPERATION, Some(namespace), &operation)
        .await
}

/// Writes the status of a VirtualMachineOperation as its controller does: the phase, and the
/// status, reason and message of the condition Completed.
async fn write_status(
    cluster: &TestCluster,
    (namespace, name): (&str, &str),
    phase: &str,
    (status, reason, message): (&str, &str, &str),
) {
    let time = "2020-01-01T00:00:00Z";
    let status = json!({
        "phase": phase,
        "conditions": [
            {
                "type": "SignalSent", "status": "True", "reason": "SignalSentSuccess",
                "message": "", "lastTransitionTime": time,
            },
            {
                "type": "Completed", "status": status, "reason": reason,
                "message": message, "lastTransitionTime": time,
            },
        ],
    });
    cluster
        .patch_status(&VM_OPERATION, namespace, name, &status)
        .await;
}

/// Returns the rows that kubectl prints for events about operations on the object `subject`,
/// without the columns SUBJECT and AGE. If the server's own watch was interrupted, kubectl prints
/// the row of an active operation again. This function leaves out the repeated row.
fn rows<'a>(lines: &'a [String], subject: &str) -> Vec<Vec<&'a str>> {
    let rows = lines.iter().map(|line| columns(line));
    let mut rows: Vec<Vec<&str>> = rows
        .filter(|row| {
            let name = row.get(1).and_then(|cell| cell.split_once('/'));
            name.is_some_and(|(_, name)| name == subject)
        })
        .map(|row| [&row[..1], &row[2..4], &row[5..]].concat())
        .collect();
    rows.dedup_by(|next, last| {
        next[0] == "MODIFIED" && next[2] == "Progressing" && next[1..] == last[1..]
    });
    rows
}

#[test]
fn a_start_is_superseded_by_a_stop_that_succeeds() {
    shared(async |cluster| {
        let namespace = cluster.namespace("deckhouse").await;
        cluster
            .install("virtualmachineoperations.yaml", &VM_OPERATION)
            .await;
        let rules = cluster
            .shipped("rules/deckhouse", &VM_OPERATION, namespace)
            .await;
        cluster.ready_rule_set(&rules).await;
        // kubectl first prints the current operations, and then prints all later events. The test
        // waits until kubectl has printed this operation. After that, kubectl misses no event of
        // the operations below.
        request_operation(cluster, namespace, "restart-db", "Restart").await;
        let mut kubectl = cluster.kubectl_watch(&[
            "get",
            "ifos",
            "-n",
            namespace,
            "-w",
            "--output-watch-events",
        ]);
        kubectl
            .until("the existing operation", |lines| {
                (!rows(lines, "restart-db").is_empty()).then_some(())
            })
            .await;
        let mut events = cluster.watch(namespace).await;

        let start = request_operation(cluster, namespace, "start-db", "Start").await;
        let pending = "db: Waits for the virtualization controller. Check that it runs";
        let mut starting = vec![format!("ADDED Active Progressing Starting -: {pending}")];
        let is = |name: &'static str, operation: &'static str, want: &[String]| {
            let want = want.to_vec();
            move |all: &[Value]| {
                (event_lines(all, name, operation, None) == want).then(|| all.to_vec())
            }
        };
        events
            .until("Starting", is("start-db", "Starting", &starting))
            .await;
        let waits = "Waiting for the operation to complete.";
        write_status(
            cluster,
            (namespace, "start-db"),
            "InProgress",
            ("False", "StartInProgress", waits),
        )
        .await;
        starting.push(format!(
            "MODIFIED Active Progressing StartInProgress -: db: {waits}"
        ));
        events
            .until(
                "the progress of the start",
                is("start-db", "Starting", &starting),
            )
            .await;

        let stop = request_operation(cluster, namespace, "stop-db", "Stop").await;
        let mut stopping = vec![format!("ADDED Active Progressing Stopping -: {pending}")];
        events
            .until("Stopping", is("stop-db", "Stopping", &stopping))
            .await;
        let by = "Superseded by stop-db with type Stop";
        write_status(
            cluster,
            (namespace, "start-db"),
            "Superseded",
            ("True", "Superseded", by),
        )
        .await;
        write_status(
            cluster,
            (namespace, "stop-db"),
            "InProgress",
            ("False", "StopInProgress", waits),
        )
        .await;
        // A superseded operation ends at once, without the state `Settling`.
        for event in ["MODIFIED", "DELETED"] {
            starting.push(format!(
                "{event} Completed Superseded Superseded -: db: {by}. Before: db: {waits}"
            ));
        }
        events
            .until("Superseded", is("start-db", "Starting", &starting))
            .await;
        stopping.push(format!(
            "MODIFIED Active Progressing StopInProgress -: db: {waits}"
        ));
        events
            .until(
                "the progress of the stop",
                is("stop-db", "Stopping", &stopping),
            )
            .await;
        write_status(
            cluster,
            (namespace, "stop-db"),
            "Completed",
            ("True", "OperationCompleted", ""),
        )
        .await;
        for event in ["MODIFIED", "DELETED"] {
            stopping.push(format!(
                "{event} Completed Succeeded Succeeded -: Succeeded. Before: db: {waits}"
            ));
        }
        let all = events
            .until("Succeeded", is("stop-db", "Stopping", &stopping))
            .await;

        // Each operation must start at the creation time of its VirtualMachineOperation. One label
        // of the operation must contain the name of the virtual machine.
        for event in &all {
            let object = &event["object"];
            let request = match text(object, "/spec/subject/name") {
                "start-db" => &start,
                "stop-db" => &stop,
                _ => continue,
            };
            assert_eq!(
                object["metadata"]["creationTimestamp"],
                request["metadata"]["creationTimestamp"]
            );
            assert_eq!(object["status"]["startTimeSource"], "Expression");
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels["ifo.kubevirt.io/correlation-group"], "vm.db");
        }
        // The cell of a message has at most 80 characters.
        let superseded = format!("db: {by}. Before: db: Waiting for the operation…");
        let waits = format!("db: {waits}");
        let succeeded = format!("Succeeded. Before: {waits}");
        let starting = [
            ["ADDED", "Starting", "Progressing", pending],
            ["MODIFIED", "Starting", "Progressing", &waits],
            ["MODIFIED", "Starting", "Superseded", &superseded],
            ["DELETED", "Starting", "Superseded", &superseded],
        ];
        let stopping = [
            ["ADDED", "Stopping", "Progressing", pending],
            ["MODIFIED", "Stopping", "Progressing", &waits],
            ["MODIFIED", "Stopping", "Succeeded", &succeeded],
            ["DELETED", "Stopping", "Succeeded", &succeeded],
        ];
        kubectl
            .until("the rows of all events", |lines| {
                (rows(lines, "start-db") == starting && rows(lines, "stop-db") == stopping)
                    .then_some(())
            })
            .await;
    });
}
