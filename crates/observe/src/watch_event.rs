//! Splits a line of a watch response into the type of the event and the JSON of the object. The
//! objects of BOOKMARK and ERROR events are also decoded. The objects of other events stay JSON.
//!
//! Go's encoder writes `{"type":"ADDED","object":{…}}`, always in this order and without spaces. In
//! such a line, the object begins after `{"type":"ADDED","object":` and ends before the last brace.
//! For any other line, a JSON parser finds the beginning and the end of the object.

use super::InvalidData;
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::core::{Status, watch::Bookmark};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A decoded line of a watch.
#[derive(Debug, PartialEq)]
pub(super) enum WatchLine {
    /// An ADDED or MODIFIED event, with the object.
    Applied(Bytes),
    /// A DELETED event, with the last state of the object.
    Deleted(Bytes),
    /// A BOOKMARK event, with the resourceVersion from which the watch can continue. The
    /// kube-apiserver has sent all changes up to this version.
    Bookmark(String),
    /// An ERROR event. The watch cannot continue.
    Error(Box<Status>),
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
            Ok(WatchLine::Bookmark(metadata.resource_version))
        }
        "ERROR" => Ok(WatchLine::Error(decode(&object)?)),
        _ => Err(InvalidData::UnknownEvent),
    }
}

/// Decodes JSON. The error contains no part of the JSON.
pub(super) fn decode<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, InvalidData> {
    serde_json::from_slice(json).map_err(|error| InvalidData::Json((&error).into()))
}

/// Returns the resourceVersion of an object. `None` if the object has no resourceVersion, or is not
/// JSON.
pub(super) fn resource_version(object: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Object {
        metadata: ListMeta,
    }
    let object: Object = decode(object).ok()?;
    let version = object.metadata.resource_version;
    version.filter(|version| !version.is_empty())
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
            Ok(WatchLine::Bookmark(version)) if version == "9"
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
