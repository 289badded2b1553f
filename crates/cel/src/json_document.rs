//! A decoded JSON object ([`Doc`]), whose fields the CEL expressions read. The decoder reads only
//! the fields that a projection (a set of field paths) selects, and skips all other fields.
//!
//! The decoded values are a tree. All nodes except the root are in one vector. Strings without
//! escapes are borrowed from the JSON text. A number that is written as an integer and fits `i64`
//! becomes an integer. Every other number becomes a double. If a key is repeated, the last value is
//! used.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::error::Category;

use super::projection::{NeededPart, Projection};
use crate::JsonFault;

/// Maximum size of the JSON text in bytes: 32 MiB, which is about twenty times etcd's default limit
/// for an object. For a longer text, [`Doc::parse`] returns [`DocError::TooLong`].
const MAX_BYTES: usize = 32 << 20;

/// Maximum number of decoded values of one object. For an object with more selected values,
/// [`Doc::parse`] returns [`DocError::TooManyValues`]. A value takes 48 bytes. The vector of the
/// values can have twice the capacity that it needs.
///
/// The limit equals [`super::STEPS_PER_OBJECT`], the recommended number of evaluation steps for one
/// object. A comprehension takes at least one step for each value that it visits. So with this
/// number of steps, no comprehension could visit more values.
const MAX_VALUES: usize = 100_000;

/// If an object has at most this number of members, [`Node::get`] searches them linearly. For more
/// members, a binary search is faster.
const MAX_LINEAR_SEARCH: usize = 8;

/// The decoded fields of one object, borrowed from its JSON where possible.
pub struct Doc<'a> {
    entries: Vec<DocMember<'a>>,
    root: DocItem<'a>,
}

/// The reason why a text cannot be decoded as an object. The error contains no part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocError {
    /// The text is valid JSON, but not an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// The text is longer than 32 MiB.
    #[error("larger than {MAX_BYTES} bytes")]
    TooLong,
    /// The projection selects more than 100,000 values.
    #[error("more than {MAX_VALUES} values")]
    TooManyValues,
    /// The text is not JSON, or is nested deeper than 127 levels.
    #[error(transparent)]
    NoJson(JsonFault),
}

/// A member of an object or an element of a list.
struct DocMember<'a> {
    /// The key of a member. Empty for an element.
    key: Cow<'a, str>,
    item: DocItem<'a>,
}

pub(super) enum DocItem<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Str(Cow<'a, str>),
    List(MemberSpan),
    /// The members are sorted by key.
    Map(MemberSpan),
}

/// The range of the members or elements of one object or list in `Doc::entries`.
#[derive(Clone, Copy)]
pub(super) struct MemberSpan {
    start: usize,
    len: usize,
}

impl<'a> Doc<'a> {
    /// Decodes the fields that `projection` selects, and skips all other fields.
    ///
    /// # Errors
    /// `json` is not the JSON of an object, or exceeds one of these limits: 127 nested levels,
    /// 32 MiB, and 100,000 selected values.
    pub fn parse(json: &'a [u8], projection: &Projection) -> Result<Doc<'a>, DocError> {
        let doc = Self::parse_value(json, projection)?;
        match doc.root {
            DocItem::Map(_) => Ok(doc),
            _ => Err(DocError::NotAnObject),
        }
    }

    /// Decodes a JSON value of any type.
    pub(super) fn parse_value(
        json: &'a [u8],
        projection: &Projection,
    ) -> Result<Doc<'a>, DocError> {
        if json.len() > MAX_BYTES {
            return Err(DocError::TooLong);
        }
        // This check of the whole text saves serde_json the check of each string. As in Go's JSON
        // decoder, U+FFFD replaces invalid UTF-8.
        match std::str::from_utf8(json) {
            Ok(text) => Self::parse_text(text, projection),
            Err(_) => {
                Self::parse_text(&String::from_utf8_lossy(json), projection).map(Doc::into_owned)
            }
        }
    }

    /// Decodes a JSON value of any type. As in Go, an escaped lone surrogate, such as `\ud800`, is
    /// replaced by U+FFFD. serde_json returns an error for a lone surrogate. So after an error,
    /// this function replaces all lone surrogates in the text, and decodes the text again.
    fn parse_text<'t>(text: &'t str, projection: &Projection) -> Result<Doc<'t>, DocError> {
        decode(text, &projection.root).or_else(|error| match replace_lone_surrogates(text) {
            Some(repaired) => decode(&repaired, &projection.root)
                .map(Doc::into_owned)
                .map_err(|_| error),
            None => Err(error),
        })
    }

    /// Returns the object, for reading its fields.
    pub fn root(&self) -> Node<'_> {
        Node {
            entries: &self.entries,
            item: &self.root,
        }
    }

    /// Encodes the decoded fields as JSON. Decoding this JSON returns the same fields.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.root()).expect("maps with string keys always encode")
    }

    fn into_owned(self) -> Doc<'static> {
        Doc {
            entries: self
                .entries
                .into_iter()
                .map(|entry| DocMember {
                    key: Cow::Owned(entry.key.into_owned()),
                    item: entry.item.into_owned(),
                })
                .collect(),
            root: self.root.into_owned(),
        }
    }
}

impl DocItem<'_> {
    fn into_owned(self) -> DocItem<'static> {
        match self {
            DocItem::Null => DocItem::Null,
            DocItem::Bool(value) => DocItem::Bool(value),
            DocItem::Int(value) => DocItem::Int(value),
            DocItem::Double(value) => DocItem::Double(value),
            DocItem::Str(value) => DocItem::Str(Cow::Owned(value.into_owned())),
            DocItem::List(span) => DocItem::List(span),
            DocItem::Map(span) => DocItem::Map(span),
        }
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.item {
            DocItem::Null => serializer.serialize_unit(),
            DocItem::Bool(value) => serializer.serialize_bool(*value),
            DocItem::Int(value) => serializer.serialize_i64(*value),
            DocItem::Double(value) => serializer.serialize_f64(*value),
            DocItem::Str(value) => serializer.serialize_str(value),
            DocItem::List(_) => serializer.collect_seq(self.elements()),
            DocItem::Map(_) => serializer.collect_map(self.members()),
        }
    }
}

impl fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doc")
            .field("values", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// One value in a [`Doc`].
#[derive(Clone, Copy)]
pub struct Node<'d> {
    entries: &'d [DocMember<'d>],
    item: &'d DocItem<'d>,
}

impl<'d> Node<'d> {
    /// Returns the member `name` of this object. None if the object has no such member, or if this
    /// value is not an object.
    pub fn get(self, name: &str) -> Option<Node<'d>> {
        let DocItem::Map(span) = self.item else {
            return None;
        };
        let members = self.span(*span);
        let entry = if members.len() <= MAX_LINEAR_SEARCH {
            members.iter().find(|entry| entry.key == name)
        } else {
            members
                .binary_search_by(|entry| (*entry.key).cmp(name))
                .ok()
                .and_then(|at| members.get(at))
        };
        entry.map(|entry| self.at(entry))
    }

    /// Returns the string. None if the value has another type.
    pub fn as_str(self) -> Option<&'d str> {
        match self.item {
            DocItem::Str(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the integer. None if the value has another type.
    pub fn as_i64(self) -> Option<i64> {
        match self.item {
            DocItem::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the boolean. None if the value has another type.
    pub fn as_bool(self) -> Option<bool> {
        match self.item {
            DocItem::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the elements of a list. If the value has another type, the iterator is empty.
    pub fn elements(self) -> impl Iterator<Item = Node<'d>> {
        let elements = match self.item {
            DocItem::List(span) => self.span(*span),
            _ => &[],
        };
        elements.iter().map(move |entry| self.at(entry))
    }

    /// Returns the members of an object, sorted by key. If the value has another type, the iterator
    /// is empty.
    pub fn members(self) -> impl Iterator<Item = (&'d str, Node<'d>)> {
        let members = match self.item {
            DocItem::Map(span) => self.span(*span),
            _ => &[],
        };
        members
            .iter()
            .map(move |entry| (&*entry.key, self.at(entry)))
    }

    pub(super) fn item(self) -> &'d DocItem<'d> {
        self.item
    }

    /// Returns the number of members or elements. A value of another type has none.
    pub(super) fn len(self) -> usize {
        match self.item {
            DocItem::List(span) | DocItem::Map(span) => span.len,
            _ => 0,
        }
    }

    /// Returns the member or element at `index`, with its key.
    pub(super) fn nth(self, index: usize) -> Option<(&'d str, Node<'d>)> {
        let (DocItem::List(span) | DocItem::Map(span)) = self.item else {
            return None;
        };
        let entry = self.span(*span).get(index)?;
        Some((&entry.key, self.at(entry)))
    }

    fn span(self, span: MemberSpan) -> &'d [DocMember<'d>] {
        self.entries
            .get(span.start..span.start + span.len)
            .unwrap_or_default()
    }

    fn at(self, entry: &'d DocMember<'d>) -> Node<'d> {
        Node {
            entries: self.entries,
            item: &entry.item,
        }
    }
}

fn decode<'a>(json: &'a str, need: &NeededPart) -> Result<Doc<'a>, DocError> {
    // These capacities are enough for typical projections, so each vector is allocated once.
    let mut arena = Arena {
        closed: Vec::with_capacity(32),
        open: Vec::with_capacity(16),
    };
    let mut input = serde_json::Deserializer::from_str(json);
    let root = input
        .deserialize_any(ValueDecoder {
            arena: &mut arena,
            need,
        })
        .and_then(|root| input.end().map(|()| root))
        .map_err(|error| match error.classify() {
            // `ValueDecoder` accepts every JSON type. So only `Arena::push` returns an error of
            // this category.
            Category::Data => DocError::TooManyValues,
            _ => DocError::NoJson(JsonFault::from(&error)),
        })?;
    Ok(Doc {
        entries: arena.closed,
        root,
    })
}

/// The members and elements that are decoded so far.
struct Arena<'a> {
    /// The members and elements of objects and lists that are complete. The members of one object
    /// are contiguous, and so are the elements of one list.
    closed: Vec<DocMember<'a>>,
    /// The members and elements of objects and lists that are not complete: the objects and lists
    /// around the current value.
    open: Vec<DocMember<'a>>,
}

impl<'a> Arena<'a> {
    fn push<E: Error>(&mut self, key: Cow<'a, str>, item: DocItem<'a>) -> Result<(), E> {
        if self.closed.len() + self.open.len() >= MAX_VALUES {
            return Err(E::custom("too many values"));
        }
        self.open.push(DocMember { key, item });
        Ok(())
    }

    /// Completes the innermost object or list. Its members or elements begin at `from` in `open`.
    /// Moves them to `closed`, and returns their range there.
    fn close(&mut self, from: usize) -> MemberSpan {
        let start = self.closed.len();
        self.closed.extend(self.open.drain(from..));
        MemberSpan {
            start,
            len: self.closed.len() - start,
        }
    }

    /// Sorts the members of the innermost object, which begin at `from` in `open`. If a key is
    /// repeated, the last member with this key stays.
    fn sort(&mut self, from: usize) {
        let members = self.open.get_mut(from..).unwrap_or_default();
        if members.is_sorted_by(|a, b| a.key < b.key) {
            return;
        }
        members.sort_by(|a, b| a.key.cmp(&b.key));
        let mut end = from;
        for at in from..self.open.len() {
            let repeated = self
                .open
                .get(at + 1)
                .is_some_and(|next| next.key == self.open[at].key);
            if !repeated {
                self.open.swap(end, at);
                end += 1;
            }
        }
        self.open.truncate(end);
    }
}

/// Decodes the part `need` of one value. Adds the members or elements of the value to the arena.
struct ValueDecoder<'b, 'a, 'p> {
    arena: &'b mut Arena<'a>,
    need: &'p NeededPart,
}

impl<'a> DeserializeSeed<'a> for ValueDecoder<'_, 'a, '_> {
    type Value = DocItem<'a>;

    fn deserialize<D: Deserializer<'a>>(self, input: D) -> Result<DocItem<'a>, D::Error> {
        if self.need.is_existence() {
            input.deserialize_ignored_any(IgnoredAny)?;
            return Ok(DocItem::Null);
        }
        input.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for ValueDecoder<'_, 'a, '_> {
    type Value = DocItem<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Int(value))
    }

    #[allow(clippy::cast_precision_loss)] // Go's JSON decoder also rounds here.
    fn visit_u64<E>(self, value: u64) -> Result<DocItem<'a>, E> {
        Ok(i64::try_from(value).map_or(DocItem::Double(value as f64), DocItem::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Double(value))
    }

    fn visit_borrowed_str<E>(self, value: &'a str) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Str(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<DocItem<'a>, E> {
        Ok(DocItem::Str(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<DocItem<'a>, A::Error> {
        let arena = self.arena;
        let from = arena.open.len();
        match self.need.element() {
            Some(need) => {
                while let Some(item) = elements.next_element_seed(ValueDecoder { arena, need })? {
                    arena.push(Cow::Borrowed(""), item)?;
                }
            }
            None => while elements.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(DocItem::List(arena.close(from)))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<DocItem<'a>, A::Error> {
        let (arena, need) = (self.arena, self.need);
        let from = arena.open.len();
        while let Some(key) = members.next_key_seed(NeededKey(need))? {
            match key {
                Some((key, need)) => {
                    let item = members.next_value_seed(ValueDecoder { arena, need })?;
                    arena.push(key, item)?;
                }
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        arena.sort(from);
        Ok(DocItem::Map(arena.close(from)))
    }
}

/// Decodes a key of an object. Field 0 is the needed part of the object. Returns the key and the
/// needed part of the member with this key, or None if the member is not needed.
struct NeededKey<'p>(&'p NeededPart);

impl<'a, 'p> DeserializeSeed<'a> for NeededKey<'p> {
    type Value = Option<(Cow<'a, str>, &'p NeededPart)>;

    #[inline]
    fn deserialize<D: Deserializer<'a>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'a, 'p> Visitor<'a> for NeededKey<'p> {
    type Value = Option<(Cow<'a, str>, &'p NeededPart)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_borrowed_str<E>(self, key: &'a str) -> Result<Self::Value, E> {
        Ok(self.0.member(key).map(|need| (Cow::Borrowed(key), need)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self
            .0
            .member(key)
            .map(|need| (Cow::Owned(key.to_owned()), need)))
    }
}

/// Replaces escaped lone surrogates in `json` by U+FFFD. Returns None if `json` has no lone
/// surrogate.
fn replace_lone_surrogates(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    let mut changed = false;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match (escaped_unit(rest), rest.get(6..).and_then(escaped_unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
                changed = true;
                continue;
            }
            // The backslash is copied with the next character, which can be another backslash.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// Returns the UTF-16 code unit if `text` begins with an escape `\uXXXX`, and None otherwise.
fn escaped_unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        u16::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_fields_are_encoded_unchanged() {
        let mut projection = Projection::default();
        projection.add(&["a"]);
        projection.add(&["b", "*", "c"]);
        let json = br#"{"z":1,"b":[{"c":-7,"d":1},{"c":null}],"a":{"x":[1.0,"\u00e9\n",true,{}]}}"#;
        let doc = Doc::parse(json, &projection).unwrap();
        let encoded = doc.to_json();
        let text = r#"{"a":{"x":[1.0,"é\n",true,{}]},"b":[{"c":-7},{"c":null}]}"#;
        assert_eq!(String::from_utf8(encoded.clone()).unwrap(), text);
        let again = Doc::parse(&encoded, &projection).unwrap();
        assert_eq!(again.to_json(), encoded);
    }
}
