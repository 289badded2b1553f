//! Tests of the crate's public functions with recorded results of cel-go. The tests use the cases
//! of the golden file whose result is a bool, a string or an error.

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

fn cases() -> Vec<Case> {
    let golden: Value =
        serde_json::from_str(include_str!("../../../tests/golden/cel-golden.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cases = golden["cases"].as_array().unwrap();
    cases
        .iter()
        // This case is left out. It is an error in the golden file, because the file was recorded
        // without the string library.
        .filter(|case| case["expr"] != "['a'].join(',')")
        .map(|case| Case {
            source: text(&case["expr"]),
            json: text(
                &golden["objects"][usize::try_from(case["object"].as_u64().unwrap()).unwrap()],
            ),
            phase: text(&case["phase"]),
            answer: text(&case["v"]),
        })
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
        // The unit tests cover the cases without an object.
        if case.phase != "ok" || case.json.is_empty() {
            continue;
        }
        let kind = match case.answer.split_once(':') {
            Some(("bool", _)) => ResultKind::Bool,
            Some(("string", _)) => ResultKind::String,
            _ => continue,
        };
        // Go escapes `&` in JSON.
        let expected = case.answer.replace("\\u0026", "&");
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
            "{}",
            case.source
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
