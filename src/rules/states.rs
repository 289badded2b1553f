//! The reasons why rule sets may miss operations. The condition `Ready`, the warnings on lists and the
//! metric `ifo_rule_sets` are made from them.

use super::health::{RuleSetHealth, UnusableTarget, WatchState, evaluation_fails};
use crate::clock;
use ifo_api::Text;
use ifo_api::completeness::{Gap, Gaps};
use ifo_api::ruleset::{EVALUATION_FAILED, OperationRuleSetSpec, TOO_MANY_OPERATIONS};
use ifo_engine::rules::{Activity, ObjectScope, RuleSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Reason of `Ready` while the newest spec is being compiled.
const COMPILING: &str = "Compiling";

/// Reason of `Ready` while the objects of the target are being listed.
const PENDING: &str = "Pending";

/// Reason of `Ready` while discovery of the target or its watch fails.
pub(super) const WATCH_FAILED: &str = "WatchFailed";

/// Message of `Ready` while a feed (a watch of the target) throttles the rule set.
const THROTTLED: &str = "The rules take too much of the server's time, or they read `now` on more objects than the server \
     stores. Until the rules are cheaper, they are evaluated on only some objects. See the section on \
     cost in docs/rules.md.";

/// Message of `Ready` while changes of the target wait for more than
/// [`MAX_LAG`](ifo_engine::rules::MAX_LAG). The message does not contain the waiting time, so that
/// the status is not written again while the rule set is behind.
const BEHIND: &str = "Changes of the target wait for more than 5 s until the rules are evaluated on them. See the \
     section on cost in docs/rules.md.";

/// Text at the end of the message of `TooManyOperations`.
const UNTIL_ROOM: &str = " When operations end, the server lists the objects again and shows the \
                          missing operations. See the bounds on operations in docs/rules.md.";

/// Text at the end of the message of `InvalidRule` while the server evaluates the rules of the last
/// valid spec.
const LAST_RULES: &str = ". Until these errors are corrected, the last valid version of the rules \
                          stays in use";

/// Text at the end of the message of `Compiling` while the server evaluates the rules of the last
/// valid spec.
const RULES_UNTIL_COMPILED: &str = ". Until then, the last valid version of the rules stays in use";

/// The reason why a rule set is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotReady {
    /// Reason of the condition `Ready`, and value of the label `state` of the metric
    /// `ifo_rule_sets`.
    pub(super) reason: &'static str,
    /// Message of the condition `Ready`. Empty for failed evaluations, whose condition has the
    /// message.
    pub(super) message: String,
    /// Text for the warning on lists. `None` if the cluster does not serve the API group of the
    /// target, so that no operations can be missing.
    warning: Option<String>,
}

impl NotReady {
    fn new(reason: &'static str, message: impl Into<String>, warning: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            warning: Some(warning.into()),
        }
    }

    /// Returns the reason why an object is not a rule set.
    pub(super) fn unreadable() -> Self {
        Self::new("InvalidRule", "", "is not a valid object")
    }

    /// Returns the reason why the server does not evaluate the rules of the newest spec on all objects
    /// of the target. `None` if it does. Then [`Self::of_activity`] can return a reason.
    pub(super) fn of(health: &RuleSetHealth<'_>) -> Option<Self> {
        let with_last_rules = |text| Some(text).filter(|_| health.uses_last_rules);
        match health.compiled {
            None => {
                let until = with_last_rules(RULES_UNTIL_COMPILED).unwrap_or_default();
                let message = format!("The rules are being compiled{until}.");
                return Some(Self::new(COMPILING, message, "is being compiled"));
            }
            Some(Err(invalid)) => {
                let errors: Vec<String> = invalid.iter().map(ToString::to_string).collect();
                let message = errors.join("; ") + with_last_rules(LAST_RULES).unwrap_or_default();
                return Some(Self::new("InvalidRule", message, "does not compile"));
            }
            Some(Ok(_)) => {}
        }
        if let Some(target) = UnusableTarget::of(health) {
            return Some(Self {
                reason: target.condition,
                message: target.message,
                warning: target.warning.map(str::to_owned),
            });
        }
        match (&health.watch, health.look_up_failure) {
            (WatchState::Failed(message), _) => {
                let message = message.as_str();
                Some(Self::new(WATCH_FAILED, message, "target cannot be watched"))
            }
            (WatchState::Pending, Some(failure)) => {
                let message = format!("discovery of {} failed: {failure}", health.target);
                Some(Self::new(
                    WATCH_FAILED,
                    message,
                    "discovery of the target failed",
                ))
            }
            (WatchState::Pending, None) => {
                let message = "The target is being listed.";
                Some(Self::new(PENDING, message, "target is being listed"))
            }
            (WatchState::Active, _) => None,
        }
    }

    /// Returns true if the rules are being compiled, or if the target has not been read completely.
    pub(super) fn is_unsynced(&self) -> bool {
        matches!(self.reason, COMPILING | PENDING | WATCH_FAILED)
    }

    /// Returns the reason why a watched rule set may miss operations.
    pub(super) fn of_activity(activity: &Activity) -> Option<Self> {
        if activity.is_throttled() {
            return Some(Self::new("Throttled", THROTTLED, "throttled"));
        }
        if activity.is_behind(clock::steady()) {
            return Some(Self::new("Behind", BEHIND, "is behind by more than 5 s"));
        }
        if let Some(reached) = activity.reached_bound() {
            let message = format!("Operations may be missing: {reached}.{UNTIL_ROOM}");
            let warning = format!("too many operations: {} are kept", reached.kept);
            return Some(Self::new(TOO_MANY_OPERATIONS, message, warning));
        }
        // If a rule fails on an object, the server does not know whether an operation is in flight on
        // this object.
        let objects = activity.unknown_on(ObjectScope::ALL).objects;
        (objects > 0).then(|| Self::new(EVALUATION_FAILED, "", evaluation_fails(objects)))
    }
}

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
    /// The rules that the server evaluates on all objects of the target, or the reason why it does
    /// not.
    pub(super) watched: Result<Arc<RuleSet>, NotReady>,
}

impl Report {
    /// Returns the number of rule sets in each state, for the metric `ifo_rule_sets`.
    pub fn states(&self) -> BTreeMap<&'static str, i64> {
        let mut states = BTreeMap::new();
        for rule_set in &self.rule_sets {
            let state = rule_set.not_ready().map_or("Watching", |it| it.reason);
            *states.entry(state).or_default() += 1;
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

impl ReportedRuleSet {
    /// Returns the reason why the rule set is not ready now.
    fn not_ready(&self) -> Option<NotReady> {
        match &self.watched {
            Ok(rules) => NotReady::of_activity(&rules.activity),
            Err(not_ready) => Some(not_ready.clone()),
        }
    }

    /// Returns the gap of the rule set, with the namespaces in which operations may be missing.
    /// Returns `None` if no operations can be missing.
    fn gap(&self) -> Option<Gap> {
        let NotReady {
            reason, warning, ..
        } = self.not_ready()?;
        let warning = warning?;
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
        if let Ok(rules) = &self.watched
            && reason == EVALUATION_FAILED
        {
            // Only operations of some rules on some objects may be missing.
            let unknown = rules.activity.unknown_on(ObjectScope::ALL);
            let within = rules.activity.unknown_in();
            operations = unknown.operations.into_keys().collect();
            cluster_scoped = within.contains(&None);
            namespaces = Some(within.into_iter().flatten().collect());
        }
        Some(Gap {
            rule_set: self.name.clone(),
            reason: warning,
            is_being_read: matches!(reason, COMPILING | PENDING),
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
    use ifo_api::ruleset::NOT_INSTALLED;
    use ifo_engine::rules::{OperationBound, ReachedBound};

    fn reported(
        kind: Option<(&str, bool)>,
        namespaces: Option<&[&str]>,
        watched: Result<Arc<RuleSet>, NotReady>,
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
            watched,
        }
    }

    fn not_compiled() -> NotReady {
        NotReady::new("InvalidRule", "", "does not compile")
    }

    fn not_installed() -> NotReady {
        NotReady {
            reason: NOT_INSTALLED,
            message: String::new(),
            warning: None,
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
        let with = |not_ready| reported(Some(("Pod", true)), None, Err(not_ready));
        let report = Report {
            read: true,
            rule_sets: vec![
                with(not_compiled()),
                with(NotReady::unreadable()),
                with(NotReady::new("WatchFailed", "", "target cannot be watched")),
                with(not_installed()),
            ],
        };
        let expected = [("InvalidRule", 2), ("NotInstalled", 1), ("WatchFailed", 1)];
        assert_eq!(report.states(), expected.into());
        assert!(Report::default().states().is_empty());
    }

    #[test]
    fn rule_set_affects_only_lists_that_could_contain_its_operations() {
        let idle = || Err(not_compiled());
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
            (reported(pod, None, Err(not_installed())), "", false),
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
        let namespaces = Some(&["shop", "bank"][..]);
        let rule_set = || reported(Some(("Pod", true)), namespaces, Ok(rules.clone()));
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
        let reason = rule_set().not_ready().map(|it| it.reason);
        assert_eq!(reason, Some("TooManyOperations"));
        rules.activity.stop_refusing(REACHED);
        assert!(!affects(rule_set(), "bank"));
    }
}
