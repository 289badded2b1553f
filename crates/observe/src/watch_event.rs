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
use kube::core::{Status, watch::Bookmark};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The annotation of the bookmark that follows the last existing object in a `WatchList`
/// (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A decoded line of a watch.
#[derive(Debug, PartialEq)]
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
    Error(Box<Status>),
}

/// Returns true if the requested resourceVersion or continue token is too old.
pub(super) fn is_expired(status: &Status) -> bool {
    status.code == 410 || matches!(&*status.reason, "Expired" | "Gone")
}

#[derive(Deserialize)]
struct Envelope<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Decodes a line of a watch.
pub(super) fn read(line: &Bytes) -> Result<WatchLine, InvalidData> {
    for (begin, event) in [
        (
            r#"{"type":"MODIFIED","object":{"#,
            WatchLine::Applied as fn(_) -> _,
        ),
        (r#"{"type":"ADDED","object":{"#, WatchLine::Applied),
        (r#"{"type":"DELETED","object":{"#, WatchLine::Deleted),
    ] {
        if line.starts_with(begin.as_bytes()) && line.ends_with(b"}}") {
            return Ok(event(line.slice(begin.len() - 1..line.len() - 1)));
        }
    }
    let envelope: Envelope<'_> = decode(line)?;
    let object = line.slice_ref(envelope.object.get().as_bytes());
    if !object.starts_with(b"{") {
        return Err(InvalidData::NoObject);
    }
    match envelope.r#type {
        "ADDED" | "MODIFIED" => Ok(WatchLine::Applied(object)),
        "DELETED" => Ok(WatchLine::Deleted(object)),
        "BOOKMARK" => {
            let Bookmark { metadata, .. } = decode(&object)?;
            let end = metadata.annotations.get(INITIAL_EVENTS_END);
            Ok(WatchLine::Bookmark {
                version: metadata.resource_version,
                initial_end: end.is_some_and(|value| value == "true"),
            })
        }
        "ERROR" => Ok(WatchLine::Error(decode(&object)?)),
        _ => Err(InvalidData::UnknownEvent),
    }
}

/// Decodes JSON. The error does not quote it.
pub(super) fn decode<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, InvalidData> {
    serde_json::from_slice(json).map_err(|error| InvalidData::Json((&error).into()))
}

/// Decodes the beginning of a line that is too long. Returns `None` if the beginning does not
/// contain the type of the event and the metadata of the object. `length` is the length of the line in
/// bytes.
pub(super) fn read_head(head: &[u8], length: u64) -> Option<WatchLine> {
    let head = EventHead::of_event(head);
    let object = head.metadata?.object()?;
    match &*head.r#type {
        "ADDED" | "MODIFIED" => Some(WatchLine::TooLarge { object, length }),
        "DELETED" => Some(WatchLine::Deleted(object)),
        _ => None,
    }
}

/// Returns JSON that contains only `name`, `namespace`, `uid` and `resourceVersion` of an object, in
/// `metadata`. Returns `None` if the name or the UID is missing.
pub(super) fn identity_of(object: &[u8]) -> Option<Bytes> {
    EventHead::of_object(object).metadata?.object()
}

/// Returns the resourceVersion of an object. `None` if the object has no resourceVersion, or is not
/// JSON.
pub(super) fn resource_version(object: &[u8]) -> Option<String> {
    let version = EventHead::of_object(object).metadata?.resource_version;
    version.filter(|version| !version.is_empty())
}

/// The fields of `metadata` that identify an object.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct IdentifyingMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
}

impl IdentifyingMetadata {
    fn object(&self) -> Option<Bytes> {
        let object = serde_json::json!({ "metadata": self }).to_string();
        (self.name.is_some() && self.uid.is_some()).then(|| object.into())
    }
}

/// The type of an event, and the metadata of its object. They are read from the beginning of the JSON,
/// which may not be complete.
#[derive(Default)]
struct EventHead {
    r#type: String,
    metadata: Option<IdentifyingMetadata>,
}

impl EventHead {
    fn of_event(json: &[u8]) -> Self {
        Self::read(json, false)
    }

    fn of_object(json: &[u8]) -> Self {
        Self::read(json, true)
    }

    fn read(json: &[u8], in_object: bool) -> Self {
        let mut head = Self::default();
        let reader = HeadReader {
            head: &mut head,
            in_object,
        };
        // The error says that the JSON is not complete, or that the rest is not needed.
        let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(json));
        head
    }
}

struct HeadReader<'a> {
    head: &'a mut EventHead,
    in_object: bool,
}

impl<'de> DeserializeSeed<'de> for HeadReader<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeadReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event or an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "type" if !self.in_object => self.head.r#type = map.next_value()?,
                "object" if !self.in_object => map.next_value_seed(HeadReader {
                    head: &mut *self.head,
                    in_object: true,
                })?,
                "metadata" if self.in_object => {
                    self.head.metadata = Some(map.next_value()?);
                    return Err(A::Error::custom("the rest of the object is not needed"));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
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
    fn a_line_is_decoded_in_any_order_of_its_fields() {
        for text in [
            r#"{"type":"MODIFIED","object":{"a":{}}}"#,
            r#"{"type":"ADDED","object":{"a":{}}}"#,
            r#"{ "object": {"a":{}}, "type": "ADDED" }"#,
        ] {
            let expected = WatchLine::Applied(Bytes::from_static(br#"{"a":{}}"#));
            assert_eq!(read_str(text), Ok(expected), "{text}");
        }
        assert!(matches!(
            read_str(r#"{"type":"BOOKMARK","object":{"kind":"X","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#),
            Ok(WatchLine::Bookmark { version, initial_end: false }) if version == "9"
        ));
    }

    #[test]
    fn errors_of_an_invalid_line_do_not_quote_it() {
        for line in [
            "",
            "zqx",
            "[]",
            "null",
            r#"{"type":"zqx"}"#,
            r#"{"type":"zqx","object":{}}"#,
            r#"{"type":{"zqx":1},"object":{}}"#,
            r#"{"type":"ADDED","object":"zqx"}"#,
            r#"{"type":"ADDED","object":{}"#,
            r#"{"type":"ADDED","object":}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":"zqx"}}"#,
            r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#,
            r#"{"type":"ERROR","object":{"code":"zqx"}}"#,
        ] {
            let garbled = read_str(line).unwrap_err();
            let text = format!("{garbled} {garbled:?}");
            assert!(!text.contains("zqx"), "{text}");
        }
    }

    #[test]
    fn the_object_is_identified_from_the_beginning_of_a_line() {
        let line = r#"{"type":"MODIFIED","object":{"type":"X","metadata":{"labels":{"name":"no"},"name":"a","namespace":"n","uid":"u","resourceVersion":"7"},"x":"#;
        let object = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7","uid":"u"}}"#;
        let too_large = WatchLine::TooLarge {
            object: Bytes::from_static(object.as_bytes()),
            length: 99,
        };
        assert_eq!(read_head(line.as_bytes(), 99), Some(too_large));
        for nothing in [
            "",
            "<html>",
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","#,
            r#"{"type":"MODIFIED","object":{"metadata":{"name":"a"}}}"#,
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
        for (json, version) in [
            (
                r#"{"spec":{"metadata":{"resourceVersion":"1"}},"metadata":{"resourceVersion":"42"}}"#,
                Some("42"),
            ),
            ("", None),
            (r#"{"metadata":7}"#, None),
            (r#"{"metadata":{}}"#, None),
            (r#"{"metadata":{"resourceVersion":""}}"#, None),
            (r#"{"metadata":{"resourceVersion":7}}"#, None),
        ] {
            assert_eq!(
                resource_version(json.as_bytes()).as_deref(),
                version,
                "{json}"
            );
        }
    }
}
