//! The counters of evaluation and tracking. The server counts in its Prometheus metrics;
//! commands that replay or test rules do not count at all.

use std::fmt;
use std::time::Duration;

/// Receives the events that are counted.
pub trait Meter: fmt::Debug + Send + Sync {
    /// A rule of `rule_set` failed on an object, which is not the same as no match.
    fn evaluation_failed(&self, rule_set: &str, operation: &str);

    /// An operation started.
    fn operation_started(&self, component: &str, operation: &str);

    /// An operation completed after `duration`, in `state` and for `reason`.
    fn operation_completed(
        &self,
        component: &str,
        operation: &str,
        state: &'static str,
        reason: &str,
        duration: Duration,
    );
}

/// Counts nothing.
impl Meter for () {
    fn evaluation_failed(&self, _: &str, _: &str) {}

    fn operation_started(&self, _: &str, _: &str) {}

    fn operation_completed(&self, _: &str, _: &str, _: &'static str, _: &str, _: Duration) {}
}
