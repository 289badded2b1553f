//! The facts of an object that selectors, tables, metrics and persistence use. The texts stay in
//! the object's JSON, and the facts contain their places. Otherwise an index of 10,000 operations
//! would hold each text twice, and a list would read memory in ten places for each row.
//!
//! The tracker records the places while it encodes an operation. A follower finds them once for
//! each change, when it decodes the leader's JSON.

use ifo_api::live::{Phase, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A text of an object. All texts except the name and the start belong to operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    /// `metadata.name`.
    Name,
    /// `metadata.creationTimestamp`, the start of an operation.
    Started,
    /// `spec.operation`.
    Operation,
    /// `spec.ruleSet`.
    RuleSet,
    /// `spec.component`.
    Component,
    /// `spec.item`.
    Item,
    /// `spec.subject.apiVersion`.
    SubjectApiVersion,
    /// `spec.subject.kind`.
    SubjectKind,
    /// `spec.subject.name`.
    SubjectName,
    /// `spec.subject.namespace`.
    SubjectNamespace,
    /// `spec.subject.uid`.
    SubjectUid,
    /// `status.phase`.
    Phase,
    /// `status.state`.
    State,
    /// `status.reason`.
    Reason,
    /// `status.message`. The JSON has no such field if the operation has no message.
    Message,
    /// `status.completed`.
    Completed,
}

/// Number of text fields.
pub const TEXT_COUNT: usize = TextField::Completed as usize + 1;

/// The place of a text in the JSON, with its quotes. The default stands for an absent text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSpan {
    start: u32,
    length: u32,
}

/// The facts of an object. A fact is absent if the object does not have it, or if this release does
/// not know its value. Objects other than operations have only labels and a creation time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectFacts {
    /// Keys and values of `metadata.labels`.
    pub(super) labels: Box<[(TextSpan, TextSpan)]>,
    pub(super) texts: [TextSpan; TEXT_COUNT],
    /// `metadata.creationTimestamp`, the start of an operation.
    pub started: Option<Timestamp>,
    /// `status.phase`.
    pub phase: Option<Phase>,
    /// `status.state`.
    pub state: Option<State>,
    /// `status.progress`, in percent.
    pub progress: Option<u8>,
    /// `status.completed`.
    pub completed: Option<Timestamp>,
}

/// An operation that this process has encoded.
#[derive(Clone, Debug)]
pub struct EncodedOperation {
    /// The object, without a resourceVersion.
    pub json: Vec<u8>,
    /// The place of the JSON of `metadata`, which has at least one member.
    pub metadata: Range<usize>,
    /// The facts of the object.
    pub facts: ObjectFacts,
}

/// A decoded object, before its version is set.
#[derive(Debug)]
pub struct DecodedObject {
    /// The place of the JSON of `metadata`.
    pub metadata: Range<usize>,
    /// The place of the JSON of `metadata.resourceVersion`, with its quotes.
    pub version: Option<Range<usize>>,
    /// True if `metadata` has members.
    pub has_metadata: bool,
    /// The facts of the object.
    pub facts: ObjectFacts,
}

impl DecodedObject {
    /// Decodes an object. Facts with an unknown type or value are left out, because a leader of a
    /// neighbouring release may write other values.
    ///
    /// # Errors
    ///
    /// The JSON is not an object with `metadata`, or `resourceVersion` is not a string.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
        u32::try_from(text.len()).map_err(|_| serde_json::Error::custom("4 GiB or more"))?;
        let object: WireObject<'_> = serde_json::from_str(text)?;
        let metadata = object.metadata.get();
        // Serde also accepts an array for a struct.
        if !text.trim_start().starts_with('{') || !metadata.starts_with('{') {
            return Err(serde_json::Error::custom("an object has metadata"));
        }
        let wire: WireMetadata<'_> = serde_json::from_str(metadata)?;
        let version = wire.resource_version.map(RawValue::get);
        if version.is_some_and(|version| !version.starts_with('"')) {
            let error = "a resourceVersion is a string";
            return Err(serde_json::Error::custom(error));
        }
        Ok(Self {
            metadata: place(metadata, text),
            version: version.map(|version| place(version, text)),
            has_metadata: metadata[1..].trim_start() != "}",
            facts: ObjectFacts::new(&object, &wire, text),
        })
    }
}

impl ObjectFacts {
    fn new(object: &WireObject<'_>, metadata: &WireMetadata<'_>, text: &str) -> Self {
        let spec: WireSpec<'_> = borrowed(object.spec);
        let subject: WireSubject<'_> = borrowed(spec.subject);
        let status: WireStatus<'_> = borrowed(object.status);
        let labels: LabelLiterals<'_> = borrowed(metadata.labels);
        let span = |literal: &RawValue| TextSpan::of(literal, text);
        let labels = labels.0.iter();
        let texts = [
            metadata.name,
            metadata.creation_timestamp,
            spec.operation,
            spec.rule_set,
            spec.component,
            spec.item,
            subject.api_version,
            subject.kind,
            subject.name,
            subject.namespace,
            subject.uid,
            status.phase,
            status.state,
            status.reason,
            status.message,
            status.completed,
        ];
        Self {
            labels: labels
                .map(|(key, value)| (span(key), span(value)))
                .collect(),
            texts: texts.map(|literal| literal.map(span).unwrap_or_default()),
            started: value(metadata.creation_timestamp).map(|Time(time)| time),
            phase: value(status.phase),
            state: value(status.state),
            progress: value(status.progress),
            completed: value(status.completed).map(|Time(time)| time),
        }
    }

    /// Moves all places after `from` by `by` bytes, because the JSON was moved.
    pub fn shift(&mut self, from: usize, by: isize) {
        let labels = self.labels.iter_mut();
        let labels = labels.flat_map(|(key, value)| [key, value]);
        for span in labels.chain(&mut self.texts) {
            let start = span.start as usize;
            if span.length > 0 && start >= from {
                // The decoded JSON has less than 4 GiB, and a version has 20 digits at most.
                span.start = u32::try_from(start.saturating_add_signed(by)).unwrap_or_default();
            }
        }
    }

    /// The approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.labels)
    }
}

impl TextSpan {
    /// The place from `start` to `end`. JSON of 4 GiB does not occur.
    pub fn new(start: usize, end: usize) -> Self {
        match (u32::try_from(start), u32::try_from(end - start)) {
            (Ok(start), Ok(length)) => Self { start, length },
            _ => Self::default(),
        }
    }

    /// The place of a literal in `text`. A value that is not a string counts as absent.
    fn of(literal: &RawValue, text: &str) -> Self {
        let literal = literal.get();
        if !literal.starts_with('"') {
            return Self::default();
        }
        let range = place(literal, text);
        Self::new(range.start, range.end)
    }

    /// The literal with its quotes. None if the text is absent.
    fn literal(self, json: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        let literal = json.get(start..start + self.length as usize)?;
        (!literal.is_empty()).then_some(literal)
    }
}

/// The texts of an object, read from its JSON.
#[derive(Debug)]
pub struct ObjectTexts<'a> {
    /// The JSON of the whole object that the facts belong to.
    pub json: Cow<'a, [u8]>,
    /// The facts with the places of the texts.
    pub facts: &'a ObjectFacts,
}

impl ObjectTexts<'_> {
    /// The text. None if it is absent.
    pub fn text(&self, field: TextField) -> Option<Cow<'_, str>> {
        unescaped(self.literal(field)?)
    }

    /// The text as a JSON string with its quotes, as it is in the object.
    pub fn literal(&self, field: TextField) -> Option<&[u8]> {
        self.facts.texts[field as usize].literal(&self.json)
    }

    /// The value of a label. None if the object does not have the label.
    pub fn label(&self, wanted: &str) -> Option<Cow<'_, str>> {
        let mut labels = self.labels();
        labels.find_map(|(key, value)| (key == wanted).then_some(value))
    }

    /// Keys and values of the labels in the order of the JSON.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let text = |span: TextSpan| unescaped(span.literal(&self.json)?);
        let labels = self.facts.labels.iter();
        labels.filter_map(move |(key, value)| Some((text(*key)?, text(*value)?)))
    }
}

/// Decodes a JSON string. Most strings have no escapes and are borrowed.
fn unescaped(literal: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(literal).ok()?;
    if !text.contains('\\') {
        return text.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed);
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
}

/// The place of `part` in `whole`. `part` must be borrowed from `whole`.
fn place(part: &str, whole: &str) -> Range<usize> {
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
    #[serde(borrow, default, deserialize_with = "present")]
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
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    progress: Option<&'a RawValue>,
    #[serde(borrow)]
    completed: Option<&'a RawValue>,
}

/// The JSON strings of labels. Empty if a value is not a string.
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
                        return Err(A::Error::custom("a label is a string"));
                    }
                    labels.push((key, value));
                }
                Ok(LabelLiterals(labels))
            }
        }
        deserializer.deserialize_map(LabelVisitor)
    }
}

/// Decodes a value that borrows from the JSON. Returns the default for another type.
fn borrowed<'a, T: Deserialize<'a> + Default>(json: Option<&'a RawValue>) -> T {
    json.and_then(|json| serde_json::from_str(json.get()).ok())
        .unwrap_or_default()
}

/// Decodes a value. None if it has another type or an unknown value.
fn value<T: DeserializeOwned>(json: Option<&RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// Reads a member that may be null. `Option` alone would treat null as an absent member.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(json: &str) -> ObjectFacts {
        DecodedObject::decode(json.as_bytes()).unwrap().facts
    }

    #[test]
    fn unknown_enum_values_do_not_hide_other_facts() {
        let json = r#"{
            "metadata": {"labels": {"a": "b", "c\u0064": "\"e"}, "creationTimestamp": 7, "new": 1},
            "spec": {"operation": "Mi\u0067rating", "component": ["x"], "subject": {"kind": "VM", "uid": {}}},
            "status": {"phase": "Active", "state": "Paused", "progress": 4000, "message": null, "reason": "R"}
        }"#;
        let facts = facts(json);
        assert_eq!(facts.phase, Some(Phase::Active));
        assert_eq!((facts.state, facts.progress), (None, None));
        assert_eq!((facts.started, facts.completed), (None, None));
        let texts = ObjectTexts {
            json: json.as_bytes().into(),
            facts: &facts,
        };
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
    fn an_object_that_is_no_operation_has_no_facts() {
        for rest in ["", r#","spec":[1]"#, r#","status":"x""#, r#","spec":null"#] {
            let json = format!(r#"{{"metadata":{{}}{rest}}}"#);
            assert_eq!(facts(&json), ObjectFacts::default(), "{json}");
        }
    }

    #[test]
    fn facts_are_small() {
        assert!(size_of::<ObjectFacts>() <= 200);
    }
}
