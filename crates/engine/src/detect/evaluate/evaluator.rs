//! Evaluates the rule sets of a book on one object.

use super::{DetectedOutcome, Evaluation, FieldFailure, Finding, RuleValues};
use crate::Meter;
use crate::rules::{
    self, CompiledRule, EvaluationError, EvaluationFailure, ForEach, Labels, RuleSet,
};
use ifo_api::labels;
use ifo_cel::{EvaluationFault, EvaluationScope, ListElement, Program};
use std::collections::HashSet;
use std::sync::Arc;

/// Longest message of an operation in characters. Every watch event contains the message, and a
/// table shows a line of it.
const MAX_MESSAGE: usize = 1024;

/// Longest `instance` and `itemKey` in bytes. A UID has 36. A longer text does not identify
/// anything.
const MAX_IDENTITY: usize = 253;

/// Largest number of elements for which one rule has operations.
const MAX_ITEMS: usize = 1_000;

/// Number of failures on one object that are reported in detail. All failures are counted.
const MAX_FAILURES: usize = 100;

/// The evaluation of one object.
pub(super) struct ObjectEvaluator<'a, 's> {
    pub(super) scope: EvaluationScope<'s>,
    pub(super) evaluation: Evaluation,
    pub(super) meter: &'a dyn Meter,
}

/// The labels of one rule set on one object. They are computed for the first rule that matches.
type RuleSetLabels = Option<Arc<Labels>>;

/// The rule and the element of a result.
#[derive(Clone, Copy)]
struct RulePlace<'r> {
    rule_set: &'r Arc<RuleSet>,
    order: usize,
    rule: &'r CompiledRule,
    item: Option<&'r Arc<str>>,
}

impl<'s> ObjectEvaluator<'_, 's> {
    /// Evaluates all rules of `rule_set`.
    pub(super) fn rule_set(&mut self, rule_set: &'s Arc<RuleSet>) {
        self.scope.set_variables(&rule_set.environment);
        let mut labels = None;
        for (order, rule) in rule_set.rules.iter().enumerate() {
            let place = RulePlace {
                rule_set,
                order,
                rule,
                item: None,
            };
            match &rule.for_each {
                Some(each) => self.items(place, each, &mut labels),
                None => self.rule(place, &mut labels),
            }
        }
    }

    /// Leaves the operations of `rule_set` as they are. Its status already contains the reason.
    pub(super) fn pass_over(&mut self, rule_set: &'s Arc<RuleSet>) {
        for rule in &rule_set.rules {
            self.meter
                .evaluation_failed(&rule_set.name, &rule.operation);
            self.evaluation.findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                item: None,
                says: None,
            });
            self.evaluation.add_unknown(rule_set, &rule.operation);
        }
    }

    /// Evaluates a rule on each element.
    fn items(&mut self, place: RulePlace<'_>, each: &'s ForEach, labels: &mut RuleSetLabels) {
        let items: Vec<ListElement<'s>> = match each.list.items(&mut self.scope) {
            Ok(items) => items,
            Err(EvaluationFault::Missing(_)) => return,
            Err(failure) => {
                self.fail_detection(place, "forEach", failure.into());
                self.add_finding(place, None);
                return;
            }
        };
        let mut seen = HashSet::new();
        for (at, item) in items.into_iter().enumerate() {
            self.scope.set_item(Some(item));
            let key: Arc<str> = match each.key.key(&mut self.scope) {
                Ok(key) => key.into(),
                Err(EvaluationFault::Missing(_)) => continue,
                Err(failure) => {
                    self.fail_detection(place, "itemKey", failure.into());
                    continue;
                }
            };
            if key.is_empty() || key.len() > MAX_IDENTITY {
                self.fail_detection(place, "itemKey", EvaluationError::KeyLength(key.len()));
            } else if seen.len() == MAX_ITEMS {
                self.fail_detection(place, "forEach", EvaluationError::TooManyElements);
                break;
            } else if seen.insert(key.clone()) {
                let item = Some(&key);
                self.rule(RulePlace { item, ..place }, labels);
            } else {
                self.fail_detection(place, "itemKey", EvaluationError::KeyTwice(at));
            }
        }
        self.scope.set_item(None);
    }

    /// Evaluates a rule on the object, or on the current element.
    fn rule(&mut self, place: RulePlace<'_>, labels: &mut RuleSetLabels) {
        let continue_while = place.rule.continue_while.as_ref();
        let starts = self.is_true(place, "expression", Some(&place.rule.expression));
        let continues = match starts {
            Some(false) => self.is_true(place, "continueWhile", continue_while),
            Some(true) | None => Some(false),
        };
        match (starts, continues) {
            (Some(false), Some(false)) => self.outcome(place),
            (Some(_), Some(continues)) => {
                let labels = labels.get_or_insert_with(|| self.labels(place)).clone();
                let says = RuleValues {
                    continues,
                    ..self.says(place, labels)
                };
                self.add_finding(place, Some(says));
            }
            (None, _) | (_, None) => self.add_finding(place, None),
        }
    }

    /// Returns whether one of the expressions that decide whether the operation is in flight is
    /// true. None if it failed.
    fn is_true(
        &mut self,
        place: RulePlace<'_>,
        field: &str,
        program: Option<&Program>,
    ) -> Option<bool> {
        let Some(program) = program else {
            return Some(false);
        };
        match program.test(&mut self.scope) {
            Ok(answer) => Some(answer),
            Err(EvaluationFault::Missing(_)) => Some(false),
            Err(failure) => {
                self.fail_detection(place, field, failure.into());
                None
            }
        }
    }

    fn add_finding(&mut self, place: RulePlace<'_>, says: Option<RuleValues>) {
        self.evaluation.findings.push(Finding {
            rule_set: place.rule_set.clone(),
            operation: place.rule.operation.clone(),
            item: place.item.cloned(),
            says,
        });
    }

    /// The values of the rule for an operation that it detects.
    fn says(&mut self, place: RulePlace<'_>, labels: Arc<Labels>) -> RuleValues {
        let details = &place.rule.details;
        let state = self
            .text(place, "state", details.state.as_ref())
            .and_then(|text| {
                let state = rules::state(&text);
                if state.is_none() {
                    self.fail(place, "state", EvaluationError::State(characters(&text)));
                }
                state
            });
        let reason = self
            .text(place, "reason", details.reason.as_ref())
            .filter(|text| !text.is_empty())
            .and_then(|text| {
                let good = rules::is_reason(&text);
                if !good {
                    self.fail(place, "reason", EvaluationError::Reason(characters(&text)));
                }
                good.then(|| text.into())
            });
        RuleValues {
            order: place.order,
            continues: false,
            labels,
            state,
            reason,
            message: self.message(place),
            progress: self.progress(place),
            started: self
                .ask(
                    place,
                    "startedAt",
                    details.started_at.as_ref(),
                    Program::time,
                )
                .flatten(),
            instance: self.instance(place),
        }
    }

    /// The outcome of the operation, if the rule yields one.
    fn outcome(&mut self, place: RulePlace<'_>) {
        let Some(text) = self
            .text(place, "outcome", place.rule.details.outcome.as_ref())
            .filter(|text| !text.is_empty())
        else {
            return;
        };
        let Some(state) = rules::outcome(&text) else {
            let error = EvaluationError::Outcome(characters(&text));
            self.fail(place, "outcome", error);
            return;
        };
        let message = self.message(place);
        self.evaluation.outcomes.push(DetectedOutcome {
            rule_set: place.rule_set.clone(),
            operation: place.rule.operation.clone(),
            item: place.item.cloned(),
            state,
            message,
        });
    }

    fn progress(&mut self, place: RulePlace<'_>) -> Option<u8> {
        let program = place.rule.details.progress.as_ref();
        self.ask(place, "progress", program, Program::progress)
            .flatten()
    }

    fn message(&mut self, place: RulePlace<'_>) -> Arc<str> {
        let text = self.text(place, "message", place.rule.details.message.as_ref());
        match text {
            Some(text) => text
                .trim()
                .chars()
                .take(MAX_MESSAGE)
                .collect::<String>()
                .into(),
            None => Arc::default(),
        }
    }

    fn instance(&mut self, place: RulePlace<'_>) -> Option<Arc<str>> {
        let text = self.text(place, "instance", place.rule.details.instance.as_ref())?;
        if text.len() > MAX_IDENTITY {
            let error = EvaluationError::InstanceLength(text.len());
            self.fail(place, "instance", error);
            return None;
        }
        (!text.is_empty()).then(|| text.into())
    }

    fn text(
        &mut self,
        place: RulePlace<'_>,
        field: &str,
        program: Option<&Program>,
    ) -> Option<String> {
        // Most of them are literals, which cost no steps.
        self.ask(place, field, program, Program::text)
    }

    /// The value of a descriptive field. None if it is not set or failed.
    fn ask<T>(
        &mut self,
        place: RulePlace<'_>,
        field: &str,
        program: Option<&Program>,
        answer: impl FnOnce(&Program, &mut EvaluationScope<'s>) -> Result<T, EvaluationFault>,
    ) -> Option<T> {
        match answer(program?, &mut self.scope) {
            Ok(answer) => Some(answer),
            Err(EvaluationFault::Missing(_)) => None,
            Err(failure) => {
                self.fail(place, field, failure.into());
                None
            }
        }
    }

    /// The labels of the rule set: fixed labels, then computed labels with other keys. A computed
    /// label that fails is left out, and the failure is counted.
    fn labels(&mut self, place: RulePlace<'_>) -> Arc<Labels> {
        if place.rule_set.label_expressions.is_empty() {
            return place.rule_set.labels.clone();
        }
        // They belong to the rule set and not to an element.
        let item = self.scope.set_item(None);
        let fixed = &place.rule_set.labels;
        let most = fixed.len() + place.rule_set.label_expressions.len();
        let mut all = Labels::with_capacity(most);
        all.extend(
            fixed
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        for (key, program) in &place.rule_set.label_expressions {
            if all.contains_key(key) {
                continue;
            }
            match program.text(&mut self.scope) {
                Ok(value) => {
                    all.insert(key.clone(), labels::to_value(&value).into());
                }
                Err(failure) => {
                    let field = format!("labelExpressions[{key}]");
                    self.note(place.rule_set, "", key, field, failure.into());
                }
            }
        }
        self.scope.set_item(item);
        Arc::new(all)
    }

    /// Records that an expression failed that decides whether the operation is in flight. The
    /// detection on the object or the element is unknown now.
    fn fail_detection(&mut self, place: RulePlace<'_>, field: &str, error: EvaluationError) {
        self.evaluation
            .add_unknown(place.rule_set, &place.rule.operation);
        let operation = &place.rule.operation;
        place.rule_set.activity.detection_failed(EvaluationFailure {
            at: self.scope.now,
            what: format!("rules[{operation}].{field}"),
            error: error.clone(),
        });
        self.fail(place, field, error);
    }

    fn fail(&mut self, place: RulePlace<'_>, field: &str, error: EvaluationError) {
        let operation = &place.rule.operation;
        let field = format!("rules[{operation}].{field}");
        self.note(place.rule_set, operation, operation, field, error);
    }

    /// Counts a failure, stores it for the status, logs it and adds it to the evaluation. Only the
    /// log names the subject.
    fn note(
        &mut self,
        rule_set: &RuleSet,
        operation: &str,
        counted: &str,
        field: String,
        error: EvaluationError,
    ) {
        self.meter.evaluation_failed(&rule_set.name, counted);
        if rule_set.activity.may_log(self.scope.now) {
            let subject = &self.evaluation.subject;
            let namespace = subject.namespace.as_deref().unwrap_or_default();
            tracing::warn!(rule_set = &*rule_set.name, namespace, name = &*subject.name,
                field, %error, "a rule failed");
        }
        rule_set.activity.failed(EvaluationFailure {
            at: self.scope.now,
            what: field.clone(),
            error: error.clone(),
        });
        if self.evaluation.failures.len() < MAX_FAILURES {
            self.evaluation.failures.push(FieldFailure {
                rule_set: rule_set.name.clone(),
                operation: operation.into(),
                field,
                error,
            });
        }
    }
}

fn characters(text: &str) -> usize {
    text.chars().count()
}
