//! Decides, for the command `wait`, whether an empty list proves that no matching operation is in
//! flight. An empty list proves nothing if no rule set (`OperationRuleSet`) can detect matching
//! operations. It also proves nothing if a rule set that can detect matching operations does not
//! work.
//!
//! In its requests, the plugin names the rule sets that need not work. So the server states for
//! each list whether all other rule sets work.

use super::wait_state::{Step, WaitEnd};
use crate::cluster::api_client::ListCompleteness;
use crate::cluster::problem::{INSTALL_HINT, Problem};
use crate::cluster::rule_sets::{ListedRuleSet, RuleSets};
use crate::filters::filter::Filters;
use ifo_api::completeness::Incomplete;

/// The message if the kube-apiserver does not serve rule sets.
const NO_CRD: &str = "the CRD operationrulesets.ifo.kubevirt.io is not installed; to install it: kubectl apply -k deploy/crd";

/// The end of the message if some rule sets do not work.
const NOT_WORKING_HINT: &str =
    "; see: kubectl get ors.ifo.kubevirt.io; to ignore a rule set: --ignore-rule-set NAME";

/// Returns true if the rule set must work, so that all operations that match the filters are
/// detected. `ignored` has the names of the rule sets that need not work (`--ignore-rule-set`).
pub(super) fn must_work(rule_set: &ListedRuleSet, filters: &Filters, ignored: &[String]) -> bool {
    // If the cluster does not serve the API group of a target, no object of the target exists.
    rule_set.can_detect(filters)
        && !rule_set.is_without_group()
        && !ignored.iter().any(|name| name == rule_set.name())
}

/// Returns an error with the reason if `ifo-apiserver` may not detect all operations that match
/// `filters`. If the reason can go away while the user waits, the error is a [`Problem::Other`],
/// and the wait continues. Otherwise, the error is a [`WaitEnd::Unknown`], and the wait ends. An
/// example is that no rule set detects such operations.
///
/// `rule_sets` is the answer to the request for all rule sets. `completeness` is the completeness
/// of the list of operations.
pub(super) fn check_rule_sets(
    rule_sets: Result<&RuleSets, &Problem>,
    filters: &Filters,
    completeness: &ListCompleteness,
    ignored: &[String],
) -> Step {
    match rule_sets {
        Ok(rule_sets) => check_detecting(rule_sets, filters, ignored)?,
        // The user may not read rule sets, so the plugin cannot know which operations they detect.
        // Without this right, no filter except `--namespace` is possible.
        Err(Problem::Forbidden { .. }) if filters.with_namespace(None).is_unfiltered() => {}
        Err(refused @ Problem::Forbidden { .. }) => {
            let hint = "without this right, --namespace is the only possible filter";
            return Err(WaitEnd::Unknown(format!("{refused}; {hint}")));
        }
        Err(Problem::NotFound(_)) => return Err(WaitEnd::Unknown(NO_CRD.to_owned())),
        Err(problem) => return Err(problem.clone().into()),
    }
    let Err(why) = completeness else {
        return Ok(());
    };
    let hint = match why {
        Incomplete::NotWorking(_) => NOT_WORKING_HINT,
        _ => "",
    };
    Err(Problem::Other(format!("{why}{hint}")).into())
}

/// Returns an error with the reason if no rule set detects operations that match the filters. Also
/// returns an error if the server has not read such a rule set yet.
fn check_detecting(rule_sets: &RuleSets, filters: &Filters, ignored: &[String]) -> Step {
    let exists = |name: &&String| rule_sets.items.iter().any(|it| it.name() == *name);
    if let Some(unknown) = ignored.iter().find(|it| !exists(it)) {
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
    let all = rule_sets.items.iter();
    let mut detecting = all.filter(|it| must_work(it, filters, ignored)).peekable();
    if detecting.peek().is_none() {
        let why = "the cluster serves no resource of the rule sets that detect such operations, or \
             --ignore-rule-set names these rule sets";
        return Err(WaitEnd::Unknown(why.to_owned()));
    }
    detecting.find(|it| !it.is_current()).map_or(Ok(()), |it| {
        let why = format!("the server has not read rule set {} yet", it.name());
        Err(Problem::Other(why).into())
    })
}
