//! Builds the `InFlightOperation` that clients read, from the state of an operation in the tracker.

use super::short_key_json_writer::{
    JsonValue, ShortJsonWriter, TextList, TimeJson, append_with_serde,
};
use super::timing::{ConditionMessage, TimingCondition};
use super::{Detected, Operation, SubjectView};
use crate::rules::Labels;
use crate::track::decode_object_facts::{EncodedOperation, ObjectFacts};
use crate::track::end_reason::End;
use crate::track::short_key_json::key;
use crate::track::text_positions::TextField;
use ifo_api::live::{self, Phase, State};
use ifo_api::{LIVE_GROUP, VERSION, labels};
use jiff::Timestamp;
use std::sync::{Arc, LazyLock};
use uuid::Uuid;

/// The `apiVersion` of operations.
static API_VERSION: LazyLock<String> = LazyLock::new(|| format!("{LIVE_GROUP}/{VERSION}"));

impl Operation {
    /// Encodes the operation as in flight.
    pub fn active(&self, view: &SubjectView) -> EncodedOperation {
        let values = &self.primary.values;
        let state = if self.detections.is_empty() {
            State::Settling
        } else {
            self.state
        };
        let operation = &self.what.operation;
        let reason = match &values.reason {
            Some(reason) => reason.clone(),
            None => match operation_reason(operation) {
                same if *same == **operation => operation.clone(),
                other => other.into(),
            },
        };
        let texts = (reason, values.message.clone());
        self.encode(view, state, texts, values.progress, None)
    }

    /// Encodes the operation as completed. `now` is the time of its end.
    pub fn completed(&self, view: &SubjectView, end: &End, now: Timestamp) -> EncodedOperation {
        let (state, last) = (end.state(), self.primary.values.progress);
        // If the progress of an operation that succeeded is known, it becomes 100 %. Any other
        // operation keeps its last known progress.
        let progress = match state {
            State::Succeeded => last.map(|_| 100),
            _ => last,
        };
        let message = end.message(&self.primary.values.message);
        let texts = (end.reason().into(), message.into());
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
        let phase = completed.map_or(Phase::Active, |_| Phase::Completed);
        let until = completed.map(|at| self.detected_until(at));
        let labels = self.labels(view, state);
        let values = &self.primary.values;
        let timing = &self.timing;
        let in_flight = completed.is_none();
        let mut uid = Uuid::encode_buffer();
        let mut writer = ShortJsonWriter::new();
        writer.object(|json| {
            json.member(key!("apiVersion"), &*API_VERSION);
            json.member(key!("kind"), live::KIND);
            json.metadata(|json| {
                json.text(
                    TextField::Started,
                    key!("creationTimestamp"),
                    TimeJson(self.start),
                );
                json.member(key!("generation"), 1);
                json.labels(&labels);
                json.text(TextField::Name, key!("name"), &*self.key.name);
                json.member(key!("namespace"), &*self.key.namespace);
                if let Some(uid) = subject.uid.as_deref() {
                    json.list(key!("ownerReferences"), [uid], |json, uid| {
                        json.member(key!("apiVersion"), &*view.api_version);
                        json.member(key!("blockOwnerDeletion"), false);
                        json.member(key!("controller"), true);
                        json.member(key!("kind"), &*view.kind);
                        json.member(key!("name"), &*subject.name);
                        json.member(key!("uid"), uid);
                    });
                }
                json.member(key!("uid"), &*self.uid.hyphenated().encode_lower(&mut uid));
            });
            json.member_object(key!("spec"), |json| self.encode_spec(view, json));
            json.member_object(key!("status"), |json| {
                json.text(TextField::Phase, key!("phase"), phase);
                json.text(TextField::State, key!("state"), state);
                json.text(TextField::Reason, key!("reason"), &*reason);
                let shown = Some(&*message).filter(|message| !message.is_empty());
                json.text_if(TextField::Message, key!("message"), shown);
                json.member_if(key!("progress"), progress);
                let nodes = Some(TextList(&values.nodes)).filter(|nodes| !nodes.0.is_empty());
                json.text_if(TextField::Nodes, key!("nodes"), nodes);
                let state_since = completed.unwrap_or_else(|| timing.state_since());
                json.member(key!("stateSince"), TimeJson(state_since));
                let last_progress = timing.last_progress().map(TimeJson);
                json.member_if(key!("lastProgress"), last_progress);
                if let Some(expected) = timing.expected() {
                    json.member_object(key!("expected"), |json| {
                        json.member(key!("typicalSeconds"), expected.typical_seconds);
                        json.member_if(key!("p95Seconds"), expected.p95_seconds);
                        json.member_if(key!("runs"), expected.runs);
                        json.member(key!("source"), expected.source);
                    });
                }
                let estimate = timing.estimated_completion().filter(|_| in_flight);
                json.member_if(key!("estimatedCompletion"), estimate.map(TimeJson));
                let duration = until.map(|until| self.shown_duration(until));
                json.member_if(key!("durationSeconds"), duration);
                json.member(key!("startTimeSource"), self.start_source);
                json.member(key!("lastDetected"), TimeJson(self.last_detected));
                json.text_if(TextField::Completed, key!("completed"), until.map(TimeJson));
                json.member_if(key!("instance"), self.instance.as_deref());
                if !self.detected_by.is_empty() {
                    json.member(key!("detectedBy"), TextList(&self.detected_by));
                }
                json.member_if(key!("subjectGeneration"), subject.generation);
                let conditions = self.conditions(&reason, &message, completed);
                json.list(key!("conditions"), conditions, |json, condition| {
                    condition.encode(subject.generation, json);
                });
            });
        });
        writer.finish(ObjectFacts {
            started: Some(whole_second(self.start)),
            phase: Some(phase),
            state: Some(state),
            progress,
            completed: until.map(whole_second),
            overdue: TimingCondition::status(timing.overdue.as_ref(), in_flight),
            stalled: TimingCondition::status(timing.stalled.as_ref(), in_flight),
        })
    }

    /// Writes the members of `spec`.
    fn encode_spec(&self, view: &SubjectView, json: &mut ShortJsonWriter) {
        let (what, rule_set) = (&self.what, &self.primary.rule_set);
        json.text(TextField::Operation, key!("operation"), &*what.operation);
        json.text(TextField::RuleSet, key!("ruleSet"), &*rule_set.name);
        let component = &*rule_set.component;
        json.text(TextField::Component, key!("component"), component);
        json.member_object(key!("subject"), |json| encode_subject(view, json));
        json.text_if(TextField::Item, key!("item"), what.item.as_deref());
        let work = self.primary.values.work.as_deref();
        json.text_if(TextField::Work, key!("work"), work);
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

    /// Returns the conditions that clients see.
    fn conditions<'a>(
        &'a self,
        reason: &'a str,
        message: &'a str,
        completed: Option<Timestamp>,
    ) -> impl Iterator<Item = ShownCondition<'a>> {
        let (detected, since, why) = match (self.detected, completed) {
            (Detected::True | Detected::Unknown, Some(end)) => ("False", end, reason),
            (Detected::False, Some(_)) => ("False", self.detected_since, reason),
            (Detected::True, None) => ("True", self.detected_since, "RuleMatched"),
            (Detected::False, None) => ("False", self.detected_since, "Settling"),
            (Detected::Unknown, None) => ("Unknown", self.detected_since, "WatchGap"),
        };
        let is_completed = completed.is_some();
        let conditions = [
            ShownCondition {
                kind: "Progressing",
                status: if is_completed { "False" } else { "True" },
                since: completed.unwrap_or(self.start),
                reason,
                message: ShownMessage::Text(message),
            },
            ShownCondition {
                kind: "Detected",
                status: detected,
                since,
                reason: why,
                message: ShownMessage::Text(""),
            },
            ShownCondition {
                kind: "Completed",
                status: if is_completed { "True" } else { "False" },
                since: completed.unwrap_or(self.start),
                reason: if is_completed { reason } else { "InFlight" },
                message: ShownMessage::Text(if is_completed { message } else { "" }),
            },
        ];
        // A completed operation is neither overdue nor stalled.
        let timing_conditions = [
            ("Overdue", &self.timing.overdue),
            ("Stalled", &self.timing.stalled),
        ];
        let timing_conditions = timing_conditions.into_iter().filter(move |_| !is_completed);
        conditions
            .into_iter()
            .chain(timing_conditions.filter_map(|(kind, condition)| {
                let condition = condition.as_ref()?;
                Some(ShownCondition {
                    kind,
                    status: if condition.is_raised { "True" } else { "False" },
                    since: condition.since(),
                    reason: condition.reason(),
                    message: ShownMessage::Timing(ConditionMessage(condition)),
                })
            }))
    }

    /// Returns the labels of the rule set and the labels of the server. If both contain the same
    /// key, the label has the value of the server.
    fn labels(&self, view: &SubjectView, state: State) -> Labels {
        let (subject, rule_set) = (&view.subject, &self.primary.rule_set);
        // The exact capacity saves memory: a map that grows doubles its capacity.
        let own = &self.primary.values.labels;
        let of_server = labels::SERVER_SUFFIXES.len();
        let absent = if subject.owners.is_empty() {
            OWNER_LABELS
        } else {
            0
        };
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
        all
    }
}

/// An element of `status.conditions`.
struct ShownCondition<'a> {
    kind: &'a str,
    status: &'a str,
    since: Timestamp,
    reason: &'a str,
    message: ShownMessage<'a>,
}

/// The message of a condition.
enum ShownMessage<'a> {
    Text(&'a str),
    Timing(ConditionMessage<'a>),
}

impl JsonValue for ShownMessage<'_> {
    fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => text.append_to(out),
            Self::Timing(message) => append_with_serde(message, out),
        }
    }
}

impl ShownCondition<'_> {
    /// Writes the members of the condition. `generation` is the generation of the subject.
    fn encode(self, generation: Option<i64>, json: &mut ShortJsonWriter) {
        json.member(key!("lastTransitionTime"), TimeJson(self.since));
        json.member(key!("message"), self.message);
        json.member_if(key!("observedGeneration"), generation);
        json.member(key!("reason"), self.reason);
        json.member(key!("status"), self.status);
        json.member(key!("type"), self.kind);
    }
}

/// Writes the members of `spec.subject`.
fn encode_subject(view: &SubjectView, json: &mut ShortJsonWriter) {
    let subject = &view.subject;
    json.text(
        TextField::SubjectApiVersion,
        key!("apiVersion"),
        &*view.api_version,
    );
    json.text(TextField::SubjectKind, key!("kind"), &*view.kind);
    json.text(TextField::SubjectName, key!("name"), &*subject.name);
    json.text_if(
        TextField::SubjectNamespace,
        key!("namespace"),
        subject.namespace.as_deref(),
    );
    json.text_if(TextField::SubjectUid, key!("uid"), subject.uid.as_deref());
    if !subject.owners.is_empty() {
        json.list(key!("ownerReferences"), &subject.owners, |json, owner| {
            json.member(key!("apiVersion"), &owner.api_version);
            json.member_if(key!("blockOwnerDeletion"), owner.block_owner_deletion);
            json.member_if(key!("controller"), owner.controller);
            json.member(key!("kind"), &owner.kind);
            json.member(key!("name"), &owner.name);
            json.member(key!("uid"), &owner.uid);
        });
    }
}

/// Number of labels that describe the owner of the subject. They are absent if it has no owner.
const OWNER_LABELS: usize = 5;

/// Rounds a time down to whole seconds, as in the JSON of the operation.
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
