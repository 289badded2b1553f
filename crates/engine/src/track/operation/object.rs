//! An operation as the object that it is shown as.

use super::{Detected, Operation, SubjectView};
use crate::track::end::End;
use ifo_api::live::{self, InFlightOperation, Phase, Spec, State, Status};
use ifo_api::{LIVE_GROUP, VERSION, labels};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use std::collections::BTreeMap;

impl Operation {
    /// The object while it is in flight, as JSON.
    pub fn active(&self, view: &SubjectView) -> Vec<u8> {
        let says = &self.speaker.says;
        let state = if self.detections.is_empty() {
            State::Settling
        } else {
            self.state
        };
        let reason = match &says.reason {
            Some(reason) => reason.to_string(),
            None => operation_reason(&self.what.operation),
        };
        let texts = (&*reason, &*says.message);
        self.encode(view, state, texts, says.progress, None)
    }

    /// The object at its end, as JSON.
    pub fn completed(&self, view: &SubjectView, end: &End, now: Timestamp) -> Vec<u8> {
        let (state, last) = (end.state(), self.speaker.says.progress);
        // An operation that succeeded is done. Any other end keeps the last known progress.
        let progress = match state {
            State::Succeeded => last.map(|_| 100),
            _ => last,
        };
        let texts = (end.reason(), &*end.message());
        self.encode(view, state, texts, progress, Some(now))
    }

    /// The object as JSON, with its reason and its message. `completed`: when it ended.
    pub(super) fn encode(
        &self,
        view: &SubjectView,
        state: State,
        (reason, message): (&str, &str),
        progress: Option<u8>,
        completed: Option<Timestamp>,
    ) -> Vec<u8> {
        let subject = &view.subject;
        let object = InFlightOperation {
            api_version: format!("{LIVE_GROUP}/{VERSION}"),
            kind: live::KIND.to_owned(),
            metadata: ObjectMeta {
                name: Some(self.key.name.to_string()),
                namespace: Some(self.key.namespace.to_string()),
                uid: Some(self.uid.to_string()),
                creation_timestamp: Some(Time(self.start)),
                generation: Some(1),
                labels: Some(self.labels(view)),
                owner_references: subject.uid.as_ref().map(|uid| {
                    vec![OwnerReference {
                        api_version: view.api_version.to_string(),
                        kind: view.kind.to_string(),
                        name: subject.name.to_string(),
                        uid: uid.to_string(),
                        controller: Some(true),
                        block_owner_deletion: Some(false),
                    }]
                }),
                ..ObjectMeta::default()
            },
            spec: Spec {
                operation: self.what.operation.to_string(),
                rule_set: self.speaker.rule_set.name.to_string(),
                component: self.speaker.rule_set.component.to_string(),
                subject: live::Subject {
                    api_version: view.api_version.to_string(),
                    kind: view.kind.to_string(),
                    name: subject.name.to_string(),
                    namespace: subject.namespace.as_deref().map(str::to_owned),
                    uid: subject.uid.as_deref().map(str::to_owned),
                    owner_references: subject.owners.clone(),
                },
                item: self.what.item.as_deref().map(str::to_owned),
            },
            status: Status {
                phase: completed.map_or(Phase::Active, |_| Phase::Completed),
                state,
                reason: reason.to_owned(),
                message: message.to_owned(),
                progress,
                start_time_source: self.start_source,
                last_detected: Time(self.last_detected),
                completed: completed.map(|_| Time(self.detected_until(completed))),
                instance: self.instance.as_deref().map(str::to_owned),
                detected_by: self.detected_by.iter().map(ToString::to_string).collect(),
                subject_generation: subject.generation,
                conditions: self.conditions(subject.generation, reason, message, completed),
                #[cfg(feature = "neighbour-release")]
                neighbour_field: Some("known".to_owned()),
            },
        };
        serde_json::to_vec(&object).expect("maps with string keys always encode")
    }

    /// When it stopped being detected: the start of the settling, else the end itself. Not
    /// before its start, which is a second late if the one before started in the same; and
    /// not after its end, which another run of it tells of that was seen by somebody else.
    pub fn detected_until(&self, completed: Option<Timestamp>) -> Timestamp {
        let until = match (self.detected, completed) {
            (Detected::False, Some(completed)) => self.detected_since.min(completed),
            (_, None) => self.detected_since,
            (_, Some(completed)) => completed,
        };
        until.max(self.start)
    }

    fn conditions(
        &self,
        generation: Option<i64>,
        reason: &str,
        message: &str,
        completed: Option<Timestamp>,
    ) -> Vec<Condition> {
        let condition =
            |type_: &str, status: &str, since: Timestamp, reason: &str, message: &str| Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                last_transition_time: Time(since),
                reason: reason.to_owned(),
                message: message.to_owned(),
                observed_generation: generation,
            };
        let (detected, since, why) = match (self.detected, completed) {
            (Detected::True | Detected::Unknown, Some(end)) => ("False", end, reason),
            (Detected::False, Some(_)) => ("False", self.detected_since, reason),
            (Detected::True, None) => ("True", self.detected_since, "RuleMatched"),
            (Detected::False, None) => ("False", self.detected_since, "Settling"),
            (Detected::Unknown, None) => ("Unknown", self.detected_since, "WatchGap"),
        };
        let over = completed.is_some();
        vec![
            condition(
                "Progressing",
                if over { "False" } else { "True" },
                completed.unwrap_or(self.start),
                reason,
                message,
            ),
            condition("Detected", detected, since, why, ""),
            condition(
                "Completed",
                if over { "True" } else { "False" },
                completed.unwrap_or(self.start),
                if over { reason } else { "InFlight" },
                if over { message } else { "" },
            ),
        ]
    }

    /// Computed labels, under the fixed ones, under those that the server sets.
    fn labels(&self, view: &SubjectView) -> BTreeMap<String, String> {
        let subject = &view.subject;
        let authors = self.speaker.says.labels.iter();
        let mut all: BTreeMap<String, String> = authors
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        let mut set = |suffix: &str, value: &str| {
            debug_assert!(labels::SERVER_SUFFIXES.contains(&suffix), "{suffix}");
            if !value.is_empty() {
                all.insert(
                    format!("{}{suffix}", labels::PREFIX),
                    labels::to_value(value),
                );
            }
        };
        set("subject-name", &subject.name);
        let namespace = subject.namespace.as_deref();
        set("subject-namespace", namespace.unwrap_or_default());
        set("subject-kind", &view.kind);
        set("subject-uid", subject.uid.as_deref().unwrap_or_default());
        if let Some(owner) = subject.owners.first() {
            let api_version = owner.api_version.split_once('/');
            let (group, version) = api_version.unwrap_or(("", &owner.api_version));
            set("owner-uid", &owner.uid);
            set("owner-name", &owner.name);
            set("owner-kind", &owner.kind);
            set("owner-group", group);
            set("owner-version", version);
        }
        set("operation", &self.what.operation);
        set("component", &self.speaker.rule_set.component);
        set("ruleset", &self.speaker.rule_set.name);
        all
    }
}

/// The operation's name as a condition reason, which has fewer characters to choose from
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
