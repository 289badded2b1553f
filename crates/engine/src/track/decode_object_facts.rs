//! The facts of an object: the times, numbers, phases and states that selectors, tables, metrics
//! and persistence need.
//!
//! On the leader, the tracker returns the facts when it encodes an operation. It also returns the
//! positions of the texts ([`TextPositions`]): the strings that selectors and tables read. A
//! follower decodes the facts and the positions from the JSON that it receives from the leader.
//!
//! The positions refer to the short form of the JSON, in which two bytes replace each frequent
//! member key (see [`ShortJson`]).

use super::short_key_json::{self, ShortJson};
use super::text_positions::{LabelSpan, TextPositions, TextSpan};
use ifo_api::live::{Phase, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The facts of an object. A fact is None if the object does not have the field, or if this release
/// does not know the value. So an object with neither a creation time nor a status has no facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectFacts {
    /// Value of `metadata.creationTimestamp`, which is the start of an operation.
    pub started: Option<Timestamp>,
    /// Value of `status.phase`.
    pub phase: Option<Phase>,
    /// Value of `status.state`. For a record, value of `status.outcome`.
    pub state: Option<State>,
    /// Value of `status.progress`, in percent.
    pub progress: Option<u8>,
    /// Value of `status.completed`.
    pub completed: Option<Timestamp>,
    /// True if the status of the condition `Overdue` is `True`. None if the condition is absent.
    pub overdue: Option<bool>,
    /// True if the status of the condition `Stalled` is `True`. None if the condition is absent.
    pub stalled: Option<bool>,
}

/// An operation that this process has encoded.
#[derive(Clone, Debug)]
pub struct EncodedOperation {
    /// Short form of the object's JSON, without a resourceVersion.
    pub short_json: Vec<u8>,
    /// Position of the value of `metadata` in `short_json`. The value has at least one member.
    pub metadata: Range<usize>,
    /// Positions of the texts in `short_json`.
    pub positions: TextPositions,
    /// Facts of the operation.
    pub facts: ObjectFacts,
}

/// An object that this process has decoded from JSON.
#[derive(Debug)]
pub struct DecodedObject {
    /// Short form of the JSON.
    pub short_json: Vec<u8>,
    /// Position of the value of `metadata` in `short_json`.
    pub metadata: Range<usize>,
    /// Position of the value of `metadata.resourceVersion` in `short_json`, including its quotes.
    pub version: Option<Range<usize>>,
    /// True if `metadata` has at least one member.
    pub has_metadata_members: bool,
    /// Positions of the texts in `short_json`.
    pub positions: TextPositions,
    /// Facts of the object.
    pub facts: ObjectFacts,
}

impl EncodedOperation {
    /// Returns the JSON of the object, without a resourceVersion.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        short_key_json::append_long(&self.short_json, &mut json);
        json
    }
}

impl DecodedObject {
    /// Decodes an object. A fact with an unknown type or value becomes None, because a leader that
    /// runs another release of `ifo-apiserver` may write values that this release does not know.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON is not an object with `metadata`, if `resourceVersion` is not a
    /// string, or if the JSON has 4 GiB or more.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
        u32::try_from(text.len())
            .map_err(|_| serde_json::Error::custom("the JSON has 4 GiB or more"))?;
        let object: WireObject<'_> = serde_json::from_str(text)?;
        let metadata = object.metadata.get();
        // Serde also decodes an array as a struct, so the first character is checked.
        if !text.trim_start().starts_with('{') || !metadata.starts_with('{') {
            return Err(serde_json::Error::custom(
                "the JSON is not an object with metadata",
            ));
        }
        let wire: WireMetadata<'_> = serde_json::from_str(metadata)?;
        let version = wire.resource_version.map(RawValue::get);
        if version.is_some_and(|version| !version.starts_with('"')) {
            let error = "the resourceVersion is not a string";
            return Err(serde_json::Error::custom(error));
        }
        let short = ShortJson::new(json);
        let position = |part: &str| short.convert(range_of(part, text));
        let (facts, positions) = facts_and_positions(&object, &wire, &position);
        Ok(Self {
            metadata: position(metadata),
            version: version.map(position),
            has_metadata_members: metadata[1..].trim_start() != "}",
            positions,
            facts,
            short_json: short.bytes,
        })
    }
}

/// Decodes the facts of an object, and finds its texts. `position` returns the position of a part
/// of the JSON in the short form.
fn facts_and_positions(
    object: &WireObject<'_>,
    metadata: &WireMetadata<'_>,
    position: &impl Fn(&str) -> Range<usize>,
) -> (ObjectFacts, TextPositions) {
    let spec: WireSpec<'_> = decode_or_default(object.spec);
    let subject: WireSubject<'_> = decode_or_default(spec.subject);
    let status: WireStatus<'_> = decode_or_default(object.status);
    let labels: LabelLiterals<'_> = decode_or_default(metadata.labels);
    let texts = [
        metadata.name,
        metadata.creation_timestamp,
        spec.operation,
        spec.rule_set,
        spec.component,
        spec.item,
        spec.work,
        subject.api_version,
        subject.kind,
        subject.name,
        subject.namespace,
        subject.uid,
        status.phase,
        status.state,
        status.reason,
        status.message,
        status.nodes,
        status.completed,
    ];
    // A value that is neither a string nor a list counts as absent.
    let span = |literal: &RawValue| {
        let literal = Some(literal.get()).filter(|it| it.starts_with(['"', '[']));
        let range = literal.map(position);
        range.map_or_else(TextSpan::default, |it| TextSpan::new(it.start, it.end))
    };
    let labels = labels.0.iter();
    let positions = TextPositions {
        labels: labels
            .filter_map(|(key, value)| LabelSpan::new(span(key), span(value)))
            .collect(),
        texts: texts.map(|literal| literal.map(span).unwrap_or_default()),
    };
    let conditions: Vec<WireCondition<'_>> = decode_or_default(status.conditions);
    let condition_status = |kind: &str| {
        let mut conditions = conditions.iter();
        let condition = conditions.find(|condition| condition.r#type == kind)?;
        Some(condition.status == "True")
    };
    let facts = ObjectFacts {
        started: decode(metadata.creation_timestamp).map(|Time(time)| time),
        phase: decode(status.phase),
        state: decode(status.state),
        progress: decode(status.progress),
        completed: decode(status.completed).map(|Time(time)| time),
        overdue: condition_status("Overdue"),
        stalled: condition_status("Stalled"),
    };
    (facts, positions)
}

/// Returns the position of `part` in `whole`. `part` must be borrowed from `whole`.
fn range_of(part: &str, whole: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

#[derive(Deserialize)]
struct WireObject<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata<'a> {
    #[serde(borrow, default, deserialize_with = "deserialize_present")]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    creation_timestamp: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    #[serde(borrow)]
    rule_set: Option<&'a RawValue>,
    #[serde(borrow)]
    component: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    work: Option<&'a RawValue>,
    #[serde(borrow)]
    subject: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSubject<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct WireStatus<'a> {
    #[serde(borrow)]
    phase: Option<&'a RawValue>,
    // A record has its final state in `outcome`.
    #[serde(borrow, alias = "outcome")]
    state: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
    #[serde(borrow)]
    completed: Option<&'a RawValue>,
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
}

/// The members of a condition that become facts.
#[derive(Deserialize)]
struct WireCondition<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

/// The keys and values of labels as JSON strings.
#[derive(Default)]
struct LabelLiterals<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for LabelLiterals<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelVisitor;
        impl<'de> Visitor<'de> for LabelVisitor {
            type Value = LabelLiterals<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut labels = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    if !value.get().starts_with('"') {
                        return Err(A::Error::custom("the value of a label is not a string"));
                    }
                    labels.push((key, value));
                }
                Ok(LabelLiterals(labels))
            }
        }
        deserializer.deserialize_map(LabelVisitor)
    }
}

/// Decodes a value that borrows from the JSON. Returns the default if the JSON has another type.
fn decode_or_default<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
        .unwrap_or_default()
}

/// Decodes a value. Returns None if the JSON has another type or an unknown value.
fn decode<T: DeserializeOwned>(json: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// Deserializes a member that may be null. With `Option` alone, a null would look like an absent
/// member.
fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::text_positions::{ObjectTexts, TextField};

    fn decode(json: &str) -> DecodedObject {
        DecodedObject::decode(json.as_bytes()).unwrap()
    }

    #[test]
    fn unknown_enum_values_do_not_hide_other_facts() {
        let json = r#"{
            "metadata": {"labels": {"a": "b", "c\u0064": "\"e"}, "creationTimestamp": 7, "new": 1},
            "spec": {"operation": "Mi\u0067rating", "component": ["x"], "subject": {"kind": "VM", "uid": {}}},
            "status": {"phase": "Active", "state": "Paused", "progress": 4000, "message": null, "reason": "R"}
        }"#;
        let DecodedObject {
            short_json,
            positions,
            facts,
            ..
        } = decode(json);
        assert_eq!(facts.phase, Some(Phase::Active));
        assert_eq!((facts.state, facts.progress), (None, None));
        assert_eq!((facts.started, facts.completed), (None, None));
        let mut encoded = Vec::new();
        positions.encode(&mut encoded);
        let texts = ObjectTexts::decode(&short_json, &encoded, &facts);
        for (field, expected) in [
            (TextField::Operation, Some("Migrating")),
            (TextField::RuleSet, None),
            (TextField::Component, None),
            (TextField::SubjectKind, Some("VM")),
            (TextField::SubjectUid, None),
            (TextField::Started, None),
            (TextField::Phase, Some("Active")),
            (TextField::State, Some("Paused")),
            (TextField::Reason, Some("R")),
            (TextField::Message, None),
        ] {
            assert_eq!(texts.text(field).as_deref(), expected, "{field:?}");
        }
        let literal = texts.literal(TextField::Operation);
        assert_eq!(literal, Some(&br#""Mi\u0067rating""#[..]));
        assert_eq!(texts.label("a").as_deref(), Some("b"));
        assert_eq!(texts.label("cd").as_deref(), Some("\"e"));
        assert_eq!(texts.label("d"), None);
    }

    #[test]
    fn absent_or_undecodable_fields_yield_no_facts() {
        for rest in ["", r#","spec":[1]"#, r#","status":"x""#, r#","spec":null"#] {
            let json = format!(r#"{{"metadata":{{}}{rest}}}"#);
            let decoded = decode(&json);
            assert_eq!(decoded.facts, ObjectFacts::default(), "{json}");
            assert_eq!(decoded.positions, TextPositions::default(), "{json}");
        }
    }

    #[test]
    fn facts_are_small() {
        assert!(size_of::<ObjectFacts>() <= 64);
        assert!(size_of::<TextPositions>() <= 160);
    }
}
