//! One object at one version: encoded once, and spliced rather than decoded.

use super::pack::Packed;
use super::scan::{self, Malformed, Span};
use super::{Key, Rv};

#[cfg(test)]
mod tests;

/// What is known beforehand of the objects of an index.
#[derive(Debug)]
pub struct Layout {
    /// The paths, such as `["spec", "operation"]`, whose spans each entry keeps, by number,
    /// beside those of metadata, its resourceVersion and its labels. At most
    /// [`Layout::MOST`].
    pub paths: &'static [&'static [&'static str]],
    /// JSON like theirs: what an object has in common with it takes no room. It may be empty.
    pub example: &'static [u8],
}

impl Layout {
    /// How many paths a layout may have: the scan keeps a bit of a u64 for each, and
    /// needs three for itself.
    pub const MOST: usize = 60;
}

/// One object at one version: its JSON, encoded once and packed, and where the parts lie
/// that tables and selectors need.
#[derive(Debug)]
pub struct Entry {
    key: Key,
    rv: Rv,
    packed: Packed,
    layout: &'static Layout,
    spans: Spans,
}

/// Spans that every entry has, before those of its layout.
mod own {
    pub const METADATA: usize = 0;
    /// The digits of `metadata.resourceVersion`, without quotes.
    pub const VERSION: usize = 1;
    pub const LABELS: usize = 2;
    pub const COUNT: usize = 3;
}

/// The spans of an entry, in half the room if its JSON is short.
#[derive(Debug)]
enum Spans {
    Short(Box<[[u16; 2]]>),
    Long(Box<[Span]>),
}

impl Spans {
    fn new(spans: Box<[Span]>) -> Self {
        let short = |at: u32| u16::try_from(at).ok();
        let halved = spans
            .iter()
            .map(|span| Some([short(span.start)?, short(span.end)?]));
        match halved.collect() {
            Some(halved) => Self::Short(halved),
            None => Self::Long(spans),
        }
    }

    /// That of this number; empty if there is none.
    fn get(&self, number: usize) -> Span {
        let span = match self {
            Self::Short(spans) => spans.get(number).map(|&[start, end]| Span {
                start: start.into(),
                end: end.into(),
            }),
            Self::Long(spans) => spans.get(number).copied(),
        };
        span.unwrap_or_default()
    }

    fn weight(&self) -> usize {
        match self {
            Self::Short(spans) => size_of_val(&**spans),
            Self::Long(spans) => size_of_val(&**spans),
        }
    }
}

/// An object that is to become an entry, as of its version.
#[derive(Debug)]
pub(super) struct Encoded {
    json: Vec<u8>,
    spans: Box<[Span]>,
    rv: Rv,
    layout: &'static Layout,
}

impl Encoded {
    /// Takes the object in `text` in, as of version `rv`: that is the resourceVersion in
    /// its JSON, whichever was there, or none. All else stays byte for byte.
    pub fn new(rv: Rv, text: &[u8], layout: &'static Layout) -> Result<Self, Malformed> {
        let found = scan::spans(text, layout)?;
        let splice = Splice::plan(text, &found, rv);
        let json = splice.apply(text);
        if u32::try_from(json.len()).is_err() {
            return Err(Malformed {
                what: "4 GiB or more",
                at: 0,
            });
        }
        let mut spans = Vec::with_capacity(own::COUNT + found.values.len());
        spans.push(splice.moved(found.metadata));
        spans.push(splice.digits_span());
        spans.push(splice.moved(found.labels));
        spans.extend(found.values.iter().map(|value| splice.moved(*value)));
        Ok(Self {
            json,
            spans: spans.into(),
            rv,
            layout,
        })
    }

    /// Whether it differs from `other` in nothing but the resourceVersion.
    pub fn is_same_but_version(&self, other: &Entry) -> bool {
        let other = other.open();
        around(&self.json, self.spans[own::VERSION]) == around(&other.json, other.version())
    }

    /// The entry, at `key`.
    pub fn pack(self, key: Key) -> Entry {
        Entry {
            key,
            rv: self.rv,
            packed: Packed::new(&self.json, self.layout.example),
            layout: self.layout,
            spans: Spans::new(self.spans),
        }
    }
}

/// What is before and after `cut`.
fn around(json: &[u8], cut: Span) -> (&[u8], &[u8]) {
    (&json[..cut.start as usize], &json[cut.end as usize..])
}

impl Entry {
    /// Where it is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The version of its last change.
    pub fn rv(&self) -> Rv {
        self.rv
    }

    /// The object, to read. It costs about a microsecond and as much memory as the JSON has
    /// bytes, for as long as it is read.
    pub fn open(&self) -> Object<'_> {
        Object {
            entry: self,
            json: self.packed.open(self.layout.example),
        }
    }

    /// Puts the whole object's JSON at the end of `out`, without the copy that
    /// [`Entry::open`] makes.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        self.packed.append_to(out, self.layout.example);
    }

    /// About how many bytes of memory it takes up.
    pub(super) fn weight(&self) -> usize {
        size_of::<Self>() + self.packed.len() + self.key.name.len() + self.spans.weight()
    }
}

/// An entry whose JSON can be read.
#[derive(Debug)]
pub struct Object<'a> {
    entry: &'a Entry,
    json: Vec<u8>,
}

impl<'a> Object<'a> {
    /// What it is the JSON of.
    pub fn entry(&self) -> &'a Entry {
        self.entry
    }

    /// The whole object: JSON as compact as it was committed.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The same, to keep.
    pub fn into_json(self) -> Vec<u8> {
        self.json
    }

    /// The JSON of the value at path number `path` of the [`Layout`], if it is there.
    pub fn value(&self, path: usize) -> Option<&[u8]> {
        self.part(own::COUNT + path)
    }

    /// The JSON of `metadata`.
    pub fn metadata(&self) -> &[u8] {
        self.entry.spans.get(own::METADATA).of(&self.json)
    }

    /// The JSON of `metadata.labels`, an object, if there are any.
    pub fn labels(&self) -> Option<&[u8]> {
        self.part(own::LABELS)
    }

    /// The object's JSON with another resourceVersion in it (for DELETED events).
    pub fn json_at(&self, rv: Rv) -> Vec<u8> {
        Splice::replace(self.version(), rv).apply(&self.json)
    }

    /// The JSON of `metadata` with another resourceVersion in it.
    pub fn metadata_at(&self, rv: Rv) -> Vec<u8> {
        let Span { start, .. } = self.entry.spans.get(own::METADATA);
        let version = self.version();
        let inside = Span {
            start: version.start - start,
            end: version.end - start,
        };
        Splice::replace(inside, rv).apply(self.metadata())
    }

    fn version(&self) -> Span {
        self.entry.spans.get(own::VERSION)
    }

    fn part(&self, number: usize) -> Option<&[u8]> {
        let span = self.entry.spans.get(number);
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
    fn plan(text: &[u8], spans: &scan::Spans, rv: Rv) -> Self {
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
