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

fn compilation_error(source: &str, kind: ResultKind) -> String {
    compile(source, kind).unwrap_err().to_string()
}

#[test]
fn a_program_returns_its_source() {
    let program = compile("object.a == 1", ResultKind::Bool).unwrap();
    assert_eq!(program.source(), "object.a == 1");
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
        time::CelTimestamp::from(time).to_string(),
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
        ("object.nowhere.deeper == 1", "nowhere"),
        ("object.spec.nothing.x == 1", "x"),
        ("object.spec.flag.x == 1", "x"),
        ("object.metadata.labels['b'] == 'x'", "b"),
        ("object.spec.list[2] == 1", "2"),
        ("object.spec.list[-1] == 1", "-1"),
        ("has(object.nowhere.deeper)", "nowhere"),
        ("[1, 2][5] == 1", "5"),
        ("{'a': 1}['b'] == 1", "b"),
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
fn failures_other_than_a_missing_field_are_errors() {
    for source in [
        "object.spec.replicas + 'a' == 'b'",
        "object.spec.replicas / 0 == 1",
        "object.spec.nothing > 1",
        "int(object.status.phase) == 1",
        "object.spec.list.name == 1",
        "object.spec.list['a'] == 1",
        "has(object.spec.list.name)",
        "object.status.phase",
        "object.spec.nothing.all(x, true)",
        "object.status.phase.matches('(' + '')",
    ] {
        assert!(
            matches!(evaluate_bool(source).0, Err(EvaluationFault::Error(_))),
            "{source}"
        );
    }
}

#[test]
fn either_operand_absorbs_the_failure_of_the_other() {
    for failing in ["object.nowhere", "1 / 0 == 1", "object.status.phase"] {
        assert_eq!(evaluate_bool(&format!("({failing}) || true")).0, Ok(true));
        assert_eq!(evaluate_bool(&format!("true || ({failing})")).0, Ok(true));
        assert_eq!(evaluate_bool(&format!("({failing}) && false")).0, Ok(false));
        assert_eq!(evaluate_bool(&format!("false && ({failing})")).0, Ok(false));
        assert!(evaluate_bool(&format!("({failing}) || false")).0.is_err());
        assert!(evaluate_bool(&format!("({failing}) && true")).0.is_err());
    }
}

#[test]
fn a_result_of_the_wrong_type_is_rejected_at_compile_time() {
    assert_eq!(
        compilation_error("1", ResultKind::Bool),
        "1:1: expected type 'bool' but found 'int'"
    );
    assert_eq!(
        compilation_error("'a' == 'b'", ResultKind::String),
        "1:5: expected type 'string' but found 'bool'"
    );
    assert!(compile("object.x", ResultKind::Bool).is_ok());
    assert!(compile("object.x", ResultKind::String).is_ok());
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
fn timestamps_are_parsed_and_printed_as_in_go() {
    for (source, expected) in [
        (
            "string(timestamp('2026-11-21T07:59:46+02:00'))",
            "2026-11-21T07:59:46+02:00",
        ),
        (
            "string(timestamp('2026-11-21T07:59:46.120Z'))",
            "2026-11-21T07:59:46.12Z",
        ),
        (
            "string(timestamp('2026-11-21T7:59:46Z'))",
            "2026-11-21T07:59:46Z",
        ),
        (
            "string(timestamp('2024-02-29T00:00:00Z') + duration('24h'))",
            "2024-03-01T00:00:00Z",
        ),
        (
            "string(timestamp('2024-03-01T00:00:00Z') - duration('1ns'))",
            "2024-02-29T23:59:59.999999999Z",
        ),
        ("string(timestamp(-1))", "1969-12-31T23:59:59Z"),
        (
            "string(timestamp('0001-01-01T00:00:00Z'))",
            "0001-01-01T00:00:00Z",
        ),
        ("string(duration('1h30m'))", "5400s"),
        ("string(duration('-1.5s'))", "-1.5s"),
        ("string(duration('1µs'))", "0.000001s"),
    ] {
        assert_eq!(evaluate_string(source), Ok(expected.to_owned()), "{source}");
    }
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
fn timestamp_getters_count_from_the_same_number_as_in_go() {
    let time = "timestamp('2024-12-31T23:30:15.250Z')";
    for (call, expected) in [
        ("getFullYear()", 2024),
        ("getMonth()", 11),
        ("getDate()", 31),
        ("getDayOfMonth()", 30),
        ("getDayOfYear()", 365),
        ("getDayOfWeek()", 2),
        ("getHours()", 23),
        ("getMinutes()", 30),
        ("getSeconds()", 15),
        ("getMilliseconds()", 250),
        ("getFullYear('+01:00')", 2025),
        ("getHours('-01:30')", 22),
        ("getHours('Europe/Berlin')", 0),
        ("getHours('UTC')", 23),
    ] {
        assert_eq!(
            evaluate_any(&format!("{time}.{call}")),
            Ok(format!("int:{expected}")),
            "{call}"
        );
    }
    assert_eq!(
        evaluate_any("duration('90m').getMinutes()"),
        Ok("int:90".to_owned())
    );
    assert!(evaluate_any(&format!("{time}.getHours('Nowhere/Else')")).is_err());
    assert!(evaluate_any(&format!("{time}.getHours('europe/berlin')")).is_err());
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
fn invalid_durations_and_timestamps_are_errors() {
    for source in [
        "duration('')",
        "duration('-')",
        "duration('.s')",
        "duration('1 s')",
        "duration('9223372036854775808ns')",
        "timestamp('2026-02-29T00:00:00Z')",
        "timestamp('2026-13-01T00:00:00Z')",
        "timestamp('2026-11-21T24:00:00Z')",
        "timestamp('2026-11-21T07:59:46')",
        "timestamp('2026-11-21T07:59:46Zx')",
        "timestamp('')",
        "timestamp(253402300800)",
    ] {
        assert!(compile_any(source).is_err(), "{source}");
        let (function, argument) = source.split_once('(').unwrap();
        let argument = argument.trim_end_matches(')');
        let computed = format!("{function}([{argument}][0])");
        assert!(
            matches!(evaluate_any(&computed), Err(EvaluationFault::Error(_))),
            "{computed}"
        );
    }
    assert_eq!(
        evaluate_any("duration('-9223372036854775808ns')"),
        Ok("duration:-9223372036854775808".to_owned())
    );
}

#[test]
fn patterns_have_the_meaning_of_re2() {
    for (text, pattern, expected) in [
        ("é", r"^\w$", false),
        ("٣", r"^\d$", false),
        ("\u{a0}", r"^\s$", false),
        ("\u{b}", r"^\s$", false),
        ("a-b", "[a&&b]", true),
        ("&", "^[a&&b]$", true),
        ("-", "^[+--]$", true),
        ("[x]", r"^[\[a]x\]$", true),
        ("[]", "^[a[][]]$", true),
        ("]", "^[]a]$", true),
        ("-", "^[a-]$", true),
        ("-", r"^[\w-]$", true),
        ("é", r"^[^\w]$", true),
        ("a.b", r"^\Qa.b\E$", true),
        ("axb", r"^\Qa.b\E$", false),
        ("a{", "^a{$", true),
        ("a{,2}", "^a{,2}$", true),
        ("aa", "^a{2}$", true),
        ("A", r"^\101$", true),
        ("a<b", r"^a\<b$", true),
        ("a", r"^\<a$", false),
        ("A", r"^\x41\x{42}?$", true),
        ("é x", r"é\b x", false),
        ("ab", r"a\Bb", true),
        ("K", "^(?i)k$", true),
        ("a\nb", "a.b", false),
        ("a\nb", "(?s:a.b)", true),
        ("b\na", "(?m)^a$", true),
        ("b\na", "^a$", false),
        ("xay", r"(?P<n>a)", true),
        ("xay", r"(?<n>a)", true),
        ("λ", r"^\p{Greek}$", true),
        ("λ", r"^\pL$", true),
        ("λ", r"^[[:alpha:]]$", false),
        ("1", r"^[^[:alpha:]]$", true),
        ("aab", "^a+?ab$", true),
        ("#", "^(?U)#$", true),
    ] {
        let matched = pattern::LiteralPatterns::default()
            .get(pattern)
            .map(|pattern| pattern.matches(text));
        assert_eq!(matched, Ok(expected), "{text:?} against {pattern}");
    }
}

#[test]
fn patterns_that_re2_rejects_are_rejected() {
    for pattern in [
        "(",
        ")",
        "[",
        "a)",
        "[b-a]",
        r"(a)\1",
        r"\8",
        r"\u0041",
        "a**",
        "*",
        "a{1001}",
        "a{2,1}",
        "(a{100}){100}",
        "(?x)a",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        r"\Z",
        r"\",
        r"\x{110000}",
        r"\x4",
        "[[:nope:]]",
        r"\p{Nope}",
        "(?P<>a)",
        "(?",
        "(?i",
        "a{2}{3}",
        r"[\b]",
    ] {
        assert!(
            pattern::LiteralPatterns::default().get(pattern).is_err(),
            "{pattern}"
        );
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
fn lone_surrogates_are_skipped_in_unread_fields_and_replaced_in_read_fields() {
    let json = br#"{"a":"\ud800","b":"x\udc00\ud83c\udf89\\ud800","c":"y"}"#;
    let mut projection = Projection::default();
    projection.add(&["c"]);
    let doc = Doc::parse(json, &projection).unwrap();
    assert_eq!(doc.root().get("c").and_then(Node::as_str), Some("y"));
    let doc = Doc::parse(json, &whole_object()).unwrap();
    assert_eq!(doc.root().get("a").and_then(Node::as_str), Some("\u{fffd}"));
    let b = doc.root().get("b").and_then(Node::as_str);
    assert_eq!(b, Some("x\u{fffd}🎉\\ud800"));
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
fn maps_find_numbers_of_any_type_and_iterate_their_keys() {
    for (source, expected) in [
        ("{1: 'a'}[dyn(1u)]", "string:\"a\""),
        ("{1: 'a'}[dyn(1.0)]", "string:\"a\""),
        ("{1u: 'a'}[dyn(1)]", "string:\"a\""),
        ("dyn(1.0) in {1: 'a'}", "bool:true"),
        ("{'b': 1, 'a': 2}.map(k, k)", "[string:\"b\",string:\"a\"]"),
        (
            "object.metadata.labels.map(k, object.metadata.labels[k])",
            "[string:\"x\"]",
        ),
        (
            "object.metadata == {'name': 'vm', 'labels': {'a/b': 'x'}}",
            "bool:true",
        ),
        (
            "{'name': 'vm', 'labels': {'a/b': 'x'}} == object.metadata",
            "bool:true",
        ),
        ("[1, 2] == object.spec.list", "bool:true"),
        ("object.spec.list == [1u, 2.0]", "bool:true"),
        ("type(now) == google.protobuf.Timestamp", "bool:true"),
    ] {
        assert_eq!(evaluate_any(source), Ok(expected.to_owned()), "{source}");
    }
}

#[test]
fn programs_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(value: T) -> T {
        value
    }
    shared(compile("object.a.matches('x')", ResultKind::Bool).unwrap());
    shared(Environment::default());
    shared(Projection::default());
}
