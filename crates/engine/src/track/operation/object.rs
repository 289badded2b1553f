//! Builds the `InFlightOperation` that clients read, from the state of an operation in the tracker.
//! Also reads the values of the rule back from such an object, when the operation is restored.

use super::timing::TimingCondition;
use super::{Detected, Operation, SubjectView};
use crate::detect::RuleValues;
use crate::track::end_reason::End;
use ifo_api::Text;
use ifo_api::labels;
use ifo_api::live::{InFlightOperation, KIND, Phase, Spec, State, Status, SubjectReference};
use ifo_api::metadata::{
    Condition, Labels, Metadata, OwnerReference, UnknownFields, api_version, shared_text,
    whole_second,
};
use jiff::Timestamp;
use std::sync::Arc;

impl Operation {
    /// Returns the operation as in flight.
    pub fn active(&self, view: &SubjectView) -> InFlightOperation {
        let values = &self.primary.values;
        let operation = &self.what.operation;
        let reason = match &values.reason {
            Some(reason) => reason.clone(),
            None => match operation_reason(operation) {
                same if *same == **operation => operation.clone(),
                other => other.into(),
            },
        };
        let texts = (reason, values.message.clone());
        self.object(view, self.shown_state(), texts, values.progress, None)
    }

    /// Returns the operation as completed. `now` is the time of its end.
    pub fn completed(&self, view: &SubjectView, end: &End, now: Timestamp) -> InFlightOperation {
        let (state, last) = (end.state(), self.primary.values.progress);
        // If the progress of an operation that succeeded is known, it becomes 100 %. Any other
        // operation keeps its last known progress.
        let progress = match state {
            State::Succeeded => last.map(|_| 100),
            _ => last,
        };
        let message = end.message(&self.primary.values.message);
        let texts = (end.reason().into(), message.into());
        self.object(view, state, texts, progress, Some(now))
    }

    /// Returns the operation with this state, reason, message and progress. `completed` is the time
    /// of its end, and None for an operation in flight.
    pub(super) fn object(
        &self,
        view: &SubjectView,
        state: State,
        (reason, message): (Text, Text),
        progress: Option<u8>,
        completed: Option<Timestamp>,
    ) -> InFlightOperation {
        let timing = &self.timing;
        let until = completed.map(|at| self.detected_until(at));
        let estimate = timing.estimated_completion.filter(|_| completed.is_none());
        let generation = view.subject.generation;
        InFlightOperation {
            api_version: api_version(),
            kind: shared_text(KIND),
            metadata: Metadata {
                generation: Some(1),
                owner_references: owner_reference(view).into_iter().collect(),
                ..self.metadata(self.labels(view, state))
            },
            spec: self.spec(view),
            status: Status {
                phase: completed.map_or(Phase::Active, |_| Phase::Completed),
                state,
                conditions: self.conditions(&reason, &message, completed, generation),
                reason,
                message,
                progress,
                nodes: self.primary.values.nodes.clone(),
                cancel: self
                    .primary
                    .values
                    .cancel
                    .clone()
                    .filter(|_| completed.is_none()),
                state_since: completed.or(Some(timing.state_since)).map(whole_second),
                last_progress: timing.last_progress.map(whole_second),
                expected: timing.expected.clone(),
                estimated_completion: estimate.map(whole_second),
                duration_seconds: until.map(|until| self.shown_duration(until)),
                queued_at: self.queued.map(whole_second),
                start_time_source: self.start_source,
                last_detected: whole_second(self.last_detected),
                completed: until.map(whole_second),
                instance: self.instance.clone(),
                detected_by: self.detected_by.clone(),
                subject_generation: generation,
                unknown: UnknownFields::new(),
            },
        }
    }

    /// Returns the metadata of the operation and of its record.
    pub(super) fn metadata(&self, labels: Labels) -> Metadata {
        Metadata {
            creation_timestamp: whole_second(self.start),
            generation: None,
            labels,
            name: self.key.name.clone(),
            namespace: self.key.namespace.clone(),
            owner_references: Vec::new(),
            resource_version: None,
            uid: self.uid.to_string().into(),
            unknown: UnknownFields::new(),
        }
    }

    /// Returns the spec of the operation and of its record.
    pub(super) fn spec(&self, view: &SubjectView) -> Spec {
        let (what, rule_set, subject) = (&self.what, &self.primary.rule_set, &view.subject);
        Spec {
            operation: what.operation.clone(),
            rule_set: rule_set.name.clone(),
            component: rule_set.component.clone(),
            subject: SubjectReference {
                api_version: view.api_version.clone(),
                kind: view.kind.clone(),
                name: subject.name.clone(),
                namespace: subject.namespace.clone(),
                uid: subject.uid.clone(),
                owner_references: subject.owners.clone(),
                unknown: UnknownFields::new(),
            },
            item: what.item.clone(),
            work: self.primary.values.work.clone(),
            initiator: self.initiator.clone(),
            unknown: UnknownFields::new(),
        }
    }

    /// Returns the time until which rules detected the operation. `ended_at` is the end of the
    /// operation.
    ///
    /// If the condition `Detected` is `False`, the result is the time of the latest change of this
    /// condition. In all other cases, the result is the end.
    ///
    /// The result is limited in both directions:
    ///
    /// - It is not before the start. The start can be later than the detection, because the tracker
    ///   can delay the start of a run by one second after a previous run.
    /// - It is not after the end. Another watch can report an end that is earlier than the last
    ///   detection.
    pub fn detected_until(&self, ended_at: Timestamp) -> Timestamp {
        let until = match self.detected {
            Detected::False => self.detected_since.min(ended_at),
            Detected::True | Detected::Unknown => ended_at,
        };
        until.max(self.start)
    }

    /// Returns the conditions that clients see. `generation` is the generation of the subject.
    fn conditions(
        &self,
        reason: &Text,
        message: &Text,
        completed: Option<Timestamp>,
        generation: Option<i64>,
    ) -> Vec<Condition> {
        let (detected, since) = (self.detected, self.detected_since);
        let (detected, since, why) = match (detected, completed) {
            (Detected::True | Detected::Unknown, Some(end)) => ("False", end, reason.clone()),
            (Detected::False, Some(_)) => ("False", since, reason.clone()),
            (Detected::True, None) => ("True", since, shared_text("RuleMatched")),
            (Detected::False, None) => ("False", since, shared_text("Settling")),
            (Detected::Unknown, None) => ("Unknown", since, shared_text("WatchGap")),
        };
        let condition = |type_, status, since, reason: &Text, message: &Text| Condition {
            last_transition_time: whole_second(since),
            message: message.clone(),
            observed_generation: generation,
            reason: reason.clone(),
            status: shared_text(status),
            type_: shared_text(type_),
            unknown: UnknownFields::new(),
        };
        let no_message = Text::default();
        let turned = completed.unwrap_or(self.start);
        let (progressing, completion, completion_reason, completion_message) = match completed {
            Some(_) => ("False", "True", reason, message),
            None => ("True", "False", &shared_text("InFlight"), &no_message),
        };
        let mut all = vec![
            condition("Progressing", progressing, turned, reason, message),
            condition("Detected", detected, since, &why, &no_message),
            condition(
                "Completed",
                completion,
                turned,
                completion_reason,
                completion_message,
            ),
        ];
        // A completed operation is neither overdue nor stalled.
        if completed.is_none() {
            let judged = |type_, own: &Option<TimingCondition>| {
                let own = own.as_ref()?;
                let status = if own.is_raised { "True" } else { "False" };
                Some(condition(
                    type_,
                    status,
                    own.since,
                    &own.reason,
                    &own.message,
                ))
            };
            all.extend(judged("Overdue", &self.timing.overdue));
            all.extend(judged("Stalled", &self.timing.stalled));
        }
        all
    }

    /// Returns the labels of the rule set and the labels of the server. If both contain the same
    /// key, the label has the value of the server.
    fn labels(&self, view: &SubjectView, state: State) -> Labels {
        let (subject, rule_set) = (&view.subject, &self.primary.rule_set);
        let mut all = (*self.primary.values.labels).clone();
        let mut set = |suffix: &str, value: Text| {
            if !value.is_empty() {
                all.insert(label_key(suffix), value);
            }
        };
        set("subject-name", label_value(&subject.name));
        if let Some(namespace) = &subject.namespace {
            set("subject-namespace", label_value(namespace));
        }
        set("subject-kind", label_value(&view.kind));
        if let Some(uid) = &subject.uid {
            set("subject-uid", label_value(uid));
        }
        if let Some(owner) = subject.owners.first() {
            let api_version = owner.api_version.split_once('/');
            let (group, version) = api_version.unwrap_or(("", &owner.api_version));
            set("owner-uid", label_value(&owner.uid));
            set("owner-name", label_value(&owner.name));
            set("owner-kind", label_value(&owner.kind));
            set("owner-group", labels::to_value(group).into());
            set("owner-version", labels::to_value(version).into());
        }
        set("operation", label_value(&self.what.operation));
        set("component", label_value(&rule_set.component));
        set("ruleset", label_value(&rule_set.name));
        set("state", shared_text(state.name()));
        all
    }
}

/// Returns the values of the rule that an operation shows. The object contains no other values of the
/// rule.
pub(super) fn rule_values(object: &InFlightOperation) -> RuleValues {
    // The pattern names all fields of the status, so that the compiler asks for a decision when a
    // field is added. The fields without a name are restored elsewhere, or computed again.
    let Status {
        state,
        reason,
        message,
        progress,
        nodes,
        cancel,
        instance,
        queued_at,
        phase: _,
        state_since: _,
        last_progress: _,
        expected: _,
        estimated_completion: _,
        duration_seconds: _,
        start_time_source: _,
        last_detected: _,
        completed: _,
        detected_by: _,
        subject_generation: _,
        conditions: _,
        unknown: _,
    } = &object.status;
    let spec = &object.spec;
    let labels = authors_labels(object).map(|(key, value)| (key.clone(), value.clone()));
    let is_own_reason = **reason != *operation_reason(&spec.operation);
    RuleValues {
        rule_index: 0,
        only_continues: false,
        labels: Arc::new(labels.collect()),
        state: match state {
            State::Blocked | State::Held | State::Failing => Some(*state),
            _ => None,
        },
        reason: is_own_reason.then(|| reason.clone()),
        message: message.clone(),
        progress: *progress,
        started: None,
        queued: queued_at.map(|it| it.0),
        instance: instance.clone(),
        work: spec.work.clone(),
        initiator: spec.initiator.clone(),
        cancel: cancel.clone(),
        nodes: nodes.clone(),
        expected: None,
        stalled_after: None,
        size: None,
    }
}

/// Returns the labels that the rule set gave to the operation: all labels except the labels that
/// the server sets.
pub(super) fn authors_labels(object: &InFlightOperation) -> impl Iterator<Item = (&Text, &Text)> {
    object.metadata.labels.iter().filter(|(key, _)| {
        let own = key.strip_prefix(labels::PREFIX);
        own.is_none_or(|suffix| labels::AUTHOR_SUFFIXES.contains(&suffix))
    })
}

/// Returns the owner of the operation: its subject. Returns None if the UID of the subject is unknown.
fn owner_reference(view: &SubjectView) -> Option<OwnerReference> {
    let subject = &view.subject;
    Some(OwnerReference {
        api_version: view.api_version.clone(),
        block_owner_deletion: Some(false),
        controller: Some(true),
        kind: view.kind.clone(),
        name: subject.name.clone(),
        uid: subject.uid.clone()?,
        unknown: UnknownFields::new(),
    })
}

/// Returns the key of a label that the server sets.
pub(super) fn label_key(suffix: &str) -> Text {
    shared_text(&[labels::PREFIX, suffix].concat())
}

/// Converts a text to the value of a label. A valid value is shared and not copied.
pub(super) fn label_value(text: &Text) -> Text {
    if labels::is_value(text) {
        return text.clone();
    }
    labels::to_value(text).into()
}

/// Converts the name of an operation to a valid condition reason. A reason allows fewer characters
/// than a label value.
pub(super) fn operation_reason(operation: &str) -> String {
    let mut reason: String = operation
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    if !reason.starts_with(|c: char| c.is_ascii_alphabetic()) {
        reason.insert_str(0, "Operation");
    }
    reason
}
