//! Evaluates the fields of a rule that describe an operation, such as `state` and `message`.

use super::{CurrentRule, MAX_IDENTITY, ObjectEvaluator, count_characters};
use crate::detect::evaluate::values::{Nodes, RuleValues, ShownValues};
use crate::rules::{self, EvaluationError};
use ifo_api::Text;
use ifo_api::live::State;
use ifo_api::metadata::Labels;
use ifo_cel::Program;
use std::sync::Arc;
use std::time::Duration;

impl ObjectEvaluator<'_, '_> {
    /// Evaluates the descriptive fields of a rule, such as `state` and `message`.
    pub(super) fn evaluate_values(
        &mut self,
        current: CurrentRule<'_>,
        (labels, nodes): (Arc<Labels>, Nodes),
    ) -> RuleValues {
        let rule = current.rule;
        // The evaluation begins with the fields that clients see at once, because the budget may
        // not suffice for all fields.
        let state = self.evaluate_state(current);
        let shown = ShownValues {
            labels,
            reason: self.evaluate_reason(current),
            message: self
                .evaluate_message(current, "message")
                .unwrap_or_default(),
            progress: self
                .evaluate_field(current, "progress", Program::progress)
                .flatten(),
            work: self.evaluate_work(current),
            cancel: self.evaluate_cancel(current),
            nodes,
        };
        RuleValues {
            only_continues: false,
            state,
            started: self
                .evaluate_field(current, "startedAt", Program::time)
                .flatten(),
            queued: self
                .evaluate_field(current, "queuedAt", Program::time)
                .flatten(),
            instance: self.evaluate_identity(current, "instance"),
            initiator: self.evaluate_identity(current, "initiator"),
            expected: self.evaluate_duration(current, "expectedDuration", rule.expected),
            stalled_after: self.evaluate_duration(current, "stalledAfter", rule.stalled_after),
            size: self
                .evaluate_field(current, "size", Program::amount)
                .filter(|size| *size > 0.0),
            shown,
        }
    }

    fn evaluate_state(&mut self, current: CurrentRule<'_>) -> State {
        let Some(text) = self.evaluate_text(current, "state") else {
            return State::Progressing;
        };
        rules::parse_state(&text).unwrap_or_else(|| {
            let error = EvaluationError::State(count_characters(&text));
            self.record_failure(current, "state", error);
            State::Progressing
        })
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

    /// Returns the duration of `expectedDuration` or `stalledAfter`: the fixed duration, or the
    /// result of the expression. Returns None if the rule does not set the field, or if a computed
    /// duration is zero or has no value.
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

    /// Evaluates `work`. If the rule set names its namespaces, the result has the form
    /// `@NAMESPACE/KEY`. The reason: the author of such a rule set may have no rights in other
    /// namespaces. Without the namespace, the author could add operations to a piece of work in any
    /// namespace.
    fn evaluate_work(&mut self, current: CurrentRule<'_>) -> Option<Text> {
        let key = self.evaluate_identity(current, "work")?;
        let namespace = self.evaluation.subject.reference.namespace.as_deref();
        match namespace.filter(|_| current.rule_set.namespaces.is_some()) {
            Some(namespace) => Some(format!("@{namespace}/{key}").into()),
            None => Some(key),
        }
    }

    /// Evaluates `instance`, `work` or `initiator`, which yield an identifier. Returns None if the
    /// identifier is missing, empty or too long.
    fn evaluate_identity(&mut self, current: CurrentRule<'_>, field: &str) -> Option<Text> {
        let text = self.evaluate_text(current, field)?;
        if text.len() > MAX_IDENTITY {
            let error = EvaluationError::TextLength {
                limit: MAX_IDENTITY,
                length: text.len(),
                unit: "bytes",
            };
            self.record_failure(current, field, error);
            return None;
        }
        (!text.is_empty()).then(|| text.into())
    }
}
