//! The positions of an object's texts in the short form of its JSON. In the short form, two bytes
//! replace each frequent member key (see [`short_key_json`]).
//!
//! The index (the operations and records in memory) holds each text only once, as a part of this
//! JSON. Selectors and tables read the texts with [`ObjectTexts`].

use super::decode_object_facts::ObjectFacts;
use super::short_key_json;
use std::borrow::Cow;

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
pub(super) const TEXT_COUNT: usize = TextField::Completed as usize + 1;

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

/// The positions of the texts of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextPositions {
    /// Keys and values of `metadata.labels`.
    pub(super) labels: Box<[LabelSpan]>,
    /// The position of each [`TextField`].
    pub(super) texts: [TextSpan; TEXT_COUNT],
}

impl TextPositions {
    /// Adds `by` to all positions at or after `from`, because the JSON text after `from` has moved.
    pub fn shift(&mut self, from: usize, by: isize) {
        let labels = self.labels.iter_mut().map(|label| &mut label.start);
        let texts = self.texts.iter_mut().filter(|span| span.length > 0);
        for start in labels.chain(texts.map(|span| &mut span.start)) {
            let before = *start as usize;
            if before >= from {
                // Texts move by a few bytes, when a resourceVersion is inserted or replaced. So the
                // conversion fails only if the JSON has almost 4 GiB.
                *start = u32::try_from(before.saturating_add_signed(by)).unwrap_or_default();
            }
        }
    }

    /// Appends the positions to `out`, in a form that takes about a third of the memory of `self`.
    /// [`ObjectTexts::decode`] reads this form.
    ///
    /// The form contains the length of each text, and the distance of its start from the end of the
    /// previous text. For a label, the form contains the lengths of key and value, and the distance
    /// of the key. Most of these numbers are below 64, and take one byte.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut end = 0;
        for span in self.texts {
            append_number(span.length, out);
            if span.length > 0 {
                append_distance(&mut end, span.start, span.length, out);
            }
        }
        for label in &self.labels {
            append_number(label.key.into(), out);
            append_number(label.value.into(), out);
            append_distance(&mut end, label.start, label.key.into(), out);
        }
    }
}

/// Decodes the positions of labels. This iterator ends before the first position that is not
/// encoded correctly.
#[derive(Clone, Debug)]
struct EncodedLabels<'a> {
    rest: &'a [u8],
    /// The end of the previous text field or label key.
    end: u32,
}

impl Iterator for EncodedLabels<'_> {
    type Item = LabelSpan;

    fn next(&mut self) -> Option<LabelSpan> {
        let key = take_number(&mut self.rest)?.try_into().ok()?;
        let value = take_number(&mut self.rest)?.try_into().ok()?;
        let start = take_distance(&mut self.rest, &mut self.end, u32::from(key))?;
        Some(LabelSpan { start, key, value })
    }
}

/// Appends the distance from `end`, the end of the previous text, to `start`. Then sets `end` to
/// the end of this text. A distance can be negative, so it has the zigzag encoding of Protocol
/// Buffers: the lowest bit is the sign.
fn append_distance(end: &mut u32, start: u32, length: u32, out: &mut Vec<u8>) {
    let distance = start.wrapping_sub(*end).cast_signed();
    append_number(((distance << 1) ^ (distance >> 31)).cast_unsigned(), out);
    *end = start.wrapping_add(length);
}

/// Removes a distance from the start of `rest`, and returns the start of the text. Sets `end` to
/// the end of the text. Returns None if `rest` does not start with a number.
fn take_distance(rest: &mut &[u8], end: &mut u32, length: u32) -> Option<u32> {
    let number = take_number(rest)?;
    let distance = (number >> 1) ^ (number & 1).wrapping_neg();
    let start = end.wrapping_add(distance);
    *end = start.wrapping_add(length);
    Some(start)
}

/// Appends a number in the LEB128 format of WebAssembly: 7 bits in each byte, the lowest bits
/// first. The highest bit of each byte but the last is set.
fn append_number(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Removes a number from the start of `rest`. Returns None if `rest` does not start with a number.
fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let mut byte = *rest.split_off_first()?;
    let mut number = u32::from(byte & 0x7f);
    let mut shift = 7;
    while byte & 0x80 != 0 {
        byte = *rest.split_off_first()?;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
    }
    Some(number)
}

impl TextSpan {
    /// Creates the position from `start` to `end`. Positions beyond 4 GiB become absent.
    pub fn new(start: usize, end: usize) -> Self {
        match (u32::try_from(start), u32::try_from(end - start)) {
            (Ok(start), Ok(length)) => Self { start, length },
            _ => Self::default(),
        }
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

    /// Returns the key and the value. The value is a JSON string, including its quotes. The key is
    /// also a JSON string, or two bytes if the short form replaces this key.
    fn literals(self, short_json: &[u8]) -> Option<(&[u8], &[u8])> {
        let label = short_json.get(self.start as usize..)?;
        let (key, rest) = label.split_at_checked(self.key.into())?;
        // The bytes before the value are white space. If the key is a JSON string, they also
        // include a colon.
        let value = rest.get(rest.iter().position(|byte| *byte == b'"')?..)?;
        Some((key, value.get(..self.value.into())?))
    }
}

/// Reads the texts of an object from its JSON.
#[derive(Clone, Debug)]
pub struct ObjectTexts<'a> {
    /// Facts of the object.
    pub facts: &'a ObjectFacts,
    /// Short form of the JSON of the whole object.
    short_json: &'a [u8],
    texts: [TextSpan; TEXT_COUNT],
    labels: EncodedLabels<'a>,
}

impl<'a> ObjectTexts<'a> {
    /// Decodes the positions of the texts. `positions` is the result of [`TextPositions::encode`].
    /// A position that is not encoded correctly becomes absent.
    ///
    /// The positions of labels are decoded only when labels are read, because most tables contain
    /// no labels.
    pub fn decode(short_json: &'a [u8], positions: &'a [u8], facts: &'a ObjectFacts) -> Self {
        let (mut rest, mut end) = (positions, 0);
        let mut texts = [TextSpan::default(); TEXT_COUNT];
        for span in &mut texts {
            let length = take_number(&mut rest).unwrap_or_default();
            if length > 0 {
                let start = take_distance(&mut rest, &mut end, length);
                *span = start.map_or_else(TextSpan::default, |start| TextSpan { start, length });
            }
        }
        Self {
            facts,
            short_json,
            texts,
            labels: EncodedLabels { rest, end },
        }
    }

    /// Returns the JSON of the whole object.
    pub fn whole_json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        short_key_json::append_long(self.short_json, &mut json);
        json
    }

    /// Returns the value of a text field. Returns None if the field is absent, or if its value is a
    /// list.
    pub fn text(&self, field: TextField) -> Option<Cow<'a, str>> {
        decode_string(self.literal(field)?)
    }

    /// Returns the value of a text field as the JSON in the object: a string including its quotes,
    /// or the list of [`TextField::Nodes`]. Returns None if the field is absent.
    pub fn literal(&self, field: TextField) -> Option<&'a [u8]> {
        self.texts[field as usize].literal(self.short_json)
    }

    /// Returns the names of the nodes that the operation touches. If the field is absent, the
    /// result is empty.
    pub fn nodes(&self) -> Vec<Cow<'a, str>> {
        let literal = self.literal(TextField::Nodes);
        let decoded = literal.and_then(|literal| serde_json::from_slice(literal).ok());
        decoded.unwrap_or_default()
    }

    /// Returns the value of a label, or None if the object does not have the label.
    pub fn label(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut labels = self.labels();
        labels.find_map(|(key, value)| (key == wanted).then_some(value))
    }

    /// Returns keys and values of the labels, in the same order as in the JSON.
    pub fn labels(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        let short_json = self.short_json;
        self.labels.clone().filter_map(move |label| {
            let (key, value) = label.literals(short_json)?;
            let key = match short_key_json::long_key(key) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn label_span()(start in any::<u32>(), key in any::<u16>(), value in any::<u16>()) -> LabelSpan {
            LabelSpan { start, key, value }
        }
    }

    proptest! {
        #[test]
        fn encoded_positions_decode_to_the_original(
            texts in prop::array::uniform18((any::<u32>(), prop_oneof![0..300_u32, any::<u32>()])),
            labels in prop::collection::vec(label_span(), 0..20),
        ) {
            let texts = texts.map(|(start, length)| match length {
                0 => TextSpan::default(),
                _ => TextSpan { start, length },
            });
            let positions = TextPositions { labels: labels.into(), texts };
            let mut bytes = Vec::new();
            positions.encode(&mut bytes);
            let facts = ObjectFacts::default();
            let decoded = ObjectTexts::decode(b"", &bytes, &facts);
            prop_assert_eq!(decoded.texts, positions.texts);
            prop_assert!(decoded.labels.eq(positions.labels));
        }

        #[test]
        fn decoding_of_other_bytes_does_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let facts = ObjectFacts::default();
            let decoded = ObjectTexts::decode(b"{}", &bytes, &facts);
            prop_assert_eq!(decoded.text(TextField::Name), None);
            prop_assert_eq!(decoded.labels().count(), 0);
        }
    }
}
