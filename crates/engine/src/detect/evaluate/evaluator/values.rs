//! The values that a rule yields for an operation. All functions that need to know each of these
//! values are here: they evaluate, compare, measure and keep the values. They name all fields, so
//! that the compiler asks for a decision when a field is added.

use super::{CurrentRule, MAX_IDENTITY, ObjectEvaluator, count_characters};
use crate::rules::{self, EvaluationError, RuleDuration};
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
        let Self {
            rule_index: _,
            only_continues: _,
            labels,
            state: _,
            reason,
            message,
            progress,
            started: _,
            instance: _,
            work,
            nodes,
            expected: _,
            stalled_after: _,
            size: _,
        } = self;
        *labels == other.labels
            && *reason == other.reason
            && *message == other.message
            && *progress == other.progress
            && *nodes == other.nodes
            && *work == other.work
    }

    /// Returns the number of bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        let Self {
            rule_index: _,
            only_continues: _,
            labels,
            state: _,
            reason,
            message,
            progress: _,
            started: _,
            instance,
            work,
            nodes,
            expected: _,
            stalled_after: _,
            size: _,
        } = self;
        let texts = [
            Some(message),
            reason.as_ref(),
            instance.as_ref(),
            work.as_ref(),
        ];
        let texts = texts.into_iter().flatten().chain(nodes.iter());
        let labels = labels.iter().flat_map(|(key, value)| [key, value]);
        texts.chain(labels).map(|text| text.len()).sum()
    }

    /// Replaces the texts with the texts of an earlier detection. The other values stay, for
    /// example the state and the progress. The identity of the run also stays.
    pub fn keep_texts(&mut self, earlier: &Self) {
        let Self {
            rule_index: _,
            only_continues: _,
            labels,
            state: _,
            reason,
            message,
            progress: _,
            started: _,
            instance: _,
            work,
            nodes,
            expected: _,
            stalled_after: _,
            size: _,
        } = earlier;
        self.labels.clone_from(labels);
        self.reason.clone_from(reason);
        self.message.clone_from(message);
        self.work.clone_from(work);
        self.nodes.clone_from(nodes);
    }
}

impl ObjectEvaluator<'_, '_> {
    /// Evaluates the descriptive fields of a rule, such as `state` and `message`.
    pub(super) fn evaluate_values(
        &mut self,
        current: CurrentRule<'_>,
        (labels, nodes): (Arc<Labels>, Nodes),
    ) -> RuleValues {
        let state = self.evaluate_text(current, "state").and_then(|text| {
            let state = rules::parse_state(&text);
            if state.is_none() {
                self.record_failure(
                    current,
                    "state",
                    EvaluationError::State(count_characters(&text)),
                );
            }
            state
        });
        let reason = self
            .evaluate_text(current, "reason")
            .filter(|text| !text.is_empty())
            .and_then(|text| {
                let is_valid = rules::is_reason(&text);
                if !is_valid {
                    self.record_failure(
                        current,
                        "reason",
                        EvaluationError::Reason(count_characters(&text)),
                    );
                }
                is_valid.then(|| text.into())
            });
        RuleValues {
            rule_index: current.rule_index,
            only_continues: false,
            labels,
            state,
            reason,
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
            expected: self.evaluate_duration(
                current,
                "expectedDuration",
                current.rule.expected.as_ref(),
            ),
            stalled_after: self.evaluate_duration(
                current,
                "stalledAfter",
                current.rule.stalled_after.as_ref(),
            ),
            size: self
                .evaluate_field(current, "size", Program::amount)
                .filter(|size| *size > 0.0),
        }
    }

    /// Evaluates `expectedDuration` or `stalledAfter`. Returns None if the rule does not set the
    /// field, or if a computed duration is zero or has no value.
    fn evaluate_duration(
        &mut self,
        current: CurrentRule<'_>,
        field: &str,
        duration: Option<&RuleDuration>,
    ) -> Option<Duration> {
        match duration? {
            RuleDuration::Fixed(duration) => Some(*duration),
            RuleDuration::Computed(program) => self
                .evaluate_program(current, field, program, Program::duration)
                .filter(|duration| !duration.is_zero()),
        }
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
