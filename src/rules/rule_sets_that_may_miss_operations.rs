//! The list of rule sets that may miss operations. The leader sends the list to the follower
//! replicas, so that every replica can add the same warnings to its answers.

use ifo_api::completeness::{Gap, Gaps};
use ifo_engine::rules::ObjectScope;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The rule sets that may miss operations, at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncompleteRuleSets {
    /// True if the rule sets of the cluster have been read.
    pub read: bool,
    /// Number of all rule sets in the cluster, including those that miss no operations.
    pub total: usize,
    /// The rule sets that may miss operations.
    pub(super) rule_sets: Vec<IncompleteRuleSet>,
    /// The oldest resourceVersion for which `rule_sets` is known to be the full list, as in
    /// [`Gaps::since`]. A leader of an older release does not send this field.
    #[serde(default)]
    pub(super) since: u64,
}

/// A rule set that may miss operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IncompleteRuleSet {
    pub(super) rule_set: String,
    pub(super) reason: String,
    pub(super) component: String,
    pub(super) kind: Option<String>,
    pub(super) operations: Vec<String>,
    /// The namespaces in which operations may be missing. `None` means all namespaces.
    pub(super) namespaces: Option<BTreeSet<String>>,
    /// True if operations on cluster-scoped objects may be missing.
    pub(super) cluster_scoped: bool,
}

impl IncompleteRuleSet {
    /// Returns true if operations on the `wanted` objects may be missing.
    fn affects(&self, wanted: ObjectScope<'_>) -> bool {
        let in_namespace = match (&self.namespaces, wanted.namespace) {
            (Some(own), Some(namespace)) => own.contains(namespace),
            (Some(own), None) => !own.is_empty(),
            (None, _) => true,
        };
        in_namespace || self.cluster_scoped && wanted.cluster_scoped
    }

    fn gap(&self) -> Gap {
        Gap {
            rule_set: self.rule_set.as_str().into(),
            reason: self.reason.clone(),
            component: self.component.as_str().into(),
            kind: self.kind.as_deref().map(Into::into),
            operations: self
                .operations
                .iter()
                .map(|it| it.as_str().into())
                .collect(),
        }
    }
}

impl IncompleteRuleSets {
    /// Returns the rule sets that may miss operations on the `wanted` objects.
    pub fn gaps(&self, wanted: ObjectScope<'_>) -> Gaps {
        let affected = self.rule_sets.iter().filter(|it| it.affects(wanted));
        Gaps {
            rule_sets_are_read: self.read,
            total: self.total,
            rule_sets: affected.map(IncompleteRuleSet::gap).collect(),
            since: self.since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incomplete_rule_set(namespaces: Option<&[&str]>, cluster_scoped: bool) -> IncompleteRuleSet {
        IncompleteRuleSet {
            rule_set: "a".to_owned(),
            reason: "does not compile".to_owned(),
            component: "kubevirt".to_owned(),
            kind: None,
            operations: Vec::new(),
            namespaces: namespaces.map(|all| all.iter().map(|it| (*it).to_owned()).collect()),
            cluster_scoped,
        }
    }

    #[test]
    fn a_rule_set_is_reported_for_the_namespaces_it_affects() {
        let wanted = |namespace, cluster_scoped| ObjectScope {
            namespace,
            cluster_scoped,
        };
        let all = wanted(None, true);
        let (shop, other) = (wanted(Some("shop"), false), wanted(Some("other"), false));
        let cluster_namespace = wanted(Some("ifo-system"), true);
        for (rule_set, affected) in [
            (incomplete_rule_set(None, true), [true, true, true, true]),
            (
                incomplete_rule_set(Some(&["shop"]), false),
                [true, true, false, false],
            ),
            (
                incomplete_rule_set(Some(&[]), true),
                [true, false, false, true],
            ),
        ] {
            let incomplete_rule_sets = IncompleteRuleSets {
                read: true,
                total: 3,
                rule_sets: vec![rule_set],
                since: 7,
            };
            let text = serde_json::to_string(&incomplete_rule_sets).unwrap();
            let incomplete_rule_sets: IncompleteRuleSets = serde_json::from_str(&text).unwrap();
            let reported = [all, shop, other, cluster_namespace]
                .map(|it| !incomplete_rule_sets.gaps(it).rule_sets.is_empty());
            assert_eq!(reported, affected, "{text}");
            let gaps = incomplete_rule_sets.gaps(all);
            assert_eq!((gaps.total, gaps.since), (3, 7));
        }
    }
}
