//! Finds the possible results of an expression and its mistakes, without evaluating it.

pub(crate) mod results;
pub(crate) mod times;
