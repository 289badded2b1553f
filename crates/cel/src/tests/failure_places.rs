//! Tests that the text of a failure contains its place in the expression, the operator, and the
//! types of the operands.

use super::*;

const OBJECT: &str =
    r#"{"text": "a", "number": 7, "list": [1, "x"], "map": {"a": 1}, "big": 9223372036854775807}"#;

fn failure(source: &str) -> String {
    let program = crate::compile(source, ResultKind::Any, &Environment::default());
    let program = program.expect(source);
    let doc = Doc::parse(OBJECT.as_bytes(), program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    program.value(&mut scope).expect_err(source).to_string()
}

#[test]
fn a_failure_has_operator_types_and_position() {
    for (source, expected) in [
        (
            "object.text + object.number",
            "1:13: no such overload: string + int",
        ),
        (
            "object.number\n  < object.text",
            "2:3: no such overload: int < string",
        ),
        (
            "size(object.number) > 1",
            "1:5: no such overload: size(int)",
        ),
        (
            "object.number.startsWith('a')",
            "1:25: no such overload: int.startsWith(string)",
        ),
        (
            "object.text == 'b' || !object.number",
            "1:23: no such overload: !int",
        ),
        ("object.big + 1", "1:12: integer overflow: int + int"),
        ("object.number / 0", "1:15: division by zero: int / int"),
        (
            "object.list[object.text] == 1",
            "1:12: unsupported index type 'string' in list",
        ),
        (
            "object.list.map(x, x + 1)",
            "1:22: no such overload: string + int",
        ),
        (
            "object.list.all(x, x)",
            "1:16: no such overload: all(…) with a condition of the type int",
        ),
        (
            "object.text && true",
            "1:13: no such overload: && with the type string",
        ),
        (
            "object.number ? 1 : 2",
            "1:15: no such overload: int ? … : …",
        ),
        (
            "int(object.text) > 1",
            "1:4: type conversion error from 'string' to 'int'",
        ),
        (
            "object.text.matches('a' + '(')",
            "1:20: error parsing regexp: string.matches(string)",
        ),
        (
            "object.text.exists(x, true)",
            "1:19: got 'string', expected iterable type",
        ),
        (
            "object.text in object.number",
            "1:13: no such overload: string in int",
        ),
        ("'é' + object.number", "1:5: no such overload: string + int"),
        (
            "object.map.a.lowerAscii()",
            "1:24: no such overload: int.lowerAscii()",
        ),
    ] {
        assert_eq!(failure(source), expected, "{source}");
    }
}

#[test]
fn a_failure_of_an_ignored_term_does_not_replace_the_place_of_another_term() {
    // The second term is evaluated after the first term has failed. The second term is false, so
    // the failure of the first term is the result.
    assert_eq!(
        failure("object.text < 1 || object.number == 8"),
        "1:13: no such overload: string < int"
    );
    // Both terms fail, and the first failure is the result.
    assert_eq!(
        failure("!object.number || object.text < 1"),
        "1:1: no such overload: !int"
    );
}

#[test]
fn a_failure_in_a_variable_names_the_variable() {
    let mut environment = Environment::default();
    let sum = crate::compile("object.text + object.number", ResultKind::Any, &environment);
    environment.declare("sum", sum.unwrap()).unwrap();
    let program = crate::compile("variables.sum == 'a'", ResultKind::Bool, &environment);
    let program = program.unwrap();
    let doc = Doc::parse(OBJECT.as_bytes(), program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    scope.set_variables(&environment);
    for _ in 0..2 {
        let failure = program.test(&mut scope).unwrap_err().to_string();
        assert_eq!(
            failure,
            "variables.sum: 1:13: no such overload: string + int"
        );
    }
}

#[test]
fn a_result_of_a_wrong_type_has_the_position_of_the_expression() {
    let program = compile("object.text", ResultKind::Bool).unwrap();
    let doc = Doc::parse(OBJECT.as_bytes(), program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    let failure = program.test(&mut scope).unwrap_err().to_string();
    assert_eq!(failure, "1:7: expected type 'bool' but found 'string'");
}
