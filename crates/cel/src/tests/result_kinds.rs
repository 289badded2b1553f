//! Tests of the conversion of results to the kind that the caller requires.

use super::*;

const JSON: &[u8] = br#"{
    "status": {
        "percent": "45.20%", "started": "2026-11-21T07:59:46+01:00", "empty": "", "zero": null
    }
}"#;

fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

#[test]
fn each_result_kind_accepts_only_the_types_it_can_use() {
    let all = [
        "true", "'a'", "1", "1u", "1.5", "now", "[1]", "{'a': 1}", "b'x'", "object.x",
    ];
    for (kind, accepted) in [
        (ResultKind::Bool, &["true", "object.x"][..]),
        (ResultKind::String, &["'a'", "object.x"]),
        (ResultKind::Progress, &["'a'", "1", "1u", "1.5", "object.x"]),
        (ResultKind::Time, &["'a'", "now", "object.x"]),
        (ResultKind::List, &["[1]", "object.x"]),
        (ResultKind::Key, &["'a'", "1", "1u", "object.x"]),
        (ResultKind::Any, &all),
    ] {
        for source in all {
            let compiled = compile(source, kind);
            assert_eq!(
                compiled.is_ok(),
                accepted.contains(&source),
                "{source} as {kind:?}"
            );
        }
    }
    assert_eq!(
        compile("[1]", ResultKind::Progress)
            .unwrap_err()
            .to_string(),
        "1:1: expected type 'number or string' but found 'list(int)'"
    );
}

/// Evaluates an expression on [`JSON`] with `method`, which converts the result to `kind`.
fn evaluate_as<T>(
    source: &str,
    kind: ResultKind,
    method: impl FnOnce(&Program, &mut EvaluationScope<'_>) -> Result<T, EvaluationFault>,
) -> Result<T, EvaluationFault> {
    let program = compile(source, kind).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = full_budget();
    method(
        &program,
        &mut EvaluationScope::new(&doc, now(), &mut budget),
    )
}

#[test]
fn progress_is_a_whole_number_of_percent_if_it_is_a_number() {
    for (source, expected) in [
        ("object.status.percent", Some(45)),
        ("'45.99'", Some(45)),
        ("' 45 % '", Some(45)),
        ("'100%'", Some(100)),
        ("'+7'", Some(7)),
        ("7", Some(7)),
        ("7u", Some(7)),
        ("99.999", Some(99)),
        ("-5", Some(0)),
        ("-0.5", Some(0)),
        ("'-5%'", Some(0)),
        ("1000", Some(100)),
        ("9223372036854775807", Some(100)),
        ("'N/A'", None),
        ("'%'", None),
        ("'NaN'", None),
        ("'inf'", None),
        ("'1e1'", None),
        ("'45%%'", None),
        ("object.status.empty", None),
        ("object.status.zero", None),
    ] {
        let progress = evaluate_as(source, ResultKind::Progress, Program::progress);
        assert_eq!(progress, Ok(expected), "{source}");
    }
    for source in ["0.0 / 0.0", "1.0 / 0.0", "object.status", "dyn(true)"] {
        let progress = evaluate_as(source, ResultKind::Progress, Program::progress);
        assert!(
            matches!(progress, Err(EvaluationFault::Error(_))),
            "{source}"
        );
    }
}

#[test]
fn times_are_timestamps_or_rfc_3339() {
    let started: Timestamp = "2026-11-21T06:59:46Z".parse().unwrap();
    for (source, expected) in [
        ("object.status.started", Some(started)),
        ("timestamp(object.status.started)", Some(started)),
        ("now", Some(now())),
        ("object.status.empty", None),
        ("object.status.zero", None),
    ] {
        let time = evaluate_as(source, ResultKind::Time, Program::time);
        assert_eq!(time, Ok(expected), "{source}");
    }
    for source in [
        "object.status.percent",
        "'2026-11-21'",
        "object.spec.replicas",
        "'9999-12-31T23:59:59Z'",
    ] {
        let time = evaluate_as(source, ResultKind::Time, Program::time);
        assert!(matches!(time, Err(EvaluationFault::Error(_))), "{source}");
    }
    let missing = evaluate_as("object.status.nowhere", ResultKind::Time, Program::time);
    assert!(matches!(missing, Err(EvaluationFault::Missing(_))));
}

#[test]
fn values_are_displayed_as_json_with_their_type() {
    for (source, name, json) in [
        ("object.spec", "map", r#"{"replicas":2}"#),
        ("1u", "uint", "1"),
        ("1.5", "double", "1.5"),
        ("0.0 / 0.0", "double", r#""NaN""#),
        ("b'abc'", "bytes", r#""YWJj""#),
        ("null", "null_type", "null"),
        ("int", "type", r#""int""#),
        (
            "now",
            "google.protobuf.Timestamp",
            r#""2026-11-21T08:00:00Z""#,
        ),
        ("duration('90s')", "google.protobuf.Duration", r#""90s""#),
        (
            "quantity('1.5Gi')",
            "kubernetes.Quantity",
            r#""1610612736""#,
        ),
        ("quantity('-250m')", "kubernetes.Quantity", r#""-0.25""#),
        ("quantity('1e2000')", "kubernetes.Quantity", r#""1e2000""#),
        ("{1: [true, 'x']}", "map", r#"{"1":[true,"x"]}"#),
    ] {
        let answer = evaluate_as(source, ResultKind::Any, Program::value).unwrap();
        assert_eq!(answer.type_name, name, "{source}");
        assert_eq!(answer.value.to_string(), json, "{source}");
    }
}

#[test]
fn only_a_single_string_is_a_literal() {
    let literal = |source: &str| {
        let program = compile(source, ResultKind::Any).unwrap();
        program.literal().map(str::to_owned)
    };
    assert_eq!(literal("'Blocked'"), Some("Blocked".to_owned()));
    assert_eq!(literal("('Blocked')"), Some("Blocked".to_owned()));
    assert_eq!(literal("'a' + 'b'"), None);
    assert_eq!(literal("1"), None);
    assert_eq!(literal("object.x"), None);
}
