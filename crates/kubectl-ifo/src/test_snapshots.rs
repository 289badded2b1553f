//! Compares the output of commands with snapshot files, and builds the operations for such tests.

use super::operation::InFlightOperation;
use super::operation_source::{Objects, decode};
use ifo_client::short_names::{NamedResource, ShortNames};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the fixed current time of these tests.
pub(super) fn now() -> Timestamp {
    "2026-03-01T12:00:00Z"
        .parse()
        .expect("the text is a valid time")
}

/// Returns short names of kinds. In these tests, all kinds are in the group `kubevirt.io`.
pub(super) fn short_names() -> Arc<ShortNames> {
    let all = [
        ("VirtualMachine", "virtualmachines", "vm"),
        ("VirtualMachineInstance", "virtualmachineinstances", "vmi"),
        (
            "VirtualMachineInstanceMigration",
            "virtualmachineinstancemigrations",
            "vmim",
        ),
        ("DataVolume", "datavolumes", "dv"),
        ("ClusterServiceVersion", "clusterserviceversions", "csv"),
    ];
    let named = all.map(|(kind, plural, short_name)| NamedResource {
        group: "kubevirt.io",
        kind,
        plural,
        short_names: vec![short_name],
    });
    Arc::new(ShortNames::new(&named))
}

/// Creates an operation as [`object`] does.
pub(super) fn operation(
    namespace: &str,
    subject: &str,
    name: &str,
    seconds: i64,
    more: Value,
) -> InFlightOperation {
    let object = object(namespace, subject, name, seconds, more);
    decode(&object.to_string()).expect("the JSON must be an operation")
}

/// Creates the JSON of an operation on `subject` (`Kind/name`) that began `seconds` ago. `namespace` is empty
/// for a cluster-scoped subject. `more` is merged into the JSON of the operation.
pub(super) fn object(
    namespace: &str,
    subject: &str,
    name: &str,
    seconds: i64,
    more: Value,
) -> Value {
    let (kind, subject_name) = subject
        .split_once('/')
        .expect("the subject must be Kind/name");
    let started =
        Timestamp::from_second(now().as_second() - seconds).expect("the time is in range");
    let mut object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1",
        "kind": "InFlightOperation",
        "metadata": {
            "name": format!("{subject_name}-{}", name.to_lowercase()),
            "namespace": if namespace.is_empty() { "ifo-system" } else { namespace },
            "resourceVersion": "7",
            "creationTimestamp": started,
        },
        "spec": {
            "operation": name,
            "ruleSet": "vm-lifecycle-rules",
            "component": "kubevirt",
            "subject": {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": subject_name},
        },
        "status": {"phase": "Active", "state": "Progressing", "reason": name},
    });
    if !namespace.is_empty() {
        object["spec"]["subject"]["namespace"] = json!(namespace);
    }
    merge(&mut object, more);
    object
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Returns operations in different states, on different objects.
pub(super) fn mixed() -> Vec<InFlightOperation> {
    mixed_with_objects().0
}

/// Returns the same operations with their JSON.
pub(super) fn mixed_with_objects() -> (Vec<InFlightOperation>, Objects) {
    let objects = Objects::new(true);
    let decoded = mixed_json().into_iter();
    let decoded = decoded.map(|it| objects.decode(&it.to_string()));
    let decoded: Result<_, _> = decoded.collect();
    (decoded.expect("the JSON must be an operation"), objects)
}

fn mixed_json() -> Vec<Value> {
    vec![
        object(
            "",
            "ClusterVersion/version",
            "Updating",
            7_500,
            json!({
                "spec": {"component": "openshift", "ruleSet": "cluster-version-rules"},
                "status": {"progress": 15, "message": "Working towards 4.20.7: 147 of 929 done"},
            }),
        ),
        object(
            "shop",
            "VirtualMachine/frontend",
            "Migrating",
            65,
            json!({"spec": {"initiator": "ann"},
                   "status": {"progress": 45, "state": "Blocked", "message": "waits for\na node"}}),
        ),
        object(
            "shop",
            "DataVolume/データ",
            "Importing",
            600,
            json!({"spec": {"item": "disk-0"}, "status": {"state": "Failing", "message": "日本語のメッセージ"}}),
        ),
        object(
            "shop",
            "VirtualMachine/backend",
            "Stopping",
            90,
            json!({"status": {"phase": "Completed", "state": "Succeeded", "reason": "NotDetected",
                              "completed": "2026-03-01T11:59:30Z"}}),
        ),
    ]
}

/// Compares printed text with `tests/fixtures/cli/output/NAME.txt`. If the environment variable
/// `UPDATE_SNAPSHOTS` is set, writes the text to the file instead. A developer must then review the
/// file.
pub(super) fn snapshot(name: &str, printed: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/cli/output")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, printed).expect("the file must be writable");
        return;
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(printed, wanted, "{}", path.display());
}
