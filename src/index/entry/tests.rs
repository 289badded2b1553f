//! Tests the facts of an entry, and how the resourceVersion is set in its JSON.

use super::*;
use crate::index::TextField;
use serde_json::{Value, json};

const RV: Rv = Rv(1_795_262_179_263_067);

fn entry(text: &str) -> Result<IndexEntry, serde_json::Error> {
    encode(RV, text.as_bytes())
}

fn encode(rv: Rv, text: &[u8]) -> Result<IndexEntry, serde_json::Error> {
    Ok(Encoded::decode(rv, text)?.entry(Key::new("a", "x")))
}

fn json_at(entry: &IndexEntry, rv: Rv) -> Vec<u8> {
    let mut out = Vec::new();
    entry.open().append_at(rv, &mut out);
    out
}

fn metadata(entry: &IndexEntry, rv: Rv) -> Vec<u8> {
    let mut out = Vec::new();
    entry.open().append_metadata_at(rv, &mut out);
    out
}

fn text(part: &[u8]) -> &str {
    std::str::from_utf8(part).unwrap()
}

fn labels(entry: &IndexEntry) -> Vec<(String, String)> {
    let open = entry.open();
    let texts = open.texts();
    let labels = texts.labels();
    labels
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

fn label(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn an_entry_has_its_version_and_the_facts_in_its_json() {
    for version in [r#""resourceVersion":"1","#, r#""resourceVersion":"","#, ""] {
        let before = format!(
            r#"{{"kind":"K","metadata":{{"name":"x",{version}"labels":{{"a":"b"}}}},"spec":{{"operation":"Mi\"g"}},"status":{{"progress":45}}}}"#
        );
        let entry = entry(&before).unwrap();
        let mut object: Value = serde_json::from_str(&before).unwrap();
        object["metadata"]["resourceVersion"] = json!("1795262179263067");
        let parsed: Value = serde_json::from_slice(&entry.json()).unwrap();
        assert_eq!(parsed, object);
        let metadata: Value = serde_json::from_slice(&metadata(&entry, entry.rv())).unwrap();
        assert_eq!(metadata, object["metadata"]);
        assert_eq!(labels(&entry), [label("a", "b")]);
        let open = entry.open();
        let texts = open.texts();
        assert_eq!(texts.text(TextField::Name).as_deref(), Some("x"));
        assert_eq!(texts.text(TextField::Operation).as_deref(), Some("Mi\"g"));
        assert_eq!(entry.facts().progress, Some(45));
    }
}

#[test]
fn an_entry_tolerates_whitespace_and_any_order_of_members() {
    let entry = entry(
        "\n{ \"status\" : {\"progress\" : 7 } ,\r\n\t\"metadata\" : { \"labels\" : {} , \"resourceVersion\" : \"5\" } } ",
    )
    .unwrap();
    assert_eq!(entry.facts().progress, Some(7));
    assert!(text(&metadata(&entry, entry.rv())).starts_with("{ \"labels\""));
    assert!(text(&entry.json()).contains("\"1795262179263067\""));
}

#[test]
fn a_missing_resource_version_is_inserted() {
    for (before, after) in [
        (
            r#"{"metadata":{}}"#,
            r#"{"metadata":{"resourceVersion":"7"}}"#,
        ),
        (
            r#"{"metadata":{ }}"#,
            r#"{"metadata":{"resourceVersion":"7" }}"#,
        ),
        (
            r#"{"metadata":{"a":1}}"#,
            r#"{"metadata":{"resourceVersion":"7","a":1}}"#,
        ),
    ] {
        let entry = encode(Rv(7), before.as_bytes()).unwrap();
        assert_eq!(text(&entry.json()), after);
    }
}

#[test]
fn a_resource_version_of_any_length_is_replaced() {
    let entry = entry(r#"{"metadata":{"resourceVersion":"1","z":[]},"n":1}"#).unwrap();
    for rv in [0, 42, 1_795_262_179_263_068, u64::MAX] {
        let expected = format!(r#"{{"metadata":{{"resourceVersion":"{rv}","z":[]}},"n":1}}"#);
        assert_eq!(json_at(&entry, Rv(rv)), expected.as_bytes());
        let expected = format!(r#"{{"resourceVersion":"{rv}","z":[]}}"#);
        assert_eq!(metadata(&entry, Rv(rv)), expected.as_bytes());
    }
}

#[test]
fn labels_of_the_wrong_type_count_as_absent() {
    for value in ["null", "[]", "1", "\"a\"", "true", r#"{"a":1}"#] {
        let entry = entry(&format!(r#"{{"metadata":{{"labels":{value}}}}}"#)).unwrap();
        assert_eq!(labels(&entry), []);
    }
}

#[test]
fn json_without_object_metadata_is_rejected() {
    for text in [
        "",
        "null",
        "[]",
        r#"[{"name":"x"}]"#,
        "{}",
        r#"{"metadata":null}"#,
        r#"{"metadata":[]}"#,
        r#"{"metadata":{"resourceVersion":7}}"#,
        r#"{"metadata":{"resourceVersion":null}}"#,
        r#"{"metadata":{}}{"#,
        r#"{"metadata":{},"metadata":{}}"#,
        r#"{"metadata":{"resourceVersion":"1","resourceVersion":"2"}}"#,
        r#"{"metadata":{"name":"x"}"#,
        r#"{"spec":{"metadata":{}}}"#,
        r#"{"items":[{"metadata":{}}]}"#,
    ] {
        assert!(entry(text).is_err(), "{text}");
    }
    let deep = format!(r#"{{"metadata":{{}},"x":{}"#, "[".repeat(1_000_000));
    assert!(entry(&deep).is_err());
    assert!(encode(RV, b"{\"metadata\":{},\"\xff\":1}").is_err());
}

/// The short form of JSON uses a control character as a mark, so JSON must not contain it.
#[test]
fn json_with_a_control_character_is_rejected() {
    for text in [
        "{\"metadata\":{\"name\":\"\u{1}\"}}",
        "{\"metadata\":{},\"x\":\"\u{1}\"}",
        "{\"metadata\":{},\"\u{1}\":1}",
        "{\"metadata\":{}}\u{1}",
    ] {
        assert!(entry(text).is_err(), "{text:?}");
    }
    let escaped = r#"{"metadata":{"name":"\u0001"},"uid":{"kind":"\u0001"}}"#;
    let object: Value = serde_json::from_slice(&entry(escaped).unwrap().json()).unwrap();
    assert_eq!(object["uid"]["kind"], "\u{1}");
}

#[test]
fn entries_are_compared_apart_from_their_version() {
    let at = |rv, n| {
        let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"n":{n}}}"#);
        Encoded::decode(Rv(rv), text.as_bytes()).unwrap()
    };
    let there = at(22_222, 1).entry(Key::new("a", "x"));
    assert!(at(1, 1).is_same_but_version(&there));
    assert!(!at(1, 2).is_same_but_version(&there));
    let elsewhere = entry(r#"{"n":1,"metadata":{"resourceVersion":"9"}}"#).unwrap();
    assert!(!at(1, 1).is_same_but_version(&elsewhere));
}

#[test]
fn a_long_object_is_parsed() {
    for length in [65_400, 65_500, 65_600, 200_000] {
        let long = "x".repeat(length);
        let text = format!(r#"{{"long":"{long}","metadata":{{"labels":{{"a":"b"}},"name":"x"}}}}"#);
        let entry = entry(&text).unwrap();
        assert_eq!(labels(&entry), [label("a", "b")]);
        assert!(json_at(&entry, Rv(7)).ends_with(br#""name":"x"}}"#));
    }
}

#[test]
fn a_completed_operation_is_restored_from_its_compressed_form() {
    let text = r#"{"metadata":{"resourceVersion":"7","name":"x"},"status":{"completed":"2026-11-01T10:20:30Z"}}"#;
    let entry = encode(Rv(7), text.as_bytes()).unwrap();
    assert!(matches!(entry.content, StoredContent::Packed(_)));
    assert_eq!(&*entry.json(), text.as_bytes());
    let open = entry.open();
    let texts = open.texts();
    assert_eq!(texts.text(TextField::Name).as_deref(), Some("x"));
    let mut out = b"before".to_vec();
    entry.append_json(&mut out);
    assert_eq!(out, format!("before{text}").as_bytes());
    assert_eq!(
        metadata(&entry, Rv(12)),
        br#"{"resourceVersion":"12","name":"x"}"#
    );
}
