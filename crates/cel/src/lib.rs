//! CEL (Common Expression Language) with the functions of Kubernetes, for controllers whose users
//! write expressions. The README has an introduction, the limits, and the differences from
//! Kubernetes and from cel-go, the implementation that Kubernetes uses.
//!
//! 1. [`compile()`] parses and type-checks a text. It returns a [`Program`].
//! 2. [`Program::projection`] returns the field paths that the program can read.
//!    [`Doc::parse`] decodes only these fields from the JSON of an object.
//! 3. Methods of [`Program`] such as [`Program::test`] evaluate the program. The
//!    [`EvaluationScope`] has the values of the names that the program uses, such as `object`. The
//!    [`Budget`] limits the number of steps. The results equal those of cel-go, except for the
//!    differences in the README. An [`EvaluationFault`] never contains a value of the object.
//!
//! ```
//! use ifo_cel::{Budget, Doc, Environment, EvaluationFault, EvaluationScope, ResultKind, compile};
//! use jiff::Timestamp;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = compile("object.spec.replicas > 2", ResultKind::Bool, &Environment::default())?;
//! let doc = Doc::parse(br#"{"spec": {}}"#, program.projection())?;
//! let mut budget = Budget { left: 1_000 };
//! let answer = program.test(&mut EvaluationScope::new(&doc, Timestamp::now(), &mut budget));
//! assert!(matches!(answer, Err(EvaluationFault::Missing(_))));
//! # Ok(())
//! # }
//! ```
//!
//! The crate `cel` parses expressions, but the types of `cel` are not part of this crate's public
//! API. This crate does not use the interpreter of `cel`, but evaluates a tree of its own. The
//! interpreter of `cel` differs from cel-go in many details, allocates memory for every selected
//! field, and has no limit on its steps.

mod compile;
mod constant_result;
mod conversions;
mod convert_result;
mod decimal;
mod environment;
mod error_hints;
mod eval;
mod evaluation_scope;
mod explanation;
mod failure;
mod fields;
mod format;
mod format_calls;
mod format_string;
#[cfg(any(fuzzing, test, feature = "fuzzing"))]
pub mod fuzzing;
mod ip_address;
mod json_document;
mod json_fault;
mod lists;
mod lowering;
mod named_format;
mod named_format_functions;
mod observe_evaluation;
mod op;
mod op_positions;
mod optionals;
mod overloads;
mod pattern;
mod projection;
mod quantity;
mod re2;
mod result_kind;
mod result_texts;
mod schema;
mod semver_functions;
mod strings;
mod time;
mod time_comparisons;
mod type_check;
mod url;
mod url_and_ip_functions;
mod value;

#[cfg(test)]
mod tests;

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

pub use self::convert_result::{TypedValue, is_percentage};
pub use self::environment::{DeclareError, Environment};
pub use self::error_hints::nearest_value;
pub use self::evaluation_scope::{EvaluationScope, ListElement};
pub use self::explanation::{DecidingClause, Explanation};
pub use self::failure::{EvaluationFault, ExpressionPlace, FailureText, FixedText, MissingKey};
pub use self::fields::{
    NameOrigins, NamedField, NamedFields, NamedVariable, PathStep, ValueOrigins, fields,
};
pub use self::json_document::{Doc, DocError, Node};
pub use self::json_fault::JsonFault;
pub use self::projection::{MAX_PROJECTION_PARTS, Projection};
pub use self::result_kind::ResultKind;
pub use self::result_texts::{PossibleResult, ResultText};
pub use self::schema::{FieldType, ObjectSchema};
pub use self::time_comparisons::comparisons_of_time_texts;

use self::compile::Compiled;
use self::convert_result::unexpected;
use self::eval::Context;
use self::op::{Const, Op};
use self::op_positions::line_and_column;
use self::projection::NeededPart;
use self::value::{Fault, V, charge, steps};

/// A compiled expression. A clone shares the expression and is cheap.
#[derive(Clone, Debug)]
pub struct Program(Arc<Compiled>);

/// Compiles and type-checks `source`. An expression has at most 4,096 characters and 250 nesting
/// levels. It can use `object`, `now` and the names in `environment`. An [`EvaluationScope`] for
/// the program must have the values of the names that the program uses.
///
/// # Errors
/// Returns one error, even if `source` has several. The possible errors are an exceeded limit,
/// wrong syntax, an unknown name or function, a wrong argument, and a result that is not of `kind`.
pub fn compile(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    compile_with_all_errors(source, kind, environment, None).map_err(first)
}

/// Compiles `source` like [`compile()`], or like [`compile_with_schema`] if there is a schema.
///
/// # Errors
/// The first 16 errors of these functions, in the order of the text. If the syntax is wrong, or a
/// macro such as `has` is used wrongly, there are no errors of other kinds.
pub fn compile_with_all_errors(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: Option<&dyn ObjectSchema>,
) -> Result<Program, Vec<CompileError>> {
    compile::compile(source, kind, environment, schema).map(|compiled| Program(Arc::new(compiled)))
}

/// Returns the first of the errors of [`compile_with_all_errors`], which are never empty.
fn first(errors: Vec<CompileError>) -> CompileError {
    let first = errors.into_iter().next();
    first.expect("a failed compilation has at least one error")
}

/// Compiles `source` like [`compile()`]. In addition, checks that `source` uses each field of
/// `object` with the type that `schema` gives for this field. The types of variables are known only
/// if the variables were also compiled with `schema`. The type of `item` is known only if
/// `environment` was returned by [`Environment::with_item_of`]. The evaluation does not depend on
/// the schema.
///
/// If the objects fit the schema, each error is certainly a mistake in `source`. The type checker
/// of cel-go also refuses some expressions that cel-go could evaluate, such as the comparison of an
/// integer with a double. These expressions can be correct, so this function accepts them.
///
/// # Errors
/// The errors of [`compile()`]. In addition, an error if `source` compares a field with a string
/// literal that is not one of the values that the schema lists for the field.
pub fn compile_with_schema(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
    schema: &dyn ObjectSchema,
) -> Result<Program, CompileError> {
    compile_with_all_errors(source, kind, environment, Some(schema)).map_err(first)
}

impl PartialEq for Program {
    /// Returns true if the compiled forms of both programs are equal. If the variables are also
    /// equal, both programs have the same result and the same cost. White space, comments and
    /// redundant parentheses of the source make no difference.
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        Arc::ptr_eq(a, b) || (a.weight == b.weight && a.op == b.op)
    }
}

impl Program {
    /// Returns the source text.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns the field paths of `object` that an evaluation can read.
    pub fn projection(&self) -> &Projection {
        &self.0.projection
    }

    /// Returns the field paths of `object` that this program needs for its result, which must be a
    /// list. Of the list elements, the paths contain only the fields that `readers` need. `readers`
    /// are the programs that read the elements as `item`. `environment` must be the environment
    /// with which this program was compiled.
    ///
    /// The fields that `readers` read from `object` directly are not in the result: add
    /// [`Self::projection`] of each reader.
    ///
    /// For example, this program is `object.status.conditions`, and the only reader is `item.type`.
    /// Then the paths contain only the field `type` of the conditions. In contrast,
    /// [`Self::projection`] of this program contains all fields of the conditions.
    pub fn items_projection<'p>(
        &self,
        environment: &Environment,
        readers: impl IntoIterator<Item = &'p Program>,
    ) -> Projection {
        let mut item = NeededPart::default();
        for reader in readers {
            item.merge_program(reader.0.item.clone());
        }
        environment
            .projection(&self.0.op, NeededPart::every(item))
            .0
    }

    /// Returns the string if the whole expression is a constant string, such as `'a'`.
    pub fn literal(&self) -> Option<&str> {
        match &self.0.op {
            Op::Const(Const::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns true if an evaluation can read `now`, directly or through a variable.
    pub fn reads_now(&self) -> bool {
        self.0.reads_now
    }

    /// Evaluates a [`ResultKind::Bool`] program.
    ///
    /// # Errors
    /// The evaluation fails, for example because a field is missing or a value has a wrong type, or
    /// the budget is exhausted.
    pub fn test(&self, scope: &mut EvaluationScope<'_>) -> Result<bool, EvaluationFault> {
        match self.run(scope)? {
            V::Bool(value) => Ok(value),
            other => Err(self.at_root(unexpected(ResultKind::Bool, &other))),
        }
    }

    /// Evaluates a [`ResultKind::String`] program.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn text(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        match self.run(scope)? {
            V::Str(text) => Ok(text.to_string()),
            other => Err(self.at_root(unexpected(ResultKind::String, &other))),
        }
    }

    /// Evaluates a [`ResultKind::Progress`] program. Returns whole percent, rounded down. A number
    /// below 0 becomes 0, and a number above 100 becomes 100. Returns None for null and for text
    /// that is neither a plain number nor a percentage, such as `N/A`.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition a double that is not finite.
    pub fn progress(&self, scope: &mut EvaluationScope<'_>) -> Result<Option<u8>, EvaluationFault> {
        convert_result::progress(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Time`] program. Returns None for null and for empty text.
    ///
    /// # Errors
    /// The errors of [`Self::test`]. In addition, a text is neither empty nor a time in RFC 3339,
    /// or the time is in about the last 26 hours of the year 9999, which [`Timestamp`] does not
    /// support.
    pub fn time(
        &self,
        scope: &mut EvaluationScope<'_>,
    ) -> Result<Option<Timestamp>, EvaluationFault> {
        convert_result::time(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Duration`] program. A negative duration becomes zero.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn duration(&self, scope: &mut EvaluationScope<'_>) -> Result<Duration, EvaluationFault> {
        convert_result::duration(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Amount`] program. The result is finite. For a quantity, the result
    /// equals that of the CEL function `asApproximateFloat`.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition a double that is not finite.
    pub fn amount(&self, scope: &mut EvaluationScope<'_>) -> Result<f64, EvaluationFault> {
        convert_result::amount(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Strings`] program. Each element costs one step.
    ///
    /// # Errors
    /// The errors of [`Self::test`], and in addition an element that is not a string.
    pub fn strings<T: for<'t> From<&'t str>>(
        &self,
        scope: &mut EvaluationScope<'_>,
    ) -> Result<Vec<T>, EvaluationFault> {
        let list = self.run(scope)?;
        convert_result::strings(&list, scope.budget).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::Key`] program. An integer is formatted as text.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn key(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        convert_result::key(&self.run(scope)?).map_err(|fault| self.at_root(fault))
    }

    /// Evaluates a [`ResultKind::List`] program. Returns the elements. Each element costs one step.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn items<'a>(
        &'a self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<Vec<ListElement<'a>>, EvaluationFault> {
        let list = self.run(scope)?;
        if !list.is_list() {
            return Err(self.at_root(unexpected(ResultKind::List, &list)));
        }
        charge(scope.budget, steps(list.len(), 1))?;
        let elements = (0..list.len()).filter_map(|index| list.element(index));
        Ok(elements.map(ListElement).collect())
    }

    /// Evaluates a program of any kind. Returns the value as JSON, with the name of its CEL type.
    ///
    /// # Errors
    /// The errors of [`Self::test`].
    pub fn value(&self, scope: &mut EvaluationScope<'_>) -> Result<TypedValue, EvaluationFault> {
        let value = self.run(scope)?;
        Ok(TypedValue {
            type_name: value.type_name().to_owned(),
            value: convert_result::json(&value, scope.budget)?,
        })
    }

    fn run<'e, 'a: 'e>(
        &'e self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<V<'e>, EvaluationFault> {
        let steps = scope.budget.left;
        charge(scope.budget, self.0.weight)?;
        match Context::new(scope, ()).eval(&self.0.op) {
            Err(Fault::Error(text)) => {
                let taken = steps - scope.budget.left;
                let failure = observe_evaluation::locate(&self.0, text, taken, scope);
                Err(EvaluationFault::Error(Box::new(failure)))
            }
            outcome => Ok(outcome?),
        }
    }

    /// If `fault` is an error without a position, adds the position at which an error of the whole
    /// expression is reported.
    #[cold]
    #[inline(never)]
    fn at_root(&self, fault: EvaluationFault) -> EvaluationFault {
        let EvaluationFault::Error(mut failure) = fault else {
            return fault;
        };
        if failure.place.is_none() {
            let (line, column) = line_and_column(&self.0.source, self.0.root_at);
            failure.place = Some(ExpressionPlace {
                variable: None,
                line,
                column,
            });
        }
        EvaluationFault::Error(failure)
    }
}

/// The error for a text that is not a valid expression. The message equals cel-go's message, except
/// for the differences in the README.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// The message, without the position.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Advice on how to correct the expression. None if the crate has no advice for the mistake.
    /// The `Display` text of the error does not contain the hint.
    pub hint: Option<String>,
}

/// Maximum number of characters of a line in an [`excerpt`].
const EXCERPT_WIDTH: usize = 80;

impl CompileError {
    /// Returns the [`excerpt`] of `source` at the line and the column of the error.
    pub fn excerpt(&self, source: &str) -> String {
        excerpt(source, self.line, self.column)
    }
}

/// Returns two lines: a part of the line of `source` with the number `line`, and a line with a
/// caret below `column`. `line` and `column` count from 1. The part begins at most 40 characters
/// before the column, and has at most 80 characters.
pub fn excerpt(source: &str, line: usize, column: usize) -> String {
    let line = source.lines().nth(line.saturating_sub(1));
    // A tab would move the caret.
    let line: Vec<char> = line
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let at = column.saturating_sub(1).min(line.len());
    let from = at.saturating_sub(EXCERPT_WIDTH / 2);
    let part: String = line.iter().skip(from).take(EXCERPT_WIDTH).collect();
    let left = if from > 0 { "…" } else { "" };
    let indent = " ".repeat(at - from + left.chars().count());
    format!("{left}{part}\n{indent}^")
}

/// The number of steps that evaluations may still take. If an evaluation needs more steps, it ends
/// with [`EvaluationFault::Budget`].
///
/// A comprehension takes at least one step for each element that it visits. The README lists how
/// much work of other kinds counts as one step. In a release build, a step takes at most about 300
/// ns.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Number of remaining steps.
    pub left: u64,
}

/// The recommended number of steps for all expressions on one object together. In a release build,
/// these steps take at most about 30 ms.
pub const STEPS_PER_OBJECT: u64 = 100_000;
