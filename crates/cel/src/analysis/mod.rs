//! What the text of an expression says without an evaluation: its possible results, and its mistakes.

pub(crate) mod results;
pub(crate) mod times;
