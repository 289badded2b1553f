//! One object at one version: encoded once, with the facts that readers need of it.

use super::pack::Packed;
use super::{Key, Rv};
use bytes::Bytes;
use ifo_engine::track::{EncodedOperation, ObjectFacts};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;
use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Where a part of the JSON is. No entry has 4 GiB.
type JsonSpan = Range<u32>;

/// One object at one version: its JSON, encoded once, and what readers need of it.
#[derive(Debug)]
pub struct IndexEntry {
    key: Key,
    rv: Rv,
    facts: Arc<ObjectFacts>,
    json: StoredJson,
    metadata: JsonSpan,
    /// The digits of `metadata.resourceVersion`, without quotes.
    rv_digits: JsonSpan,
}

/// The JSON of an entry.
#[derive(Debug)]
enum StoredJson {
    Plain(Bytes),
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
    facts: Arc<ObjectFacts>,
}

impl Encoded {
    /// Takes in an operation that this process has encoded, as of version `rv`.
    pub fn operation(rv: Rv, operation: &EncodedOperation) -> Result<Self, serde_json::Error> {
        let EncodedOperation {
            json,
            metadata,
            facts,
        } = operation;
        let first = metadata.start + 1;
        let place = VersionPlace {
            metadata: metadata.clone(),
            cut: first..first,
            before: "\"resourceVersion\":\"",
            after: "\",",
        };
        place.fill(rv, json, facts.clone())
    }

    /// Takes in the object in `json`, as of version `rv`: that is the resourceVersion in
    /// its JSON, whichever was there, or none. All else stays byte for byte.
    pub fn decode(rv: Rv, json: &[u8]) -> Result<Self, serde_json::Error> {
        let facts = Arc::new(ObjectFacts::decode(json));
        VersionPlace::find(json)?.fill(rv, json, facts)
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
            StoredJson::Plain(self.json.into_boxed_slice().into())
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

    /// What selectors, tables and metrics read of it.
    pub fn facts(&self) -> &ObjectFacts {
        &self.facts
    }

    /// The whole object: JSON as compact as it was committed. That of a completed operation
    /// is unpacked, which costs about a microsecond.
    pub fn json(&self) -> Bytes {
        match &self.json {
            StoredJson::Plain(json) => json.clone(),
            StoredJson::Packed(packed) => packed.open().into(),
        }
    }

    /// Puts the whole object's JSON at the end of `out`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        match &self.json {
            StoredJson::Plain(json) => out.extend_from_slice(json),
            StoredJson::Packed(packed) => packed.append_to(out),
        }
    }

    /// The JSON of `metadata`.
    pub fn metadata(&self) -> Bytes {
        self.json().slice(usizes(&self.metadata))
    }

    /// The object's JSON with another resourceVersion in it (for DELETED events).
    pub fn json_at(&self, rv: Rv) -> Vec<u8> {
        let json = self.json();
        replace(&json, &self.rv_digits, rv)
    }

    /// The JSON of `metadata` with another resourceVersion in it.
    pub fn metadata_at(&self, rv: Rv) -> Vec<u8> {
        let start = self.metadata.start;
        let digits = self.rv_digits.start - start..self.rv_digits.end - start;
        replace(&self.metadata(), &digits, rv)
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

/// What is before and after `cut`.
fn around<'a>(json: &'a [u8], cut: &JsonSpan) -> (&'a [u8], &'a [u8]) {
    let cut = usizes(cut);
    (&json[..cut.start], &json[cut.end..])
}

fn replace(json: &[u8], digits: &JsonSpan, rv: Rv) -> Vec<u8> {
    let (head, tail) = around(json, digits);
    [head, rv.to_string().as_bytes(), tail].concat()
}

fn usizes(span: &JsonSpan) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Where an object's resourceVersion belongs.
struct VersionPlace {
    metadata: Range<usize>,
    /// What the version replaces.
    cut: Range<usize>,
    /// What stands before and after its digits.
    before: &'static str,
    after: &'static str,
}

impl VersionPlace {
    /// Finds it in any object.
    fn find(json: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct AnyObject<'a> {
            #[serde(borrow)]
            metadata: &'a RawValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct AnyMetadata<'a> {
            #[serde(borrow, default, deserialize_with = "present")]
            resource_version: Option<&'a RawValue>,
        }
        let text = std::str::from_utf8(json).map_err(serde_json::Error::custom)?;
        let metadata = serde_json::from_str::<AnyObject<'_>>(text)?.metadata.get();
        // Serde takes an array for a struct, too.
        if !text.trim_start().starts_with('{') || !metadata.starts_with('{') {
            return Err(serde_json::Error::custom("an object has metadata"));
        }
        let version = serde_json::from_str::<AnyMetadata<'_>>(metadata)?.resource_version;
        if version.is_some_and(|version| !version.get().starts_with('"')) {
            let error = "a resourceVersion is a string";
            return Err(serde_json::Error::custom(error));
        }
        let metadata_span = span_of(metadata.as_bytes(), json);
        if let Some(version) = version {
            return Ok(Self {
                cut: span_of(version.get().as_bytes(), json),
                metadata: metadata_span,
                before: "\"",
                after: "\"",
            });
        }
        let first = metadata_span.start + 1;
        let is_empty = metadata[1..].trim_start() == "}";
        Ok(Self {
            cut: first..first,
            metadata: metadata_span,
            before: "\"resourceVersion\":\"",
            after: if is_empty { "\"" } else { "\"," },
        })
    }

    /// Puts the version there.
    fn fill(
        self,
        rv: Rv,
        json: &[u8],
        facts: Arc<ObjectFacts>,
    ) -> Result<Encoded, serde_json::Error> {
        let digits = rv.to_string();
        let Self {
            metadata,
            cut,
            before,
            after,
        } = self;
        let parts = [
            &json[..cut.start],
            before.as_bytes(),
            digits.as_bytes(),
            after.as_bytes(),
            &json[cut.end..],
        ];
        let filled = parts.concat();
        let start = cut.start + before.len();
        let end = metadata.end + filled.len() - json.len();
        Ok(Encoded {
            rv_digits: span(start..start + digits.len())?,
            metadata: span(metadata.start..end)?,
            json: filled,
            rv,
            facts,
        })
    }
}

/// Where `part`, which was borrowed from `whole`, is in it.
fn span_of(part: &[u8], whole: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

fn span(range: Range<usize>) -> Result<JsonSpan, serde_json::Error> {
    let short = |at| u32::try_from(at).map_err(|_| serde_json::Error::custom("4 GiB or more"));
    Ok(short(range.start)?..short(range.end)?)
}

/// Reads a member that may be null: `Option` alone takes null for an absent member.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
