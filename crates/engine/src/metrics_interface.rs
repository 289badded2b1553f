//! The interface through which the engine reports events to metrics. `ifo-apiserver` implements
//! [`Meter`] with Prometheus metrics. Commands that replay or test rules pass `()`, which ignores
//! the events.

use ifo_api::live::InFlightOperation;
use std::fmt;

/// Receives the events that metrics count. Each method ignores its event by default.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Reports one of these failures of a rule set on an object:
    ///
    /// - An expression failed.
    /// - A rule was not evaluated, because the rule set is throttled.
    /// - A rule was not evaluated, because the object cannot be decoded.
    ///
    /// `_operation` is the operation of the rule. For an expression outside of the rules,
    /// `_operation` is the key of the computed label, or `nodes`. A rule that does not match the
    /// object is no failure.
    fn evaluation_failed(&self, _rule_set: &str, _operation: &str) {}

    /// Reports that an operation started.
    fn operation_started(&self, _operation: &InFlightOperation) {}

    /// Reports that an operation completed.
    fn operation_completed(&self, _operation: &InFlightOperation) {}
}

/// Ignores all events.
impl Meter for () {}
