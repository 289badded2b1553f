//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. It proves nothing if no rule set (`OperationRuleSet`) can detect the matching
//! operations, or if one of their rule sets does not work.

use super::wait_state::{Step, WaitVerdict};
use crate::api_client::ListCompleteness;
use crate::filter::Filters;
use crate::problem::{INSTALL_HINT, Problem};
use crate::rule_sets::{ListedRuleSet, RuleSets};
use ifo_api::GROUP;
use ifo_api::completeness::{Incomplete, NotWorking};

/// Returns the reason why `ifo-apiserver` may not detect all operations that match `filters`. None
/// if it detects all. The reason can go away while the user waits. If it cannot, for example
/// because no rule set detects such operations, the wait ends with this reason.
///
/// `rule_sets` is the answer to the request for all rule sets, and `completeness` is that of the list
/// of operations. `ignored` has the names of the rule sets that need not work
/// (`--ignore-rule-set`).
pub(super) fn doubt(
    rule_sets: Result<&RuleSets, &Problem>,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> Step<Option<String>> {
    let detecting = match rule_sets {
        Ok(rule_sets) => {
            Some(detecting(rule_sets, filters, ignored).map_err(WaitVerdict::Unknown)?)
        }
        // The user may not read rule sets. So the plugin cannot know whether a rule set detects
        // operations that other filters than the namespace select.
        Err(_) if filters.with_namespace(None).is_unfiltered() => None,
        Err(refused) => {
            let hint = "without this right, --namespace is the only possible filter";
            return Err(WaitVerdict::Unknown(format!("{refused}; {hint}")));
        }
    };
    let mut unread = detecting.iter().flatten().filter(|it| !it.is_current());
    if let Some(unread) = unread.next() {
        let name = unread.name();
        return Ok(Some(format!("the server has not read rule set {name} yet")));
    }
    Ok(match (completeness, detecting) {
        (ListCompleteness::Complete, _) => None,
        (ListCompleteness::NotStated, _) => {
            Some("the server does not state whether its list is complete".to_owned())
        }
        (ListCompleteness::Incomplete(Incomplete::NotWorking(sets)), Some(detecting)) => {
            not_working_text(sets, &detecting)
        }
        (ListCompleteness::Incomplete(why), _) => Some(why.to_string()),
    })
}

/// Returns the rule sets that must work, so that all operations that match the filters are
/// detected. If there are none, returns the reason.
fn detecting<'a>(
    rule_sets: &'a RuleSets,
    filters: &Filters,
    ignored: &[String],
) -> Result<Vec<&'a ListedRuleSet>, String> {
    if rule_sets.is_empty() {
        return Err(format!("{}{INSTALL_HINT}", Incomplete::NoRuleSets));
    }
    if let Some(message) = rule_sets.undetectable(filters, &filters.values()) {
        return Err(message);
    }
    // If the cluster does not serve the API group of a target, no object of the target exists. So
    // the rule set of this target need not work.
    let must_work = |it: &&ListedRuleSet| {
        it.can_detect(filters)
            && !it.is_without_group()
            && !ignored.iter().any(|name| name == it.name())
    };
    let detecting: Vec<_> = rule_sets.items.iter().filter(must_work).collect();
    if detecting.is_empty() {
        return Err(
            "the cluster serves no resource of the rule sets that detect such operations, or \
             --ignore-rule-set names these rule sets"
                .to_owned(),
        );
    }
    Ok(detecting)
}

/// Returns the reasons why rule sets in `detecting` do not work. None if they all work. `sets` has
/// the rule sets that do not work according to `ifo-apiserver`. `ifo-apiserver` names at most ten
/// of them and counts the others. Any of the others can be in `detecting`.
fn not_working_text(sets: &NotWorking, detecting: &[&ListedRuleSet]) -> Option<String> {
    let named = sets.named.iter().filter_map(|named| {
        let rule_set = detecting.iter().find(|it| it.name() == named.name)?;
        let why = rule_set.not_ready_text();
        Some(format!("{} ({}{why})", named.name, named.reason))
    });
    let unnamed = sets.count.saturating_sub(sets.named.len());
    let unnamed = (unnamed > 0).then(|| format!("{unnamed} more"));
    let reasons: Vec<String> = named.chain(unnamed).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "rule sets are not working: {}; see: kubectl get ors.{GROUP}; to ignore a rule set: \
             --ignore-rule-set NAME",
            reasons.join(", ")
        )
    })
}
