//! Encodes an operation as JSON or YAML. Each command chooses the printed fields and their order.

use super::ListedOperation;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// A field of an operation that commands print.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonField {
    /// Name of the InFlightOperation.
    Name,
    /// Namespace of the InFlightOperation.
    Namespace,
    /// Name of the operation, such as `Migrating`.
    Operation,
    Item,
    Component,
    RuleSet,
    /// The subject (the object that the operation is about), as a JSON object.
    Subject,
    /// The subject as the text `Kind/name` or `Kind/name/item`.
    SubjectText,
    /// Namespace of the subject, printed as `namespace`.
    SubjectNamespace,
    Phase,
    State,
    Reason,
    Message,
    Progress,
    /// True if the operation is in flight and its condition `Overdue` is true.
    Overdue,
    /// True if the operation is in flight and its condition `Stalled` is true.
    Stalled,
    Started,
    Completed,
    /// Seconds since the start. No value if the start is unknown, or if [`OperationJson::at`] has
    /// not set the current time.
    AgeSeconds,
    Labels,
}

/// The fields of an operation that a command has chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationJson<'a> {
    operation: &'a ListedOperation,
    fields: &'static [JsonField],
    /// True if an optional field without a value is also printed.
    includes_empty: bool,
    now: Option<Timestamp>,
}

impl ListedOperation {
    /// Chooses the printed fields and their order. An optional field without a value is left out.
    pub(crate) fn json(&self, fields: &'static [JsonField]) -> OperationJson<'_> {
        OperationJson {
            operation: self,
            fields,
            includes_empty: false,
            now: None,
        }
    }

    /// Chooses the printed fields and their order. An optional field without a value is printed as
    /// `null` or as the empty text.
    pub(crate) fn json_with_empty_fields(&self, fields: &'static [JsonField]) -> OperationJson<'_> {
        OperationJson {
            includes_empty: true,
            ..self.json(fields)
        }
    }
}

impl OperationJson<'_> {
    /// Sets the current time, from which the age is computed.
    pub(crate) fn at(self, now: Timestamp) -> Self {
        Self {
            now: Some(now),
            ..self
        }
    }

    /// Adds a field whose value can be absent.
    fn optional<M: SerializeMap>(
        &self,
        map: &mut M,
        key: &str,
        value: Option<&impl Serialize>,
    ) -> Result<(), M::Error> {
        if value.is_some() || self.includes_empty {
            map.serialize_entry(key, &value)?;
        }
        Ok(())
    }

    /// Adds a field whose text can be empty.
    fn text<M: SerializeMap>(&self, map: &mut M, key: &str, text: &str) -> Result<(), M::Error> {
        if !text.is_empty() || self.includes_empty {
            map.serialize_entry(key, text)?;
        }
        Ok(())
    }
}

impl Serialize for OperationJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let it = self.operation;
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields {
            match field {
                JsonField::Name => map.serialize_entry("name", &it.name)?,
                JsonField::Namespace => {
                    self.optional(&mut map, "namespace", it.namespace.as_ref())?;
                }
                JsonField::Operation => map.serialize_entry("operation", &it.operation)?,
                JsonField::Item => self.optional(&mut map, "item", it.item.as_ref())?,
                JsonField::Component => map.serialize_entry("component", &it.component)?,
                JsonField::RuleSet => map.serialize_entry("ruleSet", &it.rule_set)?,
                JsonField::Subject => map.serialize_entry("subject", &it.subject)?,
                JsonField::SubjectText => map.serialize_entry("subject", &it.subject_name())?,
                JsonField::SubjectNamespace => {
                    self.optional(&mut map, "namespace", it.subject.namespace.as_ref())?;
                }
                JsonField::Phase => map.serialize_entry("phase", it.phase())?,
                JsonField::State => map.serialize_entry("state", &it.state)?,
                JsonField::Reason => self.text(&mut map, "reason", &it.reason)?,
                JsonField::Message => self.text(&mut map, "message", &it.message)?,
                JsonField::Progress => self.optional(&mut map, "progress", it.progress.as_ref())?,
                JsonField::Overdue => map.serialize_entry("overdue", &it.is_overdue())?,
                JsonField::Stalled => map.serialize_entry("stalled", &it.is_stalled())?,
                JsonField::Started => {
                    self.optional(&mut map, "started", it.started.map(Time).as_ref())?;
                }
                JsonField::Completed => {
                    self.optional(&mut map, "completed", it.completed.map(Time).as_ref())?;
                }
                JsonField::AgeSeconds => {
                    let age = self.now.and_then(|now| it.age(now));
                    self.optional(&mut map, "ageSeconds", age.as_ref())?;
                }
                JsonField::Labels => map.serialize_entry("labels", &it.labels)?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::to_string;

    #[test]
    fn fields_are_printed_in_the_chosen_order() {
        let operation = ListedOperation {
            name: "a-moving".to_owned(),
            state: "Failing".to_owned(),
            ..ListedOperation::default()
        };
        let fields = &[
            JsonField::State,
            JsonField::Item,
            JsonField::Message,
            JsonField::Name,
        ];
        let json =
            to_string(&operation.json(fields)).expect("a map with string keys can be encoded");
        assert_eq!(json, r#"{"state":"Failing","name":"a-moving"}"#);
        let json = to_string(&operation.json_with_empty_fields(fields))
            .expect("a map with string keys can be encoded");
        assert_eq!(
            json,
            r#"{"state":"Failing","item":null,"message":"","name":"a-moving"}"#
        );
    }
}
