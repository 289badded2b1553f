//! The literals of an expression, as they are stored in its compiled form.

use std::sync::Arc;

use super::time::CelTimestamp;
use super::{Bytes, Text, V};
use crate::regex::pattern::Pattern;

#[derive(Debug)]
pub(crate) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// The address of the text identifies the literal (see [`Spans`](crate::compile::spans::Spans)).
    /// An empty `Box` would have no address of its own.
    Str(Arc<str>),
    Bytes(Box<[u8]>),
    Type(&'static str),
    /// A duration in nanoseconds.
    Duration(i64),
    Time(CelTimestamp),
    /// A string that is a regular expression, compiled.
    Pattern(Pattern),
}

impl Const {
    /// Returns the constant with the value `value`. Returns None for a value that is not stored in
    /// the op tree, such as a list.
    pub(crate) fn of(value: &V<'_>) -> Option<Self> {
        Some(match value {
            V::Null => Self::Null,
            V::Bool(value) => Self::Bool(*value),
            V::Int(value) => Self::Int(*value),
            V::Uint(value) => Self::Uint(*value),
            V::Double(value) => Self::Double(*value),
            V::Str(text) => Self::Str((**text).into()),
            V::Bytes(bytes) => Self::Bytes((**bytes).into()),
            V::Type(name) => Self::Type(name),
            V::Duration(nanoseconds) => Self::Duration(*nanoseconds),
            V::Time(time) => Self::Time(*time),
            _ => return None,
        })
    }

    pub(crate) fn value(&self) -> V<'_> {
        match self {
            Self::Null => V::Null,
            Self::Bool(value) => V::Bool(*value),
            Self::Int(value) => V::Int(*value),
            Self::Uint(value) => V::Uint(*value),
            Self::Double(value) => V::Double(*value),
            Self::Str(value) => V::Str(Text::Ref(value)),
            Self::Bytes(value) => V::Bytes(Bytes::Ref(value)),
            Self::Type(name) => V::Type(name),
            Self::Duration(nanoseconds) => V::Duration(*nanoseconds),
            Self::Time(time) => V::Time(*time),
            Self::Pattern(pattern) => V::Pattern(pattern),
        }
    }
}
