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
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, collections::HashMap, fmt};

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
            let MarkedBookmark { metadata } = decode(&object)?;
            let annotations = metadata.annotations.unwrap_or_default();
            Ok(WatchLine::Bookmark {
                version: metadata.resource_version,
                initial_end: annotations
                    .get(INITIAL_EVENTS_END)
                    .is_some_and(|v| v == "true"),
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
/// contain the type of the event, and the name and the UID of the object. `length` is the length of
/// the line in bytes.
pub(super) fn read_head(head: &[u8], length: u64) -> Option<WatchLine> {
    let texts = texts(head);
    let object = identity(&texts, "object.")?;
    match texts.get("type")?.as_str() {
        "ADDED" | "MODIFIED" => Some(WatchLine::TooLarge { object, length }),
        "DELETED" => Some(WatchLine::Deleted(object)),
        _ => None,
    }
}

/// Returns JSON that contains only `name`, `namespace`, `uid` and `resourceVersion` of an object, in
/// `metadata`. Returns `None` if the name or the UID is missing.
pub(super) fn identity_of(object: &[u8]) -> Option<Bytes> {
    identity(&texts(object), "")
}

fn identity(texts: &BTreeMap<String, String>, path: &str) -> Option<Bytes> {
    let mut metadata = BTreeMap::new();
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        if let Some(text) = texts.get(&format!("{path}metadata.{field}")) {
            metadata.insert(field, text);
        }
    }
    let object = serde_json::json!({ "metadata": metadata }).to_string();
    (metadata.contains_key("name") && metadata.contains_key("uid")).then(|| object.into())
}

/// Returns the resourceVersion of an object. `None` if the object has no resourceVersion, or is not
/// JSON.
pub(super) fn resource_version(object: &[u8]) -> Option<String> {
    let version = texts(object).remove("metadata.resourceVersion");
    version.filter(|version| !version.is_empty())
}

/// Reads the identifying texts of an object, or of an object in an event. The keys are their paths,
/// such as `object.metadata.name`. If `json` is not complete, returns the texts of its beginning.
fn texts(json: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let reader = TextReader {
        path: "",
        found: &mut found,
    };
    // The error says that the JSON is not complete.
    let _ = reader.deserialize(&mut serde_json::Deserializer::from_slice(json));
    found
}

struct TextReader<'a> {
    path: &'a str,
    found: &'a mut BTreeMap<String, String>,
}

impl<'de> DeserializeSeed<'de> for TextReader<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TextReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event or an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (self.path, &*key) {
                ("", "type") => {
                    self.found.insert(key.into_owned(), map.next_value()?);
                }
                (
                    "metadata" | "object.metadata",
                    "name" | "namespace" | "uid" | "resourceVersion",
                ) => {
                    let path = format!("{}.{key}", self.path);
                    self.found.insert(path, map.next_value()?);
                }
                ("", "object" | "metadata") | ("object", "metadata") => {
                    let path = format!("{}.{key}", self.path);
                    map.next_value_seed(TextReader {
                        path: path.trim_start_matches('.'),
                        found: &mut *self.found,
                    })?;
                    if path == ".metadata" {
                        return Err(A::Error::custom("the rest of the object is not needed"));
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
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
