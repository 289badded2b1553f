//! The scan against `serde_json`, on sound and on damaged documents.

use super::*;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

static LAYOUT: Layout = Layout {
    paths: &[&["a"], &["a", "b"], &["spec", "é", "d"]],
    example: b"",
};

/// Documents that have what the scan looks for in all kinds of places.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-9_999..9_999).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        "[\\x00-\\x7fäß€😀\"\\\\]{0,8}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("a"),
        Just("b"),
        Just("spec"),
        Just("é"),
        Just("d"),
        Just("\n")
    ];
    let inner = leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(Value::from_iter),
        ]
    });
    let labels = prop::collection::btree_map("[a-z]{1,3}", "[a-z]{0,3}", 0..3);
    (inner, labels).prop_map(|(inner, labels)| {
        let metadata = json!({"name": "x", "labels": labels, "resourceVersion": "12"});
        match inner {
            Value::Object(mut members) => {
                members.insert("metadata".into(), metadata);
                Value::Object(members)
            }
            other => json!({"a": other, "metadata": metadata}),
        }
    })
}

fn decoded(span: Span, text: &[u8]) -> Option<Value> {
    (!span.is_empty()).then(|| serde_json::from_slice(span.of(text)).unwrap())
}

proptest! {
    #[test]
    fn spans_hold_what_a_decoder_finds(document in document(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_vec_pretty(&document)
        } else {
            serde_json::to_vec(&document)
        }.unwrap();
        let spans = spans(&text, &LAYOUT).unwrap();
        let at = |pointer: &str| document.pointer(pointer).cloned();
        prop_assert_eq!(decoded(spans.metadata, &text), at("/metadata"));
        prop_assert_eq!(decoded(spans.version, &text), at("/metadata/resourceVersion"));
        prop_assert_eq!(decoded(spans.labels, &text), at("/metadata/labels"));
        let values: Vec<_> = spans.values.iter().map(|&span| decoded(span, &text)).collect();
        prop_assert_eq!(values, vec![at("/a"), at("/a/b"), at("/spec/é/d")]);
    }

    #[test]
    fn a_damaged_text_is_refused_exactly_when_a_decoder_refuses_it(
        document in document(),
        edits in prop::collection::vec(
            (any::<prop::sample::Index>(), "[\\[\\]{},:\"\\\\0-9.eE+\\-u\n tfn]?", any::<bool>()),
            1..3,
        ),
    ) {
        let mut text: Vec<char> = document.to_string().chars().collect();
        for (at, new, replace) in edits {
            let at = at.index(text.len());
            text.splice(at..at + usize::from(replace), new.chars());
        }
        let text: String = text.into_iter().collect();
        let refused = serde_json::from_str::<IgnoredAny>(&text).is_err();
        let ours = match spans(text.as_bytes(), &LAYOUT).map_err(|e| e.what) {
            // Found at once, so nothing is said of the rest of the text.
            Err("a member for the second time") => return Ok(()),
            // In the last three cases it is JSON, though not what we index.
            Ok(_) | Err(
                "no object metadata"
                | "a resourceVersion that is no string"
                | "labels that are no object",
            ) => false,
            Err(_) => true,
        };
        prop_assert_eq!(ours, refused, "{}", text);
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(spans(&text, &LAYOUT).is_err());
    }
}

#[test]
fn numbers_are_as_strict_as_the_grammar() {
    let with = |number: &str| {
        let text = format!(r#"{{"metadata":{{}},"a":{number}}}"#);
        spans(text.as_bytes(), &LAYOUT).is_ok()
    };
    for number in ["0", "-0", "10", "1.5", "-1.5e+10", "0e1", "1E-2"] {
        assert!(with(number), "{number}");
    }
    for number in [
        "", "-", "01", "1.", ".5", "1e", "1e+", "+1", "0x1", "NaN", "--1",
    ] {
        assert!(!with(number), "{number}");
    }
}
