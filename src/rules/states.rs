//! The state of all rule sets. From this state, the server makes the warnings on lists that may
//! miss operations.

use super::status::{RuleSetHealth, WatchState, evaluation_fails};
use crate::clock;
use ifo_api::completeness::{Gap, Gaps};
use ifo_api::ruleset::{OperationRuleSetSpec, TOO_MANY_OPERATIONS};
use ifo_api::{Resolution, Text};
use ifo_engine::rules::{Activity, ObjectScope, RuleSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    pub(super) name: Text,
    /// `None` for an object that cannot be decoded.
    pub(super) spec: Option<Arc<OperationRuleSetSpec>>,
    /// The kind of the target's objects, and true if this kind is namespaced. The target is the
    /// resource that the rule set watches. `None` if discovery has not shown that the cluster
    /// serves the target.
    pub(super) kind: Option<(Text, bool)>,
    pub(super) state: RuleSetState,
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
    /// The newest version of the rule set is being compiled.
    Compiling,
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
            Self::Compiling => "is being compiled",
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
            Self::Compiling => "Compiling",
            Self::Unreadable | Self::NotCompiled => "InvalidRule",
            Self::TargetRefused | Self::TargetNotServed => "InvalidTarget",
            Self::DiscoveryFailed | Self::WatchFailed => "WatchFailed",
            Self::NotSynced => "Pending",
        }
    }
}

/// The text for the warning on lists if a rule set is throttled: its rules use too many evaluation
/// steps or too much time, so the server evaluates them on only some objects.
const THROTTLED: &str = "throttled";

/// The text for the warning on lists if changes of the target wait for more than
/// [`MAX_LAG`](ifo_engine::rules::MAX_LAG) until the rules are evaluated on them. The text does not
/// contain the waiting time, so that it stays the same while the rule set is behind.
const BEHIND: &str = "is behind by more than 5 s";

/// Returns the reason why a watched rule set may miss any of its operations, for the warning on
/// lists. Returns `None` if it can only miss operations on objects on which a rule fails.
fn may_miss_any(activity: &Activity) -> Option<String> {
    if activity.is_throttled() {
        return Some(THROTTLED.to_owned());
    }
    if activity.is_behind(clock::steady()) {
        return Some(BEHIND.to_owned());
    }
    let reached = activity.reached_bound()?;
    Some(format!("too many operations: {} are kept", reached.kept))
}

impl Report {
    /// Returns the number of rule sets in each state, for the metric `ifo_rule_sets`.
    pub fn states(&self) -> BTreeMap<&'static str, i64> {
        let mut states = BTreeMap::new();
        for rule_set in &self.rule_sets {
            *states.entry(rule_set.state.metric_state()).or_default() += 1;
        }
        states
    }

    /// Returns the rule sets that may miss operations.
    pub fn gaps(&self) -> Gaps {
        let specs = self.rule_sets.iter().filter_map(|it| it.spec.as_ref());
        let components = specs.map(|spec| Text::from(spec.component.as_str()));
        Gaps {
            rule_sets_are_read: self.read,
            total: self.rule_sets.len(),
            components: components.filter(|it| !it.is_empty()).collect(),
            rule_sets: (self.rule_sets.iter())
                .filter_map(ReportedRuleSet::gap)
                .collect(),
        }
    }
}

impl RuleSetState {
    /// Returns the state of a rule set. If the server does not watch its target, the state contains the
    /// reason.
    pub(super) fn of(health: &RuleSetHealth<'_>) -> Self {
        let rules = match health.compiled {
            None => return Self::Idle(IdleReason::Compiling),
            Some(Err(_)) => return Self::Idle(IdleReason::NotCompiled),
            Some(Ok(rules)) => rules,
        };
        Self::Idle(match (health.resolution, &health.watch) {
            _ if health.refused.is_some() || health.scoped_wrongly => IdleReason::TargetRefused,
            (Some(Resolution::NotServed { group_served, .. }), _) => {
                match (health.look_up_failure, group_served) {
                    (Some(_), _) => IdleReason::DiscoveryFailed,
                    (None, true) => IdleReason::TargetNotServed,
                    (None, false) => return Self::NotInstalled,
                }
            }
            (Some(Resolution::Unknown { .. }), _) => IdleReason::DiscoveryFailed,
            (_, WatchState::Failed(_)) => IdleReason::WatchFailed,
            (_, WatchState::Active) if !health.is_unsynced => {
                return Self::Watching(rules.clone());
            }
            (_, WatchState::Pending | WatchState::Active) => IdleReason::NotSynced,
        })
    }

    /// Returns the value of the label `state` of the metric `ifo_rule_sets`.
    fn metric_state(&self) -> &'static str {
        match self {
            Self::NotInstalled => "NotInstalled",
            Self::Idle(reason) => reason.metric_state(),
            Self::Watching(rules) if rules.activity.is_throttled() => "Throttled",
            Self::Watching(rules) if rules.activity.is_behind(clock::steady()) => "Behind",
            Self::Watching(rules) if rules.activity.reached_bound().is_some() => {
                TOO_MANY_OPERATIONS
            }
            Self::Watching(rules) if rules.activity.unknown_on(ObjectScope::ALL).objects > 0 => {
                "EvaluationFailed"
            }
            Self::Watching(_) => "Watching",
        }
    }
}

impl ReportedRuleSet {
    /// Returns the gap of the rule set, with the namespaces in which operations may be missing.
    /// Returns `None` if no operations can be missing.
    fn gap(&self) -> Option<Gap> {
        let spec = self.spec.as_deref();
        let own_namespaces = spec.map(|spec| &spec.namespaces);
        let own_namespaces = own_namespaces.filter(|own| !own.is_empty());
        // As long as the kind of the target is not known, its objects may be namespaced or
        // cluster-scoped.
        let (mut namespaces, mut cluster_scoped) = match (&self.kind, own_namespaces) {
            (Some((_, false)), _) => (Some(BTreeSet::new()), true),
            (kind, Some(own)) => {
                let own = own.iter().map(|name| name.as_str().into());
                (Some(own.collect()), kind.is_none())
            }
            (kind, None) => (None, kind.is_none()),
        };
        let rules = spec.map_or(&[][..], |spec| &spec.rules);
        let operations = rules.iter().map(|rule| rule.operation.as_str().into());
        let mut operations: Vec<Text> = operations.collect();
        let reason = match &self.state {
            RuleSetState::NotInstalled => return None,
            RuleSetState::Idle(reason) => reason.text().to_owned(),
            RuleSetState::Watching(rule_set) => {
                let activity = &rule_set.activity;
                let unknown = activity.unknown_on(ObjectScope::ALL);
                match may_miss_any(activity) {
                    Some(reason) => reason,
                    None if unknown.objects == 0 => return None,
                    None => {
                        let within = activity.unknown_in();
                        operations = unknown.operations.into_keys().collect();
                        cluster_scoped = within.contains(&None);
                        namespaces = Some(within.into_iter().flatten().collect());
                        evaluation_fails(unknown.objects)
                    }
                }
            }
        };
        Some(Gap {
            rule_set: self.name.clone(),
            reason,
            is_being_read: matches!(
                self.state,
                RuleSetState::Idle(IdleReason::NotSynced | IdleReason::Compiling)
            ),
            component: spec.map_or_else(Text::default, |spec| spec.component.as_str().into()),
            kind: self.kind.as_ref().map(|(kind, _)| kind.clone()),
            operations,
            namespaces,
            cluster_scoped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_engine::rules::{OperationBound, ReachedBound};

    fn reported(
        kind: Option<(&str, bool)>,
        namespaces: Option<&[&str]>,
        state: RuleSetState,
    ) -> ReportedRuleSet {
        let spec = serde_json::json!({
            "component": "kubevirt",
            "target": {"group": "", "version": "v1", "resource": "pods"},
            "namespaces": namespaces.unwrap_or_default(),
            "rules": [
                {"operation": "Migrating", "expression": "true"},
                {"operation": "Starting", "expression": "true"},
            ],
        });
        ReportedRuleSet {
            name: "a".into(),
            spec: Some(serde_json::from_value(spec).unwrap()),
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
        let gaps = report.gaps();
        assert_eq!(gaps.total, 1);
        let scope = Some(namespace).filter(|namespace| !namespace.is_empty());
        let cluster_scoped = scope.is_none_or(|namespace| namespace == "ifo-system");
        let mut gaps = gaps.rule_sets.iter();
        gaps.any(|gap| gap.affects(scope, cluster_scoped))
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

    const REACHED: ReachedBound = ReachedBound {
        bound: OperationBound::RuleSet,
        maximum: 10_000,
        kept: 10_000,
    };

    #[test]
    fn rule_set_with_too_many_operations_may_miss_operations_in_all_its_namespaces() {
        let rules = Arc::new(RuleSet::default());
        let state = || RuleSetState::Watching(rules.clone());
        let rule_set = || reported(Some(("Pod", true)), Some(&["shop", "bank"]), state());
        assert!(rule_set().gap().is_none());
        rules.activity.refuse(REACHED);
        // A rule also fails on an object in only one namespace.
        let shop: Text = "shop".into();
        rules
            .activity
            .add_unknown(Some(&shop), &["Migrating".into()]);
        let gap = rule_set().gap().expect("a bound is reached");
        assert_eq!(gap.reason, "too many operations: 10000 are kept");
        assert_eq!(gap.operations.len(), 2);
        assert!(affects(rule_set(), "bank") && !affects(rule_set(), "elsewhere"));
        assert_eq!(gap.namespaces.map(|all| all.len()), Some(2));
        assert_eq!(state().metric_state(), "TooManyOperations");
        rules.activity.stop_refusing(REACHED);
        assert!(!affects(rule_set(), "bank"));
    }
}
