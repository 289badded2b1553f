//! Records the evaluations and failures of one compiled rule set. The watches evaluate the rule set
//! on objects and write this record. `ifo-apiserver` reads the record for the status of the rule
//! set and for `Warning` headers in responses to clients.

use super::evaluation_time::lock;
use super::{EvaluationError, FeedLag, TimeAccount};
use ifo_api::Text;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Minimum time between two log lines about failures of one rule set. A rule that fails
/// on every object fails thousands of times during one list.
const LOG_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The evaluations and failures of one rule set since it was compiled.
#[derive(Debug, Default)]
pub struct Activity {
    state: Mutex<ActivityState>,
    /// The time that evaluations of the rule set have taken in all watches.
    time: TimeAccount,
}

#[derive(Debug, Default)]
struct ActivityState {
    /// Time of the last evaluation.
    evaluated: Option<Timestamp>,
    /// Time of the last log line about a failure.
    logged: Option<Timestamp>,
    /// The last failure of any expression.
    failure: Option<EvaluationFailure>,
    /// The last failure of an expression that decides whether an operation is in flight.
    detection_failure: Option<EvaluationFailure>,
    /// Number of watches that throttle the rule set.
    throttling: usize,
    /// The watches that evaluate the rule set.
    feeds: Vec<Arc<FeedLag>>,
    /// Numbers of objects with unknown detections, by namespace. The key None stands for
    /// cluster-scoped objects.
    unknown: BTreeMap<Option<Text>, UnknownDetections>,
    /// The bounds that refuse operations of the rule set. Each watch adds its own.
    bounds: Vec<ReachedBound>,
    /// True if the tracker has not shown all operations of the rule set, and has room for some of
    /// them now.
    has_room: bool,
}

/// A bound on the operations of a rule set. At this bound, the tracker shows no further operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationBound {
    /// The bound on the operations of one rule set on one object.
    Object,
    /// The bound on the operations of one rule set.
    RuleSet,
    /// The bound on the operations of all rule sets together.
    AllRuleSets,
}

/// A bound that the operations of a rule set have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReachedBound {
    /// The bound.
    pub bound: OperationBound,
    /// Maximum number of operations.
    pub maximum: usize,
    /// Number of operations of the rule set when it reached the bound. An operation with long texts
    /// counts as several.
    pub kept: usize,
}

impl fmt::Display for ReachedBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { maximum, kept, .. } = self;
        let of = match self.bound {
            OperationBound::Object => "is the bound for a rule set on one object",
            OperationBound::RuleSet => "is the bound for a rule set",
            OperationBound::AllRuleSets => "is the bound for all rule sets",
        };
        write!(f, "{kept} operations are counted, and {maximum} {of}")
    }
}

/// One failure of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationFailure {
    /// Time of the failure.
    pub at: Timestamp,
    /// Field of the rule set, such as `rules[Migrating].expression`. If the object cannot be
    /// decoded, this is the text `the object`.
    pub what: String,
    /// The error that the evaluation returned.
    pub error: EvaluationError,
}

/// Numbers of objects for which the server does not know whether an operation is in flight. An
/// evaluation on these objects failed, or the rule set was not evaluated because it is throttled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownDetections {
    /// Number of such objects. Each watch counts up to 250 objects. For each namespace and
    /// operation, all further objects together count as one.
    pub objects: usize,
    /// Number of such objects by name of the unknown operation.
    pub operations: BTreeMap<Text, usize>,
}

impl UnknownDetections {
    fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        for (operation, objects) in &other.operations {
            *self.operations.entry(operation.clone()).or_default() += objects;
        }
    }
}

/// Selects objects by namespace. For example, a request that lists one namespace selects the
/// objects in this namespace.
#[derive(Clone, Copy, Debug)]
pub struct ObjectScope<'a> {
    /// Namespace of the objects. None for all namespaces.
    pub namespace: Option<&'a str>,
    /// True if cluster-scoped objects are included.
    pub cluster_scoped: bool,
}

impl ObjectScope<'_> {
    /// A scope that includes all objects.
    pub const ALL: Self = Self {
        namespace: None,
        cluster_scoped: true,
    };

    /// Returns true if the scope includes objects in `namespace`. None stands for cluster-scoped
    /// objects.
    pub fn includes(&self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespace.is_none_or(|wanted| wanted == namespace),
            None => self.cluster_scoped,
        }
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, ActivityState> {
        lock(&self.state)
    }

    /// Records an evaluation at `now`.
    pub fn evaluated(&self, now: Timestamp) {
        self.state().evaluated = Some(now);
    }

    /// Returns the time of the last evaluation, in whole seconds. None before the first evaluation.
    pub fn last_evaluation(&self) -> Option<Timestamp> {
        let evaluated = self.state().evaluated?;
        Timestamp::from_second(evaluated.as_second()).ok()
    }

    /// Returns true if the caller should log a failure at `now`, at most once a minute. If the
    /// result is true, `now` counts as the time of the log line.
    pub fn may_log(&self, now: Timestamp) -> bool {
        let logged = &mut self.state().logged;
        let is_due = logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY);
        if is_due {
            *logged = Some(now);
        }
        is_due
    }

    /// Records a failure of an expression that decides whether an operation is in flight.
    pub fn detection_failed(&self, failure: EvaluationFailure) {
        self.state().detection_failure = Some(failure);
    }

    /// Returns the last failure of an expression that decides whether an operation is in flight.
    pub fn last_detection_failure(&self) -> Option<EvaluationFailure> {
        self.state().detection_failure.clone()
    }

    /// Records a failure of any expression.
    pub fn failed(&self, failure: EvaluationFailure) {
        self.state().failure = Some(failure);
    }

    /// Returns the last failure of any expression.
    pub fn last_failure(&self) -> Option<EvaluationFailure> {
        self.state().failure.clone()
    }

    /// Returns the account of the time that evaluations of the rule set take.
    pub fn time(&self) -> &TimeAccount {
        &self.time
    }

    /// Records that a watch evaluates the rule set.
    pub(super) fn add_feed(&self, lag: Arc<FeedLag>) {
        self.state().feeds.push(lag);
    }

    /// Records that a watch no longer evaluates the rule set.
    pub(super) fn remove_feed(&self, lag: &Arc<FeedLag>) {
        let feeds = &mut self.state().feeds;
        feeds.retain(|other| !Arc::ptr_eq(other, lag));
    }

    /// Returns true if changes wait for an evaluation of the rule set for more than
    /// [`MAX_LAG`](super::MAX_LAG) at `now`.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.state().feeds.iter().any(|feed| feed.is_late(now))
    }

    /// Records that a watch begins to throttle the rule set. A watch throttles a rule set whose
    /// evaluations take too much time, or that reads `now` on too many objects.
    pub fn throttle(&self) {
        self.state().throttling += 1;
    }

    /// Reverts one call of [`Activity::throttle`], because the watch no longer throttles the rule
    /// set or has ended.
    pub fn stop_throttling(&self) {
        let throttling = &mut self.state().throttling;
        *throttling = throttling.saturating_sub(1);
    }

    /// Returns true if at least one watch throttles the rule set.
    pub fn is_throttled(&self) -> bool {
        self.state().throttling > 0
    }

    /// Records that `bound` refuses operations on the objects of a watch.
    pub fn refuse(&self, bound: ReachedBound) {
        self.state().bounds.push(bound);
    }

    /// Reverts one call of [`Activity::refuse`] that had the same argument. The caller calls this
    /// method after the operations that were refused before are in the index.
    pub fn stop_refusing(&self, bound: ReachedBound) {
        let mut state = self.state();
        if let Some(index) = state.bounds.iter().position(|own| *own == bound) {
            state.bounds.swap_remove(index);
        }
        state.has_room &= !state.bounds.is_empty();
    }

    /// Returns a bound that refuses operations of the rule set. None if all detected operations are
    /// shown. If there are several bounds, the result is the first of [`OperationBound`].
    pub fn reached_bound(&self) -> Option<ReachedBound> {
        self.state().bounds.iter().min().copied()
    }

    /// Records if there is room for operations that were refused before.
    pub fn set_room(&self, has_room: bool) {
        self.state().has_room = has_room;
    }

    /// Returns true if operations of the rule set were refused, and there is room for some of them
    /// now. The watches of the rule set must then list all objects again.
    pub fn has_room(&self) -> bool {
        self.state().has_room
    }

    /// Counts an object in `namespace` for which it is unknown whether `operations` are in flight.
    pub fn add_unknown(&self, namespace: Option<&Text>, operations: &[Text]) {
        let mut state = self.state();
        let counts = state.unknown.entry(namespace.cloned()).or_default();
        counts.objects += 1;
        for operation in operations {
            *counts.operations.entry(operation.clone()).or_default() += 1;
        }
    }

    /// Reverts an earlier call of [`Activity::add_unknown`] that had the same arguments.
    pub fn remove_unknown(&self, namespace: Option<&Text>, operations: &[Text]) {
        let unknown = &mut self.state().unknown;
        let namespace = namespace.cloned();
        let Some(counts) = unknown.get_mut(&namespace) else {
            return;
        };
        counts.objects = counts.objects.saturating_sub(1);
        for operation in operations {
            if let Some(objects) = counts.operations.get_mut(operation) {
                *objects = objects.saturating_sub(1);
            }
        }
        counts.operations.retain(|_, objects| *objects > 0);
        if counts.objects == 0 {
            unknown.remove(&namespace);
        }
    }

    /// Returns the sum of the unknown detections on the `wanted` objects.
    pub fn unknown_on(&self, wanted: ObjectScope<'_>) -> UnknownDetections {
        let mut sum = UnknownDetections::default();
        for (namespace, counts) in &self.state().unknown {
            if wanted.includes(namespace.as_deref()) {
                sum.add(counts);
            }
        }
        sum
    }

    /// Returns the namespaces that have unknown detections. None stands for cluster-scoped objects.
    pub fn unknown_in(&self) -> Vec<Option<Text>> {
        self.state().unknown.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Text> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn unknown_detections_are_counted_by_namespace_and_operation() {
        let activity = Activity::default();
        let shop: Text = "shop".into();
        activity.add_unknown(Some(&shop), &names(&["Migrating", "Starting"]));
        activity.add_unknown(Some(&shop), &names(&["Migrating"]));
        activity.add_unknown(None, &names(&["Draining"]));
        let of = |namespace, cluster_scoped| {
            let wanted = ObjectScope {
                namespace,
                cluster_scoped,
            };
            let unknown = activity.unknown_on(wanted);
            (unknown.objects, unknown.operations.len())
        };
        assert_eq!(of(None, true), (3, 3));
        assert_eq!(of(Some("shop"), false), (2, 2));
        assert_eq!(of(Some("other"), false), (0, 0));
        assert_eq!(of(Some("ifo-system"), true), (1, 1));
        assert_eq!(activity.unknown_in(), [None, Some(shop.clone())]);
        activity.remove_unknown(Some(&shop), &names(&["Migrating", "Starting"]));
        assert_eq!(of(Some("shop"), false), (1, 1));
        activity.remove_unknown(Some(&shop), &names(&["Migrating"]));
        activity.remove_unknown(None, &names(&["Draining"]));
        assert_eq!(of(None, true), (0, 0));
        let state = activity.state();
        assert!(state.unknown.is_empty(), "counts of 0 must be removed");
    }
}
