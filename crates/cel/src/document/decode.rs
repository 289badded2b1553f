//! The decoder of JSON objects. It decodes only the needed fields.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::fault::{DocError, JsonFault, MAX_VALUES};
use super::item::DocItem;
use super::projection::NeededPart;

pub(super) fn decode<'a>(json: &'a str, need: &NeededPart) -> Result<DocItem<'a>, DocError> {
    let mut input = serde_json::Deserializer::from_str(json);
    let mut values_left = MAX_VALUES;
    let decoder = ValueDecoder {
        values_left: &mut values_left,
        need,
    };
    input
        .deserialize_any(decoder)
        .and_then(|root| input.end().map(|()| root))
        .map_err(|error| match error.classify() {
            // `ValueDecoder` accepts every JSON type. So only `ValueDecoder::count` returns an error
            // of this category.
            Category::Data => DocError::TooManyValues,
            _ => DocError::NoJson(JsonFault::from(&error)),
        })
}

/// Decodes the part `need` of one value.
struct ValueDecoder<'b, 'p> {
    /// Number of values that may still be decoded.
    values_left: &'b mut usize,
    need: &'p NeededPart,
}

impl ValueDecoder<'_, '_> {
    fn count<E: Error>(values_left: &mut usize) -> Result<(), E> {
        let left = values_left.checked_sub(1);
        *values_left = left.ok_or_else(|| E::custom("too many values"))?;
        Ok(())
    }
}

impl<'a> DeserializeSeed<'a> for ValueDecoder<'_, '_> {
    type Value = DocItem<'a>;

    fn deserialize<D: Deserializer<'a>>(self, input: D) -> Result<DocItem<'a>, D::Error> {
        if self.need.is_existence() {
            input.deserialize_ignored_any(IgnoredAny)?;
            return Ok(DocItem::Null);
        }
        input.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for ValueDecoder<'_, '_> {
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
        let values_left = self.values_left;
        let mut items = Vec::new();
        let Some(need) = self.need.element() else {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(DocItem::List(items));
        };
        while let Some(item) = elements.next_element_seed(ValueDecoder { values_left, need })? {
            Self::count(values_left)?;
            items.push(item);
        }
        Ok(DocItem::List(items))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<DocItem<'a>, A::Error> {
        let (values_left, object) = (self.values_left, self.need);
        let mut items = Vec::new();
        while let Some(key) = members.next_key_seed(NeededKey(object))? {
            let Some((key, need)) = key else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            let item = members.next_value_seed(ValueDecoder { values_left, need })?;
            Self::count(values_left)?;
            items.push((key, item));
        }
        sort(&mut items);
        Ok(DocItem::Map(items))
    }
}

/// Sorts the members of an object. If a key is repeated, the last member with this key stays.
fn sort(members: &mut Vec<(Cow<'_, str>, DocItem<'_>)>) {
    if members.is_sorted_by(|(a, _), (b, _)| a < b) {
        return;
    }
    // The sort is stable, so the last of several equal keys is the first one in reverse order.
    members.reverse();
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    members.dedup_by(|(a, _), (b, _)| a == b);
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
