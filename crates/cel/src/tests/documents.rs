//! Tests of decoded documents, and of the fields that an evaluation decodes.

use super::*;

#[test]
fn decoded_fields_are_encoded_unchanged() {
    let mut projection = Projection::default();
    projection.add(&["a"]);
    projection.add(&["b", "*", "c"]);
    let json = br#"{"z":1,"b":[{"c":-7,"d":1},{"c":null}],"a":{"x":[1.0,"\u00e9\n",true,{}]}}"#;
    let doc = Doc::parse(json, &projection).unwrap();
    let encoded = doc.to_json();
    let text = r#"{"a":{"x":[1.0,"é\n",true,{}]},"b":[{"c":-7},{"c":null}]}"#;
    assert_eq!(String::from_utf8(encoded.clone()).unwrap(), text);
    let again = Doc::parse(&encoded, &projection).unwrap();
    assert_eq!(again.to_json(), encoded);
}

#[test]
fn strings_without_escapes_are_borrowed() {
    let json = br#"{"a":"plain"}"#;
    let doc = Doc::parse(json, &whole_object()).unwrap();
    let text = doc.root().get("a").and_then(Node::as_str).unwrap();
    assert!(json.as_ptr_range().contains(&text.as_ptr()));
}

#[test]
fn documents_that_are_no_object_or_too_large_are_rejected() {
    let refused = |json: &[u8]| Doc::parse(json, &whole_object()).unwrap_err();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    for json in [
        "",
        "{",
        "{}x",
        "{\"a\":1e400}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\ud800\"}",
        &deep,
    ] {
        assert!(
            matches!(refused(json.as_bytes()), DocError::NoJson(_)),
            "{json}"
        );
    }
    for json in ["[]", "1", "null"] {
        assert_eq!(refused(json.as_bytes()), DocError::NotAnObject, "{json}");
    }
    assert_eq!(refused(b"{\"a\":\"\xff\"}"), DocError::NotUtf8);
    let many = format!("{{\"a\":[{}1]}}", "1,".repeat(100_000));
    assert_eq!(refused(many.as_bytes()), DocError::TooManyValues);
    let large = format!("{{\"a\":\"{}\"}}", "a".repeat(32 << 20));
    assert_eq!(refused(large.as_bytes()), DocError::TooLong);
}

#[test]
fn json_errors_do_not_quote_the_text() {
    #[derive(Debug, Deserialize)]
    struct Numbered {
        #[serde(rename = "number")]
        _number: u8,
    }
    for (text, want) in [
        (r#"{"number": "marker"}"#, "of another form"),
        (r#"{"number": marker}"#, "not valid JSON"),
        (r#"{"number": "marker"#, "ends too early"),
        (r#""marker""#, "of another form"),
        (r#"{"marker": 1}"#, "of another form"),
    ] {
        let error = serde_json::from_str::<Numbered>(text).unwrap_err();
        let fault = JsonFault::from(&error).to_string();
        assert!(fault.contains(want), "{text}: {fault}");
        assert!(!fault.contains("marker"), "{fault}");
    }
}

#[test]
fn has_does_not_decode_the_value() {
    let program = compile_any("has(object.a.b)").unwrap();
    let doc = Doc::parse(br#"{"a":{"b":"\ud800","c":1}}"#, &program.projection).unwrap();
    assert_eq!(doc.to_json(), br#"{"a":{"b":null}}"#);
    let found = evaluate(&program, &doc, &mut full_budget());
    assert_eq!(found, Ok("bool:true".to_owned()));
}
