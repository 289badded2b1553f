//! The type of result that an expression must yield.
//!
//! Input: the type that the checker computed. Output: true if it is allowed.

use std::fmt;

use super::check::Ty;

/// The required type of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// `true` or `false`.
    Bool,
    /// A string.
    String,
    /// A percentage: a number, or a string such as `45.20%`.
    Progress,
    /// A timestamp, or a string in RFC 3339.
    Time,
    /// A list.
    List,
    /// The key of an element of a list: a string or an integer.
    Key,
    /// Anything.
    Any,
}

impl ResultKind {
    /// Returns true if an expression of the type `ty` can yield it.
    pub(super) fn takes(self, ty: &Ty) -> bool {
        ty.is_dynamic()
            || match self {
                Self::Bool => *ty == Ty::Bool,
                Self::String => *ty == Ty::String,
                Self::Progress => {
                    matches!(ty, Ty::Int | Ty::Uint | Ty::Double | Ty::String | Ty::Null)
                }
                Self::Time => matches!(ty, Ty::Timestamp | Ty::String | Ty::Null),
                Self::List => matches!(ty, Ty::List(_)),
                Self::Key => matches!(ty, Ty::String | Ty::Int | Ty::Uint),
                Self::Any => true,
            }
    }

    /// Returns the description of the accepted types.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::String => "string",
            Self::Progress => "number or string",
            Self::Time => "timestamp or string",
            Self::List => "list",
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
