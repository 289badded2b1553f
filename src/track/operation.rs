//! One operation while it is in flight, and the object that it is shown as.

mod restored;

pub use restored::{Restored, UNCLAIMED};

use super::arbitrate::What;
use super::end::End;
use crate::api::live::{self, InFlightOperation, Phase, Spec, StartTimeSource, State, Status};
use crate::api::{Gvr, LIVE_GROUP, VERSION, labels};
use crate::evaluate::{Says, Subject};
use crate::index::Key;
use crate::rules::{Rule, RuleSet};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use litemap::LiteMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// Longest name of an object (RFC 1123 subdomain, validation.DNS1123SubdomainMaxLength).
const MAX_NAME: usize = 253;

/// Namespace of the UUIDv5 of operations. Fixed for ever: UIDs come out the same on
/// every replica and after every restart.
const UID_NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_3b8e_52c4_5f0a_9c61_2a7e_84d0_b35f);

/// A subject as operations show it, and what its target's objects are called.
#[derive(Clone, Debug)]
pub struct SubjectView {
    /// The object.
    pub subject: Subject,
    /// `group/version` of the target.
    pub api_version: Arc<str>,
    /// Kind of the target.
    pub kind: Arc<str>,
}

/// One detection: a rule set that sees the operation now, and what it says.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The resource through whose feed it is seen.
    pub target: Arc<Gvr>,
    /// The rule set.
    pub rule_set: Arc<RuleSet>,
    /// What its rule says.
    pub says: Says,
}

/// Rule sets that detect an operation, by name. Nearly always there is one.
pub type Detections = LiteMap<Arc<str>, Arc<Detection>>;

impl Detection {
    /// The rule that detects it.
    pub fn rule(&self) -> Option<&Rule> {
        self.rule_set.rules.get(self.says.order)
    }

    /// Whether nobody could tell the difference.
    fn shows_the_same(&self, other: &Self) -> bool {
        let (own, its) = (&self.says, &other.says);
        self.rule_set.name == other.rule_set.name
            && self.rule_set.component == other.rule_set.component
            && own.labels == its.labels
            && own.state.unwrap_or(State::Progressing) == its.state.unwrap_or(State::Progressing)
            && own.reason == its.reason
            && own.message == its.message
            && own.progress == its.progress
    }
}

/// An operation in flight.
#[derive(Debug)]
pub struct Operation {
    /// Which of its subject's operations it is.
    pub what: What,
    /// Where its object is.
    pub key: Key,
    uid: Uuid,
    start: Timestamp,
    start_source: StartTimeSource,
    /// Rule sets that detect it now, by name. Empty while it settles.
    pub detections: Detections,
    /// The rule set that speaks for it.
    speaker: Arc<Detection>,
    /// The run that it is, once a rule has told.
    instance: Option<Arc<str>>,
    /// Names for `detectedBy`: who detects it, or last did.
    detected_by: Vec<Arc<str>>,
    last_detected: Timestamp,
    /// Since when it is (not) detected, and whether that is known.
    detected: Detected,
    detected_since: Timestamp,
}

/// What an operation shows of how it goes.
struct Shown<'a> {
    phase: Phase,
    state: State,
    reason: &'a str,
    message: &'a str,
    progress: Option<u8>,
}

/// Status of the condition `Detected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detected {
    True,
    False,
    Unknown,
}

/// Where the start of a new operation is.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The time.
    pub at: Timestamp,
    /// Where the time comes from.
    pub source: StartTimeSource,
}

impl Start {
    /// Seen then, for the first time.
    pub fn detected(at: Timestamp) -> Self {
        Self {
            at,
            source: StartTimeSource::Detected,
        }
    }
}

impl Operation {
    /// An operation that `detections` (at least one) see for the first time.
    pub fn start(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Arc<str>,
        detections: Detections,
        what: What,
        start: Start,
        now: Timestamp,
    ) -> Option<Self> {
        let speaker = detections.values().next()?.clone();
        let seconds = start.at.as_second();
        let (key, uid) = Self::names(identity, view, cluster_namespace, &what, seconds);
        let mut started = Self {
            what,
            key,
            uid,
            start: start.at,
            start_source: start.source,
            detections,
            instance: speaker.says.instance.clone(),
            speaker,
            detected_by: Vec::new(),
            last_detected: now,
            detected: Detected::True,
            detected_since: now,
        };
        started.settle_speaker();
        Some(started)
    }

    /// Where the object of an operation is that started in this second, and its UID.
    fn names(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Arc<str>,
        what: &What,
        seconds: i64,
    ) -> (Key, Uuid) {
        let operation = &what.operation;
        let id = match &what.item {
            Some(item) => format!("{identity}/{operation}/{item}/{seconds}"),
            None => format!("{identity}/{operation}/{seconds}"),
        };
        let namespace = view.subject.namespace.as_ref().unwrap_or(cluster_namespace);
        let name = object_name(
            &view.subject.name,
            operation,
            &labels::short_hash(id.as_bytes()),
        );
        let key = Key {
            namespace: namespace.clone(),
            name: name.into(),
        };
        (key, Uuid::new_v5(&UID_NAMESPACE, id.as_bytes()))
    }

    /// When it started.
    pub fn started(&self) -> Timestamp {
        self.start
    }

    /// Start in whole seconds, which is part of the identity.
    pub fn start_second(&self) -> i64 {
        self.start.as_second()
    }

    /// The component that the operation is counted under.
    pub fn component(&self) -> &str {
        &self.speaker.rule_set.component
    }

    /// How long it has been going on.
    pub fn duration(&self, now: Timestamp) -> std::time::Duration {
        now.max(self.start)
            .duration_since(self.start)
            .unsigned_abs()
    }

    /// The rule set that speaks for it, and the place of its rule there.
    pub fn order(&self) -> (&str, usize) {
        (&self.speaker.rule_set.name, self.speaker.says.order)
    }

    /// The rule that speaks for it.
    pub fn rule(&self) -> Option<&Rule> {
        self.speaker.rule()
    }

    /// Whether it is the rule of `rule_set` that speaks for it.
    pub fn is_spoken_for_by(&self, rule_set: &str) -> bool {
        *self.speaker.rule_set.name == *rule_set
    }

    /// Whether what is detected now is another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let now = self
            .next_speaker()
            .and_then(|next| next.says.instance.as_ref());
        now.is_some_and(|now| self.instance.as_ref().is_some_and(|own| own != now))
    }

    /// Takes over what `detections` holds now. True if anything visible changed.
    pub fn redetected(&mut self, now: Timestamp, gap: bool) -> bool {
        let before = self.speaker.clone();
        let names = self.detected_by.clone();
        self.settle_speaker();
        let status = match (gap, self.detections.is_empty()) {
            (true, _) => Detected::Unknown,
            (false, true) => Detected::False,
            (false, false) => Detected::True,
        };
        let flipped = status != self.detected;
        if flipped {
            self.detected = status;
            self.detected_since = now;
        }
        let changed = flipped || names != self.detected_by || !self.speaker.shows_the_same(&before);
        if changed && (status == Detected::True || flipped && status == Detected::False) {
            self.last_detected = now;
        }
        changed
    }

    /// The first by name speaks, until it does not detect the operation any more.
    fn settle_speaker(&mut self) {
        if self.detections.is_empty() {
            return;
        }
        self.detected_by = self.detections.keys().cloned().collect();
        if let Some(next) = self.next_speaker() {
            self.speaker = next.clone();
        }
        if self.instance.is_none() {
            self.instance.clone_from(&self.speaker.says.instance);
        }
    }

    fn next_speaker(&self) -> Option<&Arc<Detection>> {
        let same = self.detections.get(&self.speaker.rule_set.name);
        same.or_else(|| self.detections.values().next())
    }

    /// The object while it is in flight, as JSON.
    pub fn active(&self, view: &SubjectView) -> Vec<u8> {
        let says = &self.speaker.says;
        let state = if self.detections.is_empty() {
            State::Settling
        } else {
            says.state.unwrap_or(State::Progressing)
        };
        let reason = match &says.reason {
            Some(reason) => reason.to_string(),
            None => operation_reason(&self.what.operation),
        };
        let shown = Shown {
            phase: Phase::Active,
            state,
            reason: &reason,
            message: &says.message,
            progress: says.progress,
        };
        self.encode(view, &shown, None)
    }

    /// The object at its end, as JSON.
    pub fn completed(&self, view: &SubjectView, end: &End, now: Timestamp) -> Vec<u8> {
        let last = self.speaker.says.progress;
        let shown = Shown {
            phase: Phase::Completed,
            state: end.state(),
            reason: end.reason(),
            message: &end.message(),
            // Nothing is left to do of what succeeded; of the rest, what was last told.
            progress: match end.state() {
                State::Succeeded => last.map(|_| 100),
                _ => last,
            },
        };
        self.encode(view, &shown, Some(now))
    }

    fn encode(
        &self,
        view: &SubjectView,
        shown: &Shown<'_>,
        completed: Option<Timestamp>,
    ) -> Vec<u8> {
        let Shown {
            phase,
            state,
            reason,
            message,
            progress,
        } = *shown;
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
                phase,
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
            },
        };
        serde_json::to_vec(&object).expect("maps with string keys always encode")
    }

    /// When it stopped being detected: the start of the settling, else the end itself. Not
    /// before its start, which is a second late if the one before started in the same.
    fn detected_until(&self, completed: Option<Timestamp>) -> Timestamp {
        let until = match (self.detected, completed) {
            (Detected::False, _) | (_, None) => self.detected_since,
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
        let mut all = (*self.speaker.says.labels).clone();
        let mut set = |suffix: &str, value: &str| {
            if !value.is_empty() {
                all.insert(
                    format!("{}{suffix}", labels::PREFIX),
                    labels::to_value(value),
                );
            }
        };
        set("subject-name", &subject.name);
        set(
            "subject-namespace",
            subject.namespace.as_deref().unwrap_or_default(),
        );
        set("subject-kind", &view.kind);
        set("subject-uid", subject.uid.as_deref().unwrap_or_default());
        if let Some(owner) = subject.owners.first() {
            let (group, version) = owner
                .api_version
                .split_once('/')
                .unwrap_or(("", &owner.api_version));
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
fn operation_reason(operation: &str) -> String {
    let mut reason: String = operation
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    if !reason.starts_with(|c: char| c.is_ascii_alphabetic()) {
        reason.insert_str(0, "Operation");
    }
    reason
}

/// `<subject>-<operation>-<hash>`, a valid DNS subdomain whatever the parts hold.
fn object_name(subject: &str, operation: &str, hash: &str) -> String {
    let clean = |text: &str| -> String {
        text.chars()
            .map(|c| c.to_ascii_lowercase())
            .map(|c| {
                if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .collect()
    };
    // An operation is a label value, at most 63 bytes, and may hold dots: as part of
    // a name they would need a letter or digit on both sides.
    let operation = clean(operation).replace('.', "-");
    let rest = operation.len() + hash.len() + 2;
    let mut subject: String = clean(subject).chars().take(MAX_NAME - rest).collect();
    // Both sides of a dot, and both ends, must be letters or digits.
    let valid = |text: &str| labels::is_subdomain(text);
    subject = subject.trim_matches(|c| c == '-' || c == '.').to_owned();
    if !valid(&subject) {
        subject = subject.replace('.', "-");
    }
    if subject.is_empty() {
        return format!("{operation}-{hash}")
            .trim_start_matches('-')
            .to_owned();
    }
    format!("{subject}-{operation}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_whatever_the_subject_is_called() {
        let long = "x".repeat(300);
        let dotted = format!("{}.b", "a".repeat(252));
        for subject in [
            "my-vm",
            "system:node:a",
            "A_B",
            "a.b.c",
            "-",
            "..",
            "a..b",
            "é",
            &long,
            &dotted,
        ] {
            for operation in ["Migrating", "A.B", "a_b", &"Y".repeat(63)] {
                let name = object_name(subject, operation, "3f9c2a1b");
                assert!(labels::is_subdomain(&name), "{name}");
                assert!(name.ends_with("-3f9c2a1b"), "{name}");
            }
        }
        assert_eq!(
            object_name("my-vm", "Migrating", "3f9c2a1b"),
            "my-vm-migrating-3f9c2a1b"
        );
    }
}
