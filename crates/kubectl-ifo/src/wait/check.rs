//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. It proves nothing if no rule set (`OperationRuleSet`) can detect the matching
//! operations, or if one of their rule sets does not work.

use super::wait_state::{Step, WaitEnd};
use crate::api_client::{ApiClient, ListCompleteness};
use crate::filter::Filters;
use crate::problem::{INSTALL_HINT, Problem};
use crate::rule_sets::{ListedRuleSet, RuleSets};
use ifo_api::GROUP;
use ifo_api::completeness::{Incomplete, NotWorking};

/// Returns an error with the reason if `ifo-apiserver` may not detect all operations that match
/// `filters`. A reason that can go away while the user waits is [`Problem::Other`]. If it cannot go
/// away, for example because no rule set detects such operations, the wait ends with this reason.
///
/// `completeness` is that of the list of operations. `ignored` has the names of the rule sets that
/// need not work (`--ignore-rule-set`).
pub(super) async fn check_rule_sets(
    server: &ApiClient,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> Step {
    let rule_sets = match RuleSets::read(server).await {
        // The user may not read rule sets. So the plugin cannot know whether a rule set detects
        // operations that other filters than the namespace select.
        Err(Problem::Forbidden { .. }) if filters.with_namespace(None).is_unfiltered() => None,
        Err(refused @ Problem::Forbidden { .. }) => {
            let hint = "without this right, --namespace is the only possible filter";
            return Err(WaitEnd::Unknown(format!("{refused}; {hint}")));
        }
        rule_sets => Some(rule_sets?),
    };
    let detecting = rule_sets.as_ref().map(|it| detecting(it, filters, ignored));
    let detecting = detecting.transpose()?;
    let mut unread = detecting.iter().flatten().filter(|it| !it.is_current());
    let doubt = match (completeness, unread.next(), &detecting) {
        (_, Some(unread), _) => {
            let name = unread.name();
            Some(format!("the server has not read rule set {name} yet"))
        }
        (ListCompleteness::Complete, ..) => None,
        (ListCompleteness::NotStated, ..) => {
            Some("the server does not state whether its list is complete".to_owned())
        }
        (ListCompleteness::Incomplete(Incomplete::NotWorking(sets)), _, Some(detecting)) => {
            not_working_text(sets, detecting)
        }
        (ListCompleteness::Incomplete(why), ..) => Some(why.to_string()),
    };
    doubt.map_or(Ok(()), |why| Err(Problem::Other(why).into()))
}

/// Returns the rule sets that must work, so that all operations that match the filters are
/// detected. If there are none, returns the reason as an error.
fn detecting<'a>(
    rule_sets: &'a RuleSets,
    filters: &Filters,
    ignored: &[String],
) -> Step<Vec<&'a ListedRuleSet>> {
    if let Some(unknown) = ignored.iter().find(|it| !rule_sets.has(it)) {
        let message = format!("there is no rule set {unknown:?}; see: kubectl get ors");
        return Err(Problem::Usage(message).into());
    }
    if rule_sets.is_empty() {
        let message = format!("{}{INSTALL_HINT}", Incomplete::NoRuleSets);
        return Err(WaitEnd::Unknown(message));
    }
    if let Some(message) = rule_sets.undetectable(filters, &filters.values()) {
        return Err(WaitEnd::Unknown(message));
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
        let why = "the cluster serves no resource of the rule sets that detect such operations, or \
             --ignore-rule-set names these rule sets";
        return Err(WaitEnd::Unknown(why.to_owned()));
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
