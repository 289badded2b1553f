//! The activity of one compiled rule set. The feeds write it. The controller reads it for the rule
//! set's status, and the HTTP server for the warning on lists.

use super::EvaluationError;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Seconds between two log lines about failures of one rule set. A rule that fails on every object
/// fails thousands of times in a list.
const LOG_EVERY: i64 = 60;

/// The activity of one rule set since it was compiled.
#[derive(Debug, Default)]
pub struct Activity {
    /// Time of the last evaluation, in seconds since 1970; 0 before the first.
    evaluated: AtomicI64,
    /// Time of the last log line about a failure, in seconds since 1970. 0 before the first.
    logged: AtomicI64,
    failure: Mutex<Option<EvaluationFailure>>,
    /// The last failure of an expression that decides whether an operation is in flight.
    detection_failure: Mutex<Option<EvaluationFailure>>,
    /// Number of feeds that throttle the rule set.
    throttling: AtomicUsize,
    /// Objects by their namespace. None for cluster-scoped objects.
    unknown: Mutex<BTreeMap<Option<Arc<str>>, UnknownDetections>>,
}

/// The last failure of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluationFailure {
    /// The time of the failure.
    pub at: Timestamp,
    /// The field, such as `rules[Migrating].expression`.
    pub what: String,
    /// The error.
    pub error: EvaluationError,
}

/// Objects on which it is unknown whether an operation is in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownDetections {
    /// Number of objects.
    pub objects: usize,
    /// For each operation whose detection is unknown, the number of objects.
    pub operations: BTreeMap<Arc<str>, usize>,
}

impl UnknownDetections {
    fn add(&mut self, other: &Self) {
        self.objects += other.objects;
        for (operation, objects) in &other.operations {
            *self.operations.entry(operation.clone()).or_default() += objects;
        }
    }
}

/// The objects that a request is about.
#[derive(Clone, Copy, Debug)]
pub struct ObjectScope<'a> {
    /// The namespace of the objects. None for all namespaces.
    pub namespace: Option<&'a str>,
    /// True if cluster-scoped objects are included.
    pub cluster_scoped: bool,
}

impl ObjectScope<'_> {
    /// All objects.
    pub const ALL: Self = Self {
        namespace: None,
        cluster_scoped: true,
    };

    /// Returns true if objects in `namespace` are included. None stands for cluster-scoped objects.
    pub fn include(&self, namespace: Option<&str>) -> bool {
        match namespace {
            Some(namespace) => self.namespace.is_none_or(|wanted| wanted == namespace),
            None => self.cluster_scoped,
        }
    }
}

impl Activity {
    /// Records an evaluation at `now`.
    pub fn evaluated(&self, now: Timestamp) {
        self.evaluated.store(now.as_second(), Ordering::Relaxed);
    }

    /// The time of the last evaluation, in whole seconds.
    pub fn last_evaluation(&self) -> Option<Timestamp> {
        match self.evaluated.load(Ordering::Relaxed) {
            0 => None,
            seconds => Timestamp::from_second(seconds).ok(),
        }
    }

    /// Returns true if a failure at `now` should be logged, which is once a minute.
    pub fn may_log(&self, now: Timestamp) -> bool {
        let now = now.as_second();
        let due = |logged: i64| (logged == 0 || now - logged >= LOG_EVERY).then_some(now);
        let updated = self
            .logged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due);
        updated.is_ok()
    }

    /// Records a failure of an expression that decides whether an operation is in flight.
    pub fn detection_failed(&self, failure: EvaluationFailure) {
        let last = self.detection_failure.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// The last failure of such an expression.
    pub fn last_detection_failure(&self) -> Option<EvaluationFailure> {
        let last = self.detection_failure.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a failure of a rule.
    pub fn failed(&self, failure: EvaluationFailure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// The last failure, if there is one.
    pub fn last_failure(&self) -> Option<EvaluationFailure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Called when a feed begins to throttle the rule set, because it exhausts its budget on
    /// consecutive objects.
    pub fn throttle(&self) {
        self.throttling.fetch_add(1, Ordering::Relaxed);
    }

    /// Called when a feed stops throttling the rule set, or ends.
    pub fn release(&self) {
        self.throttling.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if a feed throttles the rule set.
    pub fn is_throttled(&self) -> bool {
        self.throttling.load(Ordering::Relaxed) > 0
    }

    /// Adds an object in `namespace` on which the detection of `operations` is unknown.
    pub fn add_unknown(&self, namespace: Option<&Arc<str>>, operations: &[Arc<str>]) {
        let mut unknown = self.unknown();
        let counts = unknown.entry(namespace.cloned()).or_default();
        counts.objects += 1;
        for operation in operations {
            *counts.operations.entry(operation.clone()).or_default() += 1;
        }
    }

    /// Reverts a call of [`Activity::add_unknown`] with the same arguments.
    pub fn remove_unknown(&self, namespace: Option<&Arc<str>>, operations: &[Arc<str>]) {
        let mut unknown = self.unknown();
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

    /// The unknown detections on the `wanted` objects.
    pub fn unknown_on(&self, wanted: ObjectScope<'_>) -> UnknownDetections {
        let mut sum = UnknownDetections::default();
        for (namespace, counts) in &*self.unknown() {
            if wanted.include(namespace.as_deref()) {
                sum.add(counts);
            }
        }
        sum
    }

    /// The namespaces with unknown detections. None stands for cluster-scoped objects.
    pub fn unknown_in(&self) -> Vec<Option<Arc<str>>> {
        self.unknown().keys().cloned().collect()
    }

    fn unknown(&self) -> MutexGuard<'_, BTreeMap<Option<Arc<str>>, UnknownDetections>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn unknown_detections_are_counted_by_namespace_and_operation() {
        let activity = Activity::default();
        let shop: Arc<str> = "shop".into();
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
        assert!(activity.unknown().is_empty(), "nothing is kept");
    }
}
