//! An entry of the index (the objects in memory): one object at one version. An entry contains:
//!
//! - the JSON of the object in its short form, in which two bytes replace each frequent member key
//! - the positions of the texts in the short form: the strings that selectors and tables read
//! - the facts: decoded fields, such as times and the phase, which selectors, tables and metrics
//!   use
//!
//! The server encodes the JSON only once for each version.

use super::compression::Packed;
use super::{Key, Rv};
use ifo_engine::track::{
    DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts, ShortKey, TextPositions, append_long,
};
use serde::de::Error as _;
use std::borrow::Cow;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A range of bytes in the short form of the JSON. An entry has less than 4 GiB.
type JsonSpan = Range<u32>;

/// One object at one version.
#[derive(Debug)]
pub struct IndexEntry {
    key: Key,
    rv: Rv,
    facts: ObjectFacts,
    content: StoredContent,
    /// Length of the short form of the JSON in bytes.
    json_length: u32,
    /// The value of `metadata`, with its braces.
    metadata: JsonSpan,
    /// The digits of `metadata.resourceVersion`, without the quotes.
    rv_digits: JsonSpan,
}

/// The short form of an object's JSON, followed by the encoded positions of its texts.
#[derive(Debug)]
enum StoredContent {
    Plain(Box<[u8]>),
    /// The compressed content of a completed operation or a record. Neither changes any more, so
    /// the server compresses each only once.
    Packed(Packed),
}

/// An encoded object with its version, but without its key. [`Encoded::entry`] adds the key.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The short form of the JSON, followed by the encoded positions of its texts.
    content: Vec<u8>,
    /// Length of the short form of the JSON in bytes.
    json_length: u32,
    metadata: JsonSpan,
    rv_digits: JsonSpan,
    rv: Rv,
    facts: ObjectFacts,
}

impl Encoded {
    /// Inserts the resourceVersion `rv` into an operation that this process has encoded.
    pub fn from_operation(rv: Rv, operation: &EncodedOperation) -> Result<Self, serde_json::Error> {
        let EncodedOperation {
            short_json,
            metadata,
            positions,
            facts,
        } = operation;
        let position = VersionPlace {
            metadata: metadata.clone(),
            version: None,
            has_metadata_members: true,
        };
        position.encode_with_version(rv, short_json, positions.clone(), facts.clone())
    }

    /// Decodes the object in `json`. Inserts the resourceVersion `rv`, or replaces the existing
    /// resourceVersion with it. All other bytes of the JSON stay the same.
    pub fn decode(rv: Rv, json: &[u8]) -> Result<Self, serde_json::Error> {
        let decoded = DecodedObject::decode(json)?;
        let position = VersionPlace {
            metadata: decoded.metadata,
            version: decoded.version,
            has_metadata_members: decoded.has_metadata_members,
        };
        position.encode_with_version(rv, &decoded.short_json, decoded.positions, decoded.facts)
    }

    /// Returns true if the object is equal to `other`, apart from the resourceVersion.
    pub fn is_same_but_version(&self, other: &IndexEntry) -> bool {
        let content = other.content();
        let own_json = &self.content[..self.json_length as usize];
        split_around(own_json, &self.rv_digits)
            == split_around(other.json_in(&content), &other.rv_digits)
    }

    /// Creates the entry for `key`. The content of a completed operation is compressed.
    pub fn entry(self, key: Key) -> IndexEntry {
        let content = if self.facts.completed.is_some() {
            StoredContent::Packed(Packed::new(&self.content))
        } else {
            StoredContent::Plain(self.content.into())
        };
        IndexEntry {
            key,
            rv: self.rv,
            facts: self.facts,
            content,
            json_length: self.json_length,
            metadata: self.metadata,
            rv_digits: self.rv_digits,
        }
    }
}

impl IndexEntry {
    /// Returns the namespace and name of the object.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the version of the object's last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// Returns the facts that selectors, tables and metrics use.
    pub fn facts(&self) -> &ObjectFacts {
        &self.facts
    }

    /// Decompresses the content, if it is compressed. The caller can read the result several times.
    pub fn open(&self) -> OpenEntry<'_> {
        OpenEntry {
            entry: self,
            content: self.content(),
        }
    }

    /// Returns the JSON of the whole object, without white space between its members. This takes
    /// about a microsecond.
    pub fn json(&self) -> Vec<u8> {
        let mut json = Vec::new();
        self.append_json(&mut json);
        json
    }

    /// Appends the JSON of the whole object to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        append_long(self.json_in(&self.content()), out);
    }

    /// Returns the content without compression.
    fn content(&self) -> Cow<'_, [u8]> {
        match &self.content {
            StoredContent::Plain(content) => Cow::Borrowed(content),
            StoredContent::Packed(packed) => Cow::Owned(packed.decompress()),
        }
    }

    /// Returns the short form of the JSON, which is a part of the uncompressed content.
    fn json_in<'a>(&self, content: &'a [u8]) -> &'a [u8] {
        &content[..self.json_length as usize]
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let content = match &self.content {
            StoredContent::Plain(content) => content.len(),
            StoredContent::Packed(packed) => packed.len(),
        };
        size_of::<Self>() + content + self.key.name.len()
    }
}

/// An entry and its uncompressed content.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    entry: &'a IndexEntry,
    content: Cow<'a, [u8]>,
}

impl OpenEntry<'_> {
    /// Decodes the positions of the texts of the object.
    pub fn texts(&self) -> ObjectTexts<'_> {
        let (short_json, positions) = self.content.split_at(self.entry.json_length as usize);
        ObjectTexts::decode(short_json, positions, &self.entry.facts)
    }

    fn short_json(&self) -> &[u8] {
        self.entry.json_in(&self.content)
    }

    /// Appends the JSON of the object to `out`, with the resourceVersion `rv`.
    pub fn append_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(0..self.short_json().len(), rv, out);
    }

    /// Appends the JSON of `metadata` to `out`, with the resourceVersion `rv`.
    pub fn append_metadata_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(to_usize_range(&self.entry.metadata), rv, out);
    }

    /// Appends the JSON for `range` of the short form to `out`, with the resourceVersion `rv`. The
    /// range must contain the resourceVersion of the entry.
    fn append_range(&self, range: Range<usize>, rv: Rv, out: &mut Vec<u8>) {
        let short = self.short_json();
        if rv == self.entry.rv {
            append_long(&short[range], out);
            return;
        }
        let digits = to_usize_range(&self.entry.rv_digits);
        append_long(&short[range.start..digits.start], out);
        out.extend_from_slice(rv.to_string().as_bytes());
        append_long(&short[digits.end..range.end], out);
    }
}

/// Returns the bytes before and after `cut`.
fn split_around<'a>(json: &'a [u8], cut: &JsonSpan) -> (&'a [u8], &'a [u8]) {
    let cut = to_usize_range(cut);
    (&json[..cut.start], &json[cut.end..])
}

fn to_usize_range(span: &JsonSpan) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// The position of the resourceVersion in the short form of an object's JSON.
struct VersionPlace {
    metadata: Range<usize>,
    /// The existing version, with its quotes. `None` if the version must be inserted.
    version: Option<Range<usize>>,
    /// True if `metadata` has members.
    has_metadata_members: bool,
}

impl VersionPlace {
    /// Inserts or replaces the version, and encodes the object.
    fn encode_with_version(
        self,
        rv: Rv,
        json: &[u8],
        mut positions: TextPositions,
        facts: ObjectFacts,
    ) -> Result<Encoded, serde_json::Error> {
        let [mark, index] = ShortKey::of("resourceVersion").0;
        let insertion = [mark, index, b'"'];
        let first = self.metadata.start + 1;
        let (cut, before, after): (_, &[u8], &[u8]) = match self.version {
            Some(version) => (version, b"\"", b"\""),
            // In the short form, the two bytes of a frequent key include the comma before the key. A
            // comma is only necessary here if the next key is not a frequent key.
            None if self.has_metadata_members && json.get(first) != Some(&mark) => {
                (first..first, &insertion, b"\",")
            }
            None => (first..first, &insertion, b"\""),
        };
        let digits = rv.to_string();
        let json_length =
            cut.start + before.len() + digits.len() + after.len() + json.len() - cut.end;
        let shift = json_length.checked_signed_diff(json.len());
        positions.shift(cut.end, shift.unwrap_or_default());
        let mut encoded_positions = Vec::new();
        positions.encode(&mut encoded_positions);
        let parts = [
            &json[..cut.start],
            before,
            digits.as_bytes(),
            after,
            &json[cut.end..],
            &encoded_positions,
        ];
        let start = cut.start + before.len();
        let end = self.metadata.end + json_length - json.len();
        Ok(Encoded {
            rv_digits: span(start..start + digits.len())?,
            metadata: span(self.metadata.start..end)?,
            json_length: to_u32(json_length)?,
            content: parts.concat(),
            rv,
            facts,
        })
    }
}

fn span(range: Range<usize>) -> Result<JsonSpan, serde_json::Error> {
    Ok(to_u32(range.start)?..to_u32(range.end)?)
}

fn to_u32(position: usize) -> Result<u32, serde_json::Error> {
    u32::try_from(position).map_err(|_| serde_json::Error::custom("the JSON has 4 GiB or more"))
}
