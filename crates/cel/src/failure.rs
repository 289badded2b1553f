//! The errors of the evaluation of an expression on an object. An [`EvaluationFault`] contains only
//! fixed words and parts of the expression. It never contains a value of the object, because users
//! who cannot read the object may see the error.

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
    Error(Box<FailureText>),
    /// The evaluation needs more steps than its [`Budget`](super::Budget) has left.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// The parts of an error text, such as `1:3: no such overload: string + int`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureText {
    /// What failed, such as `no such overload`.
    pub text: FixedText,
    /// The operator or function with the types of its operands, such as `string + int`. None if
    /// `text` already contains the types, or if the operator is unknown.
    pub operation: Option<FixedText>,
    /// The place in the expression. None if it is unknown.
    pub place: Option<ExpressionPlace>,
}

/// A place in the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionPlace {
    /// The name of the variable (`variables.<name>`) whose expression contains the place. None if
    /// the place is in the evaluated expression itself.
    pub variable: Option<Box<str>>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl From<FixedText> for FailureText {
    fn from(text: FixedText) -> Self {
        Self {
            text,
            operation: None,
            place: None,
        }
    }
}

impl FailureText {
    /// Returns advice for a frequent failure, or None.
    fn hint(&self) -> Option<&'static str> {
        let operation = self.operation.iter();
        let mut texts = std::iter::once(&self.text).chain(operation);
        texts.any(FixedText::names_null).then_some(
            "a field can be present and null, and `orValue` replaces only a missing field. Test \
             for both: object.?a.orValue(null) == null",
        )
    }
}

impl fmt::Display for FailureText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            if let Some(variable) = &place.variable {
                write!(f, "variables.{variable}: ")?;
            }
            write!(f, "{}:{}: ", place.line, place.column)?;
        }
        write!(f, "{}", self.text)?;
        if let Some(operation) = &self.operation {
            write!(f, ": {operation}")?;
        }
        match self.hint() {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}

/// The missing key or index, if the expression contains it as a name or a literal. None for a
/// computed key, because a computed key can be a value of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingKey(Option<Box<str>>);

impl MissingKey {
    /// Returns the key for a name in the expression, such as `b` in `object.b`.
    pub(super) fn spelled(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Returns the key for a literal in the expression, such as `0` in `object.list[0]`.
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

/// A text of words that are constants in this crate. It contains no values of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedText(Words);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    Single(&'static str),
    Several(Box<[&'static str]>),
}

impl FixedText {
    pub(super) const fn of(text: &'static str) -> Self {
        Self(Words::Single(text))
    }

    /// Returns the concatenation of `words`.
    pub(super) fn joined(words: &[&'static str]) -> Self {
        Self(Words::Several(words.into()))
    }

    /// Returns true if [`Self::of`] created the text, such as `no such overload`. Returns false if
    /// [`Self::joined`] created the text, which can then contain names of types.
    pub(super) fn is_single_text(&self) -> bool {
        matches!(self.0, Words::Single(_))
    }

    /// Returns true if the text contains the name of the type of null.
    fn names_null(&self) -> bool {
        let words = match &self.0 {
            Words::Single(word) => std::slice::from_ref(word),
            Words::Several(words) => &**words,
        };
        words.contains(&"null_type")
    }

    /// Adds `prefix` before the text.
    pub(super) fn with_prefix(self, prefix: &'static str) -> Self {
        match self.0 {
            Words::Single(word) => Self::joined(&[prefix, word]),
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
            Words::Single(word) => f.write_str(word),
            Words::Several(words) => words.iter().try_for_each(|word| f.write_str(word)),
        }
    }
}
