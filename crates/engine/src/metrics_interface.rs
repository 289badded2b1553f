//! The interface through which the engine reports events to metrics. `ifo-apiserver` implements
//! [`Meter`] with Prometheus metrics. Commands that replay or test rules pass `()`, which ignores
//! the events.

use std::fmt;
use std::time::Duration;

/// Receives the events that metrics count.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Reports one of these failures of `rule_set` on an object:
    ///
    /// - An expression failed.
    /// - A rule was not evaluated, because the rule set is throttled.
    /// - A rule was not evaluated, because the object cannot be decoded.
    ///
    /// `operation` is the operation of the rule. For an expression outside of the rules,
    /// `operation` is the key of the computed label, or `nodes`. A rule that does not match the
    /// object is no failure.
    fn evaluation_failed(&self, rule_set: &str, operation: &str);

    /// Reports that an operation started.
    fn operation_started(&self, component: &str, operation: &str);

    /// Reports that an operation completed after `duration`, with its final `state` and `reason`.
    fn operation_completed(
        &self,
        component: &str,
        operation: &str,
        state: &'static str,
        reason: &str,
        duration: Duration,
    );
}

/// Ignores all events.
impl Meter for () {
    fn evaluation_failed(&self, _: &str, _: &str) {}

    fn operation_started(&self, _: &str, _: &str) {}

    fn operation_completed(&self, _: &str, _: &str, _: &'static str, _: &str, _: Duration) {}
}
