//! Rule sets, compiled. Enters: the spec of an OperationRuleSet. Leaves: a [`RuleSet`], or
//! what is wrong with it; and for each target a [`RuleBook`] of its rule sets, with the
//! fields that they read.

mod activity;
mod compile;
mod evaluation_error;
pub mod roles;
mod validate;

pub use activity::{Activity, EvaluationFailure, ObjectScope, UnknownDetections};
pub use compile::{Invalid, compile};
pub use evaluation_error::EvaluationError;

use ifo_api::live::State;
use ifo_api::{Gvr, Source};
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

/// What is read, beside that, of objects that a feed lists at its start. Of those that
/// change later, it is read where something new is detected.
const MANAGED_TIME_PATH: &[&str] = &["metadata", "managedFields", "*", "time"];

/// What is read where a rule set selects by labels.
pub(crate) const LABELS_PATH: &[&str] = &["metadata", "labels"];

/// All compiled rule sets of one target, as of one generation. What was evaluated
/// under an older generation than the newest one published is worth nothing.
#[derive(Debug)]
pub struct RuleBook {
    /// Rises with every publication, over all targets.
    pub generation: u64,
    /// The resource that is watched.
    pub target: Gvr,
    /// Kind of the target's objects, from discovery.
    pub kind: String,
    /// Whether the target's objects live in namespaces.
    pub namespaced: bool,
    /// The rule sets, by name.
    pub rule_sets: Vec<Arc<RuleSet>>,
    /// Whether each rule set names its namespaces, so that each of these has a feed.
    pub by_namespace: bool,
    /// The fields that rules and the identity of a subject need.
    pub projection: Projection,
    /// The same, and the times of managedFields: for what a feed lists at its start.
    pub initial_projection: Projection,
}

impl RuleBook {
    /// A book of `rule_sets` on one target.
    pub fn new(
        generation: u64,
        target: Gvr,
        kind: String,
        namespaced: bool,
        mut rule_sets: Vec<Arc<RuleSet>>,
    ) -> Self {
        rule_sets.sort_by(|a, b| a.name.cmp(&b.name));
        let mut projection = Projection::default();
        for path in IDENTITY_PATHS {
            projection.add(path);
        }
        for rule_set in &rule_sets {
            rule_set.project(&mut projection);
            if rule_set.selector.is_some() {
                projection.add(LABELS_PATH);
            }
        }
        let mut initial_projection = projection.clone();
        initial_projection.add(MANAGED_TIME_PATH);
        let by_namespace = !rule_sets.is_empty()
            && rule_sets
                .iter()
                .all(|rule_set| rule_set.namespaces.is_some());
        Self {
            generation,
            target,
            kind,
            namespaced,
            rule_sets,
            by_namespace,
            projection,
            initial_projection,
        }
    }

    /// The namespaces to watch: None is all of them.
    pub fn namespaces(&self) -> Option<BTreeSet<&str>> {
        let mut union = BTreeSet::new();
        for rule_set in &self.rule_sets {
            union.extend(rule_set.namespaces.as_ref()?.iter().map(String::as_str));
        }
        Some(union)
    }

    /// The selection that all rule sets share, and that need not be watched beyond.
    pub fn selector(&self) -> Option<&Selector> {
        let (first, others) = self.rule_sets.split_first()?;
        let shared = first.selector.as_ref()?;
        others
            .iter()
            .all(|other| other.selector.as_ref() == Some(shared))
            .then_some(shared)
    }

    /// The feeds that it needs. `target` is its own, shared.
    pub fn sources(&self, target: &Arc<Gvr>) -> Vec<Source> {
        let source = |namespace: Option<&str>| Source {
            target: target.clone(),
            namespace: namespace.map(Into::into),
        };
        match self.namespaces() {
            Some(namespaces) => namespaces
                .into_iter()
                .map(|own| source(Some(own)))
                .collect(),
            None => vec![source(None)],
        }
    }

    /// Whether a rule reads from its subjects how an operation ended.
    pub fn asks_for_outcomes(&self) -> bool {
        self.rule_sets
            .iter()
            .flat_map(|rule_set| &rule_set.rules)
            .any(|rule| rule.details.outcome.is_some())
    }

    /// Whether a rule of this book still is about `operation` of subjects in `namespace`.
    pub fn has_rule(&self, operation: &str, namespace: Option<&str>) -> bool {
        self.about(operation, namespace).next().is_some()
    }

    /// The rule sets that are about `operation` of subjects in `namespace`, each with the
    /// place of its rule.
    pub fn about(
        &self,
        operation: &str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Arc<RuleSet>, usize)> {
        self.rule_sets.iter().filter_map(move |rule_set| {
            let mut rules = rule_set.rules.iter();
            let place = rules.position(|rule| *rule.operation == *operation)?;
            rule_set.covers(namespace).then_some((rule_set, place))
        })
    }
}

/// Rule sets without a book that may say of operations from before a restart what has
/// become of their rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bookless {
    /// Discovery has not told yet whether their target is there.
    pub undecided: BTreeSet<String>,
    /// Their target is not served.
    pub unserved: BTreeSet<String>,
}

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
