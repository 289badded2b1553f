//! Tests of the texts of failures. A text contains the place of the failure in the expression, the
//! operator, and the types of the operands. It quotes keys and patterns only if the expression
//! contains them.

use super::*;

const OBJECT: &str =
    r#"{"text": "a", "number": 7, "list": [1, "x"], "map": {"a": 1}, "big": 9223372036854775807}"#;

#[test]
fn a_failure_has_operator_types_and_position() {
    let environment = environment(&[("sum", "object.text + object.number")]);
    for (source, expected) in rows(
        r"
        object.text + object.number         => 1:13: no such overload: string + int
        object.number\n  < object.text      => 2:3: no such overload: int < string
        size(object.number) > 1             => 1:5: no such overload: size(int)
        object.number.startsWith('a')       => 1:25: no such overload: int.startsWith(string)
        object.text == 'b' || !object.number => 1:23: no such overload: !int
        object.big + 1                      => 1:12: integer overflow: int + int
        object.number / 0                   => 1:15: division by zero: int / int
        object.list[object.text] == 1       => 1:12: unsupported index type 'string' in list
        object.list.map(x, x + 1)           => 1:22: no such overload: string + int
        object.list.all(x, x)               => 1:16: no such overload: a condition of the type int
        object.text && true                 => 1:13: no such overload: && with the type string
        object.number ? 1 : 2               => 1:15: no such overload: int ? … : …
        int(object.text) > 1                => 1:4: type conversion error from 'string' to 'int'
        object.text.matches('a' + '(')      => 1:20: error parsing regexp: string.matches(string)
        object.text.exists(x, true)         => 1:19: got 'string', expected iterable type
        object.text in object.number        => 1:13: no such overload: string in int
        'é' + object.number                 => 1:5: no such overload: string + int
        object.map.a.lowerAscii()           => 1:24: no such overload: int.lowerAscii()
        object.spec.a                       => no such key: spec
        object['spec']                      => no such key: spec
        object.list[7]                      => no such key: 7
        object.list[3 + 4]                  => no such key
        variables.sum == 'a'                => variables.sum: 1:13: no such overload: string + int
        variables.sum == '' && variables.sum == 'a' => variables.sum: 1:13: no such overload: string + int
        ",
    ) {
        assert_eq!(
            evaluate_to_text(OBJECT, &source, &environment),
            expected,
            "{source}"
        );
    }
}

/// If no term decides the result, the first failure is the result, even if a later term has been
/// evaluated after it.
#[test]
fn a_failure_of_an_ignored_term_does_not_replace_the_place_of_another_term() {
    for (source, expected) in rows(
        "
        object.text < 1 || object.number == 8 => 1:13: no such overload: string < int
        !object.number || object.text < 1     => 1:1: no such overload: !int
        ",
    ) {
        let failure = evaluate_to_text(OBJECT, &source, &Environment::default());
        assert_eq!(failure, expected, "{source}");
    }
}
