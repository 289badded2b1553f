//! Compiled rule sets. Input: the spec of an OperationRuleSet. Output: a [`RuleSet`] or its errors,
//! and for each target a [`RuleBook`] of its rule sets with the fields that they read.

mod activity;
mod book;
mod compile;
mod evaluation_error;
pub mod roles;
mod validate;

pub use activity::{Activity, EvaluationFailure, ObjectScope, UnknownDetections};
pub use book::{RuleBook, RuleSetsWithoutBook};
pub use compile::{RuleSetError, compile};
pub use evaluation_error::EvaluationError;

use ifo_api::live::State;
use ifo_cel::{Environment, Program, Projection};
use kube::core::Selector;
use litemap::LiteMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The fields that are read of every object.
pub const IDENTITY_PATHS: [&[&str]; 6] = [
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "ownerReferences"],
    &["metadata", "deletionTimestamp"],
];

/// The field that is read if a rule set selects by labels.
pub(crate) const LABELS_PATH: &[&str] = &["metadata", "labels"];

/// Labels that a rule set gives to operations. There are two or three of them. Each operation in
/// flight has its own map, so the keys are shared.
pub type Labels = LiteMap<Arc<str>, Arc<str>>;

/// A compiled OperationRuleSet.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// Its name.
    pub name: Arc<str>,
    /// The component of its operations.
    pub component: Arc<str>,
    /// The namespaces of its objects. None for all namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// The label selector of its objects. None for all objects.
    pub selector: Option<Selector>,
    /// Labels with fixed values.
    pub labels: Arc<Labels>,
    /// Labels whose values are computed.
    pub label_expressions: Vec<(Arc<str>, Program)>,
    /// The variables that its expressions may use.
    pub environment: Environment,
    /// The rules, in the order of the list.
    pub rules: Vec<CompiledRule>,
    /// Its activity.
    pub activity: Activity,
}

/// A compiled rule.
#[derive(Debug, PartialEq)]
pub struct CompiledRule {
    /// The operation it detects.
    pub operation: Arc<str>,
    /// True while the operation is in flight.
    pub expression: Program,
    /// True while an operation in flight continues.
    pub continue_while: Option<Program>,
    /// The elements that can have an operation each. None if the operation is on the whole object.
    pub for_each: Option<ForEach>,
    /// The descriptive values of the operation.
    pub details: RuleDetails,
    /// The operations that it supersedes.
    pub supersedes: Supersedes,
    /// The debounce period. None for the server's.
    pub debounce: Option<Duration>,
    /// The operation is shown after it has been detected for this time.
    pub appear_after: Duration,
    /// `Blocked` and `Failing` are shown after they have been yielded for this time.
    pub state_after: Duration,
}

impl CompiledRule {
    /// The expressions that decide whether the operation is in flight.
    pub fn predicates(&self) -> impl Iterator<Item = &Program> + Clone {
        std::iter::once(&self.expression).chain(&self.continue_while)
    }

    /// Returns true if time alone can change the detection. The object may then have been unchanged
    /// for longer than the operation has been detected.
    pub fn detection_reads_now(&self) -> bool {
        let list = self.for_each.as_ref().map(|each| &each.list);
        self.predicates().chain(list).any(Program::reads_now)
    }

    /// Returns true if time alone can change the state. The object may then have been unchanged for
    /// longer than the state has been yielded.
    pub fn state_reads_now(&self) -> bool {
        self.detection_reads_now() || self.details.state.iter().any(Program::reads_now)
    }
}

/// The `forEach` of a rule: elements of the object, each of which can have an operation of its own.
#[derive(Debug, PartialEq)]
pub struct ForEach {
    /// Yields the elements.
    pub list: Program,
    /// Yields the identity of an element.
    pub key: Program,
}

/// The expressions for the descriptive values of an operation.
#[derive(Debug, Default, PartialEq)]
pub struct RuleDetails {
    /// Yields the message for people.
    pub message: Option<Program>,
    /// Yields the reason for scripts, in CamelCase.
    pub reason: Option<Program>,
    /// Yields `Progressing`, `Blocked` or `Failing`.
    pub state: Option<Program>,
    /// Yields the progress in percent.
    pub progress: Option<Program>,
    /// Yields the time of the start.
    pub started_at: Option<Program>,
    /// Yields the identity of the run.
    pub instance: Option<Program>,
    /// Yields `Succeeded` or `Failed` when the operation is over.
    pub outcome: Option<Program>,
}

impl RuleDetails {
    fn programs(&self) -> impl Iterator<Item = &Program> + Clone {
        [
            &self.message,
            &self.reason,
            &self.state,
            &self.progress,
            &self.started_at,
            &self.instance,
            &self.outcome,
        ]
        .into_iter()
        .flatten()
    }
}

/// The operations of the same subject that an operation supersedes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Supersedes {
    /// None.
    #[default]
    Nothing,
    /// These operations.
    These(BTreeSet<String>),
    /// All other operations.
    Others,
}

impl Supersedes {
    /// Parses the names in a rule. `*` stands for all operations.
    pub(crate) fn new(names: &[String]) -> Self {
        if names.iter().any(|name| name == "*") {
            Self::Others
        } else if names.is_empty() {
            Self::Nothing
        } else {
            Self::These(names.iter().cloned().collect())
        }
    }

    /// Returns true if it includes `operation`, which must not be its own.
    pub fn names(&self, operation: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::These(names) => names.contains(operation),
            Self::Others => true,
        }
    }
}

/// The state with this name, for an operation that is detected.
pub fn state(text: &str) -> Option<State> {
    match text {
        "Progressing" => Some(State::Progressing),
        "Blocked" => Some(State::Blocked),
        "Failing" => Some(State::Failing),
        _ => None,
    }
}

/// The state of the outcome with this name.
pub fn outcome(text: &str) -> Option<State> {
    match text {
        "Succeeded" => Some(State::Succeeded),
        "Failed" => Some(State::Failed),
        "Superseded" => Some(State::Superseded),
        _ => None,
    }
}

/// Returns true if `text` is a valid reason: CamelCase, as in the API conventions.
pub fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Longest reason in bytes. Usual ones have some 40.
const MAX_REASON: usize = 128;

impl PartialEq for RuleSet {
    /// Returns true if both rule sets give the same results on every object. Their activity is not
    /// compared.
    fn eq(&self, other: &Self) -> bool {
        // All fields are named, so that the compiler reports a new one here.
        let Self {
            name,
            component,
            namespaces,
            selector,
            labels,
            label_expressions,
            environment,
            rules,
            activity: _,
        } = self;
        *name == other.name
            && *component == other.component
            && *namespaces == other.namespaces
            && *selector == other.selector
            && *labels == other.labels
            && *label_expressions == other.label_expressions
            && *environment == other.environment
            && *rules == other.rules
    }
}

impl RuleSet {
    /// Returns true if it covers subjects in `namespace`. None stands for cluster-scoped subjects.
    pub fn covers(&self, namespace: Option<&str>) -> bool {
        match (&self.namespaces, namespace) {
            (None, _) => true,
            (Some(namespaces), Some(namespace)) => namespaces.contains(namespace),
            (Some(_), None) => false,
        }
    }

    /// Adds the fields that its expressions read.
    fn project(&self, projection: &mut Projection) {
        for rule in &self.rules {
            let own = rule.predicates().chain(rule.details.programs());
            for program in own.clone() {
                projection.merge(program.projection());
            }
            if let Some(ForEach { list, key }) = &rule.for_each {
                let readers = own.chain([key]);
                projection.merge(&list.items_projection(&self.environment, readers));
                projection.merge(key.projection());
            }
        }
        for (_, program) in &self.label_expressions {
            projection.merge(program.projection());
        }
    }
}
