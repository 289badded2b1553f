//! Which operations an object shows. Enters: a [`RuleBook`] and the projected fields of
//! one object. Leaves: an [`Evaluation`]: what matched, with what the rule says of it,
//! and what failed. Pure, but for the counters of what failed.

use crate::api::{Gvr, labels};
use crate::expression::{Budget, Doc, Failure, Node, STEPS_PER_OBJECT, Scope};
use crate::rules::{EvaluationFailure, RuleBook, RuleSet};
use crate::telemetry::Metrics;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is read of every object, whatever the rules ask for.
pub const IDENTITY_PATHS: [&[&str]; 6] = [
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "ownerReferences"],
    &["metadata", "deletionTimestamp"],
];

/// What is read, beside that, of objects that a feed lists at its start.
pub const MANAGED_TIME_PATH: &[&str] = &["metadata", "managedFields", "*", "time"];

/// Owner references of one subject that are kept; real objects have one or two.
const MAX_OWNERS: usize = 16;

/// Longest text of an evaluation failure that is kept, in characters.
const MAX_FAILURE: usize = 300;

/// What the rules of one book find on one object.
#[derive(Debug)]
pub struct Evaluation {
    /// The object.
    pub subject: Subject,
    /// Matched and failed rules; whatever is not here did not match.
    pub findings: Vec<Finding>,
    /// Whether an expression read `now`, so that time alone can change the answer.
    pub read_now: bool,
}

/// Which object, and what an operation shows of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// UID; objects from files may lack one.
    pub uid: Option<Arc<str>>,
    /// Name.
    pub name: Arc<str>,
    /// Namespace; None for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// metadata.generation.
    pub generation: Option<i64>,
    /// metadata.ownerReferences.
    pub owners: Vec<OwnerReference>,
    /// The newest time in managedFields, if it was asked for.
    pub managed: Option<Timestamp>,
}

/// An object without a name, which cannot be told from others.
#[derive(Debug, thiserror::Error)]
#[error("the object has no metadata.name")]
pub struct Nameless;

impl Subject {
    /// Reads the identity of `doc`.
    pub fn read(doc: &Doc<'_>) -> Result<Self, Nameless> {
        let metadata = doc.root().get("metadata").ok_or(Nameless)?;
        let text = |name: &str| {
            metadata
                .get(name)
                .and_then(Node::as_str)
                .filter(|text| !text.is_empty())
        };
        Ok(Self {
            name: text("name").ok_or(Nameless)?.into(),
            uid: text("uid").map(Into::into),
            namespace: text("namespace").map(Into::into),
            generation: metadata.get("generation").and_then(Node::as_i64),
            owners: metadata
                .get("ownerReferences")
                .into_iter()
                .flat_map(Node::elements)
                .take(MAX_OWNERS)
                .filter_map(owner)
                .collect(),
            managed: metadata
                .get("managedFields")
                .into_iter()
                .flat_map(Node::elements)
                .filter_map(|field| field.get("time")?.as_str()?.parse().ok())
                .max(),
        })
    }

    /// What tells this object from all others: its UID, or where it is if it has none.
    pub fn identity(&self, target: &Gvr) -> Arc<str> {
        self.uid.clone().unwrap_or_else(|| {
            let namespace = self.namespace.as_deref().unwrap_or_default();
            format!("{target}/{namespace}/{}", self.name).into()
        })
    }

    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.to_string(),
        }
    }
}

fn owner(node: Node<'_>) -> Option<OwnerReference> {
    let text = |name: &str| node.get(name).and_then(Node::as_str).map(str::to_owned);
    Some(OwnerReference {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
        controller: node.get("controller").and_then(Node::as_bool),
        block_owner_deletion: node.get("blockOwnerDeletion").and_then(Node::as_bool),
    })
}

/// One rule's answer.
#[derive(Debug)]
pub struct Finding {
    /// The rule set that the rule is of.
    pub rule_set: Arc<RuleSet>,
    /// The operation that the rule is about.
    pub operation: Arc<str>,
    /// What the rule says of it; None when the rule failed.
    pub says: Option<Says>,
}

/// What a rule says of an operation that it detects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Says {
    /// Place of the rule in its list.
    pub order: usize,
    /// Labels of the rule set, with the values computed from the subject.
    pub labels: Arc<BTreeMap<String, String>>,
}

/// Evaluates all rules of `book` that cover the object.
///
/// A missing field means that the rule does not match. Any other failure is counted,
/// kept for the rule set's status, and reported as a finding without an answer.
pub fn evaluate(
    book: &RuleBook,
    doc: &Doc<'_>,
    now: Timestamp,
    metrics: &Metrics,
) -> Result<Evaluation, Nameless> {
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = Scope::new(doc, now, &mut budget);
    let metadata = doc.root().get("metadata").ok_or(Nameless)?;
    let namespace = metadata
        .get("namespace")
        .and_then(Node::as_str)
        .filter(|text| !text.is_empty());
    let mut findings = Vec::new();
    for rule_set in book
        .rule_sets
        .iter()
        .filter(|rule_set| rule_set.covers(namespace))
    {
        rule_set.activity.evaluated(now);
        let mut labels: Option<Arc<BTreeMap<String, String>>> = None;
        for (order, rule) in rule_set.rules.iter().enumerate() {
            let says = match rule.expression.test(&mut scope) {
                Ok(false) | Err(Failure::Missing(_)) => continue,
                Ok(true) => {
                    let labels = labels
                        .get_or_insert_with(|| {
                            Arc::new(computed_labels(rule_set, &mut scope, metrics))
                        })
                        .clone();
                    Some(Says { order, labels })
                }
                Err(failure) => {
                    note(rule_set, &rule.operation, doc, &failure, now, metrics);
                    None
                }
            };
            findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                says,
            });
        }
    }
    let read_now = scope.read_now;
    Ok(Evaluation {
        subject: Subject::read(doc)?,
        findings,
        read_now,
    })
}

/// The rule set's own labels: fixed ones, then computed ones where no fixed one stands.
/// A computed one that fails is left out and counted.
fn computed_labels(
    rule_set: &RuleSet,
    scope: &mut Scope<'_>,
    metrics: &Metrics,
) -> BTreeMap<String, String> {
    let mut all = rule_set.labels.clone();
    for (key, program) in &rule_set.label_expressions {
        if all.contains_key(key) {
            continue;
        }
        match program.text(scope) {
            Ok(value) => {
                all.insert(key.clone(), labels::to_value(&value));
            }
            Err(failure) => note(rule_set, key, scope.doc, &failure, scope.now, metrics),
        }
    }
    all
}

fn note(
    rule_set: &RuleSet,
    what: &str,
    doc: &Doc<'_>,
    failure: &Failure,
    now: Timestamp,
    metrics: &Metrics,
) {
    metrics.evaluation_failed(&rule_set.name, what);
    rule_set.activity.failed(EvaluationFailure {
        at: now,
        what: what.to_owned(),
        subject: Subject::read(doc)
            .map_or_else(|error| error.to_string(), |subject| subject.path()),
        message: failure.to_string().chars().take(MAX_FAILURE).collect(),
    });
}

/// The evaluation of an object that is there but cannot be decoded: every rule failed.
pub fn undecided(book: &RuleBook, subject: Subject, error: &str, metrics: &Metrics) -> Evaluation {
    let namespace = subject.namespace.as_deref();
    let mut findings = Vec::new();
    for rule_set in book
        .rule_sets
        .iter()
        .filter(|rule_set| rule_set.covers(namespace))
    {
        rule_set.activity.failed(EvaluationFailure {
            at: Timestamp::now(),
            what: "the object".to_owned(),
            subject: subject.path(),
            message: error.chars().take(MAX_FAILURE).collect(),
        });
        for rule in &rule_set.rules {
            metrics.evaluation_failed(&rule_set.name, &rule.operation);
            findings.push(Finding {
                rule_set: rule_set.clone(),
                operation: rule.operation.clone(),
                says: None,
            });
        }
    }
    Evaluation {
        subject,
        findings,
        read_now: false,
    }
}
