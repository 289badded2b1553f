//! Evaluates all rules of a [`RuleBook`] on one object. The resulting [`Evaluation`] contains the
//! detected operations with their values, and the failures. The evaluation also changes metrics,
//! writes log lines, uses up budgets of evaluation steps, and updates the
//! [`Activity`](crate::rules::Activity) of each rule set.

mod budget;
mod evaluation;
mod evaluator;
#[cfg(test)]
mod tests;
mod values;

pub(super) use self::budget::RuleSetBudgets;

pub use self::evaluation::{DetectedOutcome, Evaluation, Finding};
pub use self::evaluator::MAX_OPERATIONS_ON_OBJECT;
use self::evaluator::ObjectEvaluator;
pub use self::values::{Nodes, RuleValues, ShownValues};
use super::subject::newest_managed;
use super::{MissingName, Subject};
use crate::Meter;
use crate::rules::{EvaluationError, EvaluationFailure, LABELS_PATH, RuleBook, RuleSet, StepShare};
use ifo_cel::{Budget, Doc, EvaluationScope, Node, Projection};
use jiff::Timestamp;
use kube::core::SelectorExt as _;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Evaluates the rules of all rule sets in `book` that cover the object's namespace
/// ([`RuleSet::covers`]). No rule set is throttled, because the time of the evaluations is not
/// measured.
///
/// If `expression` or `continueWhile` reads a missing field, the result is false. If another
/// expression of a rule reads a missing field, this expression yields no value. Any other failure
/// is counted in `meter`, stored for the status of the rule set, and returned in the evaluation.
pub fn evaluate(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
) -> Result<Evaluation, MissingName> {
    evaluate_within(book, doc, now, meter, &mut RuleSetBudgets::default())
}

/// Evaluates the object like [`evaluate`]. If `budgets` measures time, also throttles each rule set
/// whose evaluations have used too much time. A throttled rule set is evaluated only rarely. All
/// other evaluations skip the rule set, and return its operations in [`Evaluation::unknown`].
pub(super) fn evaluate_within(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
    budgets: &mut RuleSetBudgets,
) -> Result<Evaluation, MissingName> {
    let metadata = doc.root().get("metadata").ok_or(MissingName)?;
    let subject = Subject::read(metadata, book)?;
    let namespace = subject.reference.namespace.clone();
    let covers = |rule_set: &&Arc<RuleSet>| rule_set.covers(namespace.as_deref());
    let covering = book.rule_sets.iter().filter(covers);
    let mut object_budget = budgets.begin_object(covering.clone().map(|it| &it.component));
    let mut budget = Budget { left: 0 };
    let mut evaluator = ObjectEvaluator {
        scope: EvaluationScope::new(doc, now, &mut budget),
        evaluation: Evaluation {
            subject,
            changed: newest_managed(metadata),
            ..Evaluation::default()
        },
        meter,
        share: StepShare::default(),
        computed_operations: [0, 0],
        computed_outcomes: 0,
        messages: HashSet::new(),
    };
    for rule_set in covering {
        rule_set.activity.evaluated(now);
        let selector = rule_set.selector.as_ref();
        if selector.is_some_and(|selector| !selector.matches(&labels_of(metadata))) {
            evaluator.evaluation.unselected.push(rule_set.clone());
        } else if object_budget.may_evaluate(rule_set) {
            evaluator.share = object_budget.share(&rule_set.component);
            evaluator.scope.budget.left = evaluator.share.steps;
            evaluator.scope.read_now = false;
            evaluator.evaluate_rule_set(rule_set);
            if evaluator.scope.read_now {
                evaluator.evaluation.time_dependent.push(rule_set.clone());
            }
        } else {
            // No failure is stored, because the status of the rule set already reports the
            // throttling.
            evaluator.evaluation.skip(rule_set, meter);
            evaluator.evaluation.time_dependent.push(rule_set.clone());
        }
        object_budget.charge(rule_set);
    }
    Ok(evaluator.evaluation)
}

/// Returns the labels in `metadata`. Leaves out labels whose value is not a string.
fn labels_of(metadata: Node<'_>) -> BTreeMap<String, String> {
    metadata
        .get("labels")
        .into_iter()
        .flat_map(Node::members)
        .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
        .collect()
}

/// Returns the labels of the object in `json`. Returns no labels if the JSON cannot be decoded.
pub(crate) fn labels_of_json(json: &[u8]) -> BTreeMap<String, String> {
    let mut projection = Projection::default();
    projection.add(LABELS_PATH);
    let doc = Doc::parse(json, &projection).ok();
    let metadata = doc.as_ref().and_then(|doc| doc.root().get("metadata"));
    metadata.map(labels_of).unwrap_or_default()
}

/// Returns the evaluation of an object that cannot be decoded. The evaluation reports each rule of
/// the rule sets that cover the object as failed.
pub(super) fn undecodable(
    book: &RuleBook,
    subject: Subject,
    error: &EvaluationError,
    now: Timestamp,
    meter: &dyn Meter,
) -> Evaluation {
    let namespace = subject.reference.namespace.as_deref();
    let mut evaluation = Evaluation::default();
    let rule_sets = book.rule_sets.iter();
    for rule_set in rule_sets.filter(|rule_set| rule_set.covers(namespace)) {
        let failure = EvaluationFailure {
            at: now,
            what: "the object".to_owned(),
            error: error.clone(),
        };
        let failed = (rule_set.name.clone(), failure.clone());
        evaluation.failures.push(failed);
        rule_set.activity.detection_failed(failure.clone());
        rule_set.activity.failed(failure);
        evaluation.skip(rule_set, meter);
    }
    evaluation.subject = subject;
    evaluation
}

/// Returns the evaluation of an object whose labels no longer match the label selector of the
/// watch. The evaluation reports all rule sets of `book` as unselected.
pub(crate) fn unselected(book: &RuleBook, subject: Subject) -> Evaluation {
    Evaluation {
        subject,
        unselected: book.rule_sets.clone(),
        ..Evaluation::default()
    }
}
