//! One object at one version: its JSON, encoded once, and the facts that readers need.

use super::compression::Packed;
use super::{Key, Rv};
use ifo_engine::track::{DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts};
use serde::de::Error as _;
use std::borrow::Cow;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// The place of a part of the JSON. An entry has less than 4 GiB.
type JsonSpan = Range<u32>;

/// One object at one version: its JSON, encoded once, and the facts that readers need.
#[derive(Debug)]
pub struct IndexEntry {
    key: Key,
    rv: Rv,
    facts: ObjectFacts,
    json: StoredJson,
    metadata: JsonSpan,
    /// The digits of `metadata.resourceVersion`, without quotes.
    rv_digits: JsonSpan,
}

/// The JSON of an entry.
#[derive(Debug)]
enum StoredJson {
    Plain(Box<[u8]>),
    /// The JSON of a completed operation, compressed. It is rarely read and never changes.
    Packed(Packed),
}

/// An encoded object with its version, before it has a key.
#[derive(Debug)]
pub(super) struct Encoded {
    json: Vec<u8>,
    metadata: JsonSpan,
    rv_digits: JsonSpan,
    rv: Rv,
    facts: ObjectFacts,
}

impl Encoded {
    /// Encodes an operation of this process as of version `rv`.
    pub fn operation(rv: Rv, operation: &EncodedOperation) -> Result<Self, serde_json::Error> {
        let EncodedOperation {
            json,
            metadata,
            facts,
        } = operation;
        let place = VersionPlace {
            metadata: metadata.clone(),
            version: None,
            has_metadata: true,
        };
        place.fill(rv, json, facts.clone())
    }

    /// Encodes the object in `json` as of version `rv`. Only the resourceVersion is set or
    /// replaced. All other bytes stay.
    pub fn decode(rv: Rv, json: &[u8]) -> Result<Self, serde_json::Error> {
        let decoded = DecodedObject::decode(json)?;
        let place = VersionPlace {
            metadata: decoded.metadata,
            version: decoded.version,
            has_metadata: decoded.has_metadata,
        };
        place.fill(rv, json, decoded.facts)
    }

    /// Returns true if the object differs from `other` in nothing but the resourceVersion.
    pub fn is_same_but_version(&self, other: &IndexEntry) -> bool {
        let json = other.json();
        around(&self.json, &self.rv_digits) == around(&json, &other.rv_digits)
    }

    /// The entry for `key`.
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
    /// Namespace and name of the object.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The version of its last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// The facts that selectors, tables and metrics use.
    pub fn facts(&self) -> &ObjectFacts {
        &self.facts
    }

    /// Opens the entry: its JSON can then be read several times, and is unpacked once.
    pub fn open(&self) -> OpenEntry<'_> {
        OpenEntry {
            entry: self,
            texts: ObjectTexts {
                json: self.json(),
                facts: &self.facts,
            },
        }
    }

    /// The JSON of the whole object, without white space between its members. Unpacking the JSON of
    /// a completed operation takes about a microsecond.
    pub fn json(&self) -> Cow<'_, [u8]> {
        match &self.json {
            StoredJson::Plain(json) => Cow::Borrowed(json),
            StoredJson::Packed(packed) => Cow::Owned(packed.open()),
        }
    }

    /// Appends the JSON of the whole object to `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        match &self.json {
            StoredJson::Plain(json) => out.extend_from_slice(json),
            StoredJson::Packed(packed) => packed.append_to(out),
        }
    }

    /// The approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let json = match &self.json {
            StoredJson::Plain(json) => json.len(),
            StoredJson::Packed(packed) => packed.len(),
        };
        size_of::<Self>() + json + self.key.name.len() + self.facts.weight()
    }
}

/// An entry whose JSON is at hand. The JSON of a completed operation is unpacked once for all
/// reads.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    /// The entry.
    pub entry: &'a IndexEntry,
    /// Its JSON and its texts.
    pub texts: ObjectTexts<'a>,
}

impl OpenEntry<'_> {
    /// Appends the JSON of the object to `out`, with the version `rv`.
    pub fn append_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_part(0..self.texts.json.len(), rv, out);
    }

    /// Appends the JSON of `metadata` to `out`, with the version `rv`.
    pub fn append_metadata_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_part(usizes(&self.entry.metadata), rv, out);
    }

    /// Appends a part of the JSON that contains the version.
    fn append_part(&self, part: Range<usize>, rv: Rv, out: &mut Vec<u8>) {
        let json = &self.texts.json;
        if rv == self.entry.rv {
            out.extend_from_slice(&json[part]);
            return;
        }
        let digits = usizes(&self.entry.rv_digits);
        out.extend_from_slice(&json[part.start..digits.start]);
        out.extend_from_slice(rv.to_string().as_bytes());
        out.extend_from_slice(&json[digits.end..part.end]);
    }
}

/// The bytes before and after `cut`.
fn around<'a>(json: &'a [u8], cut: &JsonSpan) -> (&'a [u8], &'a [u8]) {
    let cut = usizes(cut);
    (&json[..cut.start], &json[cut.end..])
}

fn usizes(span: &JsonSpan) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// The place in an object's JSON for its resourceVersion.
struct VersionPlace {
    metadata: Range<usize>,
    /// The current version in the JSON, with its quotes.
    version: Option<Range<usize>>,
    /// True if `metadata` has members.
    has_metadata: bool,
}

impl VersionPlace {
    /// Inserts the version.
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
        let by = filled.len().checked_signed_diff(json.len());
        facts.shift(cut.end, by.unwrap_or_default());
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
