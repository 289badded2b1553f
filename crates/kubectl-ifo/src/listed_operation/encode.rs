//! Encodes an operation as JSON or YAML. Each command chooses the printed fields and their order.

use super::ListedOperation;
use ifo_api::live::SubjectReference;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

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
    /// True if a field without a value is also printed.
    includes_empty: bool,
    now: Option<Timestamp>,
}

impl ListedOperation {
    /// Chooses the printed fields and their order. A field without a value is left out.
    pub(crate) fn json(&self, fields: &'static [JsonField]) -> OperationJson<'_> {
        OperationJson {
            operation: self,
            fields,
            includes_empty: false,
            now: None,
        }
    }

    /// Chooses the printed fields and their order. A field without a value is printed as
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

    /// Returns the name and the value of a field. The value is `null` if it is absent.
    fn entry(&self, field: JsonField) -> (&'static str, Value) {
        let it = self.operation;
        match field {
            JsonField::Name => ("name", json!(it.name)),
            JsonField::Namespace => ("namespace", json!(it.namespace)),
            JsonField::Operation => ("operation", json!(it.operation)),
            JsonField::Item => ("item", json!(it.item)),
            JsonField::Component => ("component", json!(it.component)),
            JsonField::RuleSet => ("ruleSet", json!(it.rule_set)),
            JsonField::Subject => {
                let subject = serialize_subject(&it.subject, serde_json::value::Serializer);
                ("subject", subject.unwrap_or_default())
            }
            JsonField::SubjectText => ("subject", json!(it.subject_name())),
            JsonField::SubjectNamespace => ("namespace", json!(it.subject.namespace)),
            JsonField::Phase => ("phase", json!(it.phase())),
            JsonField::State => ("state", json!(it.state)),
            JsonField::Reason => ("reason", json!(it.reason)),
            JsonField::Message => ("message", json!(it.message)),
            JsonField::Progress => ("progress", json!(it.progress)),
            JsonField::Overdue => ("overdue", json!(it.is_overdue())),
            JsonField::Stalled => ("stalled", json!(it.is_stalled())),
            JsonField::Started => ("started", json!(it.started.map(Time))),
            JsonField::Completed => ("completed", json!(it.completed.map(Time))),
            JsonField::AgeSeconds => {
                let age = self.now.and_then(|now| it.age(now));
                ("ageSeconds", json!(age))
            }
            JsonField::Labels => ("labels", json!(it.labels)),
        }
    }
}

/// Encodes the reference to a subject, without its owners.
pub(crate) fn serialize_subject<S: Serializer>(
    subject: &SubjectReference,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map([
        ("apiVersion", Some(&*subject.api_version)),
        ("kind", Some(&*subject.kind)),
        ("namespace", subject.namespace.as_deref()),
        ("name", Some(&*subject.name)),
        ("uid", subject.uid.as_deref()),
    ])
}

impl Serialize for OperationJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields {
            let (key, value) = self.entry(*field);
            if self.includes_empty || !(value.is_null() || value == "") {
                map.serialize_entry(key, &value)?;
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
