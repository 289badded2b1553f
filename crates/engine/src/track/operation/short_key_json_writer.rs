//! Writes the JSON of an operation in its short form, in which two bytes replace each frequent key.
//! Also records the positions of the texts in the short form.
//!
//! The caller writes the members in the order of the type `InFlightOperation`. Serializing this
//! type itself would take twice the time, because its texts would have to be copied. The tests of
//! the tracker compare the JSON from this module with that of `InFlightOperation`.

use crate::rules::Labels;
use crate::track::decode_object_facts::{EncodedOperation, ObjectFacts};
use crate::track::short_key_json::{ShortKey, key, short_key};
use crate::track::text_positions::{LabelSpan, TEXT_COUNT, TextField, TextPositions, TextSpan};
use ifo_api::live::{ExpectedSource, Phase, StartTimeSource, State};
use jiff::Timestamp;
use jiff::tz::Offset;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

/// Initial capacity of the buffer, in bytes. The short form of most operations is smaller.
const TYPICAL_BYTES: usize = 2048;

/// The short form of an operation's JSON, and the positions of the texts and labels in it.
pub struct ShortJsonWriter {
    short_json: Vec<u8>,
    /// Position of the value of `metadata`.
    metadata: Range<usize>,
    texts: [TextSpan; TEXT_COUNT],
    labels: Vec<LabelSpan>,
}

impl ShortJsonWriter {
    /// Creates a writer that has written nothing.
    pub fn new() -> Self {
        Self {
            short_json: Vec::with_capacity(TYPICAL_BYTES),
            metadata: 0..0,
            texts: Default::default(),
            labels: Vec::new(),
        }
    }

    /// Writes an object. `write_members` writes the members of the object.
    pub fn object(&mut self, write_members: impl FnOnce(&mut Self)) {
        self.short_json.push(b'{');
        write_members(self);
        self.short_json.push(b'}');
    }

    /// Writes a member whose value is an object.
    pub fn member_object(&mut self, key: ShortKey, write_members: impl FnOnce(&mut Self)) {
        self.key(key);
        self.object(write_members);
    }

    /// Writes the member `metadata`, and records its position.
    pub fn metadata(&mut self, write_members: impl FnOnce(&mut Self)) {
        self.key(key!("metadata"));
        let start = self.short_json.len();
        self.object(write_members);
        self.metadata = start..self.short_json.len();
    }

    /// Writes a member whose value is a list of objects. For each element of `elements`,
    /// `write_members` writes the members of an object.
    pub fn list<T>(
        &mut self,
        key: ShortKey,
        elements: impl IntoIterator<Item = T>,
        mut write_members: impl FnMut(&mut Self, T),
    ) {
        self.key(key);
        self.short_json.push(b'[');
        for (index, element) in elements.into_iter().enumerate() {
            if index > 0 {
                self.short_json.push(b',');
            }
            self.object(|json| write_members(json, element));
        }
        self.short_json.push(b']');
    }

    /// Writes a member.
    pub fn member(&mut self, key: ShortKey, value: impl JsonValue) {
        self.key(key);
        self.value(value);
    }

    /// Writes a member like [`ShortJsonWriter::member`], if there is a value.
    pub fn member_if(&mut self, key: ShortKey, value: Option<impl JsonValue>) {
        if let Some(value) = value {
            self.member(key, value);
        }
    }

    /// Writes a member, and records the position of its value. `value` must be a text or,
    /// for [`TextField::Nodes`], a list of texts.
    pub fn text(&mut self, field: TextField, key: ShortKey, value: impl JsonValue) {
        self.key(key);
        let start = self.short_json.len();
        self.value(value);
        self.texts[field as usize] = TextSpan::new(start, self.short_json.len());
    }

    /// Writes a member like [`ShortJsonWriter::text`], if there is a value.
    pub fn text_if(&mut self, field: TextField, key: ShortKey, value: Option<impl JsonValue>) {
        if let Some(value) = value {
            self.text(field, key, value);
        }
    }

    /// Writes the member `labels`, and records the positions of keys and values.
    pub fn labels(&mut self, labels: &Labels) {
        self.labels.reserve_exact(labels.len());
        self.member_object(key!("labels"), |json| {
            for (index, (key, value)) in labels.iter().enumerate() {
                json.label(index == 0, key, value);
            }
        });
    }

    fn label(&mut self, is_first: bool, key: &str, value: &str) {
        let short = short_key(key.as_bytes());
        if short.is_none() && !is_first {
            self.short_json.push(b',');
        }
        let start = self.short_json.len();
        match short {
            Some(short) => self.key(short),
            None => self.value(key),
        }
        let key = TextSpan::new(start, self.short_json.len());
        if short.is_none() {
            self.short_json.push(b':');
        }
        let start = self.short_json.len();
        self.value(value);
        let value = TextSpan::new(start, self.short_json.len());
        self.labels.extend(LabelSpan::new(key, value));
    }

    /// Returns the encoded operation with these facts.
    pub fn finish(self, facts: ObjectFacts) -> EncodedOperation {
        EncodedOperation {
            short_json: self.short_json,
            metadata: self.metadata,
            positions: TextPositions {
                labels: self.labels.into(),
                texts: self.texts,
            },
            facts,
        }
    }

    fn key(&mut self, key: ShortKey) {
        self.short_json.extend_from_slice(&key.0);
    }

    fn value(&mut self, value: impl JsonValue) {
        value.append_to(&mut self.short_json);
    }
}

/// A value without members, such as a string or a list of strings, that can be written as JSON.
pub trait JsonValue {
    /// Appends the value as JSON.
    fn append_to(&self, out: &mut Vec<u8>);
}

impl<T: JsonValue + ?Sized> JsonValue for &T {
    fn append_to(&self, out: &mut Vec<u8>) {
        (**self).append_to(out);
    }
}

impl JsonValue for str {
    /// Appends the text as a JSON string. If no character must be escaped, this method copies the
    /// text unchanged. Otherwise `serde_json` escapes the text. Most texts need no escape.
    ///
    /// The search for characters that must be escaped processes several bytes at once, and
    /// `serde_json` only one. This saves a tenth of the time that a change of an operation takes.
    fn append_to(&self, out: &mut Vec<u8>) {
        let must_escape = self.bytes().fold(0, |found, byte| {
            found | u8::from(matches!(byte, 0..b' ' | b'"' | b'\\'))
        });
        if must_escape != 0 {
            append_with_serde(self, out);
        } else {
            out.push(b'"');
            out.extend_from_slice(self.as_bytes());
            out.push(b'"');
        }
    }
}

impl JsonValue for String {
    fn append_to(&self, out: &mut Vec<u8>) {
        self.as_str().append_to(out);
    }
}

/// Implements [`JsonValue`] for types that serialize as a JSON string, number or boolean.
macro_rules! json_values {
    ($($name:ty),*) => {
        $(impl JsonValue for $name {
            fn append_to(&self, out: &mut Vec<u8>) {
                append_with_serde(self, out);
            }
        })*
    };
}

json_values!(
    bool,
    u8,
    i32,
    u32,
    i64,
    u64,
    Phase,
    State,
    StartTimeSource,
    ExpectedSource
);

/// Appends a value that serializes as a JSON string, number or boolean.
pub fn append_with_serde(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("the values of operations can always be encoded");
}

/// Texts that are written as a list of strings.
pub struct TextList<'a>(pub &'a [Arc<str>]);

impl JsonValue for TextList<'_> {
    fn append_to(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, text) in self.0.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            text.append_to(out);
        }
        out.push(b']');
    }
}

/// A time in the form of Kubernetes, such as `2026-01-02T03:04:05Z`. The type [`Time`] yields the
/// same text, but takes ten times as long. This matters, because the JSON of an operation contains
/// about ten timestamps.
#[derive(Clone, Copy)]
pub struct TimeJson(pub Timestamp);

impl JsonValue for TimeJson {
    fn append_to(&self, out: &mut Vec<u8>) {
        let time = Offset::UTC.to_datetime(self.0);
        let Ok(year) = u16::try_from(time.year()) else {
            append_with_serde(&Time(self.0), out);
            return;
        };
        let mut text = *b"\"0000-00-00T00:00:00Z\"";
        let mut write = |at: usize, two_digits: u8| {
            text[at] = b'0' + two_digits / 10;
            text[at + 1] = b'0' + two_digits % 10;
        };
        let parts = [
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
        ];
        for (index, part) in parts.into_iter().enumerate() {
            write(6 + 3 * index, part.unsigned_abs());
        }
        let (century, year) = (year / 100, year % 100);
        write(1, u8::try_from(century).unwrap_or_default());
        write(3, u8::try_from(year).unwrap_or_default());
        out.extend_from_slice(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_have_the_same_text_as_in_kubernetes(
            second in -62_167_219_200_i64..253_402_207_200, nanosecond in 0..1_000_000_000,
        ) {
            let time = Timestamp::new(second, nanosecond).unwrap();
            for time in [time, Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
                let mut json = Vec::new();
                TimeJson(time).append_to(&mut json);
                prop_assert_eq!(json, serde_json::to_vec(&Time(time)).unwrap());
            }
        }

        #[test]
        fn texts_are_written_as_by_serde(text in any::<String>(), plain in "[ -~]{0,40}") {
            for text in [text, plain] {
                let mut json = Vec::new();
                text.append_to(&mut json);
                prop_assert_eq!(json, serde_json::to_vec(&text).unwrap());
            }
        }
    }
}
