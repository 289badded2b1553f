//! Which operations an object shows. Enters: a [`RuleBook`] and the projected fields of
//! one object. Leaves: an [`Evaluation`]: what matched, with what the rule says of it,
//! and what failed. Pure, but for the counters of what failed.

mod allowance;
mod ask;
#[cfg(test)]
mod tests;

pub(super) use self::allowance::Allowances;

use self::ask::Asking;
use super::{Nameless, Subject};
use crate::Meter;
use crate::rules::{EvaluationError, EvaluationFailure, LABELS_PATH, Labels, RuleBook, RuleSet};
use ifo_api::live::State;
use ifo_cel::{Budget, Doc, EvaluationScope, Node, Projection};
use jiff::Timestamp;
use kube::core::SelectorExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the rules of one book find on one object.
#[derive(Debug)]
pub struct Evaluation {
    /// The object.
    pub subject: Subject,
    /// Matched and failed rules; whatever is not here did not match.
    pub findings: Vec<Finding>,
    /// How operations that are not detected have ended, if they were ever under way.
    pub outcomes: Vec<DetectedOutcome>,
    /// Rule sets that do not look at the object because of its labels.
    pub unselected: Vec<Arc<RuleSet>>,
    /// What went wrong.
    pub failures: Vec<FieldFailure>,
    /// Operations of which it is not known whether the object shows them, each with the
    /// rule set that could not be evaluated.
    pub unknown: Vec<(Arc<RuleSet>, Arc<str>)>,
    /// Whether an expression read `now`, so that time alone can change the answer.
    pub read_now: bool,
}

impl Evaluation {
    /// Whether a rule detects an operation, so that it starts unless it is in flight.
    pub fn detects(&self) -> bool {
        let mut says = self.findings.iter().filter_map(|it| it.says.as_ref());
        says.any(|says| !says.continues)
    }

    /// Adds an operation to [`Evaluation::unknown`], unless it is there.
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

/// One rule's answer, on the object or on one of its elements.
#[derive(Debug)]
pub struct Finding {
    /// The rule set that the rule is of.
    pub rule_set: Arc<RuleSet>,
    /// The operation that the rule is about.
    pub operation: Arc<str>,
    /// Which element, for a rule with `forEach`. None when its list failed: then it is
    /// about all of them.
    pub item: Option<Arc<str>>,
    /// What the rule says of it; None when the rule failed.
    pub says: Option<Says>,
}

/// What a rule says of an operation that it detects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Says {
    /// Place of the rule in its list.
    pub order: usize,
    /// Only the rule's `continueWhile` is true: this keeps an operation in flight and does
    /// not start one.
    pub continues: bool,
    /// Labels of the rule set, with the values computed from the subject.
    pub labels: Arc<Labels>,
    /// How it goes; None is `Progressing`.
    pub state: Option<State>,
    /// CamelCase; None is the operation's name.
    pub reason: Option<Arc<str>>,
    /// For a person; may be empty.
    pub message: Arc<str>,
    /// In percent.
    pub progress: Option<u8>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// Which run it is.
    pub instance: Option<Arc<str>>,
}

/// How an operation has ended, as the rule that is about it reads it from the object.
#[derive(Debug)]
pub struct DetectedOutcome {
    /// The rule set that the rule is of.
    pub rule_set: Arc<RuleSet>,
    /// The operation that the rule is about.
    pub operation: Arc<str>,
    /// Which element, for a rule with `forEach`.
    pub item: Option<Arc<str>>,
    /// `Succeeded`, `Failed` or `Superseded`.
    pub state: State,
    /// For a person, of the object as it is now; may be empty.
    pub message: Arc<str>,
}

/// One expression that failed on one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFailure {
    /// The rule set that the expression is of.
    pub rule_set: Arc<str>,
    /// The operation of its rule; empty for a label.
    pub operation: Arc<str>,
    /// Where it stands, such as `rules[Migrating].message` or `labelExpressions[tier]`.
    pub field: String,
    /// What went wrong.
    pub error: EvaluationError,
}

/// Evaluates all rules of `book` that cover the object, whatever was evaluated before.
///
/// A missing field means that the rule does not match. Any other failure is counted,
/// kept for the rule set's status, and reported as a finding without an answer.
pub fn evaluate(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
) -> Result<Evaluation, Nameless> {
    evaluate_within(book, doc, now, meter, &mut Allowances::default())
}

/// As [`evaluate`], as one of many objects: of a rule set that was too much on those
/// before, nothing is known. `allowances` are of this book.
pub(super) fn evaluate_within(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    meter: &dyn Meter,
    allowances: &mut Allowances,
) -> Result<Evaluation, Nameless> {
    let metadata = doc.root().get("metadata").ok_or(Nameless)?;
    let namespace = metadata
        .get("namespace")
        .and_then(Node::as_str)
        .filter(|text| !text.is_empty());
    let covers = |rule_set: &&Arc<RuleSet>| rule_set.covers(namespace);
    let asked = book.rule_sets.iter().filter(covers).count();
    let mut steps = allowances.open(book.rule_sets.len(), asked, now);
    let mut budget = Budget { left: 0 };
    let mut asking = Asking {
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

/// The labels of an object, as far as they are strings.
fn labels_of(metadata: Node<'_>) -> BTreeMap<String, String> {
    metadata
        .get("labels")
        .into_iter()
        .flat_map(Node::members)
        .filter_map(|(key, value)| Some((key.to_owned(), value.as_str()?.to_owned())))
        .collect()
}

/// The labels of the object in `json`; none if it cannot be read.
pub(crate) fn labels_of_json(json: &[u8]) -> BTreeMap<String, String> {
    let mut projection = Projection::default();
    projection.add(LABELS_PATH);
    let doc = Doc::parse(json, &projection).ok();
    let metadata = doc.as_ref().and_then(|doc| doc.root().get("metadata"));
    metadata.map(labels_of).unwrap_or_default()
}

/// The evaluation of an object that is there but cannot be decoded: every rule failed.
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

/// The evaluation of an object whose labels are no longer those that all rule sets of
/// `book` select.
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
