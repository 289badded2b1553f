//! The state of all rule sets. From this state, the server makes the warnings on lists that may
//! miss operations.

use super::rule_sets_that_may_miss_operations::{IncompleteRuleSet, IncompleteRuleSets};
use ifo_api::completeness::{Completeness, Gap, Gaps};
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_engine::rules::{ObjectScope, RuleSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The state of all rule sets at one time.
#[derive(Debug, Default)]
pub struct Report {
    /// True if the server has read the rule sets of the cluster.
    pub(super) read: bool,
    /// All rule sets.
    pub(super) rule_sets: Vec<ReportedRuleSet>,
}

/// One rule set in the report.
#[derive(Debug)]
pub(super) struct ReportedRuleSet {
    pub(super) facts: Arc<Facts>,
    /// The kind of the target's objects, and true if this kind is namespaced. The target is the
    /// resource that the rule set watches. `None` if discovery has not shown that the cluster
    /// serves the target.
    pub(super) kind: Option<(Arc<str>, bool)>,
    pub(super) state: RuleSetState,
}

/// The fields of a rule set that warnings need.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: Arc<str>,
    pub(super) component: Arc<str>,
    pub(super) operations: Vec<Arc<str>>,
    /// The namespaces of the rule set. `None` means all namespaces.
    pub(super) namespaces: Option<BTreeSet<String>>,
}

impl Facts {
    /// Copies the fields of a rule set.
    pub(super) fn new(name: &str, spec: &OperationRuleSetSpec) -> Self {
        let operations = spec.rules.iter().map(|rule| rule.operation.as_str().into());
        Self {
            name: name.into(),
            component: spec.component.as_str().into(),
            operations: operations.collect(),
            namespaces: (!spec.namespaces.is_empty())
                .then(|| spec.namespaces.iter().cloned().collect()),
        }
    }

    /// Creates the facts about an object that cannot be decoded. Only its name is known.
    pub(super) fn unknown(name: &str) -> Self {
        Self {
            name: name.into(),
            component: Arc::default(),
            operations: Vec::new(),
            namespaces: None,
        }
    }
}

/// The state of a rule set.
#[derive(Clone, Debug)]
pub(super) enum RuleSetState {
    /// The cluster does not serve the API group of the target, so no operations can be missing.
    NotInstalled,
    /// The rule set may miss all its operations, for this reason.
    Idle(IdleReason),
    /// The server watches the target. If a rule fails on an object, the server does not know
    /// whether an operation is in flight on this object. [`RuleSet::activity`] counts these
    /// objects.
    Watching(Arc<RuleSet>),
}

/// The reason why a rule set may miss all its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleReason {
    /// The object cannot be decoded as a rule set.
    Unreadable,
    /// An expression does not compile.
    NotCompiled,
    /// The server refuses to watch this target. For example, the target is cluster-scoped, but the
    /// rule set names namespaces.
    TargetRefused,
    /// The cluster serves the API group of the target, but not the target.
    TargetNotServed,
    /// Discovery has not shown whether the cluster serves the target.
    DiscoveryFailed,
    /// The watch of the target fails.
    WatchFailed,
    /// The server has not read all objects of the target yet.
    NotSynced,
}

impl IdleReason {
    /// Returns the text for the warning on lists.
    fn text(self) -> &'static str {
        match self {
            Self::Unreadable => "is not a valid object",
            Self::NotCompiled => "does not compile",
            Self::TargetRefused => "target is refused",
            Self::TargetNotServed => "target is not served",
            Self::DiscoveryFailed => "discovery of the target failed",
            Self::WatchFailed => "target cannot be watched",
            Self::NotSynced => "target is being listed",
        }
    }

    /// Returns the value of the label `state` of the metric `ifo_rule_sets`. The values are the
    /// same as the reasons of the condition `Ready`.
    fn metric_state(self) -> &'static str {
        match self {
            Self::Unreadable | Self::NotCompiled => "InvalidRule",
            Self::TargetRefused | Self::TargetNotServed => "InvalidTarget",
            Self::DiscoveryFailed | Self::WatchFailed => "WatchFailed",
            Self::NotSynced => "Pending",
        }
    }
}

/// The text for the warning on lists if a rule set is throttled: its rules use too many evaluation
/// steps, so the server evaluates them on only one object every ten seconds.
const THROTTLED: &str = "throttled";

impl Report {
    /// Returns the number of rule sets in each state, for the metric `ifo_rule_sets`.
    pub fn states(&self) -> BTreeMap<&'static str, i64> {
        let mut states = BTreeMap::new();
        for rule_set in &self.rule_sets {
            *states.entry(rule_set.state.metric_state()).or_default() += 1;
        }
        states
    }
}

impl RuleSetState {
    /// Returns the value of the label `state` of the metric `ifo_rule_sets`.
    fn metric_state(&self) -> &'static str {
        match self {
            Self::NotInstalled => "NotInstalled",
            Self::Idle(reason) => reason.metric_state(),
            Self::Watching(rules) if rules.activity.is_throttled() => "Throttled",
            Self::Watching(rules) if rules.activity.unknown_on(ObjectScope::ALL).objects > 0 => {
                "EvaluationFailed"
            }
            Self::Watching(_) => "Watching",
        }
    }
}

/// Finds, in the newest report, the rule sets that may miss operations.
#[derive(Clone, Debug)]
pub struct Reporter {
    newest: watch::Receiver<Arc<Report>>,
    /// The namespace in which operations on cluster-scoped objects are shown.
    cluster_namespace: Arc<str>,
}

impl Reporter {
    /// Creates a reporter. `cluster_namespace` is the namespace in which operations on
    /// cluster-scoped objects are shown.
    pub fn new(newest: watch::Receiver<Arc<Report>>, cluster_namespace: Arc<str>) -> Self {
        Self {
            newest,
            cluster_namespace,
        }
    }
}

impl Reporter {
    /// Returns the scope of the objects whose operations a list of `namespace` contains. An empty
    /// `namespace` means all namespaces. Operations on cluster-scoped objects are in the list of
    /// `cluster_namespace`.
    pub fn wanted<'a>(&self, namespace: &'a str) -> ObjectScope<'a> {
        ObjectScope {
            namespace: (!namespace.is_empty()).then_some(namespace),
            cluster_scoped: namespace.is_empty() || *namespace == *self.cluster_namespace,
        }
    }

    /// Returns all rule sets that may miss operations, each with the affected namespaces.
    pub fn incomplete_rule_sets(&self) -> IncompleteRuleSets {
        let newest = self.newest.borrow().clone();
        let uncovered = newest
            .rule_sets
            .iter()
            .filter_map(ReportedRuleSet::uncovered);
        IncompleteRuleSets {
            read: newest.read,
            total: newest.rule_sets.len(),
            rule_sets: uncovered.collect(),
        }
    }
}

impl Completeness for Reporter {
    fn gaps(&self, namespace: &str) -> Gaps {
        let newest = self.newest.borrow().clone();
        let wanted = self.wanted(namespace);
        Gaps {
            rule_sets_are_read: newest.read,
            total: newest.rule_sets.len(),
            rule_sets: newest
                .rule_sets
                .iter()
                .filter_map(|rule_set| rule_set.gap(wanted))
                .collect(),
        }
    }
}

impl ReportedRuleSet {
    /// Returns the description of the rule set for the warning. Returns `None` if no operations on
    /// `wanted` objects can be missing.
    fn gap(&self, wanted: ObjectScope<'_>) -> Option<Gap> {
        let (reason, operations) = match &self.state {
            RuleSetState::NotInstalled => return None,
            _ if !self.covers(wanted) => return None,
            RuleSetState::Idle(reason) => (reason.text().to_owned(), None),
            RuleSetState::Watching(rule_set) => {
                let unknown = rule_set.activity.unknown_on(wanted);
                let names: Vec<_> = unknown.operations.keys().cloned().collect();
                if rule_set.activity.is_throttled() {
                    (THROTTLED.to_owned(), None)
                } else if unknown.objects == 0 {
                    return None;
                } else {
                    (evaluation_fails(unknown.objects), Some(names))
                }
            }
        };
        Some(Gap {
            rule_set: self.facts.name.clone(),
            reason,
            component: self.facts.component.clone(),
            kind: self.kind.as_ref().map(|(kind, _)| kind.clone()),
            operations: operations.unwrap_or_else(|| self.facts.operations.clone()),
        })
    }

    /// Returns the rule set, with the namespaces in which its operations may be missing. Returns
    /// `None` if no operations of the rule set can be missing.
    fn uncovered(&self) -> Option<IncompleteRuleSet> {
        let gap = self.gap(ObjectScope::ALL)?;
        let is_namespaced = self.kind.as_ref().map(|(_, is_namespaced)| *is_namespaced);
        let (mut namespaces, mut cluster_scoped) = match is_namespaced {
            Some(false) => (Some(BTreeSet::new()), true),
            Some(true) => (self.facts.namespaces.clone(), false),
            None => (self.facts.namespaces.clone(), true),
        };
        if let RuleSetState::Watching(rule_set) = &self.state
            && !rule_set.activity.is_throttled()
        {
            let unknown = rule_set.activity.unknown_in();
            cluster_scoped = unknown.contains(&None);
            let named = unknown.iter().flatten();
            namespaces = Some(named.map(ToString::to_string).collect());
        }
        Some(IncompleteRuleSet {
            rule_set: gap.rule_set.to_string(),
            reason: gap.reason,
            component: gap.component.to_string(),
            kind: gap.kind.map(|kind| kind.to_string()),
            operations: gap.operations.iter().map(ToString::to_string).collect(),
            namespaces,
            cluster_scoped,
        })
    }

    /// Returns true if the rule set may watch some of the `wanted` objects. As long as the kind of
    /// the target is not known, its objects may be namespaced or cluster-scoped.
    fn covers(&self, wanted: ObjectScope<'_>) -> bool {
        if let Some((_, false)) = self.kind {
            return wanted.cluster_scoped;
        }
        match (&self.facts.namespaces, wanted.namespace) {
            (Some(own), Some(namespace)) => own.contains(namespace),
            _ => true,
        }
    }
}

/// Returns a text such as `evaluation fails on 3 objects`.
pub(super) fn evaluation_fails(objects: usize) -> String {
    let plural = if objects == 1 { "" } else { "s" };
    format!("evaluation fails on {objects} object{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(
        kind: Option<(&str, bool)>,
        namespaces: Option<&[&str]>,
        state: RuleSetState,
    ) -> ReportedRuleSet {
        ReportedRuleSet {
            facts: Arc::new(Facts {
                name: "a".into(),
                component: "kubevirt".into(),
                operations: vec!["Migrating".into(), "Starting".into()],
                namespaces: namespaces.map(|all| all.iter().map(|it| (*it).to_owned()).collect()),
            }),
            kind: kind.map(|(kind, namespaced)| (kind.into(), namespaced)),
            state,
        }
    }

    /// Returns true if a list of the operations in `namespace` may miss operations of `rule_set`.
    fn affects(rule_set: ReportedRuleSet, namespace: &str) -> bool {
        let report = Report {
            read: true,
            rule_sets: vec![rule_set],
        };
        let (_keep, newest) = watch::channel(Arc::new(report));
        let gaps = Reporter::new(newest, "ifo-system".into()).gaps(namespace);
        assert_eq!(gaps.total, 1);
        !gaps.rule_sets.is_empty()
    }

    #[test]
    fn rule_sets_are_counted_by_state() {
        let state = |state| reported(Some(("Pod", true)), None, state);
        let report = Report {
            read: true,
            rule_sets: vec![
                state(RuleSetState::Idle(IdleReason::NotCompiled)),
                state(RuleSetState::Idle(IdleReason::Unreadable)),
                state(RuleSetState::Idle(IdleReason::WatchFailed)),
                state(RuleSetState::NotInstalled),
            ],
        };
        let expected = [("InvalidRule", 2), ("NotInstalled", 1), ("WatchFailed", 1)];
        assert_eq!(report.states(), expected.into());
        assert!(Report::default().states().is_empty());
    }

    #[test]
    fn rule_set_affects_only_lists_that_could_contain_its_operations() {
        let idle = || RuleSetState::Idle(IdleReason::NotCompiled);
        let pod = Some(("Pod", true));
        let node = Some(("Node", false));
        for (rule_set, namespace, affected) in [
            (reported(pod, None, idle()), "", true),
            (reported(pod, None, idle()), "shop", true),
            (reported(pod, Some(&["shop"]), idle()), "shop", true),
            (reported(pod, Some(&["shop"]), idle()), "team-a", false),
            (reported(pod, Some(&["shop"]), idle()), "", true),
            (reported(node, None, idle()), "shop", false),
            (reported(node, None, idle()), "ifo-system", true),
            (reported(node, None, idle()), "", true),
            // The target has not been looked up, so its objects may be in any namespace.
            (reported(None, None, idle()), "shop", true),
            (reported(pod, None, RuleSetState::NotInstalled), "", false),
        ] {
            let shown = format!("{rule_set:?} in {namespace:?}");
            assert_eq!(affects(rule_set, namespace), affected, "{shown}");
        }
    }
}
