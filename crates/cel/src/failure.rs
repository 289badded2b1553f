//! Why an evaluation has no answer. Enters: what went wrong. Leaves: a [`Failure`], which
//! holds fixed words and texts of the expression. It never holds a value of the object,
//! because people may see a failure who may not read the object.

use std::fmt;
use std::sync::Arc;

use super::op::Const;

/// Why an evaluation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// A field, key or index does not exist. Most callers take it as "does not match".
    #[error("no such key{0}")]
    Missing(MissingKey),
    /// Anything else, such as a wrong type, an overflow or a failed conversion.
    #[error("{0}")]
    Error(FixedText),
    /// The budget is exhausted.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// The key or index that is not there, if the expression spells it. One that the expression
/// computes is a value, and is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingKey(Option<Box<str>>);

impl MissingKey {
    /// A name that the expression spells.
    pub(super) fn spelled(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// A literal of the expression.
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

/// A text without values. It is made of words that are fixed in this program, or by the
/// compiler from the expression. It has no place for text that evaluating makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedText(Words);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    One(&'static str),
    Several(Box<[&'static str]>),
    Source(Arc<str>),
}

impl FixedText {
    pub(super) const fn of(text: &'static str) -> Self {
        Self(Words::One(text))
    }

    /// The words one after the other.
    pub(super) fn joined(words: &[&'static str]) -> Self {
        Self(Words::Several(words.into()))
    }

    /// A text that comes from the compiled expression, never from a value of the object.
    pub(super) fn of_source(text: &str) -> Self {
        Self(Words::Source(text.into()))
    }

    /// The same text behind `before`.
    pub(super) fn behind(self, before: &'static str) -> Self {
        match self.0 {
            Words::One(word) => Self::joined(&[before, word]),
            Words::Several(words) => {
                let all = std::iter::once(before).chain(words);
                Self(Words::Several(all.collect()))
            }
            Words::Source(_) => self,
        }
    }
}

impl fmt::Display for FixedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Words::One(word) => f.write_str(word),
            Words::Several(words) => words.iter().try_for_each(|word| f.write_str(word)),
            Words::Source(text) => f.write_str(text),
        }
    }
}
