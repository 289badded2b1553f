//! An object of the index, such as an operation or the record of a completed operation.

use crate::activity::Activity;
use crate::completeness::GapsObject;
use crate::live::{InFlightOperation, Spec, State};
use crate::metadata::Metadata;
use crate::record::OperationRecord;
use crate::{Collection, Text};
use derive_more::From;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Display;
use std::sync::Arc;

/// An object of the index. Clones share the object.
#[derive(Clone, Debug, PartialEq, From)]
pub enum Object {
    /// An operation.
    #[from(InFlightOperation)]
    Operation(Arc<InFlightOperation>),
    /// The record of a completed operation.
    #[from(OperationRecord)]
    Record(Arc<OperationRecord>),
    /// An activity.
    Activity(Arc<Activity>),
    /// The rule sets that may miss operations.
    Gaps(Arc<GapsObject>),
}

/// Evaluates an expression in which `$it` is the object of the variant.
macro_rules! with_object {
    ($self:ident, $it:ident => $result:expr) => {
        match $self {
            Object::Operation($it) => $result,
            Object::Record($it) => $result,
            Object::Activity($it) => $result,
            Object::Gaps($it) => $result,
        }
    };
}

impl Object {
    /// Appends the JSON of the object with the resourceVersion `version` to `out`.
    pub fn append_json(&self, version: impl Display, out: &mut Vec<u8>) {
        let version = Some(version.to_string());
        with_object!(self, it => {
            let mut object = (**it).clone();
            object.metadata.resource_version = version;
            append(&object, out);
        });
    }

    /// Appends the JSON of the metadata with the resourceVersion `version` to `out`.
    pub fn append_metadata(&self, version: impl Display, out: &mut Vec<u8>) {
        let version = Some(version.to_string());
        with_object!(self, it => {
            let mut metadata = it.metadata.clone();
            metadata.resource_version = version;
            append(&metadata, out);
        });
    }

    /// Decodes an object of a collection. The resourceVersion in the JSON is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if a required field is missing, or has a value of another type.
    pub fn decode(json: &[u8], collection: Collection) -> Result<Self, serde_json::Error> {
        /// Decodes an object of the given type.
        macro_rules! decode {
            ($variant:ident, $type:ty) => {{
                let mut object: $type = serde_json::from_slice(json)?;
                object.metadata.resource_version = None;
                Ok(Self::$variant(Arc::new(object)))
            }};
        }
        match collection {
            Collection::Operations => decode!(Operation, InFlightOperation),
            Collection::Records => decode!(Record, OperationRecord),
            Collection::Activities => decode!(Activity, Activity),
            Collection::Gaps => decode!(Gaps, GapsObject),
        }
    }

    /// Returns the operation. Returns None for any other object.
    pub fn operation(&self) -> Option<&Arc<InFlightOperation>> {
        match self {
            Self::Operation(operation) => Some(operation),
            _ => None,
        }
    }

    /// Returns the activity. Returns None for any other object.
    pub fn activity(&self) -> Option<&Arc<Activity>> {
        match self {
            Self::Activity(activity) => Some(activity),
            _ => None,
        }
    }

    /// Returns the record. Returns None for any other object.
    pub fn record(&self) -> Option<&Arc<OperationRecord>> {
        match self {
            Self::Record(record) => Some(record),
            _ => None,
        }
    }

    /// Returns the metadata.
    fn metadata(&self) -> &Metadata {
        with_object!(self, it => &it.metadata)
    }

    /// Returns the spec of an operation or of a record. Returns None for any other
    /// object.
    pub fn spec(&self) -> Option<&Spec> {
        match self {
            Self::Operation(it) => Some(&it.spec),
            Self::Record(it) => Some(&it.spec),
            _ => None,
        }
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata().labels.get(key).map(|value| &**value)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.metadata().name
    }

    /// Returns the creation time. For an operation and its record, this is the start.
    pub fn created(&self) -> Timestamp {
        self.metadata().creation_timestamp.0
    }

    /// Returns the state of an operation, or the outcome of a record. Returns None for any other
    /// object.
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Operation(it) => Some(it.status.state),
            Self::Record(it) => Some(it.status.outcome),
            _ => None,
        }
    }

    /// Returns the reason and the message of an operation or of a record. Returns None for any other
    /// object.
    pub fn reason_and_message(&self) -> Option<(&Text, &Text)> {
        match self {
            Self::Operation(it) => Some((&it.status.reason, &it.status.message)),
            Self::Record(it) => Some((&it.status.reason, &it.status.message)),
            _ => None,
        }
    }

    /// Returns the time of the last detection of a completed operation.
    pub fn completed(&self) -> Option<Timestamp> {
        match self {
            Self::Operation(it) => it.status.completed.as_ref().map(|time| time.0),
            Self::Record(it) => Some(it.status.completed.0),
            _ => None,
        }
    }

    /// Returns the nodes of an operation or of a record. Other objects have none.
    pub fn nodes(&self) -> &[Text] {
        match self {
            Self::Operation(it) => &it.status.nodes,
            Self::Record(it) => &it.status.nodes,
            _ => &[],
        }
    }
}

fn append(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("the objects have string keys and are always valid");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use serde_json::{Value, json};

    /// Returns an operation and a record as JSON, each with its collection.
    fn operation_and_record() -> [(Value, Collection); 2] {
        let none = json!({});
        [
            (json!(testing::operation(&none)), Collection::Operations),
            (json!(testing::record(&none)), Collection::Records),
        ]
    }

    fn decode(json: &Value, collection: Collection) -> Object {
        Object::decode(json.to_string().as_bytes(), collection).unwrap()
    }

    #[test]
    fn unknown_fields_and_values_are_encoded_again_with_the_new_version() {
        for (mut json, collection) in operation_and_record() {
            json["status"]["expected"] = json!({"typicalSeconds": 7, "source": "Neighbours"});
            json["status"]["startTimeSource"] = "Audit".into();
            let mut parts = vec![
                "/metadata",
                "/spec",
                "/spec/subject",
                "/status",
                "/status/expected",
            ];
            if collection == Collection::Operations {
                json["status"]["phase"] = "Suspended".into();
                json["status"]["state"] = "Paused".into();
                json["status"]["conditions"] = json!([{
                    "type": "Detected", "status": "True", "reason": "RuleMatched", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }]);
                parts.push("/status/conditions/0");
            } else {
                json["status"]["outcome"] = "Paused".into();
            }
            for part in parts {
                json.pointer_mut(part).unwrap()["unknown"] = json!({"a": [1, null, "b"]});
            }
            json["metadata"]["resourceVersion"] = "7".into();
            let object = decode(&json, collection);
            json["metadata"]["resourceVersion"] = "8".into();
            let (mut encoded, mut metadata) = (Vec::new(), Vec::new());
            object.append_json(8, &mut encoded);
            object.append_metadata(8, &mut metadata);
            let parse = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap();
            assert_eq!(parse(&encoded), json);
            assert_eq!(parse(&metadata), json["metadata"]);
        }
        // The number of unknown values is limited. All tests of the process share the limit, so this
        // is part of the same test.
        let decode = |value: String| serde_json::from_value::<State>(value.into()).unwrap();
        let names: Vec<_> = (0..200)
            .map(|number| decode(format!("Paused{number}")).name())
            .collect();
        assert_eq!(names.last(), Some(&"Unknown"));
        assert_eq!(decode("x".repeat(65)).name(), "Unknown");
        assert_eq!(decode("Paused".to_owned()).name(), "Paused");
    }
}
