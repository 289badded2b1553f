//! An entry of the index: one object at one version. An entry contains the object's JSON in its
//! short form, which is encoded only once. It also contains facts: decoded fields, such as times
//! and the phase, which selectors, tables and metrics use.

use super::compression::Packed;
use super::{Key, Rv};
use ifo_engine::track::{
    DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts, ShortKey, append_long,
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
    json: StoredJson,
    /// The value of `metadata`, with its braces.
    metadata: JsonSpan,
    /// The digits of `metadata.resourceVersion`, without the quotes.
    rv_digits: JsonSpan,
}

/// The short form of an entry's JSON.
#[derive(Debug)]
enum StoredJson {
    Plain(Box<[u8]>),
    /// The compressed form for a completed operation. A completed operation no longer changes, so
    /// it is compressed only once.
    Packed(Packed),
}

/// An encoded object with its version, but without its key. [`Encoded::entry`] adds the key.
#[derive(Debug)]
pub(super) struct Encoded {
    short_json: Vec<u8>,
    metadata: JsonSpan,
    rv_digits: JsonSpan,
    rv: Rv,
    facts: ObjectFacts,
}

impl Encoded {
    /// Sets the version `rv` in an operation that this process has encoded.
    pub fn operation(rv: Rv, operation: &EncodedOperation) -> Result<Self, serde_json::Error> {
        let EncodedOperation {
            short_json,
            metadata,
            facts,
        } = operation;
        let position = VersionPlace {
            metadata: metadata.clone(),
            version: None,
            has_metadata: true,
        };
        position.fill(rv, short_json, facts.clone())
    }

    /// Decodes the object in `json`, and inserts the resourceVersion `rv` or replaces the existing
    /// one. All other bytes stay the same.
    pub fn decode(rv: Rv, json: &[u8]) -> Result<Self, serde_json::Error> {
        let decoded = DecodedObject::decode(json)?;
        let position = VersionPlace {
            metadata: decoded.metadata,
            version: decoded.version,
            has_metadata: decoded.has_metadata,
        };
        position.fill(rv, &decoded.short_json, decoded.facts)
    }

    /// Returns true if the object is equal to `other`, apart from the resourceVersion.
    pub fn is_same_but_version(&self, other: &IndexEntry) -> bool {
        let other_json = other.short_json();
        split_around(&self.short_json, &self.rv_digits)
            == split_around(&other_json, &other.rv_digits)
    }

    /// Creates the entry for `key`. The JSON of a completed operation is compressed.
    pub fn entry(self, key: Key) -> IndexEntry {
        let json = if self.facts.completed.is_some() {
            StoredJson::Packed(Packed::new(&self.short_json))
        } else {
            StoredJson::Plain(self.short_json.into())
        };
        IndexEntry {
            key,
            rv: self.rv,
            facts: self.facts,
            json,
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

    /// Decompresses the entry, if it is compressed. The caller can read the result several times
    /// without another decompression.
    pub fn open(&self) -> OpenEntry<'_> {
        OpenEntry {
            entry: self,
            texts: ObjectTexts {
                short_json: self.short_json(),
                facts: &self.facts,
            },
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
        append_long(&self.short_json(), out);
    }

    /// Returns the short form of the JSON.
    fn short_json(&self) -> Cow<'_, [u8]> {
        match &self.json {
            StoredJson::Plain(json) => Cow::Borrowed(json),
            StoredJson::Packed(packed) => Cow::Owned(packed.decompress()),
        }
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let json = match &self.json {
            StoredJson::Plain(json) => json.len(),
            StoredJson::Packed(packed) => packed.len(),
        };
        size_of::<Self>() + json + self.key.name.len() + self.facts.weight()
    }
}

/// An entry, and the short form of its JSON without compression.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    /// The entry.
    pub entry: &'a IndexEntry,
    /// The short form of the entry's JSON, and the texts in it.
    pub texts: ObjectTexts<'a>,
}

impl OpenEntry<'_> {
    /// Appends the JSON of the object to `out`, with the resourceVersion `rv`.
    pub fn append_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(0..self.texts.short_json.len(), rv, out);
    }

    /// Appends the JSON of `metadata` to `out`, with the resourceVersion `rv`.
    pub fn append_metadata_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(to_usize_range(&self.entry.metadata), rv, out);
    }

    /// Appends the JSON for `range` of the short form to `out`, with the resourceVersion `rv`. The
    /// range must contain the resourceVersion of the entry.
    fn append_range(&self, range: Range<usize>, rv: Rv, out: &mut Vec<u8>) {
        let short = &self.texts.short_json;
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
    has_metadata: bool,
}

impl VersionPlace {
    /// Inserts or replaces the version.
    fn fill(
        self,
        rv: Rv,
        json: &[u8],
        mut facts: ObjectFacts,
    ) -> Result<Encoded, serde_json::Error> {
        let [mark, index] = ShortKey::of("resourceVersion").0;
        let insertion = [mark, index, b'"'];
        let first = self.metadata.start + 1;
        let (cut, before, after): (_, &[u8], &[u8]) = match self.version {
            Some(version) => (version, b"\"", b"\""),
            // The short form of a key includes the comma before the key.
            None if self.has_metadata && json.get(first) != Some(&mark) => {
                (first..first, &insertion, b"\",")
            }
            None => (first..first, &insertion, b"\""),
        };
        let digits = rv.to_string();
        let parts = [
            &json[..cut.start],
            before,
            digits.as_bytes(),
            after,
            &json[cut.end..],
        ];
        let filled = parts.concat();
        let start = cut.start + before.len();
        let end = self.metadata.end + filled.len() - json.len();
        let shift = filled.len().checked_signed_diff(json.len());
        facts.shift(cut.end, shift.unwrap_or_default());
        Ok(Encoded {
            rv_digits: span(start..start + digits.len())?,
            metadata: span(self.metadata.start..end)?,
            short_json: filled,
            rv,
            facts,
        })
    }
}

fn span(range: Range<usize>) -> Result<JsonSpan, serde_json::Error> {
    let short = |at| u32::try_from(at).map_err(|_| serde_json::Error::custom("4 GiB or more"));
    Ok(short(range.start)?..short(range.end)?)
}
