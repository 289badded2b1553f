//! Example objects for tests and benchmarks.

use crate::Object;
use crate::live::InFlightOperation;
use crate::record::OperationRecord;
use serde_json::{Value, json};

/// Returns an operation with the given fields. All other required fields have example values: the
/// operation `Migrating` of the virtual machine `vm`, which is in flight. A null in `fields`
/// removes an optional field.
///
/// # Panics
///
/// Panics if the result is not an operation.
pub fn operation(fields: &Value) -> InFlightOperation {
    let mut object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": metadata(),
        "spec": spec(),
        "status": {
            "phase": "Active", "state": "Progressing", "reason": "Migrating",
            "startTimeSource": "Detected", "lastDetected": "2026-01-02T03:04:05Z",
        },
    });
    merge(&mut object, fields);
    serde_json::from_value(object).expect("the fields are those of an operation")
}

/// Returns a record with the given fields. All other required fields have example values. A null in
/// `fields` removes an optional field.
///
/// # Panics
///
/// Panics if the result is not a record.
pub fn record(fields: &Value) -> OperationRecord {
    let mut object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "OperationRecord",
        "metadata": metadata(),
        "spec": spec(),
        "status": {
            "outcome": "Succeeded", "reason": "Succeeded", "startTimeSource": "Detected",
            "started": "2026-01-02T03:04:05Z", "completed": "2026-01-02T03:05:05Z",
            "durationSeconds": 60,
        },
    });
    merge(&mut object, fields);
    serde_json::from_value(object).expect("the fields are those of a record")
}

/// Returns an operation for the index, like [`operation`]. The resourceVersion in `fields` is
/// ignored, because the index has the version beside the object.
pub fn object(fields: &Value) -> Object {
    let mut operation = operation(fields);
    operation.metadata.resource_version = None;
    operation.into()
}

fn metadata() -> Value {
    json!({
        "name": "vm-migrating-1", "namespace": "default", "uid": "u-operation",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    })
}

fn spec() -> Value {
    json!({
        "operation": "Migrating", "ruleSet": "rules", "component": "kubevirt",
        "subject": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm"},
    })
}

/// Sets the fields of `patch` in `target`, as in a JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}
