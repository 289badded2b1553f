//! The kinds of results that a caller can require of an expression. The compiler compares the
//! required kind with the static type of the expression.

use std::fmt;

use crate::types::Ty;

/// The result that a caller requires of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// `true` or `false`.
    Bool,
    /// A string.
    String,
    /// A percentage: a number, a string such as `45.20%`, or null.
    Progress,
    /// A timestamp, a string in RFC 3339, or null.
    Time,
    /// A duration.
    Duration,
    /// An amount: a number or a quantity.
    Amount,
    /// A list.
    List,
    /// A list of strings.
    Strings,
    /// The key of an element of a list: a string or an integer.
    Key,
    /// A value of any type.
    Any,
}

impl ResultKind {
    /// Returns true if an expression of the static type `ty` can have a result of this kind.
    pub(crate) fn takes(self, ty: &Ty) -> bool {
        if matches!(ty, Ty::Schema(_)) {
            return self == Self::Any;
        }
        ty.is_dynamic()
            || match self {
                Self::Bool => *ty == Ty::Bool,
                Self::String => *ty == Ty::String,
                Self::Progress => {
                    matches!(ty, Ty::Int | Ty::Uint | Ty::Double | Ty::String | Ty::Null)
                }
                Self::Time => matches!(ty, Ty::Timestamp | Ty::String | Ty::Null),
                Self::Duration => *ty == Ty::Duration,
                Self::Amount => matches!(ty, Ty::Int | Ty::Uint | Ty::Double | Ty::Quantity),
                Self::List => matches!(ty, Ty::List(_)),
                Self::Strings => match ty {
                    Ty::List(element) => element.is_dynamic() || **element == Ty::String,
                    _ => false,
                },
                Self::Key => matches!(ty, Ty::String | Ty::Int | Ty::Uint),
                Self::Any => true,
            }
    }

    /// Returns the description of the accepted types, for error texts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::String => "string",
            Self::Progress => "number or string",
            Self::Time => "timestamp or string",
            Self::Duration => "duration",
            Self::Amount => "number or quantity",
            Self::List => "list",
            Self::Strings => "list(string)",
            Self::Key => "string or int",
            Self::Any => "dyn",
        }
    }
}

impl fmt::Display for ResultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
