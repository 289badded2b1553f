//! The results of rules on one object.

use super::values::RuleValues;
use crate::Meter;
use crate::detect::Subject;
use crate::rules::{EvaluationFailure, RuleSet};
use ifo_api::Text;
use ifo_api::live::State;
use jiff::Timestamp;
use std::sync::Arc;

/// The results of all rules of one rule book on one object.
#[derive(Debug, Default)]
pub struct Evaluation {
    /// The object.
    pub subject: Subject,
    /// Time of the last change of the object: the newest time in `metadata.managedFields`. None if
    /// there is no such time, or if the object was evaluated again because time has passed.
    pub changed: Option<Timestamp>,
    /// Contains at least one entry for each rule in one of these cases:
    ///
    /// - The rule detects or continues an operation.
    /// - The rule failed.
    /// - The rule was not evaluated because its rule set is throttled. A rule set is throttled if
    ///   its evaluations take too much time.
    ///
    /// If an evaluated rule has no entry, the rule does not match the object.
    pub findings: Vec<Finding>,
    /// Results of the `outcome` expressions. An `outcome` is evaluated only if its rule neither
    /// detects nor continues its operation, and did not fail.
    pub outcomes: Vec<DetectedOutcome>,
    /// Rule sets whose label selector does not match the object.
    pub unselected: Vec<Arc<RuleSet>>,
    /// The first 100 failures, each with the name of its rule set.
    pub failures: Vec<(Text, EvaluationFailure)>,
    /// The operations, by rule set, for which it is unknown whether they are in flight. There are
    /// two reasons:
    ///
    /// - The evaluation failed, or the object cannot be decoded.
    /// - The rule set was not evaluated because it is throttled.
    pub unknown: Vec<(Arc<RuleSet>, Vec<Text>)>,
    /// Rule sets whose result can change although the object does not change. There are two
    /// reasons:
    ///
    /// - An expression of the rule set read `now`.
    /// - The rule set was not evaluated because it is throttled.
    pub time_dependent: Vec<Arc<RuleSet>>,
}

impl Evaluation {
    /// Returns true if at least one rule detects an operation. If only the `continueWhile` of a
    /// rule is true, the rule does not count, because it cannot start an operation.
    pub fn detects(&self) -> bool {
        let mut values = self.findings.iter().filter_map(|it| it.values.as_ref());
        values.any(|values| !values.only_continues)
    }

    /// Returns the approximate size of the results in memory, in bytes.
    pub fn result_bytes(&self) -> usize {
        let values = self.findings.iter().filter_map(|it| it.values.as_ref());
        let messages = values.map(|values| values.shown.message.len());
        let outcomes = self.outcomes.iter().map(|it| it.message.len());
        self.findings.len() * size_of::<Finding>()
            + self.outcomes.len() * size_of::<DetectedOutcome>()
            + messages.chain(outcomes).sum::<usize>()
    }

    /// Records that no rule of a rule set was evaluated. All operations of the rule set are then
    /// unknown.
    pub(super) fn skip(&mut self, rule_set: &Arc<RuleSet>, meter: &dyn Meter) {
        for rule in &rule_set.rules {
            meter.evaluation_failed(&rule_set.name, &rule.operation);
            self.findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                item: None,
                values: None,
            });
            self.add_unknown(rule_set, &rule.operation);
        }
    }

    /// Adds an operation to [`Evaluation::unknown`]. Does nothing if the list already contains the
    /// operation.
    pub(super) fn add_unknown(&mut self, rule_set: &Arc<RuleSet>, operation: &Text) {
        // All rules of a rule set are evaluated before the next rule set, so only the last entry
        // can be of this rule set.
        let last = self.unknown.last_mut();
        match last.filter(|(own, _)| Arc::ptr_eq(own, rule_set)) {
            Some((_, known)) if known.contains(operation) => {}
            Some((_, known)) => known.push(operation.clone()),
            None => (self.unknown).push((rule_set.clone(), vec![operation.clone()])),
        }
    }
}

/// The result of one rule on the object, or on one element of `forEach`.
#[derive(Debug)]
pub struct Finding {
    /// Rule set that contains the rule.
    pub rule_set: Arc<RuleSet>,
    /// Name of the rule's operation.
    pub operation: Text,
    /// Key of the element. None in two cases:
    ///
    /// - The rule has no `forEach`.
    /// - The rule has `forEach`, but could not be evaluated on all elements. Then this finding
    ///   applies to all elements without a finding of their own.
    pub item: Option<Text>,
    /// Values of all descriptive fields of the operation, such as its state and message. None if
    /// the rule failed or was not evaluated.
    pub values: Option<RuleValues>,
}

/// The result of a rule's `outcome` expression. The expression reads the result of an ended
/// operation from the object.
#[derive(Debug)]
pub struct DetectedOutcome {
    /// Rule set that contains the rule.
    pub rule_set: Arc<RuleSet>,
    /// Name of the rule's operation.
    pub operation: Text,
    /// Key of the element. None for a rule without `forEach`.
    pub item: Option<Text>,
    /// Final state: `Succeeded`, `Failed` or `Superseded`.
    pub state: State,
    /// Text about the end, such as the cause of a failure. It may be empty.
    pub message: Text,
}
