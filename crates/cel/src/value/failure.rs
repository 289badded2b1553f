//! The errors of the evaluation of an expression on an object. An [`EvaluationFault`] contains only
//! fixed words and parts of the expression. It never contains a value of the object, because users
//! who cannot read the object may see the error.

use std::fmt;

use super::constant::Const;

/// The reason why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// A field, key or index does not exist. Most callers treat this error like the result `false`.
    #[error("no such key{0}")]
    Missing(MissingKey),
    /// Another error, such as a wrong type, an overflow or a failed conversion.
    #[error("{0}")]
    Error(Box<FailureText>),
    /// The evaluation needs more steps than its [`Budget`](crate::Budget) has left.
    #[error("evaluation cost limit exceeded")]
    Budget,
}

/// An error with its place. Its text is, for example, `1:3: no such overload: string + int`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureText {
    /// What failed, such as `no such overload: string + int`.
    pub text: FixedText,
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
        Self { text, place: None }
    }
}

impl FailureText {
    /// Returns advice for a frequent failure, or None.
    fn hint(&self) -> Option<&'static str> {
        self.text.names_null().then_some(
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
    pub(crate) fn spelled(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Returns the key for a literal in the expression, such as `0` in `object.list[0]`.
    pub(crate) fn literal(literal: &Const) -> Self {
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
pub enum FixedText {
    /// One text, such as `no such overload`.
    Single(&'static str),
    /// The concatenation of several texts, such as the names of types.
    Several(Box<[&'static str]>),
}

impl FixedText {
    fn words(&self) -> &[&'static str] {
        match self {
            Self::Single(word) => std::slice::from_ref(word),
            Self::Several(words) => words,
        }
    }

    /// Returns true if the text contains the name of the type of null.
    fn names_null(&self) -> bool {
        self.words().contains(&"null_type")
    }

    /// Adds `prefix` before the text.
    pub(crate) fn with_prefix(&self, prefix: &'static str) -> Self {
        Self::Several([&[prefix], self.words()].concat().into())
    }
}

impl fmt::Display for FixedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().concat())
    }
}

/// Returns the line and the column of the byte `offset` of `source`. Both count from 1. The column
/// counts characters.
pub(crate) fn line_and_column(source: &str, offset: usize) -> (usize, usize) {
    let before = source.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}
