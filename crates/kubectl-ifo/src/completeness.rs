//! Determines whether operations may be missing from a list that consists of several answers.
//!
//! A list can have several pages. If the user may not list the operations of all namespaces, the
//! plugin also sends one request for each namespace. The headers of each answer state whether
//! operations may be missing, and why. [`combined`] combines these statements.

use ifo_api::completeness::Incomplete;

/// The completeness of a list of operations, as the headers of the answer state it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListCompleteness {
    /// No operation is missing.
    Complete,
    /// Operations may be missing for this reason.
    Incomplete(Incomplete),
    /// The headers do not state whether the list is complete. The answer comes from an older
    /// release of `ifo-apiserver`, or is not a list of operations from `ifo-apiserver`.
    #[default]
    NotStated,
}

impl ListCompleteness {
    /// Returns the completeness of a list from files.
    pub(super) fn of_files(incomplete: Option<&Incomplete>) -> Self {
        incomplete.map_or(Self::Complete, |it| Self::Incomplete(it.clone()))
    }

    /// Returns the reason why operations may be missing. None if no reason is known.
    pub(super) fn incomplete(self) -> Option<Incomplete> {
        match self {
            Self::Incomplete(incomplete) => Some(incomplete),
            Self::Complete | Self::NotStated => None,
        }
    }
}

/// Combines the completeness of two lists into the completeness of both lists together: the first
/// reason why operations may be missing, if there is one.
pub(crate) fn combined(one: ListCompleteness, other: ListCompleteness) -> ListCompleteness {
    use ListCompleteness::{Complete, Incomplete, NotStated};
    match (one, other) {
        (Incomplete(why), _) | (_, Incomplete(why)) => Incomplete(why),
        (NotStated, _) | (_, NotStated) => NotStated,
        (Complete, Complete) => Complete,
    }
}
