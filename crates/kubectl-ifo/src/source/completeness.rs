//! Why operations may be missing from a list. Enters: what the answers for each namespace
//! say. Leaves: what they say together, and its form in JSON and YAML.

use crate::server::ListCompleteness;
use ifo_api::completeness::{Incomplete, Named, NotWorking};
use serde::Serialize;

/// Why operations may be missing, as JSON and YAML have it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncompleteData {
    /// The reason in one sentence.
    message: String,
    /// How many rule sets there are; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_sets: Option<usize>,
    /// How many of them do not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_working: Option<usize>,
    /// Those that do not work; empty for users who may not list rule sets.
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

/// What the answers for two namespaces say together: all rule sets that one of them names.
pub(super) fn worse(one: ListCompleteness, other: ListCompleteness) -> ListCompleteness {
    use Incomplete::NotWorking as Sets;
    use ListCompleteness::{Complete, Incomplete as Gaps, NotStated};
    match (one, other) {
        (Gaps(Sets(one)), Gaps(Sets(other))) => Gaps(Sets(merged(one, other))),
        // The other reasons cover all rule sets.
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
