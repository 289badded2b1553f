//! Evaluates all rules of a [`RuleBook`] on one object. The resulting [`Evaluation`] contains the
//! detected operations with their values, and the failures. The evaluation also changes metrics,
//! writes log lines, uses up budgets of evaluation steps, and updates the
//! [`Activity`](crate::rules::Activity) of each rule set.

mod budget;
mod evaluator;
#[cfg(test)]
mod tests;
mod values;

pub(super) use self::budget::RuleSetBudgets;

pub use self::evaluator::MAX_OPERATIONS_ON_OBJECT;
use self::evaluator::ObjectEvaluator;
pub use self::values::{Nodes, RuleValues};
use super::{MissingName, Subject};
use crate::Meter;
use crate::rules::{EvaluationError, EvaluationFailure, LABELS_PATH, RuleBook, RuleSet};
use ifo_api::Text;
use ifo_api::live::State;
use ifo_cel::{Budget, Doc, EvaluationScope, Node, Projection};
use jiff::Timestamp;
use kube::core::SelectorExt as _;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The results of all rules of one rule book on one object.
#[derive(Debug, Default)]
pub struct Evaluation {
    /// Identity of the object.
    pub subject: Subject,
    /// Has entries for each rule in one of these cases:
    ///
    /// - The rule detects or continues an operation.
    /// - The rule failed.
    /// - The rule was not evaluated because its rule set is throttled. A rule set is throttled if
    ///   it uses too many evaluation steps or too much time.
    ///
    /// If an evaluated rule has no entry, the rule does not match the object.
    pub findings: Vec<Finding>,
    /// Results of the `outcome` expressions. An `outcome` is evaluated only if its rule neither
    /// detects nor continues its operation, and did not fail.
    pub outcomes: Vec<DetectedOutcome>,
    /// Rule sets whose label selector does not match the object.
    pub unselected: Vec<Arc<RuleSet>>,
    /// Failed expressions. Further failures after the first 100 are left out.
    pub failures: Vec<FieldFailure>,
    /// Rule set and name of each operation for which it is unknown whether the operation is in
    /// flight. There are two reasons:
    ///
    /// - The evaluation failed, or the object cannot be decoded.
    /// - The rule set was not evaluated because it is throttled.
    pub unknown: Vec<(Arc<RuleSet>, Text)>,
    /// Rule sets whose result can change although the object does not change. There are two reasons:
    ///
    /// - An expression of the rule set read `now`.
    /// - The rule set was not evaluated because it is throttled.
    pub time_dependent: Vec<Arc<RuleSet>>,
}

impl Evaluation {
    /// Returns true if at least one rule detects an operation. A rule of which only `continueWhile`
    /// is true does not count, because such a rule cannot start an operation.
    pub fn detects(&self) -> bool {
        let mut values = self.findings.iter().filter_map(|it| it.values.as_ref());
        values.any(|values| !values.only_continues)
    }

    /// Returns about how many bytes of memory the results of the rules take.
    pub fn result_bytes(&self) -> usize {
        let values = self.findings.iter().filter_map(|it| it.values.as_ref());
        let messages = values.map(|values| values.message.len());
        let outcomes = self.outcomes.iter().map(|it| it.message.len());
        self.findings.len() * size_of::<Finding>()
            + self.outcomes.len() * size_of::<DetectedOutcome>()
            + messages.chain(outcomes).sum::<usize>()
    }

    /// Records that no rule of a rule set was evaluated.
    fn skip(&mut self, rule_set: &Arc<RuleSet>) {
        for rule in &rule_set.rules {
            self.findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                item: None,
                values: None,
            });
            self.add_unknown(rule_set, &rule.operation);
        }
    }

    /// Adds an operation to [`Evaluation::unknown`], if the list does not contain the operation
    /// yet.
    fn add_unknown(&mut self, rule_set: &Arc<RuleSet>, operation: &Text) {
        // The operations of a rule set are together at the end of the list, because its rules are
        // evaluated one after another.
        let of_rule_set = self.unknown.iter().rev();
        let is_known = of_rule_set
            .take_while(|(own, _)| Arc::ptr_eq(own, rule_set))
            .any(|(_, known)| known == operation);
        if !is_known {
            self.unknown.push((rule_set.clone(), operation.clone()));
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
    /// - The rule has `forEach`, but could not be evaluated on all elements. The result applies to
    ///   all elements without a finding of their own.
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

/// An expression that failed on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFailure {
    /// Name of the rule set that contains the expression.
    pub rule_set: Text,
    /// Name of the rule's operation. Empty for the expression of a label or of `nodes`.
    pub operation: Text,
    /// Field of the expression, such as `rules[Migrating].message` or `labelExpressions[tier]`. If
    /// the object cannot be decoded, the text is `the object`.
    pub field: String,
    /// Reason of the failure.
    pub error: EvaluationError,
}

/// Evaluates the rules of all rule sets in `book` that cover the object's namespace
/// ([`RuleSet::covers`]). Earlier evaluations have no effect, so no rule set is throttled.
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

/// Evaluates the object like [`evaluate`], except that a rule set can be throttled because of
/// earlier evaluations with the same `budgets`. A throttled rule set is evaluated only rarely. All
/// other evaluations skip this rule set, and return its operations in [`Evaluation::unknown`]. The
/// caller must keep separate `budgets` for each rule book.
pub(super) fn evaluate_within(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
    budgets: &mut RuleSetBudgets,
) -> Result<Evaluation, MissingName> {
    let metadata = doc.root().get("metadata").ok_or(MissingName)?;
    let namespace = metadata
        .get("namespace")
        .and_then(Node::as_str)
        .filter(|text| !text.is_empty());
    let covers = |rule_set: &&Arc<RuleSet>| rule_set.covers(namespace);
    let covering = book.rule_sets.iter().filter(covers).count();
    let mut object_budget = budgets.begin_object(book.rule_sets.len(), covering, now);
    let mut budget = Budget { left: 0 };
    let mut evaluator = ObjectEvaluator {
        scope: EvaluationScope::new(doc, now, &mut budget),
        evaluation: Evaluation {
            subject: Subject::read(doc)?,
            ..Evaluation::default()
        },
        meter,
        computed_operations: [0, 0],
        computed_outcomes: 0,
        messages: HashSet::new(),
    };
    for (index, rule_set) in book.rule_sets.iter().enumerate() {
        if !rule_set.covers(namespace) {
            continue;
        }
        rule_set.activity.evaluated(now);
        if let Some(selector) = &rule_set.selector
            && !selector.matches(&labels_of(metadata))
        {
            evaluator.evaluation.unselected.push(rule_set.clone());
            object_budget.charge_time(rule_set);
            continue;
        }
        let Some(taken) = object_budget.steps_for(index, rule_set) else {
            evaluator.skip_rule_set(rule_set);
            evaluator.evaluation.time_dependent.push(rule_set.clone());
            // Otherwise, the next rule set would pay for this time.
            object_budget.charge_time(rule_set);
            continue;
        };
        evaluator.scope.budget.left = taken;
        evaluator.scope.read_now = false;
        evaluator.evaluate_rule_set(rule_set);
        if evaluator.scope.read_now {
            evaluator.evaluation.time_dependent.push(rule_set.clone());
        }
        object_budget.give_back(index, rule_set, taken, evaluator.scope.budget.left);
    }
    Ok(evaluator.evaluation)
}

/// Returns the labels in `metadata`, except labels whose value is no string.
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
    let namespace = subject.namespace.as_deref();
    let mut evaluation = Evaluation::default();
    let rule_sets = book.rule_sets.iter();
    for rule_set in rule_sets.filter(|rule_set| rule_set.covers(namespace)) {
        let failure = EvaluationFailure {
            at: now,
            what: "the object".to_owned(),
            error: error.clone(),
        };
        rule_set.activity.detection_failed(failure.clone());
        rule_set.activity.failed(failure);
        for rule in &rule_set.rules {
            meter.evaluation_failed(&rule_set.name, &rule.operation);
            evaluation.failures.push(FieldFailure {
                rule_set: rule_set.name.clone(),
                operation: rule.operation.clone(),
                field: "the object".to_owned(),
                error: error.clone(),
            });
        }
        evaluation.skip(rule_set);
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
