//! The evaluation of one object. Input: a [`RuleBook`] and the fields of the object. Output: an
//! [`Evaluation`] with the detected operations, their values, and the failures. It has no side
//! effects except counters of failures.

mod evaluator;
mod rule_set_budget;
#[cfg(test)]
mod tests;

pub(super) use self::rule_set_budget::RuleSetBudgets;

use self::evaluator::ObjectEvaluator;
use super::{MissingName, Subject};
use crate::Meter;
use crate::rules::{EvaluationError, EvaluationFailure, LABELS_PATH, Labels, RuleBook, RuleSet};
use ifo_api::live::State;
use ifo_cel::{Budget, Doc, EvaluationScope, Node, Projection};
use jiff::Timestamp;
use kube::core::SelectorExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The result of all rules of one book for one object.
#[derive(Debug)]
pub struct Evaluation {
    /// The identity of the object.
    pub subject: Subject,
    /// Rules that matched or failed. All other rules did not match.
    pub findings: Vec<Finding>,
    /// Outcomes of operations that are not detected.
    pub outcomes: Vec<DetectedOutcome>,
    /// Rule sets whose label selector does not match the object.
    pub unselected: Vec<Arc<RuleSet>>,
    /// Failures.
    pub failures: Vec<FieldFailure>,
    /// Operations whose detection is unknown, with the rule set that could not be evaluated.
    pub unknown: Vec<(Arc<RuleSet>, Arc<str>)>,
    /// True if an expression read `now`, so that time alone can change the result.
    pub read_now: bool,
}

impl Evaluation {
    /// Returns true if a rule detects an operation. The operation starts if it is not in flight.
    pub fn detects(&self) -> bool {
        let mut says = self.findings.iter().filter_map(|it| it.says.as_ref());
        says.any(|says| !says.continues)
    }

    /// Adds an operation to [`Evaluation::unknown`], if it is not there.
    fn add_unknown(&mut self, rule_set: &Arc<RuleSet>, operation: &Arc<str>) {
        let there = self
            .unknown
            .iter()
            .any(|(own, known)| Arc::ptr_eq(own, rule_set) && known == operation);
        if !there {
            self.unknown.push((rule_set.clone(), operation.clone()));
        }
    }
}

/// The result of one rule for the object or for one element.
#[derive(Debug)]
pub struct Finding {
    /// The rule set of the rule.
    pub rule_set: Arc<RuleSet>,
    /// The operation of the rule.
    pub operation: Arc<str>,
    /// The element, for a rule with `forEach`. None if `forEach` failed. Then the result is about
    /// all elements.
    pub item: Option<Arc<str>>,
    /// The values of the operation. None if the rule failed.
    pub says: Option<RuleValues>,
}

/// The values that a rule yields for a detected operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleValues {
    /// Index of the rule in its list.
    pub order: usize,
    /// True if only the rule's `continueWhile` is true. This continues an operation, and does not
    /// start one.
    pub continues: bool,
    /// Labels of the rule set, with the values computed from the subject.
    pub labels: Arc<Labels>,
    /// The state. None stands for `Progressing`.
    pub state: Option<State>,
    /// The reason in CamelCase. None stands for the operation's name.
    pub reason: Option<Arc<str>>,
    /// The message. It may be empty.
    pub message: Arc<str>,
    /// The progress in percent.
    pub progress: Option<u8>,
    /// The start.
    pub started: Option<Timestamp>,
    /// The `instance` of the run.
    pub instance: Option<Arc<str>>,
}

/// The outcome of an operation that a rule reads from the object.
#[derive(Debug)]
pub struct DetectedOutcome {
    /// The rule set of the rule.
    pub rule_set: Arc<RuleSet>,
    /// The operation of the rule.
    pub operation: Arc<str>,
    /// The element, for a rule with `forEach`.
    pub item: Option<Arc<str>>,
    /// `Succeeded`, `Failed` or `Superseded`.
    pub state: State,
    /// The message for the current object. It may be empty.
    pub message: Arc<str>,
}

/// An expression that failed on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFailure {
    /// The rule set of the expression.
    pub rule_set: Arc<str>,
    /// The operation of the rule. Empty for a label.
    pub operation: Arc<str>,
    /// The field, such as `rules[Migrating].message` or `labelExpressions[tier]`.
    pub field: String,
    /// The error.
    pub error: EvaluationError,
}

/// Evaluates all rules of `book` that cover the object, without regard to earlier evaluations.
///
/// If a field is missing, the rule does not match. Any other failure is counted, stored for the
/// status of the rule set, and reported as a finding without values.
pub fn evaluate(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
) -> Result<Evaluation, MissingName> {
    evaluate_within(book, doc, now, meter, &mut RuleSetBudgets::default())
}

/// As [`evaluate`], but with the budgets of earlier evaluations. A throttled rule set has no
/// result. `allowances` belong to this book.
pub(super) fn evaluate_within(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
    allowances: &mut RuleSetBudgets,
) -> Result<Evaluation, MissingName> {
    let metadata = doc.root().get("metadata").ok_or(MissingName)?;
    let namespace = metadata
        .get("namespace")
        .and_then(Node::as_str)
        .filter(|text| !text.is_empty());
    let covers = |rule_set: &&Arc<RuleSet>| rule_set.covers(namespace);
    let asked = book.rule_sets.iter().filter(covers).count();
    let mut steps = allowances.open(book.rule_sets.len(), asked, now);
    let mut budget = Budget { left: 0 };
    let mut asking = ObjectEvaluator {
        scope: EvaluationScope::new(doc, now, &mut budget),
        evaluation: Evaluation {
            subject: Subject::read(doc)?,
            findings: Vec::new(),
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            read_now: false,
        },
        meter,
    };
    for (place, rule_set) in book.rule_sets.iter().enumerate() {
        if !rule_set.covers(namespace) {
            continue;
        }
        rule_set.activity.evaluated(now);
        if let Some(selector) = &rule_set.selector
            && !selector.matches(&labels_of(metadata))
        {
            asking.evaluation.unselected.push(rule_set.clone());
            continue;
        }
        let Some(taken) = steps.take(place) else {
            asking.pass_over(rule_set);
            continue;
        };
        asking.scope.budget.left = taken;
        asking.rule_set(rule_set);
        steps.settle(place, taken, asking.scope.budget.left);
    }
    asking.evaluation.read_now = asking.scope.read_now;
    Ok(asking.evaluation)
}

/// The labels of an object. Values that are not strings are left out.
fn labels_of(metadata: Node<'_>) -> BTreeMap<String, String> {
    metadata
        .get("labels")
        .into_iter()
        .flat_map(Node::members)
        .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
        .collect()
}

/// The labels of the object in `json`. Empty if they cannot be read.
pub(crate) fn labels_of_json(json: &[u8]) -> BTreeMap<String, String> {
    let mut projection = Projection::default();
    projection.add(LABELS_PATH);
    let doc = Doc::parse(json, &projection).ok();
    let metadata = doc.as_ref().and_then(|doc| doc.root().get("metadata"));
    metadata.map(labels_of).unwrap_or_default()
}

/// The evaluation of an object that cannot be decoded: every rule failed.
pub(super) fn undecided(
    book: &RuleBook,
    subject: Subject,
    error: &EvaluationError,
    now: Timestamp,
    meter: &dyn Meter,
) -> Evaluation {
    let namespace = subject.namespace.as_deref();
    let (mut findings, mut failures, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for rule_set in book
        .rule_sets
        .iter()
        .filter(|rule_set| rule_set.covers(namespace))
    {
        let failure = EvaluationFailure {
            at: now,
            what: "the object".to_owned(),
            error: error.clone(),
        };
        rule_set.activity.detection_failed(failure.clone());
        rule_set.activity.failed(failure);
        for rule in &rule_set.rules {
            meter.evaluation_failed(&rule_set.name, &rule.operation);
            failures.push(FieldFailure {
                rule_set: rule_set.name.clone(),
                operation: rule.operation.clone(),
                field: "the object".to_owned(),
                error: error.clone(),
            });
            findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                item: None,
                says: None,
            });
            unknown.push((rule_set.clone(), rule.operation.clone()));
        }
    }
    Evaluation {
        subject,
        findings,
        outcomes: Vec::new(),
        unselected: Vec::new(),
        failures,
        unknown,
        read_now: false,
    }
}

/// The evaluation of an object that no longer matches the common selector of all rule sets of
/// `book`.
pub(crate) fn unselected(book: &RuleBook, subject: Subject) -> Evaluation {
    Evaluation {
        subject,
        findings: Vec::new(),
        outcomes: Vec::new(),
        unselected: book.rule_sets.clone(),
        failures: Vec::new(),
        unknown: Vec::new(),
        read_now: false,
    }
}
