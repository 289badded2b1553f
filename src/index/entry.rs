//! One object at one version: encoded once, and spliced rather than decoded.

use super::scan::{self, Malformed, Span, Spans};
use super::{Key, Rv};
use bytes::Bytes;

#[cfg(test)]
mod tests;

/// The paths, such as `["spec", "operation"]`, whose spans each entry keeps, beside
/// those of metadata, its resourceVersion and its labels. At most [`Layout::MOST`].
#[derive(Debug)]
pub struct Layout {
    /// The paths, by number.
    pub paths: &'static [&'static [&'static str]],
}

impl Layout {
    /// How many paths a layout may have: the scan keeps a bit of a u64 for each, and
    /// needs three for itself.
    pub const MOST: usize = 60;
}

/// One object at one version: its JSON, encoded once, and where the parts lie that
/// tables and selectors need.
#[derive(Debug)]
pub struct Entry {
    key: Key,
    rv: Rv,
    json: Bytes,
    metadata: Span,
    /// The digits of `metadata.resourceVersion`, without quotes.
    version: Span,
    labels: Span,
    values: Box<[Span]>,
}

impl Entry {
    /// Takes the object in `text` in, as of version `rv`: that is the resourceVersion in
    /// its JSON, whichever was there, or none. All else stays byte for byte.
    pub(super) fn encode(
        key: Key,
        rv: Rv,
        text: &[u8],
        layout: &Layout,
    ) -> Result<Self, Malformed> {
        let spans = scan::spans(text, layout)?;
        let splice = Splice::plan(text, &spans, rv);
        let json = splice.apply(text);
        if u32::try_from(json.len()).is_err() {
            return Err(Malformed {
                what: "4 GiB or more",
                at: 0,
            });
        }
        let mut values = spans.values;
        for value in &mut values {
            *value = splice.moved(*value);
        }
        Ok(Self {
            key,
            rv,
            metadata: splice.moved(spans.metadata),
            version: splice.digits_span(),
            labels: splice.moved(spans.labels),
            values,
            json: json.into(),
        })
    }

    /// Where it is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The version of its last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// The whole object: JSON as compact as it was committed.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The JSON of the value at path number `path` of the [`Layout`], if it is there.
    pub fn value(&self, path: usize) -> Option<&[u8]> {
        self.values.get(path).and_then(|&span| self.part(span))
    }

    /// The JSON of `metadata`.
    pub fn metadata(&self) -> &[u8] {
        self.metadata.of(&self.json)
    }

    /// The JSON of `metadata.labels`, an object, if there are any.
    pub fn labels(&self) -> Option<&[u8]> {
        self.part(self.labels)
    }

    /// The object's JSON with another resourceVersion in it (for DELETED events).
    pub fn json_at(&self, rv: Rv) -> Bytes {
        Splice::replace(self.version, rv).apply(&self.json).into()
    }

    /// Whether the two differ in nothing but their resourceVersion.
    pub(super) fn same_but_version(&self, other: &Self) -> bool {
        let around = |entry: &Self| {
            let (start, end) = (entry.version.start as usize, entry.version.end as usize);
            (entry.json.slice(..start), entry.json.slice(end..))
        };
        around(self) == around(other)
    }

    /// About how many bytes of memory it takes up.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.json.len() + self.key.name.len() + size_of_val(&*self.values)
    }

    fn part(&self, span: Span) -> Option<&[u8]> {
        (!span.is_empty()).then(|| span.of(&self.json))
    }
}

/// Puts a resourceVersion into a text.
struct Splice {
    /// What it replaces.
    cut: Span,
    /// What stands before and after the digits.
    before: &'static str,
    after: &'static str,
    digits: String,
}

impl Splice {
    fn plan(text: &[u8], spans: &Spans, rv: Rv) -> Self {
        if !spans.version.is_empty() {
            let inside = Span {
                start: spans.version.start + 1,
                end: spans.version.end - 1,
            };
            return Self::replace(inside, rv);
        }
        let first = spans.metadata.start + 1;
        let members = spans.metadata.of(text)[1..].trim_ascii_start();
        Self {
            cut: Span {
                start: first,
                end: first,
            },
            before: r#""resourceVersion":""#,
            after: if members == b"}" { "\"" } else { "\"," },
            digits: rv.to_string(),
        }
    }

    fn replace(digits: Span, rv: Rv) -> Self {
        Self {
            cut: digits,
            before: "",
            after: "",
            digits: rv.to_string(),
        }
    }

    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let (head, tail) = (
            &text[..self.cut.start as usize],
            &text[self.cut.end as usize..],
        );
        [
            head,
            self.before.as_bytes(),
            self.digits.as_bytes(),
            self.after.as_bytes(),
            tail,
        ]
        .concat()
    }

    /// Where the digits are afterwards.
    fn digits_span(&self) -> Span {
        let start = self.cut.start + short(self.before);
        Span {
            start,
            end: start + short(&self.digits),
        }
    }

    /// Where a value is afterwards that lies before the cut, after it or around it.
    fn moved(&self, span: Span) -> Span {
        let inserted = short(self.before) + short(&self.digits) + short(self.after);
        let shift = |at: u32| {
            if at >= self.cut.end {
                at - (self.cut.end - self.cut.start) + inserted
            } else {
                at
            }
        };
        if span.is_empty() {
            return span;
        }
        Span {
            start: shift(span.start),
            end: shift(span.end),
        }
    }
}

/// The length of what a splice puts in.
fn short(text: &str) -> u32 {
    u32::try_from(text.len()).expect("a resourceVersion has at most 20 digits")
}
