//! Determines whether operations may be missing from a list that consists of several answers.
//!
//! A list can have several pages. If the user may not list the operations of all namespaces, the
//! plugin also sends one request for each namespace. The headers of each answer state whether
//! operations may be missing, and why. [`combined`] combines these statements. [`IncompleteJson`] is
//! the reason in JSON and YAML.

use ifo_api::completeness::{Incomplete, Named};
use serde::Serialize;

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

/// The reason why operations may be missing, as it is printed in JSON and YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncompleteJson {
    /// The reason in one sentence.
    message: String,
    /// Number of all rule sets. Present only if the reason is that some rule sets do not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_sets: Option<usize>,
    /// Number of rule sets that do not work. Present under the same condition as `rule_sets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_working: Option<usize>,
    /// The rule sets that do not work. The server names at most ten rule sets in each answer. Empty
    /// if the user may not list rule sets, or if the reason is not rule sets that do not work.
    named: Vec<Named>,
}

impl IncompleteJson {
    pub(crate) fn of(incomplete: &Incomplete) -> Self {
        let sets = match incomplete {
            Incomplete::NotWorking(sets) => Some(sets),
            _ => None,
        };
        Self {
            message: incomplete.to_string(),
            rule_sets: sets.map(|it| it.total),
            not_working: sets.map(|it| it.count),
            named: sets.map(|it| it.named.clone()).unwrap_or_default(),
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
