//! Tests that the compiler's memory and time are bounded. An attacker can write expressions and
//! variables that make the data of the compiler grow exponentially.

use super::*;
use crate::compile::op::Op;
use crate::document::projection::{MAX_PROJECTION_PARTS, NeededPart};
use crate::types::Ty;

/// Declares the variables `v0` to `v31`. The first variable is `first`. `next` returns the
/// expression of each further variable from the name of the variable before it.
fn variables(first: &str, next: impl Fn(&str) -> String) -> Environment {
    let names: Vec<_> = (0..32).map(|number| format!("v{number}")).collect();
    let others = names.iter().map(|name| next(&format!("variables.{name}")));
    let sources: Vec<_> = [first.to_owned()].into_iter().chain(others).collect();
    let pairs = names.iter().zip(&sources);
    environment(
        &pairs
            .map(|(name, source)| (&**name, &**source))
            .collect::<Vec<_>>(),
    )
}

fn with_variables(source: &str, environment: &Environment) -> Program {
    crate::compile(source, ResultKind::Any, environment).expect(source)
}

/// Returns `first`, followed by `times` repetitions of `call`.
fn chain(first: &str, call: &str, times: usize) -> String {
    format!("{first}{}", call.repeat(times))
}

#[test]
fn fields_that_double_with_each_variable_or_call_are_limited() {
    let environment = variables("object.spec", |last| {
        format!("object.x ? {last}['a'] : {last}['b']")
    });
    let program = with_variables("variables.v31.c", &environment);
    let parts = program.projection().root.count();
    assert!(parts <= 128, "{parts} parts");
    let few = with_variables("variables.v3.c", &environment);
    // The fields `x` and `spec`, and below `spec` 2 + 4 + 8 fields and 8 times the field `c`.
    assert_eq!(few.projection().root.count(), 2 + 14 + 8);

    let each = with_variables("variables.v31.c", &environment);
    let list = with_variables("object.list", &environment);
    let items = list.items_projection(&environment, [&each]);
    assert!(items.root.count() <= MAX_PROJECTION_PARTS);

    let source = chain("object.?a", ".optMap(v, object.x ? v.a : v.b)", 100);
    let program = with_variables(&source, &Environment::default());
    assert!(program.projection().root.count() <= 128);
}

#[test]
fn fields_of_many_programs_are_limited() {
    let mut projection = Projection::default();
    for number in 0..MAX_PROJECTION_PARTS {
        projection.add(&[&format!("field{number}")]);
    }
    assert_eq!(projection.root.count(), MAX_PROJECTION_PARTS);
    let mut other = Projection::default();
    other.add(&["another"]);
    projection.merge(&other);
    assert_eq!(projection.root, NeededPart::whole());
}

#[test]
fn types_that_double_with_each_variable_or_call_become_dyn() {
    let environment = variables("[1]", |last| format!("{{{last}: {last}}}"));
    let program = with_variables("variables.v31", &environment);
    assert!(program.0.ty.to_string().len() < 1_000);
    let shallow = with_variables("variables.v2", &environment);
    let inner = "map(list(int), list(int))";
    assert_eq!(shallow.0.ty.to_string(), format!("map({inner}, {inner})"));

    let source = chain("[1]", ".map(x, {x: x})", 100);
    let program = with_variables(&source, &Environment::default());
    assert!(matches!(program.0.ty, Ty::List(_)), "{}", program.0.ty);
}

#[test]
fn possible_results_of_long_selections_are_unknown() {
    let long = ".a".repeat(3);
    let environment = variables("object.a ? 'x' : 'y'", |last| {
        format!("object.a ? dyn({last}){long} : dyn({last}).b{long}")
    });
    let program = with_variables("variables.v31", &environment);
    let results = program.possible_results(&environment);
    assert!(results.iter().all(|it| it.text.is_none()), "{results:?}");
}

#[test]
fn variables_that_multiply_their_results_are_read_a_limited_number_of_times() {
    let environment = variables("dyn(object.a ? 'x' : 'y')", |last| {
        format!("object.a ? {last}['a'] : {last}['b']")
    });
    let program = with_variables("variables.v31", &environment);
    let results = program.possible_results(&environment).len();
    assert!(results <= 64, "{results}");
}

#[test]
fn an_expression_with_very_many_results_or_errors_has_some_of_them() {
    let texts = format!("[{}'x'][object.i]", "'x',".repeat(900));
    let program = with_variables(&texts, &Environment::default());
    let results = program.possible_results(&Environment::default());
    assert_eq!(results.len(), 256);
    assert_eq!(results[255].text, None);

    let wrong = format!("[{}x]", "x,".repeat(2_000));
    let errors = compile_with_all_errors(&wrong, ResultKind::Any, &Environment::default(), None);
    let errors = errors.expect_err("x is not declared");
    assert_eq!(errors.len(), 16);
    assert_eq!((errors[15].line, errors[15].column), (1, 32));
}

/// Compiles an expression with the given regular expressions.
fn search(
    patterns: impl IntoIterator<Item = String>,
    environment: &Environment,
) -> Result<Program, CompileError> {
    let calls = patterns
        .into_iter()
        .map(|pattern| format!("object.a.find(r'{pattern}')"));
    let calls: Vec<_> = calls.collect();
    crate::compile(&calls.join(" + "), ResultKind::String, environment)
}

#[test]
fn regular_expressions_of_one_environment_have_a_common_limit() {
    let environment = Environment::default();
    // Each of these patterns counts 16 KiB, so 128 of them need 2 MiB.
    for tens in 0..13 {
        let numbers = tens * 10..(tens * 10 + 10).min(128);
        search(numbers.map(|number| format!("a{number}")), &environment)
            .expect("the patterns are within the limit");
    }
    let error = search(["b".to_owned()], &environment.with_item()).unwrap_err();
    let expected = "the regular expressions of all expressions together need more than 2 MiB";
    assert_eq!(error.message, expected);
    // An equal pattern needs no more memory.
    search((0..100).map(|_| "a1".to_owned()), &environment).expect("the pattern is compiled");
    search(["b".to_owned()], &Environment::default()).expect("another environment is not affected");
}

#[test]
fn large_regular_expressions_count_more() {
    let environment = Environment::default();
    let large = |letter: char| format!("(?:{letter}{{100}}){{10}}.{{500}}");
    let compiled = ('a'..='z').take_while(|letter| search([large(*letter)], &environment).is_ok());
    assert_eq!(compiled.count(), 2);
}

#[test]
fn regular_expressions_that_are_too_large_use_up_the_limit() {
    let environment = Environment::default();
    let error = |number: usize| {
        let refused = search([format!(r"\pL{{{number}}}")], &environment);
        refused.expect_err("the pattern is too large").message
    };
    for number in 491..500 {
        let message = error(number);
        assert!(message.contains("cannot compile"), "{message}");
    }
    let message = error(500);
    assert!(
        message.contains("together need more than 2 MiB"),
        "{message}"
    );
}

#[test]
fn regular_expressions_with_too_many_states_are_not_compiled() {
    for (pattern, expected) in [
        ("a".repeat(32_000), None),
        ("a".repeat(32_001), Some("the pattern is too large")),
        (r"\pL".repeat(500), Some("cannot compile")),
        (r"\pL".repeat(501), Some("the pattern is too large")),
        (r"\B".repeat(501), Some("the pattern is too large")),
        (
            r"(?:\pL{50}){11}".to_owned(),
            Some("the pattern is too large"),
        ),
    ] {
        let refused = crate::regex::pattern::LiteralPatterns::default()
            .get(&pattern)
            .err();
        match (&refused, expected) {
            (Some(error), Some(expected)) => assert!(error.contains(expected), "{error}"),
            _ => assert_eq!(refused.as_deref(), expected),
        }
    }
}

#[test]
fn large_classes_that_ignore_case_are_refused() {
    let all = r"[\x{0}-\x{10ffff}]";
    for (pattern, is_valid) in [
        (format!("(?i){}", all.repeat(8)), true),
        (format!("(?i){}", all.repeat(9)), false),
        (all.repeat(100), true),
        (format!("(?s-i:{})", all.repeat(100)), true),
        (format!("a(?i:{})", r"\S".repeat(9)), false),
        (format!("(?i){}", r"[\PL]".repeat(200)), false),
        (format!("(?i){}", "[[:^alpha:]a]".repeat(9)), false),
        (format!("(?i){}", "[[:alpha:]a]".repeat(9)), true),
        (
            r"(?i)\bError:\s+[^:]+: [\s\S]*[a-z0-9]{1,20}\W\D".to_owned(),
            true,
        ),
    ] {
        let compiled = search([pattern.clone()], &Environment::default());
        assert_eq!(compiled.is_ok(), is_valid, "{pattern}");
        if let Err(error) = compiled {
            assert!(error.message.contains("ignores case"), "{error}");
        }
    }
}

#[test]
fn a_computed_regular_expression_takes_steps_for_its_classes() {
    let steps = |pattern: &str| {
        let program = compile_any(&format!("'x'.matches('{pattern}' + object.a)")).unwrap();
        let doc = Doc::parse(br#"{"a": "y"}"#, &program.projection).unwrap();
        let mut budget = full_budget();
        let _ = evaluate(&program, &doc, &mut budget);
        STEPS_PER_OBJECT - budget.left
    };
    assert!(steps("(?i)[a-f]") < 6_000);
    assert!(steps(r"(?i)[\\x{0}-\\x{10ffff}]") > 20_000);
}

#[test]
fn a_computed_regular_expression_has_at_most_64_kib() {
    let matches = |groups: usize| {
        let json = format!(r#"{{"a": "{}"}}"#, "()".repeat(groups));
        evaluate_to_text(&json, "'x'.matches(object.a)", &Environment::default())
    };
    assert_eq!(matches(1 << 15), "true");
    let expected = "1:12: error parsing regexp: string.matches(string)";
    assert_eq!(matches((1 << 15) + 1), expected);
}

#[test]
fn variables_are_not_copied_into_the_expressions_that_use_them() {
    let environment = variables("object.a", |last| format!("[{last}, {last}]"));
    let program = with_variables("variables.v31", &environment);
    assert!(matches!(program.0.op, Op::Variable(31)));
}
