//! Decodes the JSON of live objects, of custom resources and of records as the same type.
//!
//! Custom resources come from persistence mode of `ifo-apiserver`, or from the older Go operator,
//! which this project replaces. They and objects of other releases can lack fields, so missing fields
//! have defaults.

use crate::operation::InFlightOperation;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The fields that the type of the API requires, with their defaults.
static REQUIRED: LazyLock<Value> = LazyLock::new(|| {
    let unknown = "1970-01-01T00:00:00Z";
    json!({
        "apiVersion": "", "kind": "",
        "metadata": {"creationTimestamp": unknown, "name": "", "namespace": "", "uid": ""},
        "spec": {
            "operation": "", "ruleSet": "", "component": "",
            "subject": {"apiVersion": "", "kind": "", "name": ""},
        },
        "status": {
            "phase": "Active", "reason": "", "startTimeSource": "Detected", "lastDetected": unknown,
        },
    })
});

/// The fields that a condition must have. A support bundle has no messages.
static CONDITION: LazyLock<Value> = LazyLock::new(|| {
    let unknown = "1970-01-01T00:00:00Z";
    json!({"type": "", "status": "", "reason": "", "message": "", "lastTransitionTime": unknown})
});

/// Decodes an operation or a record. Start and UID are those of the operation: a custom resource has
/// them in its status.
pub(crate) fn decode(json: &str) -> Result<InFlightOperation, serde_json::Error> {
    let mut object: Value = serde_json::from_str(json)?;
    fill(&mut object, &REQUIRED);
    let mut moved = [None, None];
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        if let Some(outcome) = status.remove("outcome") {
            status.insert("phase".to_owned(), json!("Completed"));
            status.insert("state".to_owned(), outcome);
        }
        // Custom resources of the Go operator have only a phase.
        let phase = status["phase"].clone();
        status.entry("state").or_insert(phase);
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        let conditions = conditions.into_iter().flatten();
        conditions.for_each(|it| fill(it, &CONDITION));
        moved = ["started", "liveUID"].map(|it| status.remove(it));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for (field, value) in ["creationTimestamp", "uid"].into_iter().zip(moved) {
            metadata.extend(value.map(|value| (field.to_owned(), value)));
        }
    }
    serde_json::from_value(object)
}

/// Adds the fields of `required` that `value` lacks.
fn fill(value: &mut Value, required: &Value) {
    match (value, required) {
        (value @ Value::Null, required) => value.clone_from(required),
        (Value::Object(own), Value::Object(required)) => {
            for (field, required) in required {
                fill(own.entry(field).or_insert(Value::Null), required);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::OperationFacts as _;

    #[test]
    fn an_object_with_few_fields_is_decoded() {
        let json = r#"{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"},
            "spec":{"operation":"Migrating","subject":{"kind":"VM","name":"x"}}}"#;
        let operation = decode(json).unwrap();
        assert!(operation.is_active());
        assert_eq!(operation.status.state.name(), "Active");
        assert_eq!(operation.subject_name(), "VM/x");
        let later = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_eq!(operation.age_seconds(later), 60);
        for no_object in ["[]", "{\"status\": 5}", "{\"metadata\": []}"] {
            assert!(decode(no_object).is_err(), "{no_object}");
        }
    }

    #[test]
    fn a_custom_resource_and_a_record_have_the_start_of_the_operation() {
        let start = "2026-01-01T00:00:00Z";
        for state in ["state", "outcome"] {
            let object = json!({
                "metadata": {"uid": "of the object", "creationTimestamp": "2026-01-02T00:00:00Z"},
                "status": {
                    "phase": "Completed", state: "Failed", "started": start, "liveUID": "u",
                    "completed": "2026-01-01T00:04:00Z", "durationSeconds": 230, "nodes": ["a"],
                },
            });
            let it = decode(&object.to_string()).unwrap();
            assert!(!it.is_active());
            assert_eq!(it.marked_state(), "Failed");
            assert_eq!(
                (it.started().to_string(), &*it.metadata.uid),
                (start.to_owned(), "u")
            );
            assert_eq!((it.duration(), &*it.status.nodes[0]), (Some(230), "a"));
            assert!(it.status.unknown.is_empty());
        }
    }
}
