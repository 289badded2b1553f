//! Records the evaluations and failures of one compiled rule set. The watches evaluate the rule set
//! on objects and write this record. `ifo-apiserver` reads the record for the status of the rule
//! set and for `Warning` headers in responses to clients.

use super::evaluation_time::lock;
use super::{EvaluationError, TimeAccount, WorkWaitingSince};
use ifo_api::Text;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Minimum time between two log lines about failures of one rule set. A rule that fails on every
/// object fails thousands of times during one list.
const LOG_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// The evaluations and failures of one rule set since it was compiled.
#[derive(Debug, Default)]
pub struct Activity {
    state: Arc<Mutex<ActivityState>>,
    /// The time that evaluations of the rule set have taken in all watches.
    time: TimeAccount,
}

#[derive(Debug, Default)]
struct ActivityState {
    /// Time of the last evaluation.
    evaluated: Option<Timestamp>,
    /// Time of the last log line about a failure.
    logged: Option<Timestamp>,
    /// The last failure of each field.
    failures: BTreeMap<String, EvaluationFailure>,
    /// The last failure of each field that decides whether an operation is in flight.
    detection_failures: BTreeMap<String, EvaluationFailure>,
    /// The facts that watches and the tracker report, by the number of the [`Report`].
    facts: BTreeMap<u64, Fact>,
    /// Number of the next report.
    next_number: u64,
    /// True if the tracker has reported that there is room for some of the refused operations.
    has_room: bool,
}

/// A fact about a rule set that lasts until its [`Report`] is dropped.
#[derive(Debug)]
pub enum Fact {
    /// A watch evaluates the rule set. The value is the time since which work of the watch has been
    /// waiting.
    Watched(Arc<WorkWaitingSince>),
    /// A watch cannot store all objects on which it must evaluate the rule set again.
    Throttled,
    /// A bound refuses operations on the objects of a watch.
    Refused(ReachedBound),
    /// It is unknown whether operations are in flight on one object.
    Unknown {
        /// Namespace of the object. None for a cluster-scoped object.
        namespace: Option<Text>,
        /// Names of the operations.
        operations: Vec<Text>,
        /// True if the fact is about one or more objects that the watch does not count.
        is_uncounted: bool,
    },
}

/// The report of a [`Fact`]. The fact lasts until this value is dropped.
#[derive(Debug)]
pub struct Report {
    state: Arc<Mutex<ActivityState>>,
    number: u64,
}

impl Drop for Report {
    fn drop(&mut self) {
        lock(&self.state).facts.remove(&self.number);
    }
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

/// The objects for which the server does not know whether an operation is in flight. An evaluation
/// on these objects failed, or the rule set was not evaluated because it is throttled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownDetections {
    /// Number of such objects. Each watch counts up to 250 objects. If there are further objects,
    /// they count as one.
    pub objects: usize,
    /// True if there can be more objects, because a watch has reached its maximum.
    pub has_more: bool,
    /// Names of the operations.
    pub operations: BTreeSet<Text>,
    /// Namespaces of the objects. None stands for cluster-scoped objects.
    pub namespaces: BTreeSet<Option<Text>>,
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

    /// Returns true if the caller may log a failure at `now`. The result is true at most once a
    /// minute. If the result is true, `now` counts as the time of the log line.
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
        let failures = &mut self.state().detection_failures;
        failures.insert(failure.what.clone(), failure);
    }

    /// Returns the last failure of each field that decides whether an operation is in flight.
    pub fn detection_failures(&self) -> Vec<EvaluationFailure> {
        self.state().detection_failures.values().cloned().collect()
    }

    /// Records a failure of any expression.
    pub fn failed(&self, failure: EvaluationFailure) {
        let failures = &mut self.state().failures;
        failures.insert(failure.what.clone(), failure);
    }

    /// Returns the last failure of each field.
    pub fn failures(&self) -> Vec<EvaluationFailure> {
        self.state().failures.values().cloned().collect()
    }

    /// Returns the account of the time that evaluations of the rule set take.
    pub fn time(&self) -> &TimeAccount {
        &self.time
    }

    /// Reports a fact. It lasts until the caller drops the result.
    pub fn report(&self, fact: Fact) -> Report {
        let mut state = self.state();
        // The tracker reports a refusal when there is no room.
        state.has_room &= !matches!(fact, Fact::Refused(_));
        let number = state.next_number;
        state.next_number += 1;
        state.facts.insert(number, fact);
        let state = self.state.clone();
        Report { state, number }
    }

    /// Returns true if work of a watch of the rule set has waited for more than
    /// [`MAX_LAG`](super::MAX_LAG) at `now`.
    pub fn is_behind(&self, now: Instant) -> bool {
        let is_late = |fact: &Fact| matches!(fact, Fact::Watched(work) if work.is_late(now));
        self.state().facts.values().any(is_late)
    }

    /// Returns true if the evaluations of the rule set take too much time, or if a watch has
    /// reported [`Fact::Throttled`].
    pub fn is_throttled(&self) -> bool {
        let is_throttled = |fact: &Fact| matches!(fact, Fact::Throttled);
        self.time.is_exhausted() || self.state().facts.values().any(is_throttled)
    }

    /// Returns a bound that refuses operations of the rule set. None if all detected operations are
    /// shown. If there are several such bounds, returns the one that is first in
    /// [`OperationBound`].
    pub fn reached_bound(&self) -> Option<ReachedBound> {
        let state = self.state();
        let bounds = state.facts.values().filter_map(|fact| match fact {
            Fact::Refused(reached) => Some(*reached),
            _ => None,
        });
        bounds.min()
    }

    /// Records whether there is room for some of the refused operations.
    pub fn set_room(&self, has_room: bool) {
        self.state().has_room = has_room;
    }

    /// Returns true if operations of the rule set were refused, and there is room for some of them
    /// now. The watches of the rule set must then list all objects again.
    pub fn has_room(&self) -> bool {
        self.reached_bound().is_some() && self.state().has_room
    }

    /// Returns the unknown detections.
    pub fn unknown(&self) -> UnknownDetections {
        let mut all = UnknownDetections::default();
        for fact in self.state().facts.values() {
            if let Fact::Unknown {
                namespace,
                operations,
                is_uncounted,
            } = fact
            {
                // An object can have several facts that are not counted.
                all.objects += usize::from(!is_uncounted || !all.has_more);
                all.has_more |= is_uncounted;
                all.operations.extend(operations.iter().cloned());
                all.namespaces.insert(namespace.clone());
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_detections_are_counted_until_their_reports_are_dropped() {
        let activity = Activity::default();
        let report = |namespace: Option<&str>, operations: &[&str]| {
            let operations = operations.iter().map(|it| (*it).into());
            activity.report(Fact::Unknown {
                namespace: namespace.map(Into::into),
                operations: operations.collect(),
                is_uncounted: false,
            })
        };
        let counts = || {
            let unknown = activity.unknown();
            let namespaces = unknown.namespaces.len();
            (unknown.objects, unknown.operations.len(), namespaces)
        };
        let first = report(Some("shop"), &["Migrating", "Starting"]);
        let second = report(Some("shop"), &["Migrating"]);
        let cluster_scoped = report(None, &["Draining"]);
        assert_eq!(counts(), (3, 3, 2));
        drop(first);
        assert_eq!(counts(), (2, 2, 2));
        drop((second, cluster_scoped));
        assert_eq!(activity.unknown(), UnknownDetections::default());
    }
}
