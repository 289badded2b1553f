//! The values that a rule yields for an operation: their evaluation, and the functions that compare,
//! measure and keep them.

use super::{CurrentRule, MAX_IDENTITY, ObjectEvaluator, count_characters};
use crate::rules::{self, EvaluationError};
use ifo_api::Text;
use ifo_api::live::State;
use ifo_api::metadata::Labels;
use ifo_cel::Program;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// The values that a rule yields for an operation that the rule detects or continues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleValues {
    /// Index of the rule in its rule set.
    pub rule_index: usize,
    /// True if only the rule's `continueWhile` is true. The rule then continues an operation in
    /// flight, but does not start an operation.
    pub only_continues: bool,
    /// Labels of the rule set, including the labels that are computed from the object.
    pub labels: Arc<Labels>,
    /// State of the operation. None stands for `Progressing`.
    pub state: Option<State>,
    /// Reason in CamelCase. None stands for the operation's name.
    pub reason: Option<Text>,
    /// Message for people. It may be empty.
    pub message: Text,
    /// Progress in percent, from 0 to 100. None if the rule yields no progress.
    pub progress: Option<u8>,
    /// Start time that the rule's `startedAt` yields. None if the rule yields no start time.
    pub started: Option<Timestamp>,
    /// Result of the rule's `instance`, which identifies one run of the operation.
    pub instance: Option<Text>,
    /// Key of the piece of work that the operation belongs to. Operations with the same key, on any
    /// objects, are one piece of work.
    pub work: Option<Text>,
    /// Nodes that the operation touches, without empty names.
    pub nodes: Nodes,
    /// Duration after which the operation is overdue. None if the rule gives no such duration.
    pub expected: Option<Duration>,
    /// Duration without a rise of the progress after which the operation is stalled. None if the
    /// rule gives no such duration.
    pub stalled_after: Option<Duration>,
    /// Amount of work, above 0. The duration of a run is divided by this amount before it is
    /// compared with other runs. None if the rule gives no amount.
    pub size: Option<f64>,
}

/// The names of nodes. All operations that one rule set detects on one object share them.
pub type Nodes = Arc<[Text]>;

impl RuleValues {
    /// Returns true if clients see the same values. The states are not compared, because clients see
    /// a new state only after the rule's `stateAfter`.
    pub fn shows_same(&self, other: &Self) -> bool {
        // The pattern names all fields, so that the compiler asks for a decision when a field is
        // added.
        let Self {
            labels,
            reason,
            message,
            progress,
            work,
            nodes,
            rule_index: _,
            only_continues: _,
            state: _,
            started: _,
            instance: _,
            expected: _,
            stalled_after: _,
            size: _,
        } = self;
        *labels == other.labels
            && *reason == other.reason
            && *message == other.message
            && *progress == other.progress
            && *work == other.work
            && *nodes == other.nodes
    }

    /// Returns the number of bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        let optional = [&self.reason, &self.instance, &self.work];
        let texts = optional.into_iter().flatten().chain([&self.message]);
        let labels = self.labels.iter().flat_map(|(key, value)| [key, value]);
        let all = texts.chain(labels).chain(self.nodes.iter());
        all.map(|text| text.len()).sum()
    }

    /// Replaces the texts with the texts of an earlier detection. The other values stay, for
    /// example the state and the progress. The identity of the run also stays.
    pub fn keep_texts(&mut self, earlier: &Self) {
        self.labels.clone_from(&earlier.labels);
        self.reason.clone_from(&earlier.reason);
        self.message.clone_from(&earlier.message);
        self.work.clone_from(&earlier.work);
        self.nodes.clone_from(&earlier.nodes);
    }
}

impl ObjectEvaluator<'_, '_> {
    /// Evaluates the descriptive fields of a rule, such as `state` and `message`.
    pub(super) fn evaluate_values(
        &mut self,
        current: CurrentRule<'_>,
        (labels, nodes): (Arc<Labels>, Nodes),
    ) -> RuleValues {
        let rule = current.rule;
        RuleValues {
            rule_index: current.rule_index,
            only_continues: false,
            labels,
            state: self.evaluate_state(current),
            reason: self.evaluate_reason(current),
            message: self
                .evaluate_message(current, "message")
                .unwrap_or_default(),
            progress: self
                .evaluate_field(current, "progress", Program::progress)
                .flatten(),
            started: self
                .evaluate_field(current, "startedAt", Program::time)
                .flatten(),
            instance: self.evaluate_identity(current, "instance"),
            work: self.evaluate_work(current),
            nodes,
            expected: self.evaluate_duration(current, "expectedDuration", rule.expected),
            stalled_after: self.evaluate_duration(current, "stalledAfter", rule.stalled_after),
            size: self
                .evaluate_field(current, "size", Program::amount)
                .filter(|size| *size > 0.0),
        }
    }

    fn evaluate_state(&mut self, current: CurrentRule<'_>) -> Option<State> {
        let text = self.evaluate_text(current, "state")?;
        let state = rules::parse_state(&text);
        if state.is_none() {
            let error = EvaluationError::State(count_characters(&text));
            self.record_failure(current, "state", error);
        }
        state
    }

    fn evaluate_reason(&mut self, current: CurrentRule<'_>) -> Option<Text> {
        let text = self.evaluate_text(current, "reason")?;
        if text.is_empty() {
            return None;
        }
        let is_valid = rules::is_reason(&text);
        if !is_valid {
            let error = EvaluationError::Reason(count_characters(&text));
            self.record_failure(current, "reason", error);
        }
        is_valid.then(|| text.into())
    }

    /// Returns the fixed duration of `expectedDuration` or `stalledAfter`, or else evaluates the
    /// field. Returns None if the rule does not set the field, or if a computed duration is zero or
    /// has no value.
    fn evaluate_duration(
        &mut self,
        current: CurrentRule<'_>,
        field: &str,
        fixed: Option<Duration>,
    ) -> Option<Duration> {
        fixed.or_else(|| {
            self.evaluate_field(current, field, Program::duration)
                .filter(|duration| !duration.is_zero())
        })
    }

    /// Evaluates `work`. If the rule set names its namespaces, the result is the key in the form
    /// `@NAMESPACE/KEY`. The reason: the author of such a rule set may have no rights in other
    /// namespaces. Without the namespace, the operation could join a piece of work in any namespace.
    fn evaluate_work(&mut self, current: CurrentRule<'_>) -> Option<Text> {
        let key = self.evaluate_identity(current, "work")?;
        let namespace = self.evaluation.subject.namespace.as_deref();
        match namespace.filter(|_| current.rule_set.namespaces.is_some()) {
            Some(namespace) => Some(format!("@{namespace}/{key}").into()),
            None => Some(key),
        }
    }

    /// Evaluates `instance` or `work`, which both yield an identifier. Returns None if the
    /// identifier is missing, empty or too long.
    fn evaluate_identity(&mut self, current: CurrentRule<'_>, field: &str) -> Option<Text> {
        let text = self.evaluate_text(current, field)?;
        if text.len() > MAX_IDENTITY {
            let error = EvaluationError::IdentityLength(text.len());
            self.record_failure(current, field, error);
            return None;
        }
        (!text.is_empty()).then(|| text.into())
    }
}
