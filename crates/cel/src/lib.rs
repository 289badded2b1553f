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

mod analysis;
mod budget;
mod compile;
mod document;
mod eval;
mod explain;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod library;
mod regex;
mod result_kind;
mod types;
mod value;

pub use self::analysis::results::PossibleResult;
pub use self::analysis::times::comparisons_of_time_texts;
pub use self::budget::{Budget, STEPS_PER_OBJECT};
pub use self::compile::environment::{DeclareError, Environment};
pub use self::compile::hints::nearest_value;
pub use self::compile::parse::{CompileError, excerpt};
pub use self::compile::program::Program;
pub use self::compile::{compile, compile_with_all_errors};
pub use self::document::Doc;
pub use self::document::fault::{DocError, JsonFault};
pub use self::document::item::Node;
pub use self::document::projection::Projection;
pub use self::eval::result::TypedValue;
pub use self::eval::scope::{EvaluationScope, ListElement};
pub use self::explain::{DecidingClause, Explanation};
pub use self::result_kind::ResultKind;
pub use self::types::{FieldType, ObjectSchema, PathStep};
pub use self::value::failure::EvaluationFault;

#[cfg(test)]
mod tests;

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
