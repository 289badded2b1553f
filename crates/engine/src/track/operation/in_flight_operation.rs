//! Builds the `InFlightOperation` that clients read, from the state of an operation in the tracker.

use super::encode_json::{
    self, ConditionJson, JsonRecorder, MessageJson, MetadataJson, NodesJson, OwnerJson,
    RecordedLabels, SpecJson, StatusJson, SubjectJson, TimeJson,
};
use super::timing::{ConditionMessage, TimingCondition};
use super::{Detected, Operation, SubjectView};
use crate::rules::Labels;
use crate::track::end_reason::End;
use crate::track::object_facts::{EncodedOperation, ObjectFacts, TextField};
use ifo_api::labels;
use ifo_api::live::{Phase, State};
use jiff::Timestamp;
use std::sync::{Arc, LazyLock};
use uuid::Uuid;

impl Operation {
    /// Encodes the operation in flight.
    pub fn active(&self, view: &SubjectView) -> EncodedOperation {
        let says = &self.primary.says;
        let state = if self.detections.is_empty() {
            State::Settling
        } else {
            self.state
        };
        let operation = &self.what.operation;
        let reason = match &says.reason {
            Some(reason) => reason.clone(),
            None => match operation_reason(operation) {
                same if *same == **operation => operation.clone(),
                other => other.into(),
            },
        };
        let texts = (reason, says.message.clone());
        self.encode(view, state, texts, says.progress, None)
    }

    /// Encodes the operation as completed. `now` is the time of its end.
    pub fn completed(&self, view: &SubjectView, end: &End, now: Timestamp) -> EncodedOperation {
        let (state, last) = (end.state(), self.primary.says.progress);
        // An operation that succeeded has 100 %. Otherwise the last known progress stays.
        let progress = match state {
            State::Succeeded => last.map(|_| 100),
            _ => last,
        };
        let texts = (end.reason().into(), end.message().into());
        self.encode(view, state, texts, progress, Some(now))
    }

    /// Encodes the operation with this state, reason, message and progress. `completed` is the time
    /// of its end, and None for an operation in flight.
    pub(super) fn encode(
        &self,
        view: &SubjectView,
        state: State,
        (reason, message): (Arc<str>, Arc<str>),
        progress: Option<u8>,
        completed: Option<Timestamp>,
    ) -> EncodedOperation {
        let subject = &view.subject;
        let (what, rule_set) = (&self.what, &self.primary.rule_set);
        let phase = completed.map_or(Phase::Active, |_| Phase::Completed);
        let until = completed.map(|_| self.detected_until(completed));
        let labels = self.labels(view, state);
        let says = &self.primary.says;
        let (work, nodes) = (says.work.as_deref(), NodesJson(&says.nodes));
        let recorder = JsonRecorder::default();
        let text = |field, text| recorder.text::<&str>(field, text);
        let time = |field, time| recorder.text(field, TimeJson(time));
        let mut uid = Uuid::encode_buffer();
        let metadata = MetadataJson {
            creation_timestamp: time(TextField::Started, self.start),
            generation: 1,
            labels: RecordedLabels {
                recorder: &recorder,
                labels: &labels,
            },
            name: text(TextField::Name, &self.key.name),
            namespace: &self.key.namespace,
            owner_references: subject.uid.as_deref().map(|uid| {
                [OwnerJson {
                    api_version: &view.api_version,
                    block_owner_deletion: false,
                    controller: true,
                    kind: &view.kind,
                    name: &subject.name,
                    uid,
                }]
            }),
            uid: self.uid.hyphenated().encode_lower(&mut uid),
        };
        let namespace = subject.namespace.as_deref();
        let subject_uid = subject.uid.as_deref();
        let spec = SpecJson {
            operation: text(TextField::Operation, &what.operation),
            rule_set: text(TextField::RuleSet, &rule_set.name),
            component: text(TextField::Component, &rule_set.component),
            subject: SubjectJson {
                api_version: text(TextField::SubjectApiVersion, &view.api_version),
                kind: text(TextField::SubjectKind, &view.kind),
                name: text(TextField::SubjectName, &subject.name),
                namespace: namespace.map(|it| text(TextField::SubjectNamespace, it)),
                uid: subject_uid.map(|uid| text(TextField::SubjectUid, uid)),
                owner_references: &subject.owners,
            },
            item: what.item.as_deref().map(|it| text(TextField::Item, it)),
            work: work.map(|it| text(TextField::Work, it)),
        };
        let timing = &self.timing;
        let in_flight = completed.is_none();
        let duration = until.map(|until| self.shown_duration(until));
        let shown = Some(&*message).filter(|message| !message.is_empty());
        let status = StatusJson {
            phase: recorder.text(TextField::Phase, phase),
            state: recorder.text(TextField::State, state),
            reason: text(TextField::Reason, &reason),
            message: shown.map(|message| text(TextField::Message, message)),
            progress,
            nodes: (!nodes.0.is_empty()).then(|| recorder.text(TextField::Nodes, nodes)),
            state_since: TimeJson(completed.unwrap_or_else(|| timing.state_since())),
            last_progress: timing.last_progress().map(TimeJson),
            expected: timing.expected(),
            estimated_completion: timing
                .estimated_completion()
                .filter(|_| in_flight)
                .map(TimeJson),
            duration_seconds: duration,
            start_time_source: self.start_source,
            last_detected: TimeJson(self.last_detected),
            completed: until.map(|until| time(TextField::Completed, until)),
            instance: self.instance.as_deref(),
            detected_by: &self.detected_by,
            subject_generation: subject.generation,
            conditions: self.conditions(subject.generation, &reason, &message, completed),
            #[cfg(feature = "neighbour-release")]
            neighbour_field: "known",
        };
        encode_json::encode(&recorder, &metadata, &spec, &status);
        let recorded = recorder.finish();
        let facts = ObjectFacts {
            labels: recorded.labels(),
            texts: recorded.texts,
            started: Some(whole_second(self.start)),
            phase: Some(phase),
            state: Some(state),
            progress,
            completed: until.map(whole_second),
            overdue: TimingCondition::status(timing.overdue.as_ref(), in_flight),
            stalled: TimingCondition::status(timing.stalled.as_ref(), in_flight),
        };
        EncodedOperation {
            json: recorded.json,
            metadata: recorded.metadata,
            facts,
        }
    }

    /// Returns the time until which the operation was detected. If rules still detect the operation
    /// when it completes, this is its end.
    ///
    /// The returned time is never before the start. The start of a run can be delayed by one
    /// second, because of the previous run. The returned time is never after the end either.
    /// Another watch can report an end that is earlier than the last detection.
    pub fn detected_until(&self, completed: Option<Timestamp>) -> Timestamp {
        let until = match (self.detected, completed) {
            (Detected::False, Some(completed)) => self.detected_since.min(completed),
            (_, None) => self.detected_since,
            (_, Some(completed)) => completed,
        };
        until.max(self.start)
    }

    fn conditions<'a>(
        &'a self,
        generation: Option<i64>,
        reason: &'a str,
        message: &'a str,
        completed: Option<Timestamp>,
    ) -> Vec<ConditionJson<'a>> {
        let condition =
            |type_: &'a str, status: &'a str, since, reason: &'a str, message: MessageJson<'a>| {
                ConditionJson {
                    last_transition_time: TimeJson(since),
                    message,
                    observed_generation: generation,
                    reason,
                    status,
                    r#type: type_,
                }
            };
        let (detected, since, why) = match (self.detected, completed) {
            (Detected::True | Detected::Unknown, Some(end)) => ("False", end, reason),
            (Detected::False, Some(_)) => ("False", self.detected_since, reason),
            (Detected::True, None) => ("True", self.detected_since, "RuleMatched"),
            (Detected::False, None) => ("False", self.detected_since, "Settling"),
            (Detected::Unknown, None) => ("Unknown", self.detected_since, "WatchGap"),
        };
        let over = completed.is_some();
        let timing_conditions = [
            ("Overdue", &self.timing.overdue),
            ("Stalled", &self.timing.stalled),
        ];
        // A completed operation is neither overdue nor stalled.
        let timing_conditions = timing_conditions.into_iter().filter(|_| !over);
        let mut all = Vec::with_capacity(5);
        all.extend([
            condition(
                "Progressing",
                if over { "False" } else { "True" },
                completed.unwrap_or(self.start),
                reason,
                MessageJson::Text(message),
            ),
            condition("Detected", detected, since, why, MessageJson::Text("")),
            condition(
                "Completed",
                if over { "True" } else { "False" },
                completed.unwrap_or(self.start),
                if over { reason } else { "InFlight" },
                MessageJson::Text(if over { message } else { "" }),
            ),
        ]);
        all.extend(timing_conditions.filter_map(|(kind, own)| {
            let own = own.as_ref()?;
            let status = if own.is_raised { "True" } else { "False" };
            Some(condition(
                kind,
                status,
                own.since(),
                own.reason(),
                MessageJson::Timing(ConditionMessage(own)),
            ))
        }));
        all
    }

    /// Returns the labels of the rule set and the labels of the server. If both have a key, the
    /// value of the server is used.
    fn labels(&self, view: &SubjectView, state: State) -> Labels {
        let (subject, rule_set) = (&view.subject, &self.primary.rule_set);
        // The exact capacity saves memory, because the map would otherwise double its capacity.
        let own = &self.primary.says.labels;
        let of_server = labels::SERVER_SUFFIXES.len();
        let nodes = &self.primary.says.nodes;
        let mut absent = NODE_LABELS.len() - nodes.len().min(NODE_LABELS.len());
        if subject.owners.is_empty() {
            absent += OWNER_LABELS;
        }
        let mut all = Labels::with_capacity(own.len() + of_server - absent);
        all.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
        let mut set = |suffix: &str, value: Arc<str>| {
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
            set("owner-uid", labels::to_value(&owner.uid).into());
            set("owner-name", labels::to_value(&owner.name).into());
            set("owner-kind", labels::to_value(&owner.kind).into());
            set("owner-group", labels::to_value(group).into());
            set("owner-version", labels::to_value(version).into());
        }
        set("operation", label_value(&self.what.operation));
        set("component", label_value(&rule_set.component));
        set("ruleset", label_value(&rule_set.name));
        set("state", state.name().into());
        for (suffix, node) in NODE_LABELS.into_iter().zip(&**nodes) {
            set(suffix, label_value(node));
        }
        all
    }
}

/// Number of labels for the owner of the subject. They are absent if the subject has no owner.
const OWNER_LABELS: usize = 5;

/// Labels for the first two nodes that the operation touches.
const NODE_LABELS: [&str; 2] = ["node", "node-2"];

/// Rounds a time down to whole seconds, as in JSON.
fn whole_second(time: Timestamp) -> Timestamp {
    let before = i64::from(time.subsec_nanosecond() < 0);
    Timestamp::from_second(time.as_second() - before).unwrap_or(time)
}

/// Keys of the labels that the server sets. All operations share them.
static LABEL_KEYS: LazyLock<[Arc<str>; labels::SERVER_SUFFIXES.len()]> = LazyLock::new(|| {
    labels::SERVER_SUFFIXES.map(|suffix| [labels::PREFIX, suffix].concat().into())
});

fn label_key(suffix: &str) -> Arc<str> {
    let index = labels::SERVER_SUFFIXES
        .iter()
        .position(|own| *own == suffix);
    LABEL_KEYS[index.expect("SERVER_SUFFIXES contains all labels that the server sets")].clone()
}

/// Converts a text to the value of a label. A valid value is shared and not copied.
fn label_value(text: &Arc<str>) -> Arc<str> {
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
