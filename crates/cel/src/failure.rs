//! The errors of an evaluation. An [`EvaluationFault`] contains only fixed words and texts of the
//! expression. It never contains a value of the object, because users who cannot read the object
//! may see the error.

use std::fmt;

use super::op::Const;

/// The reason why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// A field, key or index does not exist. Most callers treat this error like the result `false`.
    #[error("no such key{0}")]
    Missing(MissingKey),
    /// Another error, such as a wrong type, an overflow or a failed conversion.
    #[error("{0}")]
    Error(FixedText),
    /// The budget is exhausted.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// The missing key or index, if it is a name or a literal in the expression. A computed key can be
/// a value of the object, so it is not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingKey(Option<Box<str>>);

impl MissingKey {
    /// Stores a field name of the expression.
    pub(super) fn spelled(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Stores a literal of the expression.
    pub(super) fn literal(literal: &Const) -> Self {
        let key = match literal {
            Const::Str(text) => text.to_string(),
            Const::Bool(value) => value.to_string(),
            Const::Int(value) => value.to_string(),
            Const::Uint(value) => value.to_string(),
            Const::Double(value) => value.to_string(),
            _ => return Self::default(),
        };
        Self(Some(key.into()))
    }
}

impl fmt::Display for MissingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(key) => write!(f, ": {key}"),
            None => Ok(()),
        }
    }
}

/// A text of fixed words, which contains no values of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedText(Words);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    One(&'static str),
    Several(Box<[&'static str]>),
}

impl FixedText {
    pub(super) const fn of(text: &'static str) -> Self {
        Self(Words::One(text))
    }

    /// Returns the concatenation of `words`.
    pub(super) fn joined(words: &[&'static str]) -> Self {
        Self(Words::Several(words.into()))
    }

    /// Adds `prefix` before the text.
    pub(super) fn with_prefix(self, prefix: &'static str) -> Self {
        match self.0 {
            Words::One(word) => Self::joined(&[prefix, word]),
            Words::Several(words) => {
                let all = std::iter::once(prefix).chain(words);
                Self(Words::Several(all.collect()))
            }
        }
    }
}

impl fmt::Display for FixedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Words::One(word) => f.write_str(word),
            Words::Several(words) => words.iter().try_for_each(|word| f.write_str(word)),
        }
    }
}
