//! CEL. Enters: rule text and the JSON of one object. Leaves: compiled programs, the
//! field paths they need, and their answers, equal to cel-go's. The only user of the
//! `cel` crate; no type of it shows here.
//!
//! The crate parses. What it parsed is checked and made an op tree, which is walked
//! for every answer: the crate's own interpreter differs from cel-go in ways that
//! would each need a correction, allocates for every field it selects, and cannot be
//! bounded in steps.

mod check;
mod compile;
mod convert;
mod doc;
mod eval;
mod lower;
mod op;
mod pattern;
mod project;
mod re2;
mod time;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;

pub use self::doc::{Doc, DocError, Node};
pub use self::project::Projection;

use self::compile::Compiled;
use self::eval::Context;
use self::value::{V, charge};

/// What an expression must yield.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A string.
    String,
}

/// A compiled expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Program(Arc<Compiled>);

/// Compiles and checks `source` (bounded in length, depth and time).
///
/// # Errors
/// The first thing wrong with `source`: its syntax, a name or function that is not
/// known, arguments that do not fit, or a result that is not of `kind`.
pub fn compile(source: &str, kind: Kind) -> Result<Program, CompileError> {
    compile::compile(source, Some(kind)).map(|compiled| Program(Arc::new(compiled)))
}

impl Program {
    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The field paths of `object` that evaluating it can read.
    pub fn projection(&self) -> &Projection {
        &self.0.projection
    }

    /// Evaluates a [`Kind::Bool`] program.
    ///
    /// # Errors
    /// If a field is missing, a value is of a wrong type, or the budget is spent.
    pub fn test(&self, scope: &mut Scope<'_>) -> Result<bool, Failure> {
        self.run(scope, |value| match value {
            V::Bool(value) => Ok(value),
            other => Err(unexpected("bool", &other)),
        })
    }

    /// Evaluates a [`Kind::String`] program.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn text(&self, scope: &mut Scope<'_>) -> Result<String, Failure> {
        self.run(scope, |value| match value {
            V::Str(text) => Ok(text.to_string()),
            other => Err(unexpected("string", &other)),
        })
    }

    fn run<T>(
        &self,
        scope: &mut Scope<'_>,
        take: impl FnOnce(V<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        charge(scope.budget, self.0.weight)?;
        let mut context = Context {
            root: scope.doc.root(),
            now: scope.now,
            read_now: false,
            budget: scope.budget,
            vars: Vec::new(),
        };
        let value = context.eval(&self.0.op).map_err(Failure::from);
        scope.read_now |= context.read_now;
        take(value?)
    }
}

fn unexpected(wanted: &str, value: &V<'_>) -> Failure {
    Failure::Error(format!(
        "expected type '{wanted}' but found '{}'",
        value.type_name()
    ))
}

/// Why a text is not a valid expression, worded as cel-go words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// What is wrong.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// Why an evaluation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A field, key or index that is not there: the rule does not match.
    #[error("no such key: {0}")]
    Missing(String),
    /// Anything else: wrong type, overflow, conversion.
    #[error("{0}")]
    Error(String),
    /// More steps than one object may cost.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// What an expression sees.
pub struct Scope<'a> {
    /// `object`.
    pub doc: &'a Doc<'a>,
    /// `now`.
    pub now: Timestamp,
    /// What evaluating may still cost.
    pub budget: &'a mut Budget,
    /// Whether an evaluation read `now`.
    pub read_now: bool,
}

/// Steps that may still be spent on one object. A step is an element that a
/// comprehension visits, or as much work of another sort: at most some 300 ns.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps left.
    pub left: u64,
}

/// Steps for one object, all rules together.
pub const STEPS_PER_OBJECT: u64 = 100_000;
