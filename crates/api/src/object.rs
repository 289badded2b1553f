//! An object of the index: an operation, the record of a completed operation, or a rule set.

use crate::Text;
use crate::live::{InFlightOperation, Spec, State};
use crate::metadata::Metadata;
use crate::record::OperationRecord;
use crate::ruleset::OperationRuleSet;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt::Display;
use std::sync::Arc;

/// An object of the index. Clones share the object.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// An operation.
    Operation(Arc<InFlightOperation>),
    /// The record of a completed operation.
    Record(Arc<OperationRecord>),
    /// A rule set. Only a server without a cluster (the demo) has rule sets in an index.
    RuleSet(Arc<OperationRuleSet>),
}

impl From<InFlightOperation> for Object {
    fn from(operation: InFlightOperation) -> Self {
        Self::Operation(Arc::new(operation))
    }
}

impl From<OperationRecord> for Object {
    fn from(record: OperationRecord) -> Self {
        Self::Record(Arc::new(record))
    }
}

/// An object with its resourceVersion, in the wire format.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<'a, M, S, T> {
    api_version: &'a str,
    kind: &'a str,
    metadata: VersionedMetadata<'a, M>,
    spec: &'a S,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a T>,
}

/// Metadata with the resourceVersion, in the wire format.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionedMetadata<'a, M> {
    #[serde(flatten)]
    metadata: &'a M,
    resource_version: String,
}

impl Object {
    /// Appends the JSON of the object with the resourceVersion `version` to `out`.
    pub fn append_json(&self, version: impl Display, out: &mut Vec<u8>) {
        match self {
            Self::Operation(it) => append_json(
                &Versioned {
                    api_version: &it.api_version,
                    kind: &it.kind,
                    metadata: versioned(&it.metadata, version),
                    spec: &it.spec,
                    status: Some(&it.status),
                },
                out,
            ),
            Self::Record(it) => append_json(
                &Versioned {
                    api_version: &it.api_version,
                    kind: &it.kind,
                    metadata: versioned(&it.metadata, version),
                    spec: &it.spec,
                    status: Some(&it.status),
                },
                out,
            ),
            Self::RuleSet(it) => append_json(
                &Versioned {
                    api_version: &<OperationRuleSet as kube::Resource>::api_version(&()),
                    kind: crate::ruleset::KIND,
                    metadata: versioned(&it.metadata, version),
                    spec: &it.spec,
                    status: it.status.as_ref(),
                },
                out,
            ),
        }
    }

    /// Appends the JSON of the metadata with the resourceVersion `version` to `out`.
    pub fn append_metadata(&self, version: impl Display, out: &mut Vec<u8>) {
        match self {
            Self::Operation(it) => append_json(&versioned(&it.metadata, version), out),
            Self::Record(it) => append_json(&versioned(&it.metadata, version), out),
            Self::RuleSet(it) => append_json(&versioned(&it.metadata, version), out),
        }
    }

    /// Decodes an operation, or a record if `is_record` is true. The resourceVersion in the JSON is
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if a required field is missing, or has a value of another type.
    pub fn decode(json: &[u8], is_record: bool) -> Result<Self, serde_json::Error> {
        if is_record {
            let mut record: OperationRecord = serde_json::from_slice(json)?;
            record.metadata.resource_version = None;
            return Ok(record.into());
        }
        let mut operation: InFlightOperation = serde_json::from_slice(json)?;
        operation.metadata.resource_version = None;
        Ok(operation.into())
    }

    /// Returns the operation. Returns None for a record or a rule set.
    pub fn operation(&self) -> Option<&Arc<InFlightOperation>> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::Record(_) | Self::RuleSet(_) => None,
        }
    }

    /// Returns the record. Returns None for an operation or a rule set.
    pub fn record(&self) -> Option<&Arc<OperationRecord>> {
        match self {
            Self::Record(record) => Some(record),
            Self::Operation(_) | Self::RuleSet(_) => None,
        }
    }

    /// Returns the metadata of an operation or of a record. Returns None for a rule set.
    fn metadata(&self) -> Option<&Metadata> {
        match self {
            Self::Operation(it) => Some(&it.metadata),
            Self::Record(it) => Some(&it.metadata),
            Self::RuleSet(_) => None,
        }
    }

    /// Returns the spec of an operation or of a record. Returns None for a rule set.
    pub fn spec(&self) -> Option<&Spec> {
        match self {
            Self::Operation(it) => Some(&it.spec),
            Self::Record(it) => Some(&it.spec),
            Self::RuleSet(_) => None,
        }
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        match self {
            Self::RuleSet(it) => it.metadata.labels.as_ref()?.get(key).map(String::as_str),
            _ => self.metadata()?.labels.get(key).map(|value| &**value),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        match self {
            Self::Operation(it) => &it.metadata.name,
            Self::Record(it) => &it.metadata.name,
            Self::RuleSet(it) => it.metadata.name.as_deref().unwrap_or_default(),
        }
    }

    /// Returns the creation time. For an operation and its record, this is the start.
    pub fn created(&self) -> Option<Timestamp> {
        match self {
            Self::RuleSet(it) => it.metadata.creation_timestamp.as_ref().map(|time| time.0),
            _ => Some(self.metadata()?.creation_timestamp.0),
        }
    }

    /// Returns the state of an operation, or the outcome of a record. Returns None for a rule set.
    pub fn state(&self) -> Option<State> {
        match self {
            Self::Operation(it) => Some(it.status.state),
            Self::Record(it) => Some(it.status.outcome),
            Self::RuleSet(_) => None,
        }
    }

    /// Returns the reason and the message of an operation or of a record. Returns None for a rule
    /// set.
    pub fn reason_and_message(&self) -> Option<(&Text, &Text)> {
        match self {
            Self::Operation(it) => Some((&it.status.reason, &it.status.message)),
            Self::Record(it) => Some((&it.status.reason, &it.status.message)),
            Self::RuleSet(_) => None,
        }
    }

    /// Returns the time of the last detection of a completed operation.
    pub fn completed(&self) -> Option<Timestamp> {
        match self {
            Self::Operation(it) => it.status.completed.as_ref().map(|time| time.0),
            Self::Record(it) => Some(it.status.completed.0),
            Self::RuleSet(_) => None,
        }
    }

    /// Returns the nodes of an operation or of a record. A rule set has no nodes.
    pub fn nodes(&self) -> &[Text] {
        match self {
            Self::Operation(it) => &it.status.nodes,
            Self::Record(it) => &it.status.nodes,
            Self::RuleSet(_) => &[],
        }
    }
}

fn versioned<M>(metadata: &M, version: impl Display) -> VersionedMetadata<'_, M> {
    VersionedMetadata {
        metadata,
        resource_version: version.to_string(),
    }
}

fn append_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("the objects have string keys and are always valid");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use serde_json::{Value, json};

    /// Returns an operation and a record as JSON. The boolean is true for the record.
    fn operation_and_record() -> [(Value, bool); 2] {
        let none = json!({});
        [
            (json!(example::operation(&none)), false),
            (json!(example::record(&none)), true),
        ]
    }

    fn decode(json: &Value, is_record: bool) -> Object {
        Object::decode(json.to_string().as_bytes(), is_record).unwrap()
    }

    #[test]
    fn unknown_fields_are_encoded_again_with_the_new_version() {
        for (mut json, is_record) in operation_and_record() {
            for part in ["/metadata", "/spec", "/spec/subject", "/status"] {
                json.pointer_mut(part).unwrap()["unknown"] = json!({"a": [1, null, "b"]});
            }
            json["metadata"]["resourceVersion"] = "7".into();
            let object = decode(&json, is_record);
            json["metadata"]["resourceVersion"] = "8".into();
            let (mut encoded, mut metadata) = (Vec::new(), Vec::new());
            object.append_json(8, &mut encoded);
            object.append_metadata(8, &mut metadata);
            let parse = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap();
            assert_eq!(parse(&encoded), json);
            assert_eq!(parse(&metadata), json["metadata"]);
        }
    }

    #[test]
    fn a_state_of_a_newer_release_becomes_unknown() {
        for (mut json, is_record) in operation_and_record() {
            let field = if is_record { "outcome" } else { "state" };
            json["status"][field] = "Paused".into();
            assert_eq!(decode(&json, is_record).state(), Some(State::Unknown));
        }
    }
}
