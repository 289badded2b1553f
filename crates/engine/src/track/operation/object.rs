//! Changes the `InFlightOperation` that clients read. When an operation is restored, also reads the
//! values of its rule from its `InFlightOperation`.

use super::timing::{JudgedCondition, Judgement};
use super::{ChangeContext, Operation, OperationStart, TimingInput};
use crate::detect::{RuleValues, ShownValues, Subject};
use crate::track::end_reason::End;
use crate::track::superseded_operations::OperationName;
use ifo_api::live::{
    ExpectedSource, InFlightOperation, KIND, Phase, Spec, State, Status, SubjectReference,
};
use ifo_api::metadata::{
    Condition, Labels, Metadata, Time, api_version, shared_text, whole_second,
};
use ifo_api::{Key, Text, labels};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Returns the object of a new operation, with the fields that never change.
pub(super) fn started(
    what: &OperationName,
    key: Key,
    uid: Uuid,
    (rule_set, values): (&Text, &RuleValues),
    start: OperationStart,
) -> InFlightOperation {
    // The patterns here and in `show` name all fields, so that the compiler reports an error when a
    // field is added. A value that clients see only once is written here, others in `show`.
    let RuleValues {
        initiator,
        queued,
        only_continues: _,
        state: _,
        started: _,
        instance: _,
        expected: _,
        stalled_after: _,
        size: _,
        shown: _,
    } = values;
    let queued = queued.filter(|it| *it <= start.at);
    InFlightOperation {
        api_version: api_version(),
        kind: shared_text(KIND),
        metadata: Metadata {
            creation_timestamp: whole_second(start.at),
            generation: Some(1),
            name: key.name,
            namespace: key.namespace,
            uid: uid.to_string().into(),
            ..Metadata::default()
        },
        spec: Spec {
            operation: what.operation.clone(),
            rule_set: rule_set.clone(),
            component: what.component.clone(),
            item: what.item.clone(),
            initiator: initiator.clone(),
            ..Spec::default()
        },
        status: Status {
            state_since: Some(whole_second(start.at)),
            queued_at: queued.map(whole_second),
            start_time_source: start.source,
            ..Status::default()
        },
    }
}

impl Operation {
    /// Updates the times of the operation. If clients must see a change, also updates the object,
    /// and returns true. `is_changed` is true if the values of the rule have changed.
    pub(super) fn update(&mut self, change: ChangeContext<'_>, is_changed: bool) -> bool {
        let input = self.timing_input(change);
        let judgement = self.timing.update(input);
        let status = &self.object.status;
        let detected_by = self.detections.keys();
        let instance = &self.values.instance;
        let is_changed = is_changed
            || status.state != self.shown_state()
            || status.status_of("Detected") != self.detected(change.gap).0
            || !self.detections.is_empty() && !detected_by.eq(&status.detected_by)
            || status.instance.is_none() && instance.is_some()
            || judgement.changes(status)
            || input.has_new_expectation(status);
        if is_changed {
            self.show(change, input, judgement);
        }
        is_changed
    }

    /// Updates the times and the object, whether or not something has changed.
    pub fn update_object(&mut self, change: ChangeContext<'_>) {
        self.update(change, true);
    }

    /// Writes the current values to the object.
    fn show(&mut self, change: ChangeContext<'_>, input: TimingInput, judgement: Judgement) {
        let at = whole_second(change.at);
        let (state, estimate) = (input.state, self.timing.estimate(input));
        let detected = self.detected(change.gap);
        self.show_subject(change.subject, state);
        let values = &self.values;
        // `show_subject` writes the labels, and `shown_reason` reads the reason.
        let ShownValues {
            labels: _,
            reason: _,
            message,
            progress,
            work,
            cancel,
            nodes,
        } = &values.shown;
        let InFlightOperation {
            metadata,
            spec,
            status,
            ..
        } = Arc::make_mut(&mut self.object);
        spec.work.clone_from(work);
        if detected.0 == "True" || detected.0 == "False" && status.status_of("Detected") != "False"
        {
            status.last_detected = at;
        }
        if status.state != state {
            (status.state, status.state_since) = (state, Some(at));
        }
        if judgement.has_risen {
            status.last_progress = Some(at);
        }
        if !self.detections.is_empty() {
            status.detected_by = self.detections.keys().cloned().collect();
        }
        status.phase = Phase::Active;
        status.reason = shown_reason(&values.shown, &spec.operation);
        status.message = message.clone();
        status.progress = *progress;
        status.nodes = nodes.clone();
        status.cancel.clone_from(cancel);
        status.instance = status.instance.take().or_else(|| values.instance.clone());
        status.expected = input.shown_expectation();
        status.estimated_completion = estimate.map(whole_second);
        let (reason, message) = (status.reason.clone(), status.message.clone());
        let none = Text::default();
        let start = metadata.creation_timestamp;
        let judged = |type_, own: Option<JudgedCondition>| {
            let own = own?;
            let (reason, message) = own.reason_and_message();
            let status = if own.is_raised { "True" } else { "False" };
            Some((type_, status, at, shared_text(reason), message.into()))
        };
        let conditions = [
            Some(("Progressing", "True", start, reason, message)),
            Some((
                "Detected",
                detected.0,
                at,
                shared_text(detected.1),
                none.clone(),
            )),
            Some(("Completed", "False", start, shared_text("InFlight"), none)),
            judged("Overdue", judgement.overdue),
            judged("Stalled", judgement.stalled),
        ];
        set_conditions(status, conditions.into_iter().flatten());
    }

    /// Completes the operation. `now` is the time of its end.
    pub fn complete(&mut self, subject: &Subject, end: &End, now: Timestamp) {
        let until = self.detected_until(now);
        let state = end.state();
        self.show_subject(subject, state);
        let InFlightOperation {
            metadata, status, ..
        } = Arc::make_mut(&mut self.object);
        let seconds = until.as_second() - metadata.creation_timestamp.0.as_second();
        let now = whole_second(now);
        let reason = Text::from(end.reason());
        let message = Text::from(end.message(&status.message));
        status.phase = Phase::Completed;
        (status.state, status.state_since) = (state, Some(now));
        status.reason = reason.clone();
        status.message = message.clone();
        // If an operation succeeded and its progress is known, the progress becomes 100 %. Any
        // other operation keeps its last known progress.
        if state == State::Succeeded {
            status.progress = status.progress.map(|_| 100);
        }
        status.cancel = None;
        status.estimated_completion = None;
        status.duration_seconds = Some(u64::try_from(seconds).unwrap_or_default());
        status.completed = Some(whole_second(until));
        // A completed operation is neither overdue nor stalled.
        let conditions = [
            ("Progressing", "False", now, reason.clone(), message.clone()),
            ("Detected", "False", now, reason.clone(), Text::default()),
            ("Completed", "True", now, reason, message),
        ];
        set_conditions(status, conditions.into_iter());
    }

    /// Writes the subject to the object: as `spec.subject`, as its owner reference, and in its
    /// labels.
    pub(super) fn show_subject(&mut self, subject: &Subject, state: State) {
        let labels = self.labels(&subject.reference, state);
        let InFlightOperation {
            metadata,
            spec,
            status,
            ..
        } = Arc::make_mut(&mut self.object);
        metadata.labels = labels;
        spec.subject = subject.reference.clone();
        metadata.owner_references = spec.subject.as_owner().into_iter().collect();
        status.subject_generation = subject.generation;
        status.unknown.clear();
    }

    /// Returns status and reason of the condition `Detected`.
    fn detected(&self, gap: bool) -> (&'static str, &'static str) {
        match (gap, self.detections.is_empty()) {
            (true, _) => ("Unknown", "WatchGap"),
            (false, true) => ("False", "Settling"),
            (false, false) => ("True", "RuleMatched"),
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
    ///   delays the start of a run that follows another run too closely.
    /// - It is not after the end. Another watch can report an end that is earlier than the last
    ///   detection.
    pub fn detected_until(&self, ended_at: Timestamp) -> Timestamp {
        let status = &self.object.status;
        if let Some(completed) = status.completed {
            return completed.0;
        }
        let detected = status.condition("Detected");
        let settled = detected.filter(|it| it.status == "False");
        let until = settled.map_or(ended_at, |it| it.last_transition_time.0.min(ended_at));
        until.max(self.started())
    }

    /// Returns the labels of the rule set and the labels of the server. If both contain the same
    /// key, the label has the value of the server.
    fn labels(&self, subject: &SubjectReference, state: State) -> Labels {
        let mut all = (*self.values.shown.labels).clone();
        let mut set = |suffix: &str, value: Text| {
            if !value.is_empty() {
                all.insert(label_key(suffix), value);
            }
        };
        set("subject-name", label_value(&subject.name));
        if let Some(namespace) = &subject.namespace {
            set("subject-namespace", label_value(namespace));
        }
        set("subject-kind", label_value(&subject.kind));
        if let Some(uid) = &subject.uid {
            set("subject-uid", label_value(uid));
        }
        if let Some(owner) = subject.owner_references.first() {
            let api_version = owner.api_version.split_once('/');
            let (group, version) = api_version.unwrap_or(("", &owner.api_version));
            set("owner-uid", labels::to_value(&owner.uid).into());
            set("owner-name", labels::to_value(&owner.name).into());
            set("owner-kind", labels::to_value(&owner.kind).into());
            set("owner-group", labels::to_value(group).into());
            set("owner-version", labels::to_value(version).into());
        }
        set("operation", label_value(&self.what.operation));
        set("component", label_value(&self.what.component));
        set("ruleset", label_value(self.rule_set()));
        set("state", shared_text(state.name()));
        all
    }
}

/// Replaces the conditions. `new` contains the type, the status, the time, the reason and the
/// message of each condition. The time is used only if the status of the condition is new.
fn set_conditions(
    status: &mut Status,
    new: impl Iterator<Item = (&'static str, &'static str, Time, Text, Text)>,
) {
    let new = new.map(|(type_, is, since, reason, message)| {
        let before = status.condition(type_).filter(|it| it.status == is);
        Condition {
            last_transition_time: before.map_or(since, |it| it.last_transition_time),
            message,
            observed_generation: status.subject_generation,
            reason,
            status: shared_text(is),
            type_: shared_text(type_),
            ..Condition::default()
        }
    });
    status.conditions = new.collect();
}

/// Returns the reason of an operation in flight.
fn shown_reason(values: &ShownValues, operation: &Text) -> Text {
    match &values.reason {
        Some(reason) => reason.clone(),
        None => match operation_reason(operation) {
            same if *same == **operation => operation.clone(),
            other => other.into(),
        },
    }
}

/// Returns the values of the rule that `object` contains. All other values are missing.
pub(super) fn rule_values(object: &InFlightOperation) -> RuleValues {
    let (spec, status) = (&object.spec, &object.status);
    let labels = authors_labels(object).map(|(key, value)| (key.clone(), value.clone()));
    let is_own_reason = *status.reason != *operation_reason(&spec.operation);
    let limit = status.expected.as_ref();
    let limit = limit.filter(|it| it.source == ExpectedSource::Rule);
    RuleValues {
        state: match status.state {
            State::Blocked | State::Held | State::Failing => status.state,
            _ => State::Progressing,
        },
        instance: status.instance.clone(),
        initiator: spec.initiator.clone(),
        shown: ShownValues {
            labels: Arc::new(labels.collect()),
            reason: is_own_reason.then(|| status.reason.clone()),
            message: status.message.clone(),
            progress: status.progress,
            work: spec.work.clone(),
            cancel: status.cancel.clone(),
            nodes: status.nodes.clone(),
        },
        expected: limit.map(|it| Duration::from_secs(it.typical_seconds)),
        // The object does not contain these values.
        only_continues: false,
        started: None,
        queued: None,
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
