//! Tests of the kinds of results that a caller can require, and of the conversion to them.

use super::*;

const JSON: &str = r#"{
    "spec": {"replicas": 2},
    "status": {"percent": "45.20%", "started": "2026-11-21T07:59:46+01:00", "empty": "", "zero": null}
}"#;

#[test]
fn each_result_kind_accepts_only_the_types_it_can_use() {
    let all = "true 'a' 1 1u 1.5 now [1] {'a':1} b'x' object.x";
    for (kind, accepted) in [
        (ResultKind::Bool, "true object.x"),
        (ResultKind::String, "'a' object.x"),
        (ResultKind::Progress, "'a' 1 1u 1.5 object.x"),
        (ResultKind::Time, "'a' now object.x"),
        (ResultKind::List, "[1] object.x"),
        (ResultKind::Key, "'a' 1 1u object.x"),
        (ResultKind::Any, all),
    ] {
        let compiles = |source: &&str| compile(source, kind).is_ok();
        let found: Vec<&str> = all.split(' ').filter(compiles).collect();
        assert_eq!(found.join(" "), accepted, "{kind:?}");
    }
    let error = compile("[1]", ResultKind::Progress).unwrap_err();
    let expected = "1:1: expected type 'number or string' but found 'list(int)'";
    assert_eq!(error.to_string(), expected);
}

/// Evaluates the expressions in `table` with `method`, which converts the results to `kind`. Compares
/// the text of each converted value with the table. For a failure, the text is `failed`.
#[track_caller]
fn assert_converted<T: std::fmt::Debug>(
    kind: ResultKind,
    method: impl Fn(&Program, &mut EvaluationScope<'_>) -> Result<T, EvaluationFault>,
    table: &str,
) {
    for (source, expected) in rows(table) {
        let converted = evaluate_in(JSON, &source, kind, &Environment::default(), &method);
        let text = match converted {
            Ok(value) => format!("{value:?}"),
            Err(EvaluationFault::Error { .. }) => "failed".to_owned(),
            Err(other) => other.to_string(),
        };
        assert_eq!(text, expected, "{source}");
    }
}

#[test]
fn progress_is_a_whole_number_of_percent_if_it_is_a_number() {
    assert_converted(
        ResultKind::Progress,
        Program::progress,
        "
        object.status.percent => Some(45)
        '45.99'               => Some(45)
        ' 45 % '              => Some(45)
        '100%'                => Some(100)
        '+7'                  => Some(7)
        7                     => Some(7)
        7u                    => Some(7)
        99.999                => Some(99)
        -5                    => Some(0)
        -0.5                  => Some(0)
        '-5%'                 => Some(0)
        1000                  => Some(100)
        9223372036854775807   => Some(100)
        'N/A'                 => None
        '%'                   => None
        'NaN'                 => None
        'inf'                 => None
        '1e1'                 => None
        '45%%'                => None
        object.status.empty   => None
        object.status.zero    => None
        0.0 / 0.0             => failed
        1.0 / 0.0             => failed
        object.status         => failed
        dyn(true)             => failed
        ",
    );
}

#[test]
fn times_are_timestamps_or_rfc_3339() {
    assert_converted(
        ResultKind::Time,
        Program::time,
        "
        object.status.started            => Some(2026-11-21T06:59:46Z)
        timestamp(object.status.started) => Some(2026-11-21T06:59:46Z)
        now                              => Some(2026-11-21T08:00:00Z)
        object.status.empty              => None
        object.status.zero               => None
        object.status.percent            => failed
        '2026-11-21'                     => failed
        object.spec.replicas             => failed
        '9999-12-31T23:59:59Z'           => failed
        object.status.nowhere            => no such key: nowhere
        ",
    );
}

#[test]
fn values_are_displayed_as_json_with_their_type() {
    let shown = |source: &str| {
        let none = Environment::default();
        let value = evaluate_in(JSON, source, ResultKind::Any, &none, Program::value).unwrap();
        format!("{} {}", value.type_name, value.value)
    };
    for (source, expected) in rows(
        r#"
        object.spec          => map {"replicas":2}
        1u                   => uint 1
        1.5                  => double 1.5
        0.0 / 0.0            => double "NaN"
        b'abc'               => bytes "YWJj"
        null                 => null_type null
        int                  => type "int"
        now                  => google.protobuf.Timestamp "2026-11-21T08:00:00Z"
        duration('90s')      => google.protobuf.Duration "90s"
        quantity('1.5Gi')    => kubernetes.Quantity "1610612736"
        quantity('-250m')    => kubernetes.Quantity "-0.25"
        quantity('1e2000')   => kubernetes.Quantity "1e2000"
        {1: [true, 'x']}     => map {"1":[true,"x"]}
        "#,
    ) {
        assert_eq!(shown(&source), expected, "{source}");
    }
}

#[test]
fn a_result_of_a_wrong_type_has_the_position_of_the_expression() {
    let none = Environment::default();
    let outcome = evaluate_in(JSON, "object.spec", ResultKind::Bool, &none, Program::test);
    let expected = "1:7: expected type 'bool' but found 'map'";
    assert_eq!(outcome.unwrap_err().to_string(), expected);
}

#[test]
fn items_come_from_lists_only_and_are_limited_by_the_budget() {
    let items = |json: &str, left: u64| {
        let none = Environment::default();
        let outcome = evaluate_in(
            json,
            "object.l",
            ResultKind::List,
            &none,
            |program, scope| {
                scope.budget.left = left;
                program.items(scope).map(|items| items.len())
            },
        );
        outcome.map_err(|fault| fault.to_string())
    };
    let exhausted = EvaluationFault::Budget.to_string();
    let wrong = "1:7: expected type 'list' but found 'map'".to_owned();
    assert_eq!(items(r#"{"l":[1,2,3]}"#, 4), Ok(3));
    assert_eq!(items(r#"{"l":[1,2,3]}"#, 3), Err(exhausted));
    assert_eq!(items(r#"{"l":{"a":1}}"#, 9), Err(wrong));
}

#[test]
fn only_a_single_string_is_a_literal() {
    for (source, expected) in rows(
        r#"
        'Blocked'   => Some("Blocked")
        ('Blocked') => Some("Blocked")
        'a' + 'b'   => None
        1           => None
        object.x    => None
        "#,
    ) {
        let program = compile(&source, ResultKind::Any).unwrap();
        assert_eq!(format!("{:?}", program.literal()), expected, "{source}");
    }
}
