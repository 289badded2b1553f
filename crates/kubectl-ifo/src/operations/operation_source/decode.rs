//! Decodes the JSON of live objects, of custom resources and of records as the same type, and
//! encodes them again for `-o json`. Unknown fields are kept.
//!
//! Custom resources come from persistence mode of `ifo-apiserver`, or from the older Go operator,
//! which this project replaces. Custom resources, and objects of other releases, can lack fields.
//! Missing fields get defaults.

use crate::operations::operation::InFlightOperation;
use ifo_api::metadata::Condition;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The fields that the type of the API requires, with their defaults. A field that has its default
/// is not printed.
static REQUIRED: LazyLock<Value> = LazyLock::new(|| {
    let mut required = json!(InFlightOperation::default());
    required["status"] = json!({
        "reason": "", "startTimeSource": "", "lastDetected": required["status"]["lastDetected"],
        "conditions": [],
    });
    required
});

/// The fields that a condition must have, with their defaults. For example, the conditions in a
/// support bundle have no messages.
static CONDITION: LazyLock<Value> = LazyLock::new(|| json!(Condition::default()));

/// An operation, decoded from a live object, a custom resource or a record. The metadata has the
/// start and the UID of the operation. If the status of the object contains them, they are copied
/// from there.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct AnyOperation(pub(crate) InFlightOperation);

impl TryFrom<Value> for AnyOperation {
    type Error = serde_json::Error;

    fn try_from(mut object: Value) -> Result<Self, Self::Error> {
        fill(&mut object, &REQUIRED);
        let mut own = [None, None];
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            if let Some(outcome) = status.get("outcome").cloned() {
                status.insert("phase".to_owned(), json!("Completed"));
                status.insert("state".to_owned(), outcome);
            }
            // Custom resources of the Go operator have a phase, but no state.
            let phase = status.entry("phase").or_insert(json!("Active")).clone();
            status.entry("state").or_insert(phase);
            let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
            let conditions = conditions.into_iter().flatten();
            conditions.for_each(|it| fill(it, &CONDITION));
            own = ["started", "liveUID"].map(|it| status.get(it).cloned());
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for (field, value) in ["creationTimestamp", "uid"].into_iter().zip(own) {
                metadata.extend(value.map(|value| (field.to_owned(), value)));
            }
        }
        serde_json::from_value(object).map(Self)
    }
}

/// Returns the JSON of an operation or of a record. The metadata has the start and the UID of the
/// operation.
pub(crate) fn encode(operation: &InFlightOperation) -> Value {
    let mut object = serde_json::to_value(operation).unwrap_or_default();
    if let Some(status) = object["status"].as_object_mut() {
        let is_record = status.contains_key("outcome");
        let has_no_state = status.get("state") == status.get("phase");
        status.retain(|field, _| match field.as_str() {
            "phase" => !is_record,
            "state" => !is_record && !has_no_state,
            _ => true,
        });
    }
    remove_defaults(&mut object, &REQUIRED);
    object
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

/// Removes the fields that have their default in `required`.
fn remove_defaults(value: &mut Value, required: &Value) {
    let (Some(own), Some(required)) = (value.as_object_mut(), required.as_object()) else {
        return;
    };
    own.retain(|field, value| {
        let Some(default) = required.get(field) else {
            return true;
        };
        remove_defaults(value, default);
        value != default && *value != json!({})
    });
}
