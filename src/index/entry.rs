//! One object at one version: encoded once, with the facts that readers need of it.

use super::pack::Packed;
use super::{Key, Rv};
use ifo_engine::track::{DecodedObject, EncodedOperation, ObjectFacts, ObjectTexts};
use serde::de::Error as _;
use std::borrow::Cow;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Where a part of the JSON is. No entry has 4 GiB.
type JsonSpan = Range<u32>;

/// One object at one version: its JSON, encoded once, and what readers need of it.
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
    /// That of a completed operation, which is rarely read and never changes again.
    Packed(Packed),
}

/// An object that is to become an entry, as of its version.
#[derive(Debug)]
pub(super) struct Encoded {
    json: Vec<u8>,
    metadata: JsonSpan,
    rv_digits: JsonSpan,
    rv: Rv,
    facts: ObjectFacts,
}

impl Encoded {
    /// Takes in an operation that this process has encoded, as of version `rv`.
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

    /// Takes in the object in `json`, as of version `rv`: that is the resourceVersion in
    /// its JSON, whichever was there, or none. All else stays byte for byte.
    pub fn decode(rv: Rv, json: &[u8]) -> Result<Self, serde_json::Error> {
        let decoded = DecodedObject::decode(json)?;
        let place = VersionPlace {
            metadata: decoded.metadata,
            version: decoded.version,
            has_metadata: decoded.has_metadata,
        };
        place.fill(rv, json, decoded.facts)
    }

    /// Whether it differs from `other` in nothing but the resourceVersion.
    pub fn is_same_but_version(&self, other: &IndexEntry) -> bool {
        let json = other.json();
        around(&self.json, &self.rv_digits) == around(&json, &other.rv_digits)
    }

    /// The entry, at `key`.
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
    /// Where it is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The version of its last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// What selectors, tables and metrics read of it, apart from texts.
    pub fn facts(&self) -> &ObjectFacts {
        &self.facts
    }

    /// The entry with its JSON at hand.
    pub fn open(&self) -> OpenEntry<'_> {
        OpenEntry {
            entry: self,
            texts: ObjectTexts {
                json: self.json(),
                facts: &self.facts,
            },
        }
    }

    /// The whole object: JSON as compact as it was committed. That of a completed operation
    /// is unpacked, which costs about a microsecond.
    pub fn json(&self) -> Cow<'_, [u8]> {
        match &self.json {
            StoredJson::Plain(json) => Cow::Borrowed(json),
            StoredJson::Packed(packed) => Cow::Owned(packed.open()),
        }
    }

    /// Puts the whole object's JSON at the end of `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        match &self.json {
            StoredJson::Plain(json) => out.extend_from_slice(json),
            StoredJson::Packed(packed) => packed.append_to(out),
        }
    }

    /// About how many bytes of memory it takes up.
    pub(super) fn weight(&self) -> usize {
        let json = match &self.json {
            StoredJson::Plain(json) => json.len(),
            StoredJson::Packed(packed) => packed.len(),
        };
        size_of::<Self>() + json + self.key.name.len() + self.facts.weight()
    }
}

/// An entry with its JSON at hand, so that the JSON of a completed operation is unpacked once
/// for all that is read of it.
#[derive(Debug)]
pub struct OpenEntry<'a> {
    /// The entry.
    pub entry: &'a IndexEntry,
    /// Its JSON and its texts.
    pub texts: ObjectTexts<'a>,
}

impl OpenEntry<'_> {
    /// Puts the JSON of the object, as of version `rv`, at the end of `out`.
    pub fn append_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_part(0..self.texts.json.len(), rv, out);
    }

    /// Puts the JSON of `metadata`, as of version `rv`, at the end of `out`.
    pub fn append_metadata_at(&self, rv: Rv, out: &mut Vec<u8>) {
        self.append_part(usizes(&self.entry.metadata), rv, out);
    }

    /// Puts a part that has the version in it there.
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

/// What is before and after `cut`.
fn around<'a>(json: &'a [u8], cut: &JsonSpan) -> (&'a [u8], &'a [u8]) {
    let cut = usizes(cut);
    (&json[..cut.start], &json[cut.end..])
}

fn usizes(span: &JsonSpan) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Where an object's resourceVersion belongs.
struct VersionPlace {
    metadata: Range<usize>,
    /// The version that is there, with its quotes.
    version: Option<Range<usize>>,
    /// Whether `metadata` has members.
    has_metadata: bool,
}

impl VersionPlace {
    /// Puts the version there.
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
