//! Compiles OperationRuleSets. An OperationRuleSet is a custom resource with rules for one
//! resource, the target. Each rule has CEL expressions that detect an operation on the objects of
//! the target.
//!
//! [`compile()`] turns the spec of one OperationRuleSet into a [`RuleSet`] or a list of errors. A
//! [`RuleBook`] combines all rule sets that have the same target.

mod activity;
pub mod cluster_roles;
mod compile;
mod evaluation_error;
mod evaluation_time;
mod feed_lag;
mod fields;
mod lint;
mod rule_book;
mod validate;

pub use activity::{
    Activity, EvaluationFailure, Fact, OperationBound, ReachedBound, Report, UnknownDetections,
};
pub use compile::{
    MAX_COMPILE_TIME, MAX_ERRORS, MAX_EXPRESSIONS, RuleSetError, compile, compile_within,
    expression_bytes,
};
pub use evaluation_error::{EvaluationError, StepShare};
pub use evaluation_time::{
    Allowance, EvaluationInstant, EvaluationTime, FREE_TIME_PER_OBJECT, REDUCED_ALLOWANCE,
    RULE_SET_ALLOWANCE, TOTAL_ALLOWANCE, TimeAccount,
};
pub use feed_lag::{FeedLag, MAX_LAG, WorkWaitingSince};
use ifo_api::Text;
pub use lint::warnings;
pub use rule_book::{RuleBook, RuleSetsWithoutBook};

use ifo_api::live::State;
use ifo_api::metadata::Labels;
use ifo_cel::{Environment, Program, Projection};
use kube::core::Selector;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Paths of the fields that the server decodes from every object, even if no rule reads them.
pub const IDENTITY_PATHS: [&[&str]; 7] = [
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "generation"],
    &["metadata", "ownerReferences"],
    &["metadata", "deletionTimestamp"],
    // Usually, an operation starts or ends at the newest of these times.
    &["metadata", "managedFields", "*", "time"],
];

/// Path of the labels. The server decodes the labels if a rule set has a label selector, or if an
/// expression reads the labels.
pub(crate) const LABELS_PATH: &[&str] = &["metadata", "labels"];

/// A compiled OperationRuleSet.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// Name of the OperationRuleSet.
    pub name: Text,
    /// Component that the operations of the rule set belong to.
    pub component: Text,
    /// Namespaces in which the server evaluates the rule set. None means all namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// Label selector for the objects on which the server evaluates the rule set. None means all
    /// objects.
    pub selector: Option<Selector>,
    /// Labels for the operations. Their values are the same for all objects.
    pub labels: Arc<Labels>,
    /// Labels for the operations. Each expression computes the label's value from the object.
    pub label_expressions: Vec<(Text, Program)>,
    /// Expression that yields the names of the nodes that the operations touch. None if the rule
    /// set has no such expression.
    pub nodes: Option<Program>,
    /// Variables that the expressions may use.
    pub environment: Environment,
    /// Compiled rules, in the order of the OperationRuleSet.
    pub rules: Vec<CompiledRule>,
    /// The field paths that the expressions of the rule set read.
    pub(crate) projection: Projection,
    /// Record of evaluations and failures.
    pub activity: Activity,
}

/// A compiled rule.
#[derive(Debug)]
pub struct CompiledRule {
    /// Name of the operation that the rule detects.
    pub operation: Text,
    /// The `forEach` of the rule. None if the rule has none, and so detects at most one operation
    /// on the object.
    pub for_each: Option<ForEach>,
    /// All expressions except those of `forEach` and `itemKey`, by the names of their fields.
    pub programs: Vec<(&'static str, Program)>,
    /// A hash of the fields that affect the duration of the operation. If the hash changes, the
    /// server no longer compares the operation with earlier runs. A run is one occurrence of an
    /// operation, from its start to its end.
    pub timing_hash: Text,
    /// True if the purpose of the operation is that the object is deleted.
    pub deletes_subject: bool,
    /// Names of other operations of the component on the same object that end when this operation
    /// starts. `*` stands for all other operations.
    pub supersedes: Vec<String>,
    /// Debounce period: the operation completes when it has not been detected for this time. None
    /// means the default debounce period of the server, or zero after the state `Held`.
    pub debounce: Option<Duration>,
    /// Time for which the operation must be detected before it is shown.
    pub appear_after: Duration,
    /// Time for which the `state` expression must yield `Blocked` or `Failing` before this state is
    /// shown.
    pub state_after: Duration,
    /// If the operation takes longer than this duration, the operation is overdue. None if
    /// `expectedDuration` is missing or has an expression.
    pub expected: Option<Duration>,
    /// If the progress has not risen for this duration, the operation is stalled. None if
    /// `stalledAfter` is missing or has an expression.
    pub stalled_after: Option<Duration>,
}

impl CompiledRule {
    /// Returns the expression in a field of the rule. Returns None if the rule does not set the
    /// field.
    pub fn program(&self, field: &str) -> Option<&Program> {
        let mut programs = self.programs.iter();
        let (_, program) = programs.find(|(name, _)| *name == field)?;
        Some(program)
    }

    /// Returns true if the rule detects a problem of the object instead of work on the object. The
    /// `state` of such a rule is always `Failing`. If the `outcome` of such a rule is `Succeeded`,
    /// the problem is over, but no work has succeeded.
    pub fn detects_trouble(&self) -> bool {
        let state = self.program("state");
        state.and_then(Program::literal) == Some(State::Failing.name())
    }

    /// Returns true if an expression that decides about the detection reads `now`, the time of the
    /// evaluation. Then the detection can change although the object does not change. So the
    /// operation can start later than the object's last change.
    pub fn detection_reads_now(&self) -> bool {
        let predicates = ["expression", "continueWhile"].map(|field| self.program(field));
        let list = self.for_each.as_ref().map(|each| &each.list);
        let mut all = predicates.into_iter().flatten().chain(list);
        all.any(Program::reads_now)
    }

    /// Returns true if an expression that decides about the detection or the state reads `now`.
    /// Then the state can change although the object does not change. So the state can be newer
    /// than the object's last change.
    pub fn state_reads_now(&self) -> bool {
        self.detection_reads_now() || self.program("state").is_some_and(Program::reads_now)
    }
}

/// The `forEach` of a rule. It yields elements of the object, and each element can have its own
/// operation.
#[derive(Debug)]
pub struct ForEach {
    /// Expression that yields the list of elements.
    pub list: Program,
    /// Expression that yields the identity of an element: a string or an int.
    pub key: Program,
}

/// The states that a `state` expression can yield.
pub const STATES: [State; 4] = [
    State::Progressing,
    State::Blocked,
    State::Held,
    State::Failing,
];

/// The states that an `outcome` expression can yield.
pub const OUTCOMES: [State; 3] = [State::Succeeded, State::Failed, State::Superseded];

/// Parses the result of a `state` expression. Returns None for an invalid state.
pub fn parse_state(text: &str) -> Option<State> {
    STATES.into_iter().find(|state| state.name() == text)
}

/// Parses the result of an `outcome` expression. Returns None for an invalid or empty outcome.
pub fn parse_outcome(text: &str) -> Option<State> {
    OUTCOMES.into_iter().find(|state| state.name() == text)
}

/// Returns true if `text` is a valid reason: at most 128 letters and digits in CamelCase, as
/// Kubernetes' API conventions demand.
pub fn is_reason(text: &str) -> bool {
    text.len() <= MAX_REASON
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Maximum length of a reason, in bytes. If a `reason` expression yields a longer text, the server
/// uses the name of the operation instead. Most reasons have fewer than 40 bytes.
const MAX_REASON: usize = 128;

impl RuleSet {
    /// Returns true if the rule set covers objects in `namespace`. None stands for cluster-scoped
    /// objects.
    pub fn covers(&self, namespace: Option<&str>) -> bool {
        match (&self.namespaces, namespace) {
            (None, _) => true,
            (Some(namespaces), Some(namespace)) => namespaces.contains(namespace),
            (Some(_), None) => false,
        }
    }

    /// Returns the rule for `operation`, and its index.
    pub fn rule(&self, operation: &str) -> Option<(usize, &CompiledRule)> {
        let mut rules = self.rules.iter().enumerate();
        rules.find(|(_, rule)| *rule.operation == *operation)
    }

    /// Returns true if the rule set belongs to `component` and has a rule for `operation` on
    /// objects in `namespace`. None stands for cluster-scoped objects.
    pub fn can_detect(&self, component: &str, operation: &str, namespace: Option<&str>) -> bool {
        *self.component == *component && self.covers(namespace) && self.rule(operation).is_some()
    }
}
