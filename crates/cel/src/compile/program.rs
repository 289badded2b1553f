//! The result of a compilation.

use std::sync::Arc;

use super::op::Op;
use super::spans::Spans;
use crate::document::projection::{NeededPart, Projection};
use crate::types::Ty;
use crate::value::constant::Const;

/// A compiled expression. A clone shares the expression and is cheap.
#[derive(Clone, Debug)]
pub struct Program(pub(crate) Arc<Compiled>);

#[derive(Debug)]
pub(crate) struct Compiled {
    pub source: String,
    /// The places of the ops in `source`.
    pub spans: Spans,
    /// The byte offset of the outermost operation in `source`. An error whose exact position is not
    /// known is reported at this offset.
    pub root_at: usize,
    pub op: Op,
    pub ty: Ty,
    /// Number of steps that an evaluation takes from its budget at its beginning. Some ops take
    /// further steps. For example, `exists` takes steps for each iteration.
    pub weight: u64,
    /// Nesting depth, including the depth of the variables that the expression uses.
    pub depth: usize,
    pub reads_now: bool,
    pub reads_item: bool,
    pub projection: Projection,
    /// The parts of `item` that the expression can read. `item` is one element of a list that
    /// another expression returned.
    pub item: NeededPart,
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
}
