//! What the text of an expression says without an evaluation: the fields that it reads, its possible
//! results, and its mistakes.

pub(crate) mod fields;
pub(crate) mod origins;
pub(crate) mod results;
pub(crate) mod times;
