//! What an entry knows of its JSON, and how versions get into it.

use super::*;
use serde_json::{Value, json};

static LAYOUT: Layout = Layout {
    paths: &[
        &["spec", "operation"],
        &["status"],
        &["status", "progress"],
        &["metadata", "name"],
        &["metadata", "resourceVersion"],
        &["no", "such"],
    ],
    example: b"",
};
const RV: Rv = Rv(1_795_262_179_263_067);

fn entry(text: &str) -> Result<Entry, Malformed> {
    encode(RV, text.as_bytes())
}

fn encode(rv: Rv, text: &[u8]) -> Result<Entry, Malformed> {
    Ok(Encoded::new(rv, text, &LAYOUT)?.pack(Key::new("a", "x")))
}

fn text(part: Option<&[u8]>) -> Option<&str> {
    part.map(|part| std::str::from_utf8(part).unwrap())
}

#[test]
fn an_entry_knows_its_parts_and_carries_its_version() {
    for version in [r#""resourceVersion":"1","#, r#""resourceVersion":"","#, ""] {
        let before = format!(
            r#"{{"kind":"K","metadata":{{"name":"x",{version}"labels":{{"a":"b"}}}},"spec":{{"operation":"Mi\"g"}},"status":{{"progress":45}}}}"#
        );
        let entry = entry(&before).unwrap();
        let entry = entry.open();
        let mut object: Value = serde_json::from_str(&before).unwrap();
        object["metadata"]["resourceVersion"] = json!("1795262179263067");
        let told: Value = serde_json::from_slice(entry.json()).unwrap();
        assert_eq!(told, object);
        let metadata: Value = serde_json::from_slice(entry.metadata()).unwrap();
        assert_eq!(metadata, object["metadata"]);
        assert_eq!(text(entry.labels()), Some(r#"{"a":"b"}"#));
        let values: Vec<_> = (0..7).map(|n| text(entry.value(n))).collect();
        assert_eq!(
            values,
            [
                Some(r#""Mi\"g""#),
                Some(r#"{"progress":45}"#),
                Some("45"),
                Some(r#""x""#),
                // A layout may ask for it too.
                Some(r#""1795262179263067""#).filter(|_| !version.is_empty()),
                None,
                None
            ]
        );
    }
}

#[test]
fn an_entry_tolerates_whitespace_and_any_order_of_members() {
    let entry = entry(
        "\n{ \"status\" : {\"progress\" : 7 } ,\r\n\t\"metadata\" : { \"labels\" : {} , \"resourceVersion\" : \"5\" } } ",
    )
    .unwrap();
    let entry = entry.open();
    assert_eq!(text(entry.value(2)), Some("7"));
    assert_eq!(text(entry.labels()), Some("{}"));
    assert!(
        text(Some(entry.metadata()))
            .unwrap()
            .starts_with("{ \"labels\"")
    );
    assert!(
        text(Some(entry.json()))
            .unwrap()
            .contains("\"1795262179263067\"")
    );
}

#[test]
fn a_version_is_inserted_where_there_is_none() {
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
        assert_eq!(text(Some(entry.open().json())), Some(after));
    }
}

#[test]
fn another_version_is_spliced_in_at_any_length() {
    let entry = entry(r#"{"metadata":{"resourceVersion":"1","z":[]},"n":1}"#).unwrap();
    for rv in [0, 42, 1_795_262_179_263_068, u64::MAX] {
        let expected = format!(r#"{{"metadata":{{"resourceVersion":"{rv}","z":[]}},"n":1}}"#);
        assert_eq!(entry.open().json_at(Rv(rv)), expected.as_bytes());
        let metadata = format!(r#"{{"resourceVersion":"{rv}","z":[]}}"#);
        assert_eq!(entry.open().metadata_at(Rv(rv)), metadata.as_bytes());
    }
}

#[test]
fn null_labels_are_none_and_other_kinds_are_refused() {
    let with = |labels: &str| entry(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#));
    assert_eq!(with("null").unwrap().open().labels(), None);
    for labels in ["[]", "1", "\"a\"", "true"] {
        assert_eq!(with(labels).unwrap_err().what, "labels that are no object");
    }
}

#[test]
fn what_is_no_object_with_metadata_is_refused() {
    for text in [
        "",
        "null",
        "[]",
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
    assert_eq!(entry(&deep).unwrap_err().what, "a value too deep");
    let encoded = encode(RV, b"{\"\xff\":1}");
    assert_eq!(encoded.unwrap_err().what, "no UTF-8");
}

#[test]
fn entries_are_compared_apart_from_their_version() {
    let at = |rv, n| {
        let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"n":{n}}}"#);
        Encoded::new(Rv(rv), text.as_bytes(), &LAYOUT).unwrap()
    };
    let there = at(22_222, 1).pack(Key::new("a", "x"));
    assert!(at(1, 1).is_same_but_version(&there));
    assert!(!at(1, 2).is_same_but_version(&there));
    let elsewhere = entry(r#"{"n":1,"metadata":{"resourceVersion":"9"}}"#).unwrap();
    assert!(!at(1, 1).is_same_but_version(&elsewhere));
}

#[test]
fn a_long_object_has_its_parts_too() {
    for length in [65_400, 65_500, 65_600, 200_000] {
        let long = "x".repeat(length);
        let text = format!(r#"{{"long":"{long}","metadata":{{"labels":{{"a":"b"}},"name":"x"}}}}"#);
        let entry = entry(&text).unwrap();
        let object = entry.open();
        assert_eq!(object.value(3), Some(&br#""x""#[..]));
        assert_eq!(object.labels(), Some(&br#"{"a":"b"}"#[..]));
        assert!(object.json_at(Rv(7)).ends_with(br#""name":"x"}}"#));
    }
}
