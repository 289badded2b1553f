//! Test of the alerts about durations, with the demo (`ifo-apiserver demo`) and a real Prometheus:
//!
//! - First, an operation is overdue: it takes longer than expected. The alert `IfoOperationOverdue`
//!   must fire until the operation has ended.
//! - Later, another operation is stalled: its progress does not rise. The alert `IfoOperationStalled`
//!   must fire until the progress is 100 %.

use crate::harness::{Demo, Folders, eventually};
use crate::prometheus::{Prometheus, programs};
use serde_json::{Value, json};

/// Writes a rule set with three operations. `Starting` is overdue after one second. `Copying` is
/// stalled after one second without progress. `Stopping` may take an hour, so it must cause no
/// alert.
fn write_rule_set(folders: &Folders) {
    let state = |state: &str| format!("object.status.printableStatus == '{state}'");
    let rule_set = json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1",
        "kind": "OperationRuleSet",
        "metadata": {"name": "vms"},
        "spec": {
            "component": "tests",
            "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            "rules": [
                {"operation": "Starting", "expression": state("Starting"), "expectedDuration": "1s"},
                {"operation": "Stopping", "expression": state("Stopping"), "expectedDuration": "1h"},
                {
                    "operation": "Copying",
                    "expression": state("Copying"),
                    "progress": "object.status.percent",
                    "stalledAfter": "1s",
                },
            ],
        },
    });
    folders.put(&folders.rules, "vms.json", &rule_set.to_string());
}

fn write_vm(folders: &Folders, name: &str, state: &str, percent: u8) {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "shop"},
        "status": {"printableStatus": state, "percent": percent},
    });
    folders.put(&folders.objects, &format!("{name}.json"), &vm.to_string());
}

/// Returns the alerts `IfoOperationOverdue` and `IfoOperationStalled` that are pending or firing in
/// Prometheus.
async fn alerts(prometheus: &Prometheus) -> Vec<Value> {
    let answer = prometheus.get("alerts", &[]).await;
    let alerts = answer["alerts"].as_array().expect("it is a list").iter();
    let own = ["IfoOperationOverdue", "IfoOperationStalled"];
    let alerts =
        alerts.filter(|alert| own.iter().any(|name| alert["labels"]["alertname"] == *name));
    alerts.cloned().collect()
}

/// Waits until [`alerts`] returns exactly one alert, and this alert has the name `name` and is
/// firing. Returns this alert.
async fn fired(prometheus: &Prometheus, name: &str) -> Value {
    eventually(&format!("only the alert {name} fires"), async || {
        let alerts = alerts(prometheus).await;
        let [alert] = &alerts[..] else { return None };
        let fires = alert["state"] == "firing" && alert["labels"]["alertname"] == name;
        fires.then(|| alert.clone())
    })
    .await
}

async fn cleared(prometheus: &Prometheus) {
    eventually("both alerts clear", async || {
        alerts(prometheus).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_and_stalled_operations_fire_their_alerts_until_they_recover_or_complete() {
    let Some(programs) = programs() else { return };
    let folders = Folders::new();
    write_rule_set(&folders);
    for name in ["web", "db", "disk"] {
        write_vm(&folders, name, "Running", 0);
    }
    let demo = Demo::start(&folders.args()).await;
    // The test waits until the server has listed the VirtualMachines. Operations that start later
    // have a known start, so the server can compute their durations.
    demo.wait_for_operations(&[]).await;
    let prometheus = Prometheus::start(&programs, &demo, Some("1s")).await;
    cleared(&prometheus).await;

    write_vm(&folders, "web", "Starting", 0);
    write_vm(&folders, "db", "Stopping", 0);
    let alert = fired(&prometheus, "IfoOperationOverdue").await;
    let labels = json!({
        "alertname": "IfoOperationOverdue",
        "severity": "warning",
        "namespace": "shop",
        "component": "tests",
        "operation": "Starting",
        "subject": "VirtualMachine/web",
    });
    assert_eq!(alert["labels"], labels);
    let summary = &alert["annotations"]["summary"];
    assert_eq!(
        *summary,
        "Starting of VirtualMachine/web in shop takes longer than usual"
    );
    demo.wait_for_operations(&["db Stopping", "web Starting"])
        .await;
    write_vm(&folders, "web", "Running", 0);
    cleared(&prometheus).await;

    write_vm(&folders, "disk", "Copying", 40);
    let alert = fired(&prometheus, "IfoOperationStalled").await;
    assert_eq!(alert["labels"]["operation"], "Copying");
    let summary = &alert["annotations"]["summary"];
    assert_eq!(
        *summary,
        "Copying of VirtualMachine/disk in shop makes no progress"
    );
    // At a progress of 100 %, the operation `Copying` is still in flight, but no longer stalled.
    write_vm(&folders, "disk", "Copying", 100);
    cleared(&prometheus).await;
    demo.wait_for_operations(&["db Stopping", "disk Copying"])
        .await;
}
