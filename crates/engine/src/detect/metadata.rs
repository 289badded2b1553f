//! When an object was last changed, out of its JSON. Not read as the other fields are:
//! only the few events need it that show something to have started or ended, and for every
//! object it would be 6 to 9 % of what decoding and evaluating it takes.

use jiff::Timestamp;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// The newest time in the `managedFields` of an object. Reading stops where they end,
/// which is near the beginning of what a Kubernetes API server writes, or at a fault.
pub(super) fn newest(object: &[u8]) -> Option<Timestamp> {
    let mut newest = None;
    // The error that stops the parser early is expected; `newest` tells what came of it.
    let _ = Part {
        rest: &["metadata", "managedFields"],
        newest: &mut newest,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(object));
    newest
}

/// A part of the object: what is at a path of keys in it is the list of fields.
struct Part<'a> {
    rest: &'a [&'static str],
    newest: &'a mut Option<Timestamp>,
}

/// One of the list.
struct Field<'a>(&'a mut Option<Timestamp>);

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.rest.is_empty() {
            deserializer.deserialize_seq(self)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata.managedFields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((next, rest)) = self.rest.split_first() else {
            return Err(A::Error::custom("there is no list in a map"));
        };
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == *next {
                map.next_value_seed(Part {
                    rest,
                    newest: self.newest,
                })?;
                return Err(A::Error::custom("found; the rest is not read"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Field(&mut *self.newest))?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of managedFields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key != "time" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let time: Cow<'de, str> = map.next_value()?;
            *self.0 = (*self.0).max(time.parse().ok());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_time_is_found_wherever_it_stands() {
        let at = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
        let two = r#"{"spec":{"metadata":{"managedFields":[{"time":"2027-01-01T00:00:00Z"}]}},
            "metadata":{"annotations":{"time":"2028-01-01T00:00:00Z"},"managedFields":[
            {"fieldsV1":{"time":{}},"manager":"a","time":"2026-11-21T10:00:07Z"},
            {"manager":"b"},
            {"time":"2026-11-21T10:00:05Z","manager":"c"}],"name":"x"},"status":"#;
        assert_eq!(newest(two.as_bytes()), at("2026-11-21T10:00:07Z"));
        // A time that is none is passed over; a fault ends it.
        let odd = r#"{"metadata":{"managedFields":[{"time":"today"},{"time":"2026-11-21T10:00:05Z"},7,{"time":"2026-11-21T10:00:06Z"}]}}"#;
        assert_eq!(newest(odd.as_bytes()), at("2026-11-21T10:00:05Z"));
        for none in [
            "",
            "[]",
            "{}",
            "7",
            r#"{"metadata":7}"#,
            r#"{"metadata":[]}"#,
            r#"{"metadata":{"managedFields":"x"}}"#,
            r#"{"metadata":{"managedFields":{"time":"2026-11-21T10:00:05Z"}}}"#,
            r#"{"metadata":{"managedFields":[{"time":7}]}}"#,
            r#"{"metadata":{"managedFields":[null]}}"#,
            r#"{"metadata":{"managedFields":[]},"managedFields":[{"time":"2026-11-21T10:00:05Z"}]}"#,
        ] {
            assert_eq!(newest(none.as_bytes()), None, "{none}");
        }
    }

    /// It is read in two ways.
    #[test]
    fn it_is_the_time_that_decoding_finds() {
        use ifo_cel::{Doc, Projection};
        use ifo_engine::evaluate::{IDENTITY_PATHS, MANAGED_TIME_PATH, Subject};
        let json = include_bytes!("../../tests/fixtures/objects/virtualmachine.json");
        let mut projection = Projection::default();
        for path in IDENTITY_PATHS.into_iter().chain([MANAGED_TIME_PATH]) {
            projection.add(path);
        }
        let doc = Doc::parse(json, &projection).expect("an object");
        let decoded = Subject::read(&doc).expect("it has a name").managed;
        assert!(decoded.is_some());
        assert_eq!(newest(json), decoded);
    }
}
