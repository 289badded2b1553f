//! Tests of the crate's public functions with recorded answers of Kubernetes. The tests use the
//! recorded cases that have an object, and whose result is a bool, a string or an error.

use ifo_cel::{
    Budget, Doc, Environment, EvaluationFault, EvaluationScope, ResultKind, STEPS_PER_OBJECT,
    compile,
};
use jiff::Timestamp;
use serde_json::Value;

struct Case {
    source: String,
    json: String,
    phase: String,
    answer: String,
}

/// Returns the cases with an object and without variables.
fn cases() -> Vec<Case> {
    let text = include_str!("../../../tests/golden/kubernetes-cel/answers.jsonl");
    let mut lines = text.lines().map(|line| {
        let value: Value = serde_json::from_str(line).unwrap();
        value
    });
    let header = lines.next().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    lines
        .filter(|case| case["variables"].is_null())
        .filter_map(|case| {
            let object = usize::try_from(case["object"].as_u64()?).unwrap();
            Some(Case {
                source: text(&case["expr"]),
                json: text(&header["objects"][object]),
                phase: text(&case["phase"]),
                answer: text(&case["v"]),
            })
        })
        // Two groups of cases are left out. A list literal with values of several types is an error
        // only in Kubernetes. Some expressions make Kubernetes panic.
        .filter(|case: &Case| {
            !case.answer.contains(": expected type '") && !case.answer.starts_with("panic:")
        })
        // Each compilation starts a thread, which takes time. So only every seventh case is tested
        // here.
        .step_by(7)
        .collect()
}

/// Evaluates a case and returns its result in the format of the golden file.
fn evaluate(case: &Case, kind: ResultKind) -> Result<String, EvaluationFault> {
    let program = compile(&case.source, kind, &Environment::default())
        .unwrap_or_else(|e| panic!("{}: {e}", case.source));
    let doc = Doc::parse(case.json.as_bytes(), program.projection()).unwrap();
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    let answer = match kind {
        ResultKind::Bool => program
            .test(&mut scope)
            .map(|answer| format!("bool:{answer}")),
        ResultKind::String => program
            .text(&mut scope)
            .map(|answer| format!("string:{}", serde_json::to_string(&answer).unwrap())),
        other => panic!("{other:?}"),
    };
    assert!(!scope.read_now, "{}", case.source);
    answer
}

#[test]
fn booleans_and_strings_equal_those_of_cel_go() {
    let mut compared = 0;
    for case in cases() {
        if case.phase != "ok" {
            continue;
        }
        let kind = match case.answer.split_once(':') {
            Some(("bool", _)) => ResultKind::Bool,
            Some(("string", _)) => ResultKind::String,
            _ => continue,
        };
        // Go escapes these characters in JSON. serde_json does not.
        let expected = case
            .answer
            .replace("\\u0026", "&")
            .replace("\\u003c", "<")
            .replace("\\u003e", ">");
        assert_eq!(evaluate(&case, kind), Ok(expected), "{}", case.source);
        compared += 1;
    }
    assert!(compared > 140, "only {compared} results were compared");
}

#[test]
fn expressions_that_cel_go_rejects_are_rejected_for_both_kinds() {
    for case in cases().iter().filter(|case| case.phase == "compile-err") {
        assert!(
            compile(&case.source, ResultKind::Bool, &Environment::default()).is_err(),
            "{}: {}",
            case.source,
            case.answer
        );
        assert!(
            compile(&case.source, ResultKind::String, &Environment::default()).is_err(),
            "{}",
            case.source
        );
    }
}

#[test]
fn expressions_that_fail_in_cel_go_fail_and_a_missing_field_is_distinguished() {
    let mut compared = 0;
    for case in cases().iter().filter(|case| case.phase == "eval-err") {
        if compile(&case.source, ResultKind::Bool, &Environment::default()).is_err() {
            continue;
        }
        let missing = ["no such key", "index out of bounds"]
            .iter()
            .any(|start| case.answer.starts_with(start));
        let failure = evaluate(case, ResultKind::Bool).expect_err(&case.source);
        assert_eq!(
            matches!(failure, EvaluationFault::Missing(_)),
            missing,
            "{}",
            case.source
        );
        compared += 1;
    }
    assert!(compared > 30, "only {compared} errors were compared");
}
