//! Tests of the limits of a compilation: the size of the expressions, the number of errors, and the
//! time.

use crate::rules::*;
use ifo_api::ruleset::OperationRuleSetSpec;
use serde_json::json;
use std::cell::Cell;

/// Returns a rule set with the given variables and rules. Each rule is a name with an expression.
fn spec(variables: &[(&str, &str)], rules: &[(&str, &str)]) -> OperationRuleSetSpec {
    let variable =
        |(name, expression): &(&str, &str)| json!({"name": name, "expression": expression});
    let rule = |(name, expression): &(&str, &str)| json!({"operation": name, "expression": expression, "state": "'Failing'"});
    let spec = json!({
        "component": "c",
        "target": {"group": "g.io", "version": "v1", "resource": "things"},
        "variables": variables.iter().map(variable).collect::<Vec<_>>(),
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
    });
    serde_json::from_value(spec).expect("the spec of the test is valid")
}

fn texts(invalid: &[RuleSetError]) -> Vec<String> {
    invalid.iter().map(ToString::to_string).collect()
}

#[test]
fn expressions_that_are_too_large_together_are_refused_before_they_are_compiled() {
    let long = format!("'{}' == object.a", "x".repeat(4_000));
    let names: Vec<String> = (0..33).map(|number| format!("Rule{number}")).collect();
    let rules: Vec<_> = names.iter().map(|name| (&**name, &*long)).collect();
    assert!(compile("a", &spec(&[], &rules[..32])).is_ok());
    let must_not_ask = || panic!("the rule set must not be compiled");
    let invalid = compile_within("a", &spec(&[], &rules), None, &must_not_ask).unwrap_err();
    let size = 33 * (long.len() + "'Failing'".len());
    let expected =
        format!("the expressions of the rule set have {size} bytes together, more than 131072");
    assert_eq!(texts(&invalid), [expected]);
}

#[test]
fn the_compiler_stops_when_the_time_is_over_and_names_the_field() {
    let spec = spec(
        &[("v", "object.v")],
        &[("First", "true"), ("Second", "1 +")],
    );
    for (calls, field) in [
        (0_u32, "variables[v].expression"),
        (1, "rules[First].state"),
        (2, "rules[First].expression"),
        (4, "rules[Second].state"),
    ] {
        let left = Cell::new(calls);
        let is_over = || left.replace(left.get().saturating_sub(1)) == 0;
        let invalid = compile_within("a", &spec, None, &is_over).unwrap_err();
        let expected = format!("{field}: the rule set takes more than 5 s to compile");
        assert_eq!(texts(&invalid), [expected], "{calls}");
    }
}

#[test]
fn the_compiler_stops_after_many_errors() {
    let wrong = format!("[{}x] == []", "x,".repeat(100));
    let names: Vec<String> = (0..64).map(|number| format!("Rule{number}")).collect();
    let rules: Vec<_> = names.iter().map(|name| (&**name, &*wrong)).collect();
    let compiled = Cell::new(0);
    let count = || {
        compiled.set(compiled.get() + 1);
        false
    };
    let invalid = compile_within("a", &spec(&[], &rules), None, &count).unwrap_err();
    assert_eq!(invalid.len(), MAX_ERRORS);
    assert!(compiled.get() < 64, "{} expressions", compiled.get());
}

#[test]
fn regular_expressions_of_one_rule_set_have_a_common_limit() {
    let search = |from: usize| {
        let patterns = (from..from + 50).map(|number| format!("object.a.matches('a{number}')"));
        patterns.collect::<Vec<_>>().join(" || ")
    };
    let (first, second, third) = (search(0), search(50), search(100));
    let two = spec(&[("v", &*first)], &[("A", &*second)]);
    assert!(compile("a", &two).is_ok());
    let three = spec(&[("v", &*first)], &[("A", &*second), ("B", &*third)]);
    let invalid = compile("a", &three).unwrap_err();
    let message = invalid[0].to_string();
    let expected = "the regular expressions of all expressions together need more than 2 MiB";
    assert!(message.starts_with("rules[B].expression: "), "{message}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn the_fields_of_a_rule_set_are_collected_once() {
    let rules = compile(
        "a",
        &spec(&[("v", "object.v.w")], &[("A", "variables.v == 1")]),
    )
    .unwrap();
    let mut expected = Projection::default();
    expected.add(&["v", "w"]);
    assert_eq!(rules.projection, expected);
}
