//! Rule sets, compiled. Enters: the spec of an OperationRuleSet. Leaves: a [`RuleSet`], or
//! what is wrong with it; and for each target a [`RuleBook`] of its rule sets, with the
//! fields that they read.

mod activity;
mod book;
mod compile;
mod evaluation_error;
pub mod roles;
mod validate;

pub use activity::{Activity, EvaluationFailure, ObjectScope, UnknownDetections};
pub use book::{Bookless, RuleBook};
pub use compile::{Invalid, compile};
pub use evaluation_error::EvaluationError;

use ifo_api::live::State;
use ifo_cel::{Environment, Program, Projection};
use kube::core::Selector;
use litemap::LiteMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What is read of every object, whatever the rules ask for.
pub const IDENTITY_PATHS: [&[&str]; 6] = [
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "ownerReferences"],
    &["metadata", "deletionTimestamp"],
];

/// What is read where a rule set selects by labels.
pub(crate) const LABELS_PATH: &[&str] = &["metadata", "labels"];

/// Labels that a rule set gives to operations: two or three, and each operation in flight
/// has its own, so that the keys are shared.
pub type Labels = LiteMap<Arc<str>, Arc<str>>;

/// One OperationRuleSet, compiled.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// Its name.
    pub name: Arc<str>,
    /// The component it belongs to.
    pub component: Arc<str>,
    /// The namespaces it looks at; None is all of them.
    pub namespaces: Option<BTreeSet<String>>,
    /// Which objects it looks at, by their labels; None is all of them.
    pub selector: Option<Selector>,
    /// Labels with fixed values.
    pub labels: Arc<Labels>,
    /// Labels whose values are computed.
    pub label_expressions: Vec<(Arc<str>, Program)>,
    /// What its expressions may use beside the object.
    pub environment: Environment,
    /// The rules, in the order of the list.
    pub rules: Vec<CompiledRule>,
    /// What has happened to it.
    pub activity: Activity,
}

/// One rule, compiled.
#[derive(Debug, PartialEq)]
pub struct CompiledRule {
    /// The operation it detects.
    pub operation: Arc<str>,
    /// True while the operation is under way.
    pub expression: Program,
    /// True while an operation that is already in flight continues.
    pub continue_while: Option<Program>,
    /// The elements that it is about, each on its own; None: about the object.
    pub for_each: Option<ForEach>,
    /// What else is said of the operation.
    pub details: RuleDetails,
    /// Which other operations of the subject it ends.
    pub supersedes: Supersedes,
    /// How long it must not be detected before it is over; None: the server's debounce.
    pub debounce: Option<Duration>,
    /// How long it must be detected before it is shown.
    pub appear_after: Duration,
    /// How long `Blocked` or `Failing` must be yielded before the operation shows it.
    pub state_after: Duration,
}

impl CompiledRule {
    /// The expressions that decide whether the operation is in flight.
    pub fn predicates(&self) -> impl Iterator<Item = &Program> + Clone {
        std::iter::once(&self.expression).chain(&self.continue_while)
    }

    /// Whether time alone can change what the rule detects: the object may have been
    /// unchanged for longer than the rule has detected the operation.
    pub fn detection_reads_now(&self) -> bool {
        let list = self.for_each.as_ref().map(|each| &each.list);
        self.predicates().chain(list).any(Program::reads_now)
    }

    /// Whether time alone can change the state that the rule yields: the object may have
    /// been unchanged for longer than the rule has yielded this state.
    pub fn state_reads_now(&self) -> bool {
        self.detection_reads_now() || self.details.state.iter().any(Program::reads_now)
    }
}

/// The elements of an object that a rule is about.
#[derive(Debug, PartialEq)]
pub struct ForEach {
    /// Yields them.
    pub list: Program,
    /// Yields the identity of one.
    pub key: Program,
}

/// What a rule says of an operation beside that it is there.
#[derive(Debug, Default, PartialEq)]
pub struct RuleDetails {
    /// What to tell a person.
    pub message: Option<Program>,
    /// What a script may compare.
    pub reason: Option<Program>,
    /// `Progressing`, `Blocked` or `Failing`.
    pub state: Option<Program>,
    /// How far it is.
    pub progress: Option<Program>,
    /// When it started.
    pub started_at: Option<Program>,
    /// Which run it is.
    pub instance: Option<Program>,
    /// How it ended.
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

/// The operations of the same subject that one ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Supersedes {
    /// None.
    #[default]
    Nothing,
    /// Those.
    These(BTreeSet<String>),
    /// All others.
    Others,
}

impl Supersedes {
    /// From the names in a rule, of which `*` is all.
    pub(crate) fn new(names: &[String]) -> Self {
        if names.iter().any(|name| name == "*") {
            Self::Others
        } else if names.is_empty() {
            Self::Nothing
        } else {
            Self::These(names.iter().cloned().collect())
        }
    }

    /// Whether it names `operation`, which is another one than its own.
    pub fn names(&self, operation: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::These(names) => names.contains(operation),
            Self::Others => true,
        }
    }
}

/// The state that a rule calls `text`: one of an active operation that is detected.
pub fn state(text: &str) -> Option<State> {
    match text {
        "Progressing" => Some(State::Progressing),
        "Blocked" => Some(State::Blocked),
        "Failing" => Some(State::Failing),
        _ => None,
    }
}

/// The state that a rule's outcome `text` leads to.
pub fn outcome(text: &str) -> Option<State> {
    match text {
        "Succeeded" => Some(State::Succeeded),
        "Failed" => Some(State::Failed),
        "Superseded" => Some(State::Superseded),
        _ => None,
    }
}

/// Whether `text` may be a rule's reason: CamelCase, as API conventions want it.
pub fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Longest reason, in bytes; those in use have some 40.
const MAX_REASON: usize = 128;

impl PartialEq for RuleSet {
    /// Whether they find and say the same on every object. What has happened to them since they
    /// were compiled makes no difference.
    fn eq(&self, other: &Self) -> bool {
        // All fields are named, so that none that is added is forgotten here.
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
    /// Whether it looks at subjects in `namespace` (None: cluster-scoped ones).
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
