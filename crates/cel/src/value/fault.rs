//! The reasons why an evaluation has no result. In contrast to [`EvaluationFault`], a [`Fault`] is
//! cheap to create and refers to the expression.

use std::rc::Rc;

use super::V;
use super::constant::Const;
use super::failure::{
    EvaluationFault, ExpressionPlace, FailureText, FixedText, MissingKey, line_and_column,
};

const NO_OVERLOAD: &str = "no such overload";

/// The value of an operation, or the reason why there is none.
pub(crate) type Outcome<'e> = Result<V<'e>, Fault<'e>>;

/// The reason why an evaluation has no result. Errors because of missing fields are common, and
/// `||` often ignores them. So the variants `Missing…` are created without an allocation.
#[derive(Clone)]
pub(crate) enum Fault<'e> {
    /// A field that the expression selects by its name does not exist.
    MissingField(&'e str),
    /// A key or index that the expression contains as a literal does not exist.
    MissingLiteral(&'e Const),
    /// A key or index that the expression computes does not exist.
    MissingComputed,
    Error(FixedText),
    /// An error with its place in the expression.
    Located(Rc<LocatedError<'e>>),
    /// The budget (the number of steps that evaluations may still take) is exhausted.
    Budget,
}

impl Fault<'_> {
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

impl From<LocatedError<'_>> for FailureText {
    fn from(error: LocatedError<'_>) -> Self {
        let (line, column) = line_and_column(error.source, error.at);
        Self {
            text: error.text,
            place: Some(ExpressionPlace {
                variable: error.variable.map(Into::into),
                line,
                column,
            }),
        }
    }
}

impl From<Fault<'_>> for EvaluationFault {
    fn from(fault: Fault<'_>) -> Self {
        match fault {
            Fault::MissingField(name) => Self::Missing(MissingKey::spelled(name)),
            Fault::MissingLiteral(key) => Self::Missing(MissingKey::literal(key)),
            Fault::MissingComputed => Self::Missing(MissingKey::default()),
            Fault::Error(message) => Self::Error(Box::new(message.into())),
            Fault::Located(error) => Self::Error(Box::new((*error).clone().into())),
            Fault::Budget => Self::Budget,
        }
    }
}
