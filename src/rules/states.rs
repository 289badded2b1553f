//! The state of all rule sets, for the warnings on lists, the metric `ifo_rule_sets`, the tracker
//! (which turns detections into operations) and persistence mode.

use super::health::NotReady;
use ifo_api::Text;
use ifo_api::completeness::{Gap, Gaps};
use ifo_api::ruleset::{EVALUATION_FAILED, OperationRuleSetSpec};
use ifo_engine::rules::{RuleSet, RuleSetsWithoutBook};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of all rule sets at one time.
#[derive(Debug, Default)]
pub struct Report {
    /// True if the server has read the rule sets of the cluster.
    pub(super) read: bool,
    /// All rule sets.
    pub(super) rule_sets: Vec<ReportedRuleSet>,
    /// The rule sets that are in no rule book. While a feed has not sent its first report, this is
    /// the result from the last time at which all feeds had reported. `None` before the first such
    /// time.
    pub without_book: Option<Arc<RuleSetsWithoutBook>>,
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
    /// The newest rules, if the server evaluates them on all objects of the target. Otherwise, the
    /// reason why the server does not.
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

    /// Returns the names of the rule sets that are being compiled, whose target has not been read
    /// completely, or whose watch is interrupted.
    pub fn unsynced(&self) -> BTreeSet<String> {
        let is_unsynced = |it: &&ReportedRuleSet| {
            let not_ready = it.watched.as_ref().err();
            not_ready.is_some_and(NotReady::is_unsynced)
        };
        let unsynced = self.rule_sets.iter().filter(is_unsynced);
        unsynced.map(|it| it.name.to_string()).collect()
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
        let not_ready = self.not_ready()?;
        let warning = not_ready.warning.clone()?;
        let spec = self.spec.as_deref();
        let own_namespaces = spec.map(|spec| &spec.namespaces);
        let own_namespaces = own_namespaces.filter(|own| !own.is_empty());
        // While the kind of the target is unknown, the objects of the target may be namespaced or
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
            && not_ready.reason == EVALUATION_FAILED
        {
            // Only operations of some rules on some objects may be missing.
            let unknown = rules.activity.unknown();
            operations = unknown.operations.into_iter().collect();
            cluster_scoped = unknown.namespaces.contains(&None);
            namespaces = Some(unknown.namespaces.into_iter().flatten().collect());
        }
        Some(Gap {
            rule_set: self.name.clone(),
            reason: warning,
            is_being_read: not_ready.is_being_read(),
            component: spec.map_or_else(Text::default, |spec| spec.component.as_str().into()),
            kind: self.kind.as_ref().map(|(kind, _)| kind.clone()),
            operations,
            namespaces,
            cluster_scoped,
            lacks_nodes: spec.is_some_and(|spec| spec.nodes.is_none()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::ruleset::NOT_INSTALLED;
    use ifo_engine::rules::{Fact, OperationBound, ReachedBound};

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
            warning: None,
            ..NotReady::new(NOT_INSTALLED, "", "")
        }
    }

    /// Returns true if a list of the operations in `namespace` may miss operations of `rule_set`.
    fn affects(rule_set: ReportedRuleSet, namespace: &str) -> bool {
        let report = Report {
            read: true,
            rule_sets: vec![rule_set],
            ..Report::default()
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
            ..Report::default()
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

    #[test]
    fn only_a_readable_rule_set_without_nodes_leaves_nodes_unaffected() {
        let lacks_nodes = |change: fn(&mut OperationRuleSetSpec)| {
            let mut rule_set = reported(Some(("Pod", true)), None, Err(not_compiled()));
            rule_set.spec.as_mut().and_then(Arc::get_mut).map(change);
            rule_set.gap().unwrap().lacks_nodes
        };
        assert!(lacks_nodes(|_| ()));
        assert!(!lacks_nodes(|spec| spec.nodes = Some("[".to_owned())));
        let mut unreadable = reported(None, None, Err(NotReady::unreadable()));
        unreadable.spec = None;
        assert!(!unreadable.gap().unwrap().lacks_nodes);
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
        let refused = rules.activity.report(Fact::Refused(REACHED));
        // A rule also fails on an object in only one namespace.
        let _unknown = rules.activity.report(Fact::Unknown {
            namespace: Some("shop".into()),
            operations: vec!["Migrating".into()],
            is_uncounted: false,
        });
        let gap = rule_set().gap().expect("a bound is reached");
        assert_eq!(gap.reason, "too many operations: 10000 are counted");
        assert_eq!(gap.operations.len(), 2);
        assert!(affects(rule_set(), "bank") && !affects(rule_set(), "elsewhere"));
        assert_eq!(gap.namespaces.map(|all| all.len()), Some(2));
        let reason = rule_set().not_ready().map(|it| it.reason);
        assert_eq!(reason, Some("TooManyOperations"));
        drop(refused);
        assert!(!affects(rule_set(), "bank"));
    }
}
