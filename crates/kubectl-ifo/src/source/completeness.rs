//! Reports why operations may be missing from a list.
//!
//! Input: the server's statements in the answers for each namespace. Output: the combined
//! statement, and its form in JSON and YAML.

use crate::server::ListCompleteness;
use ifo_api::completeness::{Incomplete, Named, NotWorking};
use serde::Serialize;

/// The reason for which operations may be missing, in JSON and YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncompleteData {
    /// The reason in one sentence.
    message: String,
    /// Number of rule sets. Absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_sets: Option<usize>,
    /// Number of rule sets that do not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_working: Option<usize>,
    /// The rule sets that do not work. Empty for users who may not list rule sets.
    named: Vec<Named>,
}

impl IncompleteData {
    pub(crate) fn of(incomplete: &Incomplete) -> Self {
        let sets = match incomplete {
            Incomplete::NotWorking(sets) => Some(sets),
            Incomplete::NoRuleSets | Incomplete::NotRead | Incomplete::NotCurrent => None,
        };
        Self {
            message: incomplete.to_string(),
            rule_sets: sets.map(|it| it.total),
            not_working: sets.map(|it| it.count),
            named: sets.map(|it| it.named.clone()).unwrap_or_default(),
        }
    }
}

/// Combines the statements for two namespaces: all rule sets that either of them names.
pub(super) fn worse(one: ListCompleteness, other: ListCompleteness) -> ListCompleteness {
    use Incomplete::NotWorking as Sets;
    use ListCompleteness::{Complete, Incomplete as Gaps, NotStated};
    match (one, other) {
        (Gaps(Sets(one)), Gaps(Sets(other))) => Gaps(Sets(merged(one, other))),
        // Any other reason already covers all rule sets.
        (Gaps(Sets(_)) | Complete | NotStated, Gaps(all)) | (Gaps(all), _) => Gaps(all),
        (Complete, Complete) => Complete,
        (NotStated, _) | (_, NotStated) => NotStated,
    }
}

fn merged(mut one: NotWorking, other: NotWorking) -> NotWorking {
    for named in other.named {
        if !one.named.iter().any(|it| it.name == named.name) {
            one.named.push(named);
        }
    }
    NotWorking {
        count: one.count.max(other.count).max(one.named.len()),
        total: one.total.max(other.total),
        named: one.named,
    }
}
