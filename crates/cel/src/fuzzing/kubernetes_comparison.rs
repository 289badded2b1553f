//! Compares the answers of this crate with the answers of Kubernetes, and lists the known
//! differences. An answer is the value of a CEL expression or its error.
//!
//! The tests use recorded answers of Kubernetes. The example `compare_with_kubernetes` generates
//! random expressions, and gets Kubernetes' answers from `cel-oracle`. This Go program evaluates
//! expressions with the code of Kubernetes. `cel-go` is the CEL implementation in this code.

use jiff::Timestamp;

pub use super::answers::{Answer, PolicyVariable};
use super::answers::{class, class_here, format_value};
use super::differences::{DIFFERENCES, Difference, has_excluded_text};
use crate::budget::Budget;
use crate::compile::environment::Environment;
use crate::compile::parse::CompileError;
use crate::compile::program::Program;
use crate::document::Doc;
use crate::eval::scope::EvaluationScope;
use crate::result_kind::ResultKind;
use crate::value::failure::EvaluationFault;

/// The result of the comparison of two answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The answers are equal.
    Same,
    /// The answers differ on purpose, for this reason.
    Known(&'static str),
    /// The answers differ for an unknown reason. The text is the answer of this crate.
    Different(String),
}

/// Evaluates the expression of `answer` on the object `json`, and compares the result with
/// `answer`.
pub fn compare(answer: &Answer, json: &[u8]) -> Comparison {
    let environment = declare(&answer.variables);
    let program = crate::compile::compile(&answer.expr, ResultKind::Any, &environment);
    let here = match &program {
        Err(_) => "compile-err".to_owned(),
        Ok(program) => class_here(evaluate(program, &environment, json)),
    };
    let known = || {
        let mut all = DIFFERENCES.iter().chain(OF_RANDOM_EXPRESSIONS);
        all.find(|known| (known.applies)(answer, &here))
    };
    if here != class(answer) {
        return known().map_or_else(
            || {
                let error = program.as_ref().err().map(ToString::to_string);
                Comparison::Different(format!("{here} {}", error.unwrap_or_default()))
            },
            |known| Comparison::Known(known.reason),
        );
    }
    match program {
        Err(error) if answer.v.starts_with("ERROR: <input>:") && !has_same_text(answer, &error) => {
            if has_excluded_text(answer) || differs_slightly(answer, &error) {
                Comparison::Known("The text or the position of the compile error differs.")
            } else {
                Comparison::Different(error.to_string())
            }
        }
        _ => Comparison::Same,
    }
}

/// Evaluates a program on those fields of the object `json` that the program reads. Returns the
/// value as text, as [`format_value`] does. The budget is large: an expression within the cost
/// limit of Kubernetes does not exhaust this budget.
fn evaluate(
    program: &Program,
    environment: &Environment,
    json: &[u8],
) -> Result<String, EvaluationFault> {
    let doc = Doc::parse_value(json, program.projection()).expect("the object is valid JSON");
    let mut budget = Budget { left: 10_000_000 };
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    scope.set_variables(environment);
    program.run(&mut scope).map(|value| format_value(&value))
}

/// Returns true if a compile error has the text and the position of Kubernetes' error.
pub(crate) fn has_same_text(answer: &Answer, error: &CompileError) -> bool {
    // Kubernetes' answer has only the first line of the error. The text of some of our errors is
    // longer: a colon and a reason follow.
    let text = format!("ERROR: <input>:{error}");
    let line = text.lines().next().unwrap_or_default();
    line == answer.v || line.starts_with(&format!("{}: ", answer.v))
}

/// Returns true if a compile error differs from that of cel-go for one of these reasons:
///
/// - For an error at a negative number, our position is the first digit, and cel-go's position is
///   the sign.
/// - cel-go infers a type that is unknown here.
/// - cel-go also reports a list or map literal with values of different types.
fn differs_slightly(answer: &Answer, error: &CompileError) -> bool {
    let mut at_sign = error.clone();
    at_sign.column -= 1;
    let place = format!("ERROR: <input>:{}:{}: ", error.line, error.column);
    (answer.expr.contains('-') && has_same_text(answer, &at_sign))
        || has_unknown_type(answer)
        || (answer.v.starts_with(&place) && error.message.contains("dyn"))
        || (answer.v.contains(": expected type '") && !answer.v.contains("type 'bool'"))
}

/// The known differences in random expressions, in addition to [`DIFFERENCES`]. Some reasons are in
/// both lists. The conditions here ([`Difference::applies`]) are less exact than the conditions of
/// [`DIFFERENCES`], because random expressions combine functions in every way.
const OF_RANDOM_EXPRESSIONS: &[Difference] = &[
    Difference {
        reason: "If several iterations of a macro such as `filter` fail, our error is that of the first \
                 one. In cel-go, it is the error of the last condition that fails.",
        applies: |answer, here| {
            let macros = ["filter(", "map(", "xists_one(", "xistsOne(", ".transform"];
            let is_error = |class: &str| ["missing", "eval-err"].contains(&class);
            is_error(here)
                && is_error(&class(answer))
                && macros.iter().any(|name| answer.expr.contains(name))
        },
    },
    Difference {
        reason: "cel-go converts the result of a conditional or of `optMap` to a Go value and back. \
                 Values that are types, and nested optionals, are lost.",
        applies: |answer, here| {
            answer.phase == "ok" && without_lost_types(&class(answer)) == without_lost_types(here)
        },
    },
    Difference {
        reason: "cel-go infers an unknown type from the first use of the value. If the value has \
                 another type during the evaluation, the evaluation fails.",
        applies: |answer, here| {
            answer.phase == "eval-err"
                && (answer.v.starts_with("no such overload: ")
                    // If both operands of `&&` or `||` fail, cel-go returns the error of one of
                    // them. This error can be another one than `no such overload`.
                    || answer.expr.contains(" && ")
                    || answer.expr.contains(" || "))
                && has_unknown_type(answer)
                && here != "compile-err"
        },
    },
    Difference {
        reason: "cel-go infers the type of an empty list, an empty map or an empty optional also from \
                 later uses.",
        applies: |answer, here| {
            answer.phase == "compile-err" && has_unknown_type(answer) && here != "compile-err"
        },
    },
    Difference {
        reason: "cel-go does not know the types of all variables when it compiles an expression.",
        applies: |answer, here| {
            answer.phase != "compile-err"
                && answer.expr.contains("variables.")
                && here == "compile-err"
        },
    },
    Difference {
        reason: "cel-go loses a nested optional in a conditional, `optMap` or `optFlatMap`.",
        applies: |answer, here| {
            let nested = [
                "optional.of(optional.",
                "optional.of(object.?",
                "optional.ofNonZeroValue(optional.",
                "optional.ofNonZeroValue(object.?",
            ];
            let is_error = |class: &str| ["missing", "eval-err"].contains(&class);
            let count = |text: &str| answer.expr.matches(text).count();
            let conditionals = count("optMap(") + count("optFlatMap(") + count(" ? ");
            nested.iter().any(|part| answer.expr.contains(part))
                || (is_error(here) != is_error(&class(answer))
                    && here != "compile-err"
                    && answer.phase != "compile-err"
                    && conditionals > 0
                    && count("optional.of") + count(".?") + count("[?") > 1)
        },
    },
    Difference {
        reason: "In Kubernetes, `matches`, `find` and `findAll` with a literal pattern also search the \
                 text in an optional if the expression that yields the optional has the type dyn.",
        applies: |answer, here| {
            let searches = ["find", "matches("];
            answer.phase != "compile-err"
                && answer.expr.contains('?')
                && searches.iter().any(|name| answer.expr.contains(name))
                && here == "eval-err"
        },
    },
    Difference {
        reason: "NaN has no order. We put it at the end.",
        applies: |answer, _| answer.expr.contains("NaN") && answer.expr.contains("sort"),
    },
    Difference {
        reason: "Kubernetes cannot subtract the smallest integer from a quantity.",
        applies: |answer, _| answer.expr.contains(".sub(-9223372036854775808)"),
    },
    Difference {
        reason: "In cel-go, an optional in a list, map or variable has no fields and no elements.",
        applies: |answer, here| {
            ["optional.", "variables."]
                .iter()
                .any(|part| answer.expr.contains(part))
                && (["missing", "optional.none"].contains(&&*class(answer))
                    || answer.v == "optional.none() dereference")
                && here != "compile-err"
        },
    },
    Difference {
        reason: "In cel-go, `has(object.?field)` yields an optional instead of a bool if the call \
                 is used as a map key or is a branch of a conditional.",
        applies: |answer, here| {
            answer.v == "invalid qualifier type: *types.Optional"
                || (answer.expr.contains(" ? ")
                    && answer.expr.contains("has(")
                    && answer.v.starts_with("optional.")
                    && here.starts_with("bool:"))
        },
    },
    Difference {
        reason: "In cel-go, several sums that begin with the same bytes literal share their \
                 memory. So all of these sums have the value of the last one.",
        applies: |answer, here| {
            answer.phase == "ok"
                && answer.expr.contains("(b'")
                && answer.expr.contains("' + ")
                && here.contains("bytes:")
        },
    },
    Difference {
        reason: "In Kubernetes' answer, the text of a quantity of more than 63 bits is not exact.",
        applies: |answer, here| {
            let is_long = |part: &str| {
                let number = part.trim_start_matches('-').chars();
                number.take_while(char::is_ascii_digit).count() > 18
            };
            answer.phase == "ok" && here.split("quantity:").skip(1).any(is_long)
        },
    },
    Difference {
        reason: "When cel-go sorts more than 12 elements, equal elements such as 0.0 and -0.0 can \
                 change their order. Here, they keep it.",
        applies: |answer, here| {
            answer.phase == "ok"
                && answer.expr.contains(".sort")
                && characters(&class(answer)) == characters(here)
        },
    },
    Difference {
        reason: "In Kubernetes, the keys of a map have no order. Here, they are sorted.",
        applies: |answer, here| {
            answer.phase == "ok"
                && answer.expr.contains("transformList(")
                && characters(&class(answer)) == characters(here)
        },
    },
    Difference {
        reason: "The text of a URL is as it is written. Kubernetes changes the scheme to lower case.",
        applies: |answer, _| answer.expr.contains("HTTPS://"),
    },
    Difference {
        reason: "The message about a text that is not a URI has other words.",
        applies: |answer, _| answer.expr.contains("uri"),
    },
    Difference {
        reason: "The time zone `Local` is the zone of the server, so it is refused.",
        applies: |answer, here| {
            let variables = answer.variables.iter().map(|it| &it.expression);
            let mut expressions = variables.chain([&answer.expr]);
            expressions.any(|it| it.contains("'Local'")) && here == "eval-err"
        },
    },
];

/// Returns the sorted characters of a value, in which `-0.0` is replaced by `0.0`. Two lists with
/// the same elements in another order have the same characters.
fn characters(value: &str) -> Vec<char> {
    let value = value.replace("double:8000000000000000", "double:0000000000000000");
    let mut all: Vec<char> = value.chars().collect();
    all.sort_unstable();
    all
}

/// Returns true if the expression has a part whose type cel-go infers from later uses of its value.
/// An example is the empty list `[]`.
fn has_unknown_type(answer: &Answer) -> bool {
    let unknown = [
        "[]",
        "{}",
        "null.",
        "none()",
        ".value()",
        "orValue(",
        ".reverse()",
        ".slice(",
        ".distinct()",
        ".first()",
        ".last()",
        ".flatten()",
        "unwrap",
        "sortBy(",
        "optMap(",
        "optFlatMap(",
        "transformMapEntry(",
    ];
    unknown.iter().any(|part| answer.expr.contains(part))
}

/// Removes the types that cel-go loses when it converts a value to a Go value and back: an optional
/// becomes its value or null, and a type becomes a string.
fn without_lost_types(value: &str) -> String {
    let value = value.replace("optional.none", "null");
    let value = value.replace("optional.of(", "").replace(')', "");
    value.replace("type:", "string:").replace('"', "")
}

/// Returns an environment with `variables`. A variable that does not compile is left out. An
/// expression that reads this variable does not compile either.
pub(crate) fn declare(variables: &[PolicyVariable]) -> Environment {
    let mut environment = Environment::default();
    for PolicyVariable { name, expression } in variables {
        if let Ok(program) = crate::compile::compile(expression, ResultKind::Any, &environment) {
            // A reserved word such as `namespace` cannot be declared.
            let _ = environment.declare(name, program);
        }
    }
    environment
}
