//! The reasons why an evaluation has no result. In contrast to [`EvaluationFault`], a [`Fault`] is
//! cheap to create and refers to the expression.

use std::fmt;
use std::rc::Rc;

use super::V;
use super::failure::{EvaluationFault, line_and_column};

const NO_OVERLOAD: &str = "no such overload";

/// Advice for an error about null, which often comes from a field that is present and null.
const NULL_HINT: &str = "a field can be present and null, and `orValue` replaces only a missing \
    field. Test for both: object.?a.orValue(null) == null";

/// The value of an operation, or the reason why there is none.
pub(crate) type Outcome<'e> = Result<V<'e>, Fault<'e>>;

/// The reason why an evaluation has no result. Errors because of missing fields are common, and
/// `||` often ignores them. So the variant `Missing` is created without an allocation.
#[derive(Clone)]
pub(crate) enum Fault<'e> {
    /// A field, key or index does not exist. None if the expression computes the key or index.
    Missing(Option<V<'e>>),
    Error(FixedText),
    /// An error with its place in the expression.
    Located(Rc<LocatedError<'e>>),
    /// The budget (the number of steps that evaluations may still take) is exhausted.
    Budget,
}

impl<'e> Fault<'e> {
    pub(crate) fn no_overload() -> Self {
        Self::error(NO_OVERLOAD)
    }

    pub(crate) fn error(message: &'static str) -> Self {
        Self::Error(FixedText::Single(message))
    }

    /// Adds the operation that failed, such as `string + int`, if the error has a single text. A text
    /// that consists of several words already contains the types.
    #[cold]
    pub(crate) fn about(self, operation: &[&'static str]) -> Self {
        match self {
            Self::Error(FixedText::Single(text)) => {
                Self::words(&[&[text, ": "], operation].concat())
            }
            other => other,
        }
    }

    /// Adds a place, if the error has none: the byte `at` of the expression `source`.
    #[cold]
    #[inline(never)]
    pub(crate) fn located(self, source: &'e str, at: usize) -> Self {
        match self {
            Self::Error(text) => Self::Located(Rc::new(LocatedError {
                text,
                source,
                at,
                variable: None,
            })),
            other => other,
        }
    }

    pub(crate) fn is_no_overload(&self) -> bool {
        matches!(self, Self::Error(FixedText::Single(NO_OVERLOAD)))
    }

    /// Returns an error whose text is the concatenation of `words`.
    pub(crate) fn words(words: &[&'static str]) -> Self {
        Self::Error(FixedText::Several(words.into()))
    }
}

/// An error at a place of an expression.
#[derive(Clone)]
pub(crate) struct LocatedError<'e> {
    pub text: FixedText,
    /// The text of the expression.
    pub source: &'e str,
    /// The byte offset in `source` at which the error is reported.
    pub at: usize,
    /// The name of the variable whose expression `source` is. None if the expression is not that of
    /// a variable.
    pub variable: Option<&'e str>,
}

impl From<Fault<'_>> for EvaluationFault {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::Missing(key) => Self::Missing(key.and_then(|key| key_text(&key))),
            Fault::Error(text) => Self::Error {
                text: text.to_string().into(),
                place: None,
            },
            Fault::Located(error) => {
                let (line, column) = line_and_column(error.source, error.at);
                let variable = error.variable.map(|name| format!("variables.{name}: "));
                let variable = variable.unwrap_or_default();
                Self::Error {
                    text: format!("{variable}{line}:{column}: {}", error.text).into(),
                    place: error.variable.is_none().then_some((line, column)),
                }
            }
            Fault::Budget => Self::Budget,
        }
    }
}

/// Returns the text of a name or literal in the expression, such as `b` in `object.b` and `0` in
/// `object.list[0]`.
fn key_text(key: &V<'_>) -> Option<Box<str>> {
    Some(match key {
        V::Str(text) => (**text).into(),
        V::Bool(value) => value.to_string().into(),
        V::Int(value) => value.to_string().into(),
        V::Uint(value) => value.to_string().into(),
        V::Double(value) => value.to_string().into(),
        _ => return None,
    })
}

/// A text of words that are constants in this crate. It contains no values of the object.
#[derive(Clone)]
pub(crate) enum FixedText {
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

    /// Adds `prefix` before the text.
    pub(crate) fn with_prefix(&self, prefix: &'static str) -> Self {
        Self::Several([&[prefix], self.words()].concat().into())
    }
}

impl fmt::Display for FixedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().concat())?;
        if self.words().contains(&"null_type") {
            write!(f, " (hint: {NULL_HINT})")?;
        }
        Ok(())
    }
}
