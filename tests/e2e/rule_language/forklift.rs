//! Test of the shipped rules for Forklift, which migrates virtual machines to KubeVirt. A plan is a
//! resource of Forklift. The plan of this test migrates three virtual machines. The rules detect
//! one operation for the plan, and one operation for each virtual machine.

use self::At::{Convert, Error, Failed, Initialize, Succeeded, Transfer};
use super::event_lines;
use crate::harness::{Kind, columns, shared, text, without_gaps};
use serde_json::{Value, json};

const PLAN: Kind = Kind {
    api_version: "forklift.konveyor.io/v1beta1",
    kind: "Plan",
    plural: "plans",
};

/// The start of the migration, in the past.
const STARTED: &str = "2020-01-01T00:00:00Z";

/// The steps of the migration of a virtual machine, with their descriptions.
const STEPS: [(&str, &str); 4] = [
    ("Initialize", "Initialize migration."),
    ("DiskTransfer", "Transfer disks."),
    ("ImageConversion", "Convert image to kubevirt."),
    ("VirtualMachineCreation", "Create VM."),
];

/// Size of the disks of a virtual machine in megabytes. Until the step `DiskTransfer` starts, the
/// status of the virtual machine contains 0 instead of this size.
const SIZE: u64 = 20_480;

/// The reasons of a failed migration.
const ERROR: [&str; 2] = ["DataVolume not ready", "timed out"];

/// The current point of the migration of a virtual machine.
#[derive(Clone, Copy)]
enum At {
    Initialize,
    /// The disks are being transferred. The number is the transferred megabytes.
    Transfer(u64),
    /// An error has occurred, and Forklift is still cleaning up. The number is the transferred
    /// megabytes.
    Error(u64),
    Convert,
    /// The migration has failed. The number is the transferred megabytes.
    Failed(u64),
    Succeeded,
}

/// Returns an entry of the list `vms` in the status of a plan: the status of one virtual machine.
fn machine(id: &str, name: &str, at: At) -> Value {
    let (phase, step, transferred) = match at {
        Initialize => ("Started", 0, None),
        Transfer(done) | Error(done) => ("CopyDisks", 1, Some(done)),
        Convert => ("ConvertGuest", 2, Some(SIZE)),
        Failed(done) => ("Completed", 4, Some(done)),
        Succeeded => ("Completed", 4, Some(SIZE)),
    };
    let pipeline: Vec<Value> = STEPS
        .iter()
        .enumerate()
        .map(|(place, (name, description))| {
            let (done, total) = match (*name, transferred) {
                ("DiskTransfer", Some(done)) => (done, SIZE),
                ("DiskTransfer", None) => (0, 0),
                _ => (u64::from(place < step), 1),
            };
            let phase = match place.cmp(&step) {
                std::cmp::Ordering::Less => "Completed",
                std::cmp::Ordering::Equal => "Running",
                std::cmp::Ordering::Greater => "Pending",
            };
            json!({
                "name": name, "description": description, "phase": phase,
                "progress": {"completed": done, "total": total},
            })
        })
        .collect();
    let mut machine = json!({
        "id": id, "name": name, "phase": phase, "pipeline": pipeline, "started": STARTED,
    });
    if matches!(at, Error(_) | Failed(_)) {
        machine["error"] = json!({"phase": "CopyDisks", "reasons": ERROR});
    }
    let end = match at {
        Failed(_) => "Failed",
        Succeeded => "Succeeded",
        _ => return machine,
    };
    machine["completed"] = json!("2020-01-01T01:00:00Z");
    machine["conditions"] = json!([condition(end)]);
    machine
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "category": "Advisory", "durable": true,
        "lastTransitionTime": STARTED,
    })
}

/// Returns the status of the plan. `condition_of_it` is the type of its second condition, such as
/// `Executing`. The first condition is always `Ready`.
fn plan(condition_of_it: &str, [db, web, app]: [At; 3]) -> Value {
    json!({
        "conditions": [condition("Ready"), condition(condition_of_it)],
        "migration": {
            "started": STARTED,
            "history": [{
                "conditions": [condition(condition_of_it)],
                "migration": {"name": "wave1-0", "uid": "0f1e5a0e-9d9a-4a54-8f65-51f7f4f2c001"},
            }],
            "vms": [
                machine("vm-1", "db", db),
                machine("vm-2", "web", web),
                machine("vm-3", "app", app),
            ],
        },
    })
}

#[test]
fn a_plan_and_each_of_its_machines_migrate_fail_and_succeed() {
    shared(async |cluster| {
        let namespace = cluster.namespace("forklift").await;
        cluster.install("plans.yaml", &PLAN).await;
        let rules = cluster.shipped("rules/forklift", &PLAN, namespace).await;
        cluster.ready_rule_set(&rules).await;
        let mut events = cluster.watch(namespace).await;
        let wave = json!({
            "apiVersion": PLAN.api_version, "kind": PLAN.kind, "metadata": {"name": "wave1"},
            "spec": {"vms": [
                {"id": "vm-1", "name": "db"}, {"id": "vm-2", "name": "web"},
                {"id": "vm-3", "name": "app"},
            ]},
        });
        cluster.create(&PLAN, Some(namespace), &wave).await;
        let ready = json!({"conditions": [condition("Ready")]});
        cluster
            .patch_status(&PLAN, namespace, "wave1", &ready)
            .await;

        // Each tuple is a step of the test:
        //
        // - the condition of the plan
        // - the point of the migration of `db`, `web` and `app`
        // - the expected events about the plan, `db`, `web` and `app`, as one text each
        let failed = "web: DataVolume not ready; timed out";
        let failing = format!("MODIFIED Active Failing MigratingVM 0: {failed}");
        let end = |message: &str, state: &str| -> String {
            let end = format!("Completed {state} {state} -: {message}");
            format!("MODIFIED {end}\nDELETED {end}")
        };
        let steps: [(&str, [At; 3], [String; 4]); 8] = [
            (
                "Executing",
                [Initialize; 3],
                [
                    "ADDED Active Progressing Executing 0: 0 of 3 machines done".into(),
                    "ADDED Active Progressing MigratingVM -: db: Initialize migration.".into(),
                    "ADDED Active Progressing MigratingVM -: web: Initialize migration.".into(),
                    "ADDED Active Progressing MigratingVM -: app: Initialize migration.".into(),
                ],
            ),
            (
                "Executing",
                [Transfer(5_120), Transfer(0), Initialize],
                [
                    String::new(),
                    "MODIFIED Active Progressing MigratingVM 25: db: Transfer disks.".into(),
                    "MODIFIED Active Progressing MigratingVM 0: web: Transfer disks.".into(),
                    String::new(),
                ],
            ),
            (
                "Executing",
                [Transfer(15_360), Transfer(0), Transfer(10_240)],
                [
                    String::new(),
                    "MODIFIED Active Progressing MigratingVM 75: db: Transfer disks.".into(),
                    String::new(),
                    "MODIFIED Active Progressing MigratingVM 50: app: Transfer disks.".into(),
                ],
            ),
            (
                "Executing",
                [Convert, Error(0), Transfer(10_240)],
                [
                    "MODIFIED Active Failing Executing 0: 0 of 3 machines done".into(),
                    "MODIFIED Active Progressing MigratingVM 100: db: Convert image to kubevirt."
                        .into(),
                    failing,
                    String::new(),
                ],
            ),
            (
                "Executing",
                [Succeeded, Error(0), Transfer(10_240)],
                [
                    "MODIFIED Active Failing Executing 33: 1 of 3 machines done".into(),
                    end(
                        "Succeeded. Before: db: Convert image to kubevirt.",
                        "Succeeded",
                    ),
                    String::new(),
                    String::new(),
                ],
            ),
            (
                "Executing",
                [Succeeded, Failed(0), Transfer(10_240)],
                [
                    "MODIFIED Active Failing Executing 66: 2 of 3 machines done".into(),
                    String::new(),
                    end(failed, "Failed"),
                    String::new(),
                ],
            ),
            (
                "Executing",
                [Succeeded, Failed(0), Convert],
                [
                    String::new(),
                    String::new(),
                    String::new(),
                    "MODIFIED Active Progressing MigratingVM 100: app: Convert image to kubevirt."
                        .into(),
                ],
            ),
            (
                "Failed",
                [Succeeded, Failed(0), Succeeded],
                [
                    end(
                        "3 of 3 machines done. web: DataVolume not ready; timed out. Before: 2 of 3 machines done",
                        "Failed",
                    ),
                    String::new(),
                    String::new(),
                    end(
                        "Succeeded. Before: app: Convert image to kubevirt.",
                        "Succeeded",
                    ),
                ],
            ),
        ];
        let lives = |all: &[Value]| -> [Vec<String>; 4] {
            [
                event_lines(all, "wave1", "Executing", None),
                event_lines(all, "wave1", "MigratingVM", Some("vm-1")),
                event_lines(all, "wave1", "MigratingVM", Some("vm-2")),
                event_lines(all, "wave1", "MigratingVM", Some("vm-3")),
            ]
        };
        let mut want: [Vec<String>; 4] = Default::default();
        for (number, (condition, machines, expected)) in steps.iter().enumerate() {
            let status = plan(condition, *machines);
            cluster
                .patch_status(&PLAN, namespace, "wave1", &status)
                .await;
            for (life, expected) in want.iter_mut().zip(expected) {
                life.extend(expected.lines().map(str::to_owned));
            }
            // If the rules no longer detect an operation, it is usually `Settling` for a debounce
            // period before it ends. Here, no operation becomes `Settling`: the rules read its end
            // from the status of the plan, so it completes at once.
            events
                .until(&format!("step {number}: {want:#?}"), |all| {
                    (lives(all) == want).then_some(())
                })
                .await;
            if number == 2 {
                let table = cluster.kubectl(&["get", "ifos", "-n", namespace]).await;
                let table = table.expect("kubectl must list operations");
                let rows: Vec<Vec<&str>> = table.lines().skip(1).map(columns).collect();
                let mut cells: Vec<&[&str]> = rows.iter().map(|row| &row[..3]).collect();
                cells.sort_unstable();
                assert_eq!(
                    cells,
                    [
                        ["Plan/wave1", "Executing", "Progressing 0%"],
                        ["Plan/wave1/vm-1", "MigratingVM", "Progressing 75%"],
                        ["Plan/wave1/vm-2", "MigratingVM", "Progressing 0%"],
                        ["Plan/wave1/vm-3", "MigratingVM", "Progressing 50%"],
                    ],
                    "{table}"
                );
            }
        }
        // The plan has failed, so a user must act.
        let is_failed = |all: &[Value]| {
            let lines = event_lines(all, "wave1", "Failed", None);
            (lines.len() == 1).then(|| all.to_vec())
        };
        let all = events.until("the failure of the plan", is_failed).await;
        let count = without_gaps(&all).len();
        assert_eq!(count, 1 + want.iter().map(Vec::len).sum::<usize>());
        for event in &all {
            let object = &event["object"];
            assert_eq!(object["metadata"]["creationTimestamp"], STARTED);
            assert_eq!(object["status"]["startTimeSource"], "Expression");
            let labels = &object["metadata"]["labels"];
            assert_eq!(
                text(labels, "/ifo.kubevirt.io~1correlation-group"),
                "plan.wave1"
            );
        }
    });
}
