//! Splits a line of a watch response into the type of the event and the JSON of the object. The
//! objects of BOOKMARK and ERROR events are also decoded. The objects of other events stay JSON. If
//! such an object is too large to be kept, its name, UID and version are read from the beginning of
//! its JSON.
//!
//! Go's encoder writes `{"type":"ADDED","object":{…}}`, always in this order and without spaces. In
//! such a line, the object begins after `{"type":"ADDED","object":` and ends before the last brace.
//! For any other line, a JSON parser finds the beginning and the end of the object.

use super::InvalidData;
use bytes::Bytes;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use std::{collections::HashMap, fmt};

/// The annotation of the bookmark that follows the last existing object in a `WatchList`
/// (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A decoded line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchLine {
    /// An ADDED or MODIFIED event, with the object.
    Applied(Bytes),
    /// A DELETED event, with the last state of the object. If the object is too large to be read,
    /// the JSON contains only `name`, `namespace`, `uid` and `resourceVersion`, in `metadata`.
    Deleted(Bytes),
    /// An ADDED or MODIFIED event with an object that is too large to be read.
    TooLarge {
        /// JSON that contains only `name`, `namespace`, `uid` and `resourceVersion` of the object,
        /// in `metadata`.
        object: Bytes,
        /// Length of the line in bytes.
        length: u64,
    },
    /// A BOOKMARK event. The kube-apiserver has sent all changes up to `version`.
    Bookmark {
        /// The resourceVersion from which the watch can continue.
        version: String,
        /// True if the bookmark follows the last existing object in a `WatchList`.
        initial_end: bool,
    },
    /// An ERROR event. The watch cannot continue.
    Error(ApiStatus),
}

/// The fields of `meta/v1.Status` that feeds and discovery use when a request or a watch fails.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ApiStatus {
    /// The HTTP status code.
    pub(super) code: u16,
    /// The reason in CamelCase, such as `Expired`.
    pub(super) reason: String,
    /// The message for people.
    pub(super) message: String,
}

impl ApiStatus {
    /// Returns true if the requested resourceVersion or continue token is too old.
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
struct MarkedBookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// Decodes a complete line.
pub(super) fn read(line: &Bytes) -> Result<WatchLine, InvalidData> {
    for (event_type, begin) in [
        ("MODIFIED", r#"{"type":"MODIFIED","object":{"#),
        ("ADDED", r#"{"type":"ADDED","object":{"#),
        ("DELETED", r#"{"type":"DELETED","object":{"#),
    ] {
        if line.starts_with(begin.as_bytes()) && line.ends_with(b"}}") {
            let object = line.slice(begin.len() - 1..line.len() - 1);
            return Ok(if event_type == "DELETED" {
                WatchLine::Deleted(object)
            } else {
                WatchLine::Applied(object)
            });
        }
    }
    let envelope: Envelope<'_> = serde_json::from_slice(line).map_err(|e| InvalidData::json(&e))?;
    let object = line.slice_ref(envelope.object.get().as_bytes());
    if !object.starts_with(b"{") {
        return Err(InvalidData::NoObject);
    }
    match envelope.r#type {
        "ADDED" | "MODIFIED" => Ok(WatchLine::Applied(object)),
        "DELETED" => Ok(WatchLine::Deleted(object)),
        "BOOKMARK" => {
            let MarkedBookmark { metadata } =
                serde_json::from_slice(&object).map_err(|e| InvalidData::json(&e))?;
            let initial_end = metadata
                .annotations
                .is_some_and(|a| a.get(INITIAL_EVENTS_END).is_some_and(|v| v == "true"));
            Ok(WatchLine::Bookmark {
                version: metadata.resource_version,
                initial_end,
            })
        }
        "ERROR" => Ok(WatchLine::Error(
            serde_json::from_slice(&object).map_err(|e| InvalidData::json(&e))?,
        )),
        _ => Err(InvalidData::UnknownEvent),
    }
}

/// Decodes the beginning of a line that is too long to be kept. `length` is the length of the whole
/// line in bytes. Returns `None` in these cases:
///
/// - The beginning lacks the type of the event, or the name or UID of the object.
/// - The type is not ADDED, MODIFIED or DELETED.
pub(super) fn read_head(head: &[u8], length: u64) -> Option<WatchLine> {
    let (event_type, object) = parse_beginning(head, ParserPosition::Line);
    let object = object?;
    match event_type.as_deref()? {
        "ADDED" | "MODIFIED" => Some(WatchLine::TooLarge { object, length }),
        "DELETED" => Some(WatchLine::Deleted(object)),
        _ => None,
    }
}

/// Reads the beginning of an object's JSON. Returns JSON with the same fields as
/// [`WatchLine::TooLarge::object`]. Returns `None` if the beginning lacks the name or the UID.
pub(super) fn identity(object: &[u8]) -> Option<Bytes> {
    parse_beginning(object, ParserPosition::Object).1
}

/// Reads the beginning of an event or of an object. Returns the type of the event, and the JSON of
/// [`WatchLine::TooLarge::object`]. The type is `None` if `text` does not contain it. The JSON is
/// `None` if `text` lacks the name or the UID.
fn parse_beginning(text: &[u8], within: ParserPosition) -> (Option<String>, Option<Bytes>) {
    let mut event_type = None;
    let mut metadata = Map::new();
    // The text is usually incomplete, so the parser ends with an error. The fields that the parser
    // has read before the error are used.
    let _ = IdentityReader {
        within,
        event_type: &mut event_type,
        metadata: &mut metadata,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(text));
    let whole = ["name", "uid"]
        .iter()
        .all(|key| metadata.contains_key(*key));
    let object = whole.then(|| {
        serde_json::json!({ "metadata": metadata })
            .to_string()
            .into()
    });
    (event_type, object)
}

/// The JSON object in which the parser is.
#[derive(Clone, Copy)]
enum ParserPosition {
    Line,
    Object,
    Metadata,
}

/// Collects the identity of an object from the beginning of a text.
struct IdentityReader<'a> {
    within: ParserPosition,
    event_type: &'a mut Option<String>,
    metadata: &'a mut Map<String, Value>,
}

impl<'de> DeserializeSeed<'de> for IdentityReader<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IdentityReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event or an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            let deeper = match (self.within, &*key) {
                (ParserPosition::Line, "type") => {
                    *self.event_type = Some(map.next_value()?);
                    continue;
                }
                (ParserPosition::Metadata, "name" | "namespace" | "uid" | "resourceVersion") => {
                    let text: String = map.next_value()?;
                    self.metadata.insert(key.into_owned(), text.into());
                    continue;
                }
                (ParserPosition::Line, "object") => ParserPosition::Object,
                (ParserPosition::Object, "metadata") => ParserPosition::Metadata,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            map.next_value_seed(IdentityReader {
                within: deeper,
                event_type: &mut *self.event_type,
                metadata: &mut *self.metadata,
            })?;
        }
        Ok(())
    }
}

/// Returns `metadata.resourceVersion` of an object, or `None` if the field is missing or empty. The
/// parser stops after this field. A kube-apiserver writes the field near the beginning, so the
/// parser reads only a small part of the object.
pub(super) fn resource_version(object: &[u8]) -> Option<String> {
    let mut found = None;
    // `StringAtPath` stores the result in `found`, and then stops the parser with an error.
    let _ = StringAtPath {
        rest: &["metadata", "resourceVersion"],
        found: &mut found,
    }
    .deserialize(&mut serde_json::Deserializer::from_slice(object));
    found
}

/// Finds the string at a path of keys in JSON. `rest` contains the keys that follow the current
/// position.
struct StringAtPath<'a> {
    rest: &'a [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for StringAtPath<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.rest.is_empty() {
            deserializer.deserialize_str(self)
        } else {
            deserializer.deserialize_map(self)
        }
    }
}

impl<'de> Visitor<'de> for StringAtPath<'_> {
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
                map.next_value_seed(StringAtPath {
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

    fn read_str(line: &str) -> Result<WatchLine, InvalidData> {
        read(&Bytes::copy_from_slice(line.as_bytes()))
    }

    #[test]
    fn the_object_is_a_slice_of_the_line_in_any_encoding() {
        for text in [
            r#"{"type":"MODIFIED","object":{"a":{}}}"#,
            r#"{"type":"ADDED","object":{"a":{}}}"#,
            r#"{ "object": {"a":{}}, "type": "ADDED" }"#,
        ] {
            let line = Bytes::from_static(text.as_bytes());
            let WatchLine::Applied(object) = read(&line).unwrap() else {
                panic!("{text}")
            };
            assert_eq!(object, r#"{"a":{}}"#);
            assert!(
                line.as_ptr_range().contains(&object.as_ptr()),
                "the object must be a slice of the line: {text}"
            );
        }
        let deleted = read_str(r#"{"type":"DELETED","object":{}}"#).unwrap();
        assert_eq!(deleted, WatchLine::Deleted(Bytes::from_static(b"{}")));
    }

    #[test]
    fn errors_of_an_invalid_line_do_not_quote_it() {
        for line in [
            "zqx",
            r#"{"type":"zqx","object":{}}"#,
            r#"{"type":{"zqx":1},"object":{}}"#,
            r#"{"type":"ADDED","object":"zqx"}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":"zqx"}}"#,
            r#"{"type":"ERROR","object":{"code":"zqx"}}"#,
        ] {
            let garbled = read_str(line).unwrap_err();
            let text = format!("{garbled} {garbled:?}");
            assert!(!text.contains("zqx"), "{text}");
        }
    }

    #[test]
    fn a_bookmark_has_the_version_and_marks_the_end_of_the_initial_state() {
        let end = r#"{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert_eq!(
            read_str(end),
            Ok(WatchLine::Bookmark {
                version: "9".into(),
                initial_end: true
            })
        );
        let plain = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":null}}}"#;
        assert_eq!(
            read_str(plain),
            Ok(WatchLine::Bookmark {
                version: "9".into(),
                initial_end: false
            })
        );
        assert!(read_str(r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).is_err());
    }

    #[test]
    fn an_error_event_is_a_status() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"status":"Failure","message":"too old resource version: 1 (220)","reason":"Expired","code":410}}"#;
        let Ok(WatchLine::Error(status)) = read_str(line) else {
            panic!("no error")
        };
        assert!(status.is_expired());
        assert!(status.message.starts_with("too old"));
    }

    #[test]
    fn invalid_lines_are_errors_without_a_panic() {
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
    fn the_object_is_identified_from_the_beginning_of_a_line() {
        let line = r#"{"type":"MODIFIED","object":{"kind":"X","metadata":{"labels":{"name":"no"},"name":"a","namespace":"n","uid":"u","resourceVersion":"7","x":"#;
        let object = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","uid":"u"}}"#;
        let too_large = WatchLine::TooLarge {
            object: Bytes::from_static(object.as_bytes()),
            length: 99,
        };
        assert_eq!(read_head(line.as_bytes(), 99), Some(too_large));
        let deleted = line.replace("MODIFIED", "DELETED");
        assert_eq!(
            read_head(deleted.as_bytes(), 99),
            Some(WatchLine::Deleted(Bytes::from_static(object.as_bytes())))
        );
        for nothing in [
            "",
            "{",
            "<html>",
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","#,
            r#"{"type":"MODIFIED","object":{"metadata":{"name":7,"uid":"u"}}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":{"name":"a","uid":"u"}"#,
            r#"{"type":7,"object":{"metadata":{"name":"a","uid":"u"}"#,
            r#"{"object":{"metadata":{"name":"a","uid":"u"}"#,
        ] {
            assert_eq!(read_head(nothing.as_bytes(), 99), None, "{nothing}");
        }
    }

    #[test]
    fn the_version_is_found_at_any_position_of_metadata() {
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
