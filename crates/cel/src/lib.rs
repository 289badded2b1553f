//! Kubernetes-flavoured CEL for controllers whose users write the expressions. The README
//! has an introduction, the limits, and what differs from cel-go and Kubernetes.
//!
//! 1. [`compile`] parses and type-checks a text. It returns a [`Program`].
//! 2. [`Program::projection`] has the field paths that the program can read.
//!    [`Doc::parse`] decodes only those from the JSON of an object.
//! 3. The methods of [`Program`] evaluate it in an [`EvaluationScope`], within a [`Budget`]. The
//!    answers equal those of cel-go. An [`EvaluationFault`] quotes no value of the object.
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
//! The crate `cel` parses; no type of it is public here. A tree of ops of this crate's own
//! is evaluated. The interpreter of `cel` is not used, because it differs from cel-go in
//! many places, allocates for every field that it selects, and has no limit on its steps.

mod answer;
mod check;
mod clause;
mod compile;
mod convert;
mod decimal;
mod doc;
mod environment;
mod eval;
mod failure;
mod fields;
mod format;
#[cfg(any(fuzzing, test, feature = "fuzzing"))]
pub mod fuzzing;
mod json;
mod kind;
mod lower;
mod op;
mod pattern;
mod project;
mod quantity;
mod re2;
mod scope;
mod strings;
mod time;
mod validate;
mod value;

#[cfg(test)]
mod tests;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

use std::sync::Arc;

use jiff::Timestamp;

pub use self::answer::Answer;
pub use self::doc::{Doc, DocError, Node};
pub use self::environment::{DeclareError, Environment};
pub use self::failure::{EvaluationFault, FixedText, MissingKey};
pub use self::fields::{NamedField, NamedFields, Origins, PathStep, ValueOrigin, fields};
pub use self::json::JsonFault;
pub use self::kind::ResultKind;
pub use self::project::Projection;
pub use self::scope::{EvaluationScope, ListElement};

use self::answer::unexpected;
use self::compile::Compiled;
use self::eval::Context;
use self::op::{Const, Op};
use self::project::Need;
use self::value::{V, charge, steps};

/// A compiled expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Program(Arc<Compiled>);

/// Compiles and type-checks `source`, which may have 4,096 bytes and 250 levels. It may use
/// the names in `environment`. The [`EvaluationScope`] that it is evaluated in needs the same ones.
///
/// # Errors
/// The first thing wrong with `source`: its syntax, a name or function that is not
/// known, arguments that do not fit, or a result that is not of `kind`.
pub fn compile(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    compile::compile(source, kind, environment).map(|compiled| Program(Arc::new(compiled)))
}

impl PartialEq for Program {
    /// Whether both give the same answers at the same cost, if they have the same variables.
    /// White space, comments and parentheses of the source make no difference.
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        Arc::ptr_eq(a, b) || (a.weight == b.weight && a.op == b.op)
    }
}

impl Program {
    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The field paths of `object` that an evaluation can read.
    pub fn projection(&self) -> &Projection {
        &self.0.projection
    }

    /// The field paths that an evaluation of a [`ResultKind::List`] program can read, if only
    /// `readers` read its items. [`Self::projection`] has the whole items, and so more paths.
    /// `environment` is the one that the program was compiled with.
    pub fn items_projection<'p>(
        &self,
        environment: &Environment,
        readers: impl IntoIterator<Item = &'p Program>,
    ) -> Projection {
        let mut item = Need::default();
        for reader in readers {
            item.merge(reader.0.item.clone());
        }
        environment.projection(&self.0.op, Need::every(item)).0
    }

    /// The string, if the whole expression is one string literal.
    pub fn literal(&self) -> Option<&str> {
        match &self.0.op {
            Op::Const(Const::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether an evaluation can read `now`, directly or through a variable.
    pub fn reads_now(&self) -> bool {
        self.0.reads_now
    }

    /// Evaluates a [`ResultKind::Bool`] program.
    ///
    /// # Errors
    /// If a field is missing, a value has a wrong type, or the budget is exhausted.
    pub fn test(&self, scope: &mut EvaluationScope<'_>) -> Result<bool, EvaluationFault> {
        match self.run(scope)? {
            V::Bool(value) => Ok(value),
            other => Err(unexpected(ResultKind::Bool, &other)),
        }
    }

    /// Evaluates a [`ResultKind::String`] program.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn text(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        match self.run(scope)? {
            V::Str(text) => Ok(text.to_string()),
            other => Err(unexpected(ResultKind::String, &other)),
        }
    }

    /// Evaluates a [`ResultKind::Progress`] program to whole percent, rounded down. A number below
    /// 0 is 0, and one above 100 is 100. None for null, and for text that is no number, such
    /// as `N/A`.
    ///
    /// # Errors
    /// As [`Self::test`]; also for a double that is not finite.
    pub fn progress(&self, scope: &mut EvaluationScope<'_>) -> Result<Option<u8>, EvaluationFault> {
        answer::progress(&self.run(scope)?)
    }

    /// Evaluates a [`ResultKind::Time`] program. None for null and for empty text.
    ///
    /// # Errors
    /// As [`Self::test`]; also for other text that is not RFC 3339.
    pub fn time(
        &self,
        scope: &mut EvaluationScope<'_>,
    ) -> Result<Option<Timestamp>, EvaluationFault> {
        answer::time(&self.run(scope)?)
    }

    /// Evaluates a [`ResultKind::Key`] program; an integer is printed.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn key(&self, scope: &mut EvaluationScope<'_>) -> Result<String, EvaluationFault> {
        answer::key(&self.run(scope)?)
    }

    /// Evaluates a [`ResultKind::List`] program to its elements. Each costs one step.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn items<'a>(
        &'a self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<Vec<ListElement<'a>>, EvaluationFault> {
        let list = self.run(scope)?;
        if !list.is_list() {
            return Err(unexpected(ResultKind::List, &list));
        }
        charge(scope.budget, steps(list.len(), 1))?;
        let elements = (0..list.len()).filter_map(|index| list.element(index));
        Ok(elements.map(ListElement).collect())
    }

    /// Evaluates a program of any kind.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn value(&self, scope: &mut EvaluationScope<'_>) -> Result<Answer, EvaluationFault> {
        let value = self.run(scope)?;
        Ok(Answer {
            type_name: value.type_name().to_owned(),
            value: answer::json(&value, scope.budget)?,
        })
    }

    fn run<'e, 'a: 'e>(
        &'e self,
        scope: &mut EvaluationScope<'a>,
    ) -> Result<V<'e>, EvaluationFault> {
        charge(scope.budget, self.0.weight)?;
        Ok(Context::new(scope).eval(&self.0.op)?)
    }
}

/// Why a text is not a valid expression, in the words of cel-go.
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

/// The steps that evaluations may still take. A step is an element that a comprehension
/// visits, or as much work of another sort. In a release build it takes at most about 300 ns.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps left.
    pub left: u64,
}

/// A budget for all expressions on one object together: about 30 ms at worst.
pub const STEPS_PER_OBJECT: u64 = 100_000;
