//! What selectors, tables, metrics and persistence read of an object, with types. The tracker
//! makes the facts of an operation when it encodes it. A follower decodes them once from the
//! JSON that its leader has encoded.

use crate::rules::Labels;
use ifo_api::live::{Phase, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What readers need of an object apart from its JSON. A field is `None` if the object lacks
/// it, or if this release does not know its value. Other kinds than operations have labels
/// and a creation time at most.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectFacts {
    /// `metadata.labels`.
    pub labels: Labels,
    /// `metadata.creationTimestamp`, the start of an operation.
    pub started: Option<Timestamp>,
    /// `spec.operation`.
    pub operation: Option<Arc<str>>,
    /// `spec.ruleSet`.
    pub rule_set: Option<Arc<str>>,
    /// `spec.component`.
    pub component: Option<Arc<str>>,
    /// `spec.item`.
    pub item: Option<Arc<str>>,
    /// `spec.subject`.
    pub subject: SubjectFacts,
    /// `status.phase`.
    pub phase: Option<Phase>,
    /// `status.state`.
    pub state: Option<State>,
    /// `status.reason`.
    pub reason: Option<Arc<str>>,
    /// `status.message`. The JSON of an operation without a message does not have the field.
    pub message: Option<Arc<str>>,
    /// `status.progress`, in percent.
    pub progress: Option<u8>,
    /// `status.completed`.
    pub completed: Option<Timestamp>,
}

/// The subject of an operation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SubjectFacts {
    /// Group and version.
    #[serde(deserialize_with = "text")]
    pub api_version: Option<Arc<str>>,
    /// Kind.
    #[serde(deserialize_with = "text")]
    pub kind: Option<Arc<str>>,
    /// Name.
    #[serde(deserialize_with = "text")]
    pub name: Option<Arc<str>>,
    /// Namespace.
    #[serde(deserialize_with = "text")]
    pub namespace: Option<Arc<str>>,
    /// UID.
    #[serde(deserialize_with = "text")]
    pub uid: Option<Arc<str>>,
}

/// An operation that this process has encoded.
#[derive(Clone, Debug)]
pub struct EncodedOperation {
    /// The object, without a resourceVersion.
    pub json: Vec<u8>,
    /// Where the JSON of `metadata` is. It has at least one member.
    pub metadata: Range<usize>,
    /// What readers need of it.
    pub facts: Arc<ObjectFacts>,
}

impl ObjectFacts {
    /// Decodes what an object says. What is missing or has another type is left out, because
    /// a leader of a neighbouring release may write other values.
    pub fn decode(json: &[u8]) -> Self {
        let WireObject {
            metadata,
            spec,
            status,
        } = serde_json::from_slice(json).unwrap_or_default();
        let labels = metadata.labels.into_iter();
        Self {
            labels: labels
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
            started: metadata.creation_timestamp.map(|time| time.0),
            operation: spec.operation,
            rule_set: spec.rule_set,
            component: spec.component,
            item: spec.item,
            subject: spec.subject,
            phase: status.phase,
            state: status.state,
            reason: status.reason,
            message: status.message,
            progress: status.progress,
            completed: status.completed.map(|time| time.0),
        }
    }

    /// About how many bytes of memory they take up, as if none of the texts were shared.
    pub fn weight(&self) -> usize {
        let Self {
            labels, subject, ..
        } = self;
        let texts = [
            &self.operation,
            &self.rule_set,
            &self.component,
            &self.item,
            &self.reason,
            &self.message,
            &subject.api_version,
            &subject.kind,
            &subject.name,
            &subject.namespace,
            &subject.uid,
        ];
        let texts = texts.into_iter().flatten().map(|text| text.len());
        let labels = labels.values().map(|value| value.len() + PAIR);
        size_of::<Self>() + texts.sum::<usize>() + labels.sum::<usize>()
    }
}

/// Bytes of the references to the key and the value of one label.
const PAIR: usize = 2 * size_of::<Arc<str>>();

/// The fields of an object that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireObject {
    #[serde(deserialize_with = "lenient")]
    metadata: WireMetadata,
    #[serde(deserialize_with = "lenient")]
    spec: WireSpec,
    #[serde(deserialize_with = "lenient")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMetadata {
    #[serde(deserialize_with = "lenient")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "lenient")]
    creation_timestamp: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSpec {
    #[serde(deserialize_with = "text")]
    operation: Option<Arc<str>>,
    #[serde(deserialize_with = "text")]
    rule_set: Option<Arc<str>>,
    #[serde(deserialize_with = "text")]
    component: Option<Arc<str>>,
    #[serde(deserialize_with = "text")]
    item: Option<Arc<str>>,
    #[serde(deserialize_with = "lenient")]
    subject: SubjectFacts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(deserialize_with = "lenient")]
    phase: Option<Phase>,
    #[serde(deserialize_with = "lenient")]
    state: Option<State>,
    #[serde(deserialize_with = "text")]
    reason: Option<Arc<str>>,
    #[serde(deserialize_with = "text")]
    message: Option<Arc<str>>,
    #[serde(deserialize_with = "lenient")]
    progress: Option<u8>,
    #[serde(deserialize_with = "lenient")]
    completed: Option<Time>,
}

/// Reads a value. The default stands for one of another type.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    let json = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(json.get()).unwrap_or_default())
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let text: Option<String> = lenient(deserializer)?;
    Ok(text.map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_this_release_does_not_know_hide_no_others() {
        let json = r#"{
            "metadata": {"labels": {"a": "b"}, "creationTimestamp": 7, "new": 1},
            "spec": {"operation": "Mi\u0067rating", "component": ["x"], "subject": {"kind": "VM", "uid": {}}},
            "status": {"phase": "Active", "state": "Paused", "progress": 4000, "message": null, "reason": "R"}
        }"#;
        let facts = ObjectFacts::decode(json.as_bytes());
        let expected = ObjectFacts {
            labels: [("a".into(), "b".into())].into_iter().collect(),
            operation: Some("Migrating".into()),
            subject: SubjectFacts {
                kind: Some("VM".into()),
                ..SubjectFacts::default()
            },
            phase: Some(Phase::Active),
            reason: Some("R".into()),
            ..ObjectFacts::default()
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_no_operation_has_no_facts() {
        for json in [
            "",
            "7",
            "[]",
            "{\"spec\":[1]}",
            "{\"status\":\"x\"",
            "{\"spec\":{},\"spec\":{}}",
        ] {
            let facts = ObjectFacts::decode(json.as_bytes());
            assert_eq!(facts, ObjectFacts::default(), "{json}");
        }
    }
}
