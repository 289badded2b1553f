//! Evaluates the rules of compiled rule sets on one object, and collects the results and failures.
//! A rule describes one operation on the object, such as a migration.

mod command;
mod fields;
mod shared;

use shared::SharedValues;

use super::evaluation::{DetectedOutcome, Evaluation, Finding};
use super::values::{Nodes, RuleValues};
use crate::Meter;
use crate::rules::{
    self, CompiledRule, EvaluationError, EvaluationFailure, ForEach, RuleSet, StepShare,
};
use ifo_api::Text;
use ifo_api::live::{State, cut_message};
use ifo_api::printable;
use ifo_cel::{EvaluationFault, EvaluationScope, ListElement, Program};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum length of `instance`, `work`, `initiator` and `itemKey`, and of the name of a node, in
/// bytes. These values are identifiers such as UIDs, which have 36 bytes. A longer value of one of
/// the four fields is a failure of the rule. If the name of a node is longer or has unprintable
/// characters, the node is left out without a failure.
const MAX_IDENTITY: usize = 253;

/// Maximum number of list elements on which a rule with `forEach` is evaluated. If the list has
/// more elements, the evaluator skips the further elements, and reports a failure of the rule.
const MAX_ITEMS: usize = 1_000;

/// Maximum number of operations of one rule set on one object. The tracker enforces this bound. The
/// evaluator computes the values of one more operation, so that the tracker notices when the bound
/// is exceeded. The findings of further operations have no values.
pub const MAX_OPERATIONS_ON_OBJECT: usize = 256;

/// Maximum number of failures in the list [`Evaluation::failures`] of one object. Further failures
/// are not added to this list.
const MAX_FAILURES: usize = 100;

/// Evaluates rule sets on one object.
pub(super) struct ObjectEvaluator<'a, 's> {
    pub(super) scope: EvaluationScope<'s>,
    pub(super) evaluation: Evaluation,
    pub(super) meter: &'a dyn Meter,
    /// The steps that the current rule set may use on this object.
    pub(super) share: StepShare,
    /// Number of operations of the current rule set whose values were computed on this object. The
    /// first number counts operations whose `expression` is true. The second number counts
    /// operations that only `continueWhile` continues.
    pub(super) computed_operations: [usize; 2],
    /// Number of outcomes of the current rule set that were computed on this object.
    pub(super) computed_outcomes: usize,
    /// The messages of all operations on the object. Operations with equal messages share one copy.
    /// A rule that copies a long text from the object uses few evaluation steps. So without this
    /// set, many rule sets could fill the memory with copies of one text.
    pub(super) messages: HashSet<Text>,
}

/// The rule and the element that are being evaluated.
#[derive(Clone, Copy)]
struct CurrentRule<'r> {
    rule_set: &'r Arc<RuleSet>,
    rule: &'r CompiledRule,
    item: Option<&'r Text>,
}

impl<'s> ObjectEvaluator<'_, 's> {
    /// Evaluates all rules of `rule_set` on the object.
    pub(super) fn evaluate_rule_set(&mut self, rule_set: &'s Arc<RuleSet>) {
        self.scope.set_variables(&rule_set.environment);
        (self.computed_operations, self.computed_outcomes) = ([0, 0], 0);
        let mut shared = None;
        for rule in &rule_set.rules {
            let current = CurrentRule {
                rule_set,
                rule,
                item: None,
            };
            match &rule.for_each {
                Some(each) => self.evaluate_items(current, each, &mut shared),
                None => self.evaluate_rule(current, &mut shared),
            }
        }
    }

    /// Evaluates a rule with `forEach` on each element. If the key of an element is unknown, or if
    /// there are too many elements, some elements are not evaluated. Their result is unknown.
    fn evaluate_items(
        &mut self,
        current: CurrentRule<'_>,
        each: &'s ForEach,
        shared: &mut SharedValues,
    ) {
        let items: Vec<ListElement<'s>> = match each.list.items(&mut self.scope) {
            Ok(items) => items,
            Err(EvaluationFault::Missing(_)) => return,
            Err(failure) => {
                self.record_detection_failure(current, "forEach", failure.into());
                self.add_finding(current, None);
                return;
            }
        };
        let mut seen = HashSet::new();
        let mut all_keys_are_known = true;
        for (index, item) in items.into_iter().enumerate() {
            self.scope.set_item(Some(item));
            let key: Text = match each.key.key(&mut self.scope) {
                Ok(key) => without_unprintable(key).into(),
                Err(EvaluationFault::Missing(_)) => continue,
                Err(failure) => {
                    let (field, error) = match failure {
                        // Without `itemKey`, the key is the element itself.
                        EvaluationFault::Error { .. } if each.key.source() == "item" => {
                            ("forEach", EvaluationError::NoKey(index))
                        }
                        failure => ("itemKey", failure.into()),
                    };
                    self.record_detection_failure(current, field, error);
                    all_keys_are_known = false;
                    continue;
                }
            };
            if key.is_empty() || key.len() > MAX_IDENTITY {
                self.record_detection_failure(
                    current,
                    "itemKey",
                    EvaluationError::KeyLength(key.len()),
                );
                all_keys_are_known = false;
            } else if seen.len() == MAX_ITEMS {
                self.record_detection_failure(current, "forEach", EvaluationError::TooManyElements);
                all_keys_are_known = false;
                break;
            } else if seen.insert(key.clone()) {
                let item = Some(&key);
                self.evaluate_rule(CurrentRule { item, ..current }, shared);
            } else {
                self.record_detection_failure(current, "itemKey", EvaluationError::KeyTwice(index));
            }
        }
        self.scope.set_item(None);
        if !all_keys_are_known {
            self.add_finding(current, None);
        }
    }

    /// Evaluates a rule on the object, or on the current element of `forEach`.
    fn evaluate_rule(&mut self, current: CurrentRule<'_>, shared: &mut SharedValues) {
        let starts = self.evaluate_predicate(current, "expression");
        let only_continues = match starts {
            Some(false) => self.evaluate_predicate(current, "continueWhile"),
            Some(true) | None => Some(false),
        };
        match (starts, only_continues) {
            (Some(false), Some(false)) => self.evaluate_outcome(current),
            // Without values, an operation in flight stays as it is, and no operation starts.
            (Some(_), Some(only_continues)) if !self.may_compute_operation(only_continues) => {
                self.add_finding(current, None);
            }
            (Some(_), Some(only_continues)) => {
                let shared = self.shared_values(current, shared);
                let values = RuleValues {
                    only_continues,
                    ..self.evaluate_values(current, shared)
                };
                self.add_finding(current, Some(values));
            }
            (None, _) | (_, None) => self.add_finding(current, None),
        }
    }

    /// Counts one more operation of the current rule set on the object. Returns false if there are
    /// too many.
    ///
    /// Operations that `continueWhile` only continues have a count of their own. If all operations
    /// had one count, these operations could use it up. The tracker would then receive no values of
    /// new operations. But the tracker reports the bound only when it refuses a new operation.
    fn may_compute_operation(&mut self, only_continues: bool) -> bool {
        let count = &mut self.computed_operations[usize::from(only_continues)];
        *count += 1;
        *count <= MAX_OPERATIONS_ON_OBJECT + 1
    }

    /// Evaluates `expression` or `continueWhile`. Returns false if the rule does not set the field,
    /// or if the expression reads a missing field of the object. Returns None if the evaluation
    /// failed.
    fn evaluate_predicate(&mut self, current: CurrentRule<'_>, field: &str) -> Option<bool> {
        let Some(program) = current.rule.program(field) else {
            return Some(false);
        };
        match program.test(&mut self.scope) {
            Ok(answer) => Some(answer),
            Err(EvaluationFault::Missing(_)) => Some(false),
            Err(failure) => {
                self.record_detection_failure(current, field, failure.into());
                None
            }
        }
    }

    fn add_finding(&mut self, current: CurrentRule<'_>, values: Option<RuleValues>) {
        self.evaluation.findings.push(Finding {
            rule_set: current.rule_set.clone(),
            operation: current.rule.operation.clone(),
            item: current.item.cloned(),
            values,
        });
    }

    /// Evaluates the `outcome` of a rule, which is the state in which the operation ended. Records
    /// the outcome if it is not empty.
    ///
    /// The text about the end comes from `outcomeMessage`. If the rule has no such field, and the
    /// outcome is `Failed` or `Superseded`, the text comes from `message`. The reason: most objects
    /// store the cause of a failure in the field in which they described the progress before.
    fn evaluate_outcome(&mut self, current: CurrentRule<'_>) {
        let Some(text) = self
            .evaluate_text(current, "outcome")
            .filter(|text| !text.is_empty())
        else {
            return;
        };
        let Some(state) = rules::parse_outcome(&text) else {
            let error = EvaluationError::Outcome(count_characters(&text));
            self.record_failure(current, "outcome", error);
            return;
        };
        self.computed_outcomes += 1;
        let has_text = current.rule.program("outcomeMessage").is_some();
        let message = match has_text {
            // A rule set cannot have so many operations on one object, so the texts of further
            // outcomes are left out.
            _ if self.computed_outcomes > MAX_OPERATIONS_ON_OBJECT => None,
            true => self.evaluate_message(current, "outcomeMessage"),
            false if state != State::Succeeded => self.evaluate_message(current, "message"),
            false => None,
        };
        let message = message.unwrap_or_default();
        self.evaluation.outcomes.push(DetectedOutcome {
            rule_set: current.rule_set.clone(),
            operation: current.rule.operation.clone(),
            item: current.item.cloned(),
            state,
            message,
        });
    }

    /// Evaluates a field that yields a text for people.
    fn evaluate_message(&mut self, current: CurrentRule<'_>, field: &str) -> Option<Text> {
        let text = self.evaluate_text(current, field)?;
        let text = cut_message(text.trim());
        if let Some(known) = self.messages.get(&*text) {
            return Some(known.clone());
        }
        let message: Text = (&*text).into();
        self.messages.insert(message.clone());
        Some(message)
    }

    /// Evaluates a field that yields a text. Unprintable characters are replaced, because clients
    /// print the text on terminals. Line feeds and tabs stay.
    fn evaluate_text(&mut self, current: CurrentRule<'_>, field: &str) -> Option<String> {
        let text = self.evaluate_field(current, field, Program::text)?;
        Some(without_unprintable(text))
    }

    /// Evaluates a descriptive field. Returns None in three cases: the rule does not set the field,
    /// the expression reads a missing field of the object, or the evaluation failed.
    fn evaluate_field<T>(
        &mut self,
        current: CurrentRule<'_>,
        field: &str,
        answer: impl FnOnce(&Program, &mut EvaluationScope<'s>) -> Result<T, EvaluationFault>,
    ) -> Option<T> {
        match answer(current.rule.program(field)?, &mut self.scope) {
            Ok(answer) => Some(answer),
            Err(EvaluationFault::Missing(_)) => None,
            Err(failure) => {
                self.record_failure(current, field, failure.into());
                None
            }
        }
    }

    /// Records a failure of an expression that decides whether the operation is in flight. Because
    /// of the failure, the operation is reported as unknown.
    fn record_detection_failure(
        &mut self,
        current: CurrentRule<'_>,
        field: &str,
        error: EvaluationError,
    ) {
        let (rule_set, operation) = (current.rule_set, &current.rule.operation);
        self.evaluation.add_unknown(rule_set, operation);
        let failure = self.record_failure(current, field, error);
        rule_set.activity.detection_failed(failure);
    }

    /// Records a failure of any expression of a rule.
    fn record_failure(
        &mut self,
        current: CurrentRule<'_>,
        field: &str,
        error: EvaluationError,
    ) -> EvaluationFailure {
        let operation = &current.rule.operation;
        let field = format!("rules[{operation}].{field}");
        self.report_failure(current.rule_set, operation, field, error)
    }

    /// Counts a failure in the metrics, stores it for the status of the rule set, logs it, and adds
    /// it to the evaluation. Only the log line contains the name of the object. The metrics count
    /// the failure under the name `counted`: the name of the operation, the key of the computed
    /// label, or `nodes`.
    fn report_failure(
        &mut self,
        rule_set: &RuleSet,
        counted: &str,
        field: String,
        mut error: EvaluationError,
    ) -> EvaluationFailure {
        if error == EvaluationError::Expression(EvaluationFault::Budget) {
            error = EvaluationError::Steps(self.share);
        }
        self.meter.evaluation_failed(&rule_set.name, counted);
        if rule_set.activity.may_log(self.scope.now) {
            let subject = &self.evaluation.subject.reference;
            let namespace = subject.namespace.as_deref().unwrap_or_default();
            tracing::warn!(rule_set = &*rule_set.name, namespace, name = &*subject.name,
                field, %error, "an expression of a rule set failed");
        }
        let failure = EvaluationFailure {
            at: self.scope.now,
            what: field,
            error,
        };
        rule_set.activity.failed(failure.clone());
        if self.evaluation.failures.len() < MAX_FAILURES {
            let failed = (rule_set.name.clone(), failure.clone());
            self.evaluation.failures.push(failed);
        }
        failure
    }
}

/// Replaces unprintable characters. Most texts have none, and are returned unchanged.
fn without_unprintable(text: String) -> String {
    match printable(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(printable) => printable,
    }
}

fn count_characters(text: &str) -> usize {
    text.chars().count()
}
