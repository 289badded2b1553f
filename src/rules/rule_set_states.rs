//! The state of all rule sets. From this state, the server makes the warnings on lists that may
//! miss operations.

use super::rule_sets_that_may_miss_operations::{IncompleteRuleSet, IncompleteRuleSets};
use crate::clock;
use crate::index::{IndexReader, Rv};
use ifo_api::Text;
use ifo_api::completeness::{Completeness, Gap, Gaps};
use ifo_api::ruleset::{OperationRuleSetSpec, TOO_MANY_OPERATIONS};
use ifo_engine::rules::{Activity, ObjectScope, RuleSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// The state of all rule sets at one time.
#[derive(Debug, Default)]
pub struct Report {
    /// True if the server has read the rule sets of the cluster.
    pub(super) read: bool,
    /// All rule sets.
    pub(super) rule_sets: Vec<ReportedRuleSet>,
    /// The last time at which a report with an [`Idle`](RuleSetState::Idle) rule set was replaced by
    /// the next report. So the rule set may have begun to work at this time.
    pub(super) gap_ended: Option<Instant>,
}

/// One rule set in the report.
#[derive(Debug)]
pub(super) struct ReportedRuleSet {
    pub(super) facts: Arc<Facts>,
    /// The kind of the target's objects, and true if this kind is namespaced. The target is the
    /// resource that the rule set watches. `None` if discovery has not shown that the cluster
    /// serves the target.
    pub(super) kind: Option<(Text, bool)>,
    pub(super) state: RuleSetState,
}

/// The fields of a rule set that warnings need.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) name: Text,
    pub(super) component: Text,
    pub(super) operations: Vec<Text>,
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
            component: Text::default(),
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
}

impl RuleSetState {
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

/// Finds, in the newest report, the rule sets that may miss operations.
#[derive(Clone, Debug)]
pub struct Reporter {
    newest: watch::Receiver<Arc<Report>>,
    /// The namespace in which operations on cluster-scoped objects are shown.
    cluster_namespace: Text,
    /// The index of the operations that the rule sets detect.
    index: IndexReader,
    last_gap_end: Arc<Mutex<Option<GapEnd>>>,
}

/// The last end of a gap that a [`Reporter`] knows.
#[derive(Debug)]
struct GapEnd {
    /// The values of [`Report::gap_ended`] and of the sum of [`Activity::ended_gaps`]. When a rule
    /// set stops to miss operations, at least one of them changes.
    ///
    /// [`Activity::ended_gaps`]: ifo_engine::rules::Activity::ended_gaps
    seen: (Option<Instant>, u64),
    /// The resourceVersion of the index when the reporter first saw these values. The gap ended at
    /// this resourceVersion or before it.
    version: Rv,
}

impl Reporter {
    /// Creates a reporter. `cluster_namespace` is the namespace in which operations on
    /// cluster-scoped objects are shown. `index` contains the operations.
    pub fn new(
        newest: watch::Receiver<Arc<Report>>,
        cluster_namespace: Text,
        index: IndexReader,
    ) -> Self {
        Self {
            newest,
            cluster_namespace,
            index,
            last_gap_end: Arc::default(),
        }
    }

    /// Returns the value of [`Gaps::since`]. The caller must call this function after it has
    /// computed the other fields of [`Gaps`]. Otherwise a gap could end between the two steps, and
    /// neither of them would notice the gap.
    fn since(&self) -> u64 {
        let last = self.last_gap_end.lock();
        let mut last = last.unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest.borrow().clone();
        let ended = newest.rule_sets.iter().map(ReportedRuleSet::ended_gaps);
        let seen = (newest.gap_ended, ended.sum());
        match &*last {
            Some(known) if known.seen == seen => known.version.0,
            _ => {
                let version = self.index.head();
                *last = Some(GapEnd { seen, version });
                version.0
            }
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
            since: self.since(),
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
            since: self.since(),
        }
    }
}

impl ReportedRuleSet {
    /// Returns the value of [`Activity::ended_gaps`](ifo_engine::rules::Activity::ended_gaps). Zero
    /// if the target of the rule set is not watched.
    fn ended_gaps(&self) -> u64 {
        match &self.state {
            RuleSetState::Watching(rule_set) => rule_set.activity.ended_gaps(),
            RuleSetState::Idle(_) | RuleSetState::NotInstalled => 0,
        }
    }

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
                if let Some(reason) = may_miss_any(&rule_set.activity) {
                    (reason, None)
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
            && may_miss_any(&rule_set.activity).is_none()
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
    use crate::index::{Bounds, Key, VersionAssignment, Write, Writer, index};
    use ifo_api::example;
    use ifo_engine::rules::{OperationBound, ReachedBound};
    use serde_json::json;
    use std::time::Duration;

    const BOUNDS: Bounds = Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };

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
            gap_ended: None,
        };
        let (_keep, newest) = watch::channel(Arc::new(report));
        let (_writer, reader) = index(BOUNDS);
        let gaps = Reporter::new(newest, "ifo-system".into(), reader).gaps(namespace);
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
            gap_ended: None,
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

    /// Writes a new state of an operation to the index, and returns its resourceVersion.
    fn next_version(writer: &mut Writer) -> u64 {
        let key = Key::new("shop", "a");
        let object = example::object(&json!({"metadata": {"generation": writer.head().0}}));
        let write = Write::Put { key, object };
        let committed = writer.commit(vec![write], VersionAssignment::Mint);
        committed.expect("an index accepts every new version").0
    }

    #[test]
    fn a_resource_version_from_before_the_end_of_a_gap_is_not_known_to_be_complete() {
        let (mut writer, reader) = index(BOUNDS);
        let rules = Arc::new(RuleSet::default());
        let report = |state: RuleSetState, gap_ended| {
            Arc::new(Report {
                read: true,
                rule_sets: vec![reported(Some(("Pod", true)), None, state)],
                gap_ended,
            })
        };
        let watching = || RuleSetState::Watching(rules.clone());
        let begin = Instant::now();
        let (newest, receiver) = watch::channel(report(watching(), Some(begin)));
        let reporter = Reporter::new(receiver, "ifo-system".into(), reader);
        let first = next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, first);
        // Neither a new operation nor a new report ends a gap.
        next_version(&mut writer);
        newest.send_replace(report(watching(), Some(begin)));
        assert_eq!(reporter.gaps("").since, first);
        // A watch was interrupted. The reporter was asked only after the end of the interruption.
        newest.send_replace(report(
            RuleSetState::Idle(IdleReason::WatchFailed),
            Some(begin),
        ));
        next_version(&mut writer);
        newest.send_replace(report(watching(), Some(begin + Duration::from_nanos(1))));
        let second = next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, second);
        // The evaluation failed on an object, and then it succeeded.
        let shop: Text = "shop".into();
        rules
            .activity
            .add_unknown(Some(&shop), &["Migrating".into()]);
        next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, second);
        rules
            .activity
            .remove_unknown(Some(&shop), &["Migrating".into()]);
        let third = next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, third);
        assert_eq!(reporter.incomplete_rule_sets().since, third);
        // A watch throttled the rule set.
        rules.activity.throttle();
        rules.activity.stop_throttling();
        let fourth = next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, fourth);
        // A bound refused operations of the rule set.
        rules.activity.refuse(REACHED);
        rules.activity.stop_refusing(REACHED);
        let fifth = next_version(&mut writer);
        assert_eq!(reporter.gaps("").since, fifth);
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
        assert!(rule_set().gap(ObjectScope::ALL).is_none());
        rules.activity.refuse(REACHED);
        // A rule also fails on an object in only one namespace.
        let shop: Text = "shop".into();
        rules
            .activity
            .add_unknown(Some(&shop), &["Migrating".into()]);
        let gap = rule_set()
            .gap(ObjectScope::ALL)
            .expect("a bound is reached");
        assert_eq!(gap.reason, "too many operations: 10000 are kept");
        assert_eq!(gap.operations.len(), 2);
        assert!(affects(rule_set(), "bank") && !affects(rule_set(), "elsewhere"));
        let uncovered = rule_set().uncovered().expect("a bound is reached");
        assert_eq!(uncovered.namespaces.map(|all| all.len()), Some(2));
        assert_eq!(state().metric_state(), "TooManyOperations");
        rules.activity.stop_refusing(REACHED);
        assert!(!affects(rule_set(), "bank"));
    }
}
