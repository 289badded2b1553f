//! Regular expressions with the syntax and the meaning of RE2 in Go.

mod classes;
pub(crate) mod pattern;
mod re2;
