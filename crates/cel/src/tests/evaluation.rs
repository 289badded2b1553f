//! Tests of evaluations, of timestamps and regular expressions, and of decoded documents.

use super::*;

const JSON: &[u8] = br#"{
    "metadata": {"name": "vm", "labels": {"a/b": "x"}},
    "spec": {"replicas": 2, "nothing": null, "flag": true, "list": [1, 2]},
    "status": {"phase": "Running", "started": "2026-11-21T07:59:46Z"}
}"#;

fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

/// Evaluates an expression on [`JSON`]. Returns the result, and true if the evaluation read `now`.
fn evaluate_bool(source: &str) -> (Result<bool, EvaluationFault>, bool) {
    let program = compile(source, ResultKind::Bool).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    let outcome = program.test(&mut scope);
    (outcome, scope.read_now)
}

fn evaluate_string(source: &str) -> Result<String, EvaluationFault> {
    let program = compile(source, ResultKind::String).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    program.text(&mut EvaluationScope::new(&doc, now(), &mut full_budget()))
}

fn evaluate_any(source: &str) -> Result<String, EvaluationFault> {
    let program = compile_any(source).unwrap();
    let doc = Doc::parse(JSON, &program.projection).unwrap();
    evaluate(&program, &doc, &mut full_budget())
}

#[test]
fn now_is_the_evaluation_time_and_reading_it_is_recorded() {
    let after = "now - timestamp(object.status.started) > duration('10s')";
    assert_eq!(evaluate_bool(after), (Ok(true), true));
    assert_eq!(
        evaluate_string("string(now)"),
        Ok("2026-11-21T08:00:00Z".to_owned())
    );
}

#[test]
fn a_time_before_1970_with_a_fraction_is_formatted() {
    let time: Timestamp = "1969-12-31T23:59:58.5Z".parse().unwrap();
    assert_eq!(
        crate::value::time::CelTimestamp::from(time).to_string(),
        "1969-12-31T23:59:58.5Z"
    );
}

#[test]
fn now_in_an_unevaluated_branch_is_not_recorded_as_read() {
    let unread = "object.status.phase == 'Running' || now > timestamp(0)";
    assert_eq!(evaluate_bool(unread), (Ok(true), false));
}

#[test]
fn a_failed_evaluation_records_that_it_read_now() {
    let failing = "now > timestamp(0) && object.nowhere == 1";
    assert_eq!(
        evaluate_bool(failing),
        (
            Err(EvaluationFault::Missing(MissingKey::spelled("nowhere"))),
            true
        )
    );
}

#[test]
fn absent_fields_are_missing() {
    for (source, what) in [
        ("object.nowhere == 1", "nowhere"),
        ("object.spec.nothing.x == 1", "x"),
        ("object.metadata.labels['b'] == 'x'", "b"),
        ("object.spec.list[2] == 1", "2"),
        ("has(object.nowhere.deeper)", "nowhere"),
        ("object.spec.list.exists(x, x.y == 1)", "y"),
    ] {
        assert_eq!(
            evaluate_bool(source).0,
            Err(EvaluationFault::Missing(MissingKey::spelled(what))),
            "{source}"
        );
    }
}

#[test]
fn errors_carry_line_and_column_in_characters() {
    for (source, line, column) in [
        ("true &&\n  foo", 2, 3),
        ("'é🎉' == foo", 1, 9),
        ("'é'\n== 'é🎉' + bar", 2, 11),
        ("object.a ==", 1, 12),
        ("\n\n  (1", 3, 5),
    ] {
        let error = compile(source, ResultKind::Bool).unwrap_err();
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{source}: {error}"
        );
    }
}

#[test]
fn expressions_on_one_object_share_its_budget() {
    let program = compile("object.spec.list.all(x, x > 0)", ResultKind::Bool).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = Budget { left: 5 };
    let mut evaluate = || program.test(&mut EvaluationScope::new(&doc, now(), &mut budget));
    // An evaluation takes three steps: one for the program, and one for each of two elements.
    assert_eq!(evaluate(), Ok(true));
    assert_eq!(evaluate(), Err(EvaluationFault::Budget));
    assert_eq!(evaluate(), Err(EvaluationFault::Budget));
}

#[test]
fn a_fraction_of_a_duration_is_computed_as_a_double_as_in_go() {
    // The expected values are results of Go's `time.ParseDuration`.
    for (text, nanoseconds) in [
        ("0.97709390000000m", "58625633999"),
        ("0.0000000000002777778h", "1"),
        ("0.9223372036854775808s", "922337203"),
        ("-0.5ns", "0"),
        ("2562047h47m16.854775807s", "9223372036854775807"),
        ("-9223372036.854775808s", "-9223372036854775808"),
    ] {
        let source = format!("duration('{text}') == duration('{nanoseconds}ns')");
        assert_eq!(evaluate_bool(&source), (Ok(true), false), "{text}");
    }
}

#[test]
fn the_error_for_a_too_large_precision_contains_the_limit() {
    let format = |clause: &str| evaluate_string(&format!("'{clause}'.format([1.5])"));
    assert!(format("%.255f").is_ok());
    for clause in ["%.256f", "%.256e"] {
        let error = format(clause).unwrap_err().to_string();
        let expected = "error during formatting: the precision is more than 255";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_document_has_only_the_projected_fields() {
    let mut projection = Projection::default();
    projection.add(&["metadata", "name"]);
    projection.add(&["items", "*", "id"]);
    let json = br#"{"metadata":{"name":"n","uid":"u"},"items":[{"id":1,"x":2},{"id":2}],"z":[1]}"#;
    let doc = Doc::parse(json, &projection).unwrap();
    let root = doc.root();
    let metadata = root.get("metadata").unwrap();
    assert_eq!(metadata.get("name").and_then(Node::as_str), Some("n"));
    assert!(metadata.get("uid").is_none());
    assert!(root.get("z").is_none());
    let items = root.get("items").unwrap();
    let ids: Vec<_> = items
        .elements()
        .map(|item| item.get("id").and_then(Node::as_i64))
        .collect();
    assert_eq!(ids, [Some(1), Some(2)]);
    assert!(items.elements().all(|item| item.get("x").is_none()));
}

#[test]
fn strings_without_escapes_are_borrowed() {
    let json = br#"{"a":"plain"}"#;
    let doc = Doc::parse(json, &whole_object()).unwrap();
    let text = doc.root().get("a").and_then(Node::as_str).unwrap();
    assert!(json.as_ptr_range().contains(&text.as_ptr()));
}

#[test]
fn numbers_are_integers_if_they_fit() {
    let json = br#"{"a":9223372036854775807,"b":9223372036854775808,"c":1.0,"d":true}"#;
    let doc = Doc::parse(json, &whole_object()).unwrap();
    let get = |name| doc.root().get(name).unwrap();
    assert_eq!(get("a").as_i64(), Some(i64::MAX));
    assert_eq!(get("b").as_i64(), None);
    assert_eq!(get("c").as_i64(), None);
    assert_eq!(get("d").as_bool(), Some(true));
}

#[test]
fn the_last_of_duplicate_keys_wins_in_small_and_large_maps() {
    let many: Vec<_> = (0..40).map(|n| format!("\"k{}\":{n}", n % 20)).collect();
    let json = format!("{{\"z\":1,\"a\":2,\"z\":3,\"m\":{{{}}}}}", many.join(","));
    let doc = Doc::parse(json.as_bytes(), &whole_object()).unwrap();
    let root = doc.root();
    assert_eq!(root.get("z").and_then(Node::as_i64), Some(3));
    assert_eq!(root.get("a").and_then(Node::as_i64), Some(2));
    let members = root.get("m").unwrap();
    assert_eq!(members.len(), 20);
    for n in 0..20 {
        assert_eq!(
            members.get(&format!("k{n}")).and_then(Node::as_i64),
            Some(n + 20)
        );
    }
}

#[test]
fn documents_that_are_no_object_or_too_large_are_rejected() {
    let refused = |json: &[u8]| Doc::parse(json, &whole_object()).unwrap_err();
    for json in [
        "",
        "[]",
        "1",
        "null",
        "{",
        "{}x",
        "{\"a\":1e400}",
        "{\"a\":\"\\x\"}",
    ] {
        assert!(matches!(
            refused(json.as_bytes()),
            DocError::NoJson(_) | DocError::NotAnObject
        ));
    }
    assert_eq!(refused(b"{\"a\":\"\xff\"}"), DocError::NotUtf8);
    assert!(matches!(refused(br#"{"a":"\ud800"}"#), DocError::NoJson(_)));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(refused(deep.as_bytes()), DocError::NoJson(_)));
    let many = format!("{{\"a\":[{}1]}}", "1,".repeat(100_000));
    assert_eq!(refused(many.as_bytes()), DocError::TooManyValues);
    let large = format!("{{\"a\":\"{}\"}}", "a".repeat(32 << 20));
    assert_eq!(refused(large.as_bytes()), DocError::TooLong);
}

#[test]
fn a_value_whose_fields_are_read_by_name_and_by_computed_key_is_decoded_completely() {
    // If the projection kept the named path and the computed path separately, its size would double
    // at each level.
    let named = format!("object{}", ".a".repeat(60));
    let indexed = format!("object{}", "[object.k]".repeat(60));
    let program = compile_any(&format!("[{named}, {indexed}]")).unwrap();
    assert_eq!(program.projection, whole_object());
}

#[test]
fn has_does_not_decode_the_value() {
    let program = compile_any("has(object.a.b)").unwrap();
    let doc = Doc::parse(br#"{"a":{"b":"\ud800","c":1}}"#, &program.projection).unwrap();
    let a = doc.root().get("a").unwrap();
    assert_eq!(a.len(), 1);
    assert_eq!(a.get("b").and_then(Node::as_str), None);
    assert_eq!(
        evaluate(&program, &doc, &mut full_budget()),
        Ok("bool:true".to_owned())
    );
}

#[test]
fn a_prefix_can_end_with_a_dash_and_be_one_byte_longer() {
    let is_valid = |text: &str| {
        let source = format!("!format.dns1123LabelPrefix().validate('{text}').hasValue()");
        evaluate_any(&source)
    };
    let long = format!("{}-", "a".repeat(63));
    // As in Kubernetes, the byte before the dash is not checked.
    for text in [&long, "a_-"] {
        assert_eq!(is_valid(text), Ok("bool:true".to_owned()), "{text}");
    }
    assert_eq!(is_valid("-"), Ok("bool:false".to_owned()));
}

#[test]
fn two_unknown_types_of_one_argument_are_equal() {
    // The elements of `[]` have an unknown type, so the result of `sortBy` is `list(A)` for keys of
    // all types, and not `dyn`. Null fits the element type of the sum only if it is a duration.
    assert_eq!(
        evaluate_any("(true ? [].sortBy(x, null) : [[null]][0]).sum()"),
        Ok("duration:0".to_owned())
    );
    assert_eq!(
        evaluate_any("[].sortBy(x, null).sum()"),
        Ok("int:0".to_owned())
    );
}
