//! A line of a watch in, what it says out, without decoding the object in it.
//!
//! Go's encoder writes `{"type":"ADDED","object":{…}}`, always in this order and without
//! spaces, so the object is what stands between a known beginning and the last brace: a
//! slice of the line. Anything else goes through a JSON parser, which also only finds
//! where the object begins and ends.

use bytes::Bytes;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{collections::HashMap, fmt};

/// The annotation of the bookmark that ends the initial state of a `WatchList` (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a line of a watch says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// ADDED or MODIFIED, with the object.
    Applied(Bytes),
    /// DELETED, with the object's last state.
    Deleted(Bytes),
    /// BOOKMARK: everything up to `version` has been sent.
    Bookmark {
        /// The resourceVersion to continue from.
        version: String,
        /// Whether the initial state ends here.
        initial_end: bool,
    },
    /// ERROR: the watch cannot go on.
    Error(Status),
}

/// The parts of `meta/v1.Status` that matter here.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    /// HTTP status code.
    pub(super) code: u16,
    /// CamelCase reason.
    pub(super) reason: String,
    /// For people.
    pub(super) message: String,
}

impl Status {
    /// Whether the resourceVersion or continue token that was asked for is too old.
    pub(super) fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Marked {
    metadata: Mark,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    resource_version: String,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// Reads a line. `Err` says what is wrong with it.
pub(super) fn read(line: &Bytes) -> Result<Event, String> {
    for (kind, begin) in [
        ("MODIFIED", r#"{"type":"MODIFIED","object":{"#),
        ("ADDED", r#"{"type":"ADDED","object":{"#),
        ("DELETED", r#"{"type":"DELETED","object":{"#),
    ] {
        if line.starts_with(begin.as_bytes()) && line.ends_with(b"}}") {
            let object = line.slice(begin.len() - 1..line.len() - 1);
            return Ok(if kind == "DELETED" {
                Event::Deleted(object)
            } else {
                Event::Applied(object)
            });
        }
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|e| e.to_string())?;
    let object = line.slice_ref(envelope.object.get().as_bytes());
    if !object.starts_with(b"{") {
        return Err(format!(
            "the object of a {} event is not an object",
            envelope.r#type
        ));
    }
    match envelope.r#type {
        "ADDED" | "MODIFIED" => Ok(Event::Applied(object)),
        "DELETED" => Ok(Event::Deleted(object)),
        "BOOKMARK" => {
            let Marked { metadata } =
                serde_json::from_slice(&object).map_err(|e| format!("bookmark: {e}"))?;
            let initial_end = metadata
                .annotations
                .is_some_and(|a| a.get(INITIAL_EVENTS_END).is_some_and(|v| v == "true"));
            Ok(Event::Bookmark {
                version: metadata.resource_version,
                initial_end,
            })
        }
        "ERROR" => Ok(Event::Error(
            serde_json::from_slice(&object).map_err(|e| format!("error event: {e}"))?,
        )),
        other => Err(format!("unknown event type {other:?}")),
    }
}

/// `metadata.resourceVersion` of an object. Reading stops where it is found, which is
/// near the beginning of what a Kubernetes API server writes.
pub(super) fn resource_version(object: &[u8]) -> Option<String> {
    let mut found = None;
    // The error that stops the parser early is expected; `found` tells what came of it.
    let _ = Path {
        rest: &["metadata", "resourceVersion"],
        found: &mut found,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(object));
    found
}

/// Looks for the string at a path of keys.
struct Path<'a> {
    rest: &'a [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Path<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.rest.is_empty() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for Path<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata.resourceVersion")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        *self.found = (!value.is_empty()).then(|| value.to_owned());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == self.rest[0] {
                map.next_value_seed(Path {
                    rest: &self.rest[1..],
                    found: self.found,
                })?;
                return Err(A::Error::custom("found; the rest is not read"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_str(line: &str) -> Result<Event, String> {
        read(&Bytes::copy_from_slice(line.as_bytes()))
    }

    #[test]
    fn the_object_is_a_slice_of_the_line_however_it_was_encoded() {
        for text in [
            r#"{"type":"MODIFIED","object":{"a":{}}}"#,
            r#"{"type":"ADDED","object":{"a":{}}}"#,
            r#"{ "object": {"a":{}}, "type": "ADDED" }"#,
        ] {
            let line = Bytes::from_static(text.as_bytes());
            let Event::Applied(object) = read(&line).unwrap() else {
                panic!("{text}")
            };
            assert_eq!(object, r#"{"a":{}}"#);
            assert!(
                line.as_ptr_range().contains(&object.as_ptr()),
                "copied: {text}"
            );
        }
        let deleted = read_str(r#"{"type":"DELETED","object":{}}"#).unwrap();
        assert_eq!(deleted, Event::Deleted(Bytes::from_static(b"{}")));
    }

    #[test]
    fn a_bookmark_says_where_to_continue_and_whether_the_state_is_complete() {
        let end = r#"{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert_eq!(
            read_str(end),
            Ok(Event::Bookmark {
                version: "9".into(),
                initial_end: true
            })
        );
        let plain = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":null}}}"#;
        assert_eq!(
            read_str(plain),
            Ok(Event::Bookmark {
                version: "9".into(),
                initial_end: false
            })
        );
        assert!(read_str(r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).is_err());
    }

    #[test]
    fn an_error_event_is_a_status() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","message":"too old resource version: 1 (220)","reason":"Expired","code":410}}"#;
        let Ok(Event::Error(status)) = read_str(line) else {
            panic!("no error")
        };
        assert!(status.is_expired());
        assert!(status.message.starts_with("too old"));
    }

    #[test]
    fn garbage_is_an_error_and_nothing_worse() {
        for line in [
            "<html>",
            "{}",
            "[]",
            "null",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":7}"#,
            r#"{"type":"NEW","object":{}}"#,
            r#"{"type":"ADDED","object":{}"#,
            r#"{"type":"ADDED","object":}"#,
            r#"{"type":7,"object":{}}"#,
            "\u{fffd}",
        ] {
            assert!(read_str(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_version_is_found_wherever_metadata_stands() {
        let version = |json: &str| resource_version(json.as_bytes());
        assert_eq!(
            version(r#"{"kind":"X","metadata":{"name":"a","resourceVersion":"42"},"spec":"#)
                .as_deref(),
            Some("42")
        );
        assert_eq!(version(r#"{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"resourceVersion":"42"}}"#).as_deref(), Some("42"));
        for none in [
            "",
            "[]",
            "{}",
            r#"{"metadata":7}"#,
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":""}}"#,
            r#"{"metadata":{"resourceVersion":7}}"#,
        ] {
            assert_eq!(version(none), None, "{none}");
        }
    }
}
