//! CEL. Enters: rule text and the JSON of one object. Leaves: compiled programs, the
//! field paths they need, and their answers, equal to cel-go's. The only user of the
//! `cel` crate; no type of it shows here.
//!
//! The crate parses. What it parsed is checked and made an op tree, which is walked
//! for every answer: the crate's own interpreter differs from cel-go in ways that
//! would each need a correction, allocates for every field it selects, and cannot be
//! bounded in steps.

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

use std::sync::Arc;

use jiff::Timestamp;

pub use self::answer::Answer;
pub use self::doc::{Doc, DocError, Node};
pub use self::environment::{DeclareError, Environment};
pub use self::failure::{Failure, FixedText, MissingKey};
pub use self::fields::{Field, Fields, Origin, Origins, Step, fields};
pub use self::json::JsonFault;
pub use self::kind::Kind;
pub use self::project::Projection;
pub use self::scope::{Item, Scope};

use self::answer::unexpected;
use self::compile::Compiled;
use self::eval::Context;
use self::op::{Const, Op};
use self::project::Need;
use self::value::{V, charge, steps};

/// A compiled expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Program(Arc<Compiled>);

/// Compiles and checks `source` (bounded in length, depth and time). `environment` has
/// the names it may use; evaluating it needs the same in its [`Scope`].
///
/// # Errors
/// The first thing wrong with `source`: its syntax, a name or function that is not
/// known, arguments that do not fit, or a result that is not of `kind`.
pub fn compile(
    source: &str,
    kind: Kind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    compile::compile(source, kind, environment).map(|compiled| Program(Arc::new(compiled)))
}

impl PartialEq for Program {
    /// Whether they answer the same at the same price, where they have the same variables.
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

    /// The field paths of `object` that evaluating it can read.
    pub fn projection(&self) -> &Projection {
        &self.0.projection
    }

    /// The field paths that evaluating a [`Kind::List`] program can read where of its
    /// items only what `readers` read is needed: less than [`Self::projection`], which
    /// keeps them whole. `environment` is what it was compiled against.
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

    /// Whether evaluating it, or a variable it uses, can read `now`.
    pub fn reads_now(&self) -> bool {
        self.0.reads_now
    }

    /// Evaluates a [`Kind::Bool`] program.
    ///
    /// # Errors
    /// If a field is missing, a value is of a wrong type, or the budget is spent.
    pub fn test(&self, scope: &mut Scope<'_>) -> Result<bool, Failure> {
        match self.run(scope)? {
            V::Bool(value) => Ok(value),
            other => Err(unexpected(Kind::Bool, &other)),
        }
    }

    /// Evaluates a [`Kind::String`] program.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn text(&self, scope: &mut Scope<'_>) -> Result<String, Failure> {
        match self.run(scope)? {
            V::Str(text) => Ok(text.to_string()),
            other => Err(unexpected(Kind::String, &other)),
        }
    }

    /// Evaluates a [`Kind::Progress`] program: percent, rounded down, what is less than
    /// 0 or more than 100 cut to that. None for null and for text that is no number,
    /// such as `N/A`.
    ///
    /// # Errors
    /// As [`Self::test`]; also for a double that is not finite.
    pub fn progress(&self, scope: &mut Scope<'_>) -> Result<Option<u8>, Failure> {
        answer::progress(&self.run(scope)?)
    }

    /// Evaluates a [`Kind::Time`] program. None for null and for empty text.
    ///
    /// # Errors
    /// As [`Self::test`]; also for other text that is not RFC 3339.
    pub fn time(&self, scope: &mut Scope<'_>) -> Result<Option<Timestamp>, Failure> {
        answer::time(&self.run(scope)?)
    }

    /// Evaluates a [`Kind::Key`] program; an integer is printed.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn key(&self, scope: &mut Scope<'_>) -> Result<String, Failure> {
        answer::key(&self.run(scope)?)
    }

    /// Evaluates a [`Kind::List`] program to its elements, each at the price of a step.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn items<'a>(&'a self, scope: &mut Scope<'a>) -> Result<Vec<Item<'a>>, Failure> {
        let list = self.run(scope)?;
        if !list.is_list() {
            return Err(unexpected(Kind::List, &list));
        }
        charge(scope.budget, steps(list.len(), 1))?;
        let elements = (0..list.len()).filter_map(|index| list.element(index));
        Ok(elements.map(Item).collect())
    }

    /// Evaluates a program of any kind.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn value(&self, scope: &mut Scope<'_>) -> Result<Answer, Failure> {
        let value = self.run(scope)?;
        Ok(Answer {
            type_name: value.type_name().to_owned(),
            value: answer::json(&value, scope.budget)?,
        })
    }

    fn run<'e, 'a: 'e>(&'e self, scope: &mut Scope<'a>) -> Result<V<'e>, Failure> {
        charge(scope.budget, self.0.weight)?;
        Ok(Context::new(scope).eval(&self.0.op)?)
    }
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

/// Steps that may still be spent on one object. A step is an element that a
/// comprehension visits, or as much work of another sort: at most some 300 ns.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Steps left.
    pub left: u64,
}

/// Steps for one object, all rules together.
pub const STEPS_PER_OBJECT: u64 = 100_000;
