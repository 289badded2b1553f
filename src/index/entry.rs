//! An entry of the index: one object at one version. An entry contains the object's JSON, which is
//! encoded only once. It also contains facts: decoded fields, such as times and the phase, which
//! selectors, tables and metrics use.

use super::compression::Packed;
use super::{Key, Rv};
use ifo_engine::track::{DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts};
use serde::de::Error as _;
use std::borrow::Cow;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// A range of bytes in the JSON. An entry has less than 4 GiB.
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

/// The JSON of an entry.
#[derive(Debug)]
enum StoredJson {
    Plain(Box<[u8]>),
    /// The compressed JSON of a completed operation. A completed operation no longer changes, so
    /// its JSON is compressed only once.
    Packed(Packed),
}

/// An encoded object with its version, but without its key. [`Encoded::entry`] adds the key.
#[derive(Debug)]
pub(super) struct Encoded {
    json: Vec<u8>,
    metadata: JsonSpan,
    rv_digits: JsonSpan,
    rv: Rv,
    facts: ObjectFacts,
}

impl Encoded {
    /// Sets the version `rv` in an operation that this process has encoded.
    pub fn operation(rv: Rv, operation: &EncodedOperation) -> Result<Self, serde_json::Error> {
        let EncodedOperation {
            json,
            metadata,
            facts,
        } = operation;
        let position = VersionPlace {
            metadata: metadata.clone(),
            version: None,
            has_metadata: true,
        };
        position.fill(rv, json, facts.clone())
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
        position.fill(rv, json, decoded.facts)
    }

    /// Returns true if the object is equal to `other`, apart from the resourceVersion.
    pub fn is_same_but_version(&self, other: &IndexEntry) -> bool {
        let json = other.json();
        split_around(&self.json, &self.rv_digits) == split_around(&json, &other.rv_digits)
    }

    /// Creates the entry for `key`. The JSON of a completed operation is compressed.
    pub fn entry(self, key: Key) -> IndexEntry {
        let json = if self.facts.completed.is_some() {
            StoredJson::Packed(Packed::new(&self.json))
        } else {
            StoredJson::Plain(self.json.into())
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

    /// Decompresses the JSON of the entry, if it is compressed. The caller can read the JSON in the
    /// result several times without another decompression.
    pub fn open(&self) -> OpenEntry<'_> {
        OpenEntry {
            entry: self,
            texts: ObjectTexts {
                json: self.json(),
                facts: &self.facts,
            },
        }
    }

    /// Returns the JSON of the whole object, without white space between its members. The
    /// decompression of a completed operation takes about a microsecond.
    pub fn json(&self) -> Cow<'_, [u8]> {
        match &self.json {
            StoredJson::Plain(json) => Cow::Borrowed(json),
            StoredJson::Packed(packed) => Cow::Owned(packed.decompress()),
        }
    }

    /// Appends the JSON of the whole object to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        match &self.json {
            StoredJson::Plain(json) => out.extend_from_slice(json),
            StoredJson::Packed(packed) => packed.append_to(out),
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

/// An entry, and its JSON without compression.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    /// The entry.
    pub entry: &'a IndexEntry,
    /// The JSON of the entry, and the texts in it.
    pub texts: ObjectTexts<'a>,
}

impl OpenEntry<'_> {
    /// Appends the JSON of the object to `out`, with the resourceVersion `rv`.
    pub fn append_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(0..self.texts.json.len(), rv, out);
    }

    /// Appends the JSON of `metadata` to `out`, with the resourceVersion `rv`.
    pub fn append_metadata_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_range(to_usize_range(&self.entry.metadata), rv, out);
    }

    /// Appends `range` of the JSON to `out`, with the resourceVersion `rv`. The range must contain
    /// the resourceVersion of the entry.
    fn append_range(&self, range: Range<usize>, rv: Rv, out: &mut Vec<u8>) {
        let json = &self.texts.json;
        if rv == self.entry.rv {
            out.extend_from_slice(&json[range]);
            return;
        }
        let digits = to_usize_range(&self.entry.rv_digits);
        out.extend_from_slice(&json[range.start..digits.start]);
        out.extend_from_slice(rv.to_string().as_bytes());
        out.extend_from_slice(&json[digits.end..range.end]);
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

/// The position of the resourceVersion in an object's JSON.
struct VersionPlace {
    metadata: Range<usize>,
    /// The existing version in the JSON, with its quotes. `None` if the version must be inserted.
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
        let first = self.metadata.start + 1;
        let (cut, before, after) = match self.version {
            Some(version) => (version, "\"", "\""),
            None if self.has_metadata => (first..first, "\"resourceVersion\":\"", "\","),
            None => (first..first, "\"resourceVersion\":\"", "\""),
        };
        let digits = rv.to_string();
        let parts = [
            &json[..cut.start],
            before.as_bytes(),
            digits.as_bytes(),
            after.as_bytes(),
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
            json: filled,
            rv,
            facts,
        })
    }
}

fn span(range: Range<usize>) -> Result<JsonSpan, serde_json::Error> {
    let short = |at| u32::try_from(at).map_err(|_| serde_json::Error::custom("4 GiB or more"));
    Ok(short(range.start)?..short(range.end)?)
}
