//! The facts of an object: the values that selectors, tables, metrics and persistence need. Times,
//! numbers, phases and states are decoded. For each text, the facts contain only its position in
//! the short form of the object's JSON, so that the index does not hold each text twice.
//!
//! On the leader, the tracker records the positions while it encodes an operation. A follower
//! decodes the facts from the JSON that it receives from the leader.

use super::short_json::{self, ShortJson};
use ifo_api::live::{Phase, State};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The text fields of an object. Every object has a name and a creation time. Only operations, and
/// records of completed operations, have the other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    /// The field `metadata.name`.
    Name,
    /// The field `metadata.creationTimestamp`, which is the start of an operation.
    Started,
    /// The field `spec.operation`.
    Operation,
    /// The field `spec.ruleSet`.
    RuleSet,
    /// The field `spec.component`.
    Component,
    /// The field `spec.item`.
    Item,
    /// The field `spec.work`.
    Work,
    /// The field `spec.subject.apiVersion`.
    SubjectApiVersion,
    /// The field `spec.subject.kind`.
    SubjectKind,
    /// The field `spec.subject.name`.
    SubjectName,
    /// The field `spec.subject.namespace`.
    SubjectNamespace,
    /// The field `spec.subject.uid`.
    SubjectUid,
    /// The field `status.phase`.
    Phase,
    /// The field `status.state`. For a record, the field `status.outcome`.
    State,
    /// The field `status.reason`.
    Reason,
    /// The field `status.message`. It is absent if the operation has no message.
    Message,
    /// The field `status.nodes`, a list of strings. It is absent if the operation touches no nodes.
    Nodes,
    /// The field `status.completed`.
    Completed,
}

/// Number of variants of [`TextField`].
pub const TEXT_COUNT: usize = TextField::Completed as usize + 1;

/// The position of a JSON string (including its quotes) or of a JSON list of strings in the short
/// form of an object's JSON. The default value stands for an absent text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextSpan {
    start: u32,
    length: u32,
}

/// The position of a label in the short form of an object's JSON: the start of its key, and the
/// lengths of key and value. The value begins at the first quote after the key. An operation has
/// about ten labels. To save memory, this type has half the size of two [`TextSpan`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelSpan {
    start: u32,
    key: u16,
    value: u16,
}

/// The facts of an object. A fact is None if the object does not have the field, or if this release
/// does not know the value. Objects that are neither operations nor records of completed operations
/// have only labels, a name and a creation time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectFacts {
    /// Keys and values of `metadata.labels`.
    pub(super) labels: Box<[LabelSpan]>,
    pub(super) texts: [TextSpan; TEXT_COUNT],
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
    /// Facts of the operation, with positions in `short_json`.
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
    pub has_metadata: bool,
    /// Facts of the object, with positions in `short_json`.
    pub facts: ObjectFacts,
}

impl EncodedOperation {
    /// Returns the JSON of the object, without a resourceVersion.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        short_json::append_long(&self.short_json, &mut json);
        json
    }
}

impl DecodedObject {
    /// Decodes an object. A fact with an unknown type or value becomes None, because a leader that
    /// runs another release of `ifo-apiserver` may write values that this release does not know.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON is not an object with `metadata`, or if `resourceVersion` is
    /// not a string.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
        u32::try_from(text.len()).map_err(|_| serde_json::Error::custom("4 GiB or more"))?;
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
        Ok(Self {
            metadata: position(metadata),
            version: version.map(position),
            has_metadata: metadata[1..].trim_start() != "}",
            facts: ObjectFacts::new(&object, &wire, &position),
            short_json: short.bytes,
        })
    }
}

impl ObjectFacts {
    /// Decodes the facts. `position` returns the position of a part of the JSON in the short form.
    fn new(
        object: &WireObject<'_>,
        metadata: &WireMetadata<'_>,
        position: &impl Fn(&str) -> Range<usize>,
    ) -> Self {
        let spec: WireSpec<'_> = decode_or_default(object.spec);
        let subject: WireSubject<'_> = decode_or_default(spec.subject);
        let status: WireStatus<'_> = decode_or_default(object.status);
        let labels: LabelLiterals<'_> = decode_or_default(metadata.labels);
        let span = |literal: &RawValue| TextSpan::of(literal, position);
        let labels = labels.0.iter();
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
        let conditions: Vec<WireCondition<'_>> = decode_or_default(status.conditions);
        let is_true = |kind: &str| {
            let mut conditions = conditions.iter();
            let condition = conditions.find(|condition| condition.r#type == kind)?;
            Some(condition.status == "True")
        };
        Self {
            labels: labels
                .filter_map(|(key, value)| LabelSpan::new(span(key), span(value)))
                .collect(),
            texts: texts.map(|literal| literal.map(span).unwrap_or_default()),
            started: decode(metadata.creation_timestamp).map(|Time(time)| time),
            phase: decode(status.phase),
            state: decode(status.state),
            progress: decode(status.progress),
            completed: decode(status.completed).map(|Time(time)| time),
            overdue: is_true("Overdue"),
            stalled: is_true("Stalled"),
        }
    }

    /// Adds `by` to all positions at or after `from`, because the JSON text after `from` has moved.
    pub fn shift(&mut self, from: usize, by: isize) {
        let labels = self.labels.iter_mut().map(|label| &mut label.start);
        let texts = self.texts.iter_mut().filter(|span| span.length > 0);
        for start in labels.chain(texts.map(|span| &mut span.start)) {
            let before = *start as usize;
            if before >= from {
                // This fails only if the JSON has almost 4 GiB, because only a resourceVersion of
                // at most 20 digits is inserted.
                *start = u32::try_from(before.saturating_add_signed(by)).unwrap_or_default();
            }
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.labels)
    }
}

impl TextSpan {
    /// Creates the position from `start` to `end`. Positions beyond 4 GiB become absent.
    pub fn new(start: usize, end: usize) -> Self {
        match (u32::try_from(start), u32::try_from(end - start)) {
            (Ok(start), Ok(length)) => Self { start, length },
            _ => Self::default(),
        }
    }

    /// Creates the position of `literal`, which `position` returns. A value that is neither a string
    /// nor a list becomes absent.
    fn of(literal: &RawValue, position: &impl Fn(&str) -> Range<usize>) -> Self {
        let literal = literal.get();
        if !literal.starts_with(['"', '[']) {
            return Self::default();
        }
        let range = position(literal);
        Self::new(range.start, range.end)
    }

    /// Returns the JSON string (including its quotes) or the JSON list. Returns None if the text is
    /// absent.
    fn literal(self, short_json: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        let literal = short_json.get(start..start + self.length as usize)?;
        (!literal.is_empty()).then_some(literal)
    }
}

impl LabelSpan {
    /// Creates the position of a label. Returns None if the key or the value is absent or has
    /// 64 KiB or more. Kubernetes allows at most 317 bytes for a key and 63 bytes for a value.
    pub fn new(key: TextSpan, value: TextSpan) -> Option<Self> {
        let length = |span: TextSpan| u16::try_from(span.length).ok().filter(|it| *it > 0);
        Some(Self {
            start: key.start,
            key: length(key)?,
            value: length(value)?,
        })
    }

    /// Returns the key in its short form or as JSON string, and the value as JSON string. JSON
    /// strings have their quotes.
    fn literals(self, short_json: &[u8]) -> Option<(&[u8], &[u8])> {
        let label = short_json.get(self.start as usize..)?;
        let (key, rest) = label.split_at_checked(self.key.into())?;
        // Between a key that is a JSON string and its value, there is a colon, and white space.
        let value = rest.get(rest.iter().position(|byte| *byte == b'"')?..)?;
        Some((key, value.get(..self.value.into())?))
    }
}

/// Reads the texts of an object from its JSON.
#[derive(Debug)]
pub struct ObjectTexts<'a> {
    /// Short form of the JSON of the whole object that the facts belong to.
    pub short_json: Cow<'a, [u8]>,
    /// Facts with the positions of the texts.
    pub facts: &'a ObjectFacts,
}

impl ObjectTexts<'_> {
    /// Returns the JSON of the whole object.
    pub fn whole_json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        short_json::append_long(&self.short_json, &mut json);
        json
    }

    /// Returns the value of a text field. Returns None if the field is absent, or if its value is a
    /// list.
    pub fn text(&self, field: TextField) -> Option<Cow<'_, str>> {
        decode_string(self.literal(field)?)
    }

    /// Returns the value of a text field as the JSON in the object: a string including its quotes,
    /// or the list of [`TextField::Nodes`]. Returns None if the field is absent.
    pub fn literal(&self, field: TextField) -> Option<&[u8]> {
        self.facts.texts[field as usize].literal(&self.short_json)
    }

    /// Returns the names of the nodes that the operation touches. If the field is absent, the
    /// result is empty.
    pub fn nodes(&self) -> Vec<Cow<'_, str>> {
        let literal = self.literal(TextField::Nodes);
        let decoded = literal.and_then(|literal| serde_json::from_slice(literal).ok());
        decoded.unwrap_or_default()
    }

    /// Returns the value of a label, or None if the object does not have the label.
    pub fn label(&self, wanted: &str) -> Option<Cow<'_, str>> {
        let mut labels = self.labels();
        labels.find_map(|(key, value)| (key == wanted).then_some(value))
    }

    /// Returns keys and values of the labels, in the same order as in the JSON.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        let labels = self.facts.labels.iter();
        labels.filter_map(|label| {
            let (key, value) = label.literals(&self.short_json)?;
            let key = match short_json::long_key(key) {
                Some(key) => Cow::Borrowed(key),
                None => decode_string(key)?,
            };
            Some((key, decode_string(value)?))
        })
    }
}

/// Decodes a JSON string. Most strings have no escape sequences. Such a string is borrowed from the
/// JSON.
fn decode_string(literal: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(literal).ok()?;
    if !text.contains('\\') {
        return text.strip_prefix('"')?.strip_suffix('"').map(Cow::Borrowed);
    }
    serde_json::from_str(text).ok().map(Cow::Owned)
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
            short_json, facts, ..
        } = decode(json);
        assert_eq!(facts.phase, Some(Phase::Active));
        assert_eq!((facts.state, facts.progress), (None, None));
        assert_eq!((facts.started, facts.completed), (None, None));
        let texts = ObjectTexts {
            short_json: short_json.into(),
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
            assert_eq!(decode(&json).facts, ObjectFacts::default(), "{json}");
        }
    }

    #[test]
    fn facts_are_small() {
        assert!(size_of::<ObjectFacts>() <= 224);
    }
}
