//! Regular expressions with the syntax and the meaning of RE2 in Go.

pub(crate) mod pattern;
mod re2;
