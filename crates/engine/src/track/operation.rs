//! One operation in flight: its identity, its detections and its times.

mod json;
mod object;
mod restored;
mod state;

pub use restored::{Restored, UNCLAIMED};
pub use state::{Observed, Yielded};

use super::arbitrate::OperationName;
use super::end_reason::End;
use crate::ClockReading;
use crate::detect::{RuleValues, Subject};
use crate::rules::{CompiledRule, RuleSet};
use ifo_api::Key;
use ifo_api::live::{StartTimeSource, State};
use ifo_api::{Gvr, labels};
use jiff::Timestamp;
use litemap::LiteMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longest name of an object (RFC 1123 subdomain, validation.DNS1123SubdomainMaxLength).
const MAX_NAME: usize = 253;

/// Namespace of the UUIDv5 of operations. It never changes, so UIDs are the same on every replica
/// and after every restart.
const UID_NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_3b8e_52c4_5f0a_9c61_2a7e_84d0_b35f);

/// A subject with the names of its target, as operations show them.
#[derive(Clone, Debug)]
pub struct SubjectView {
    /// The object.
    pub subject: Subject,
    /// `group/version` of the target.
    pub api_version: Arc<str>,
    /// Kind of the target.
    pub kind: Arc<str>,
}

/// A detection: a rule set that currently detects the operation, and the values of its rule.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The target of the feed.
    pub target: Arc<Gvr>,
    /// The rule set.
    pub rule_set: Arc<RuleSet>,
    /// The values of its rule.
    pub says: RuleValues,
}

/// The rule sets that detect an operation, by name. There is nearly always one.
pub type Detections = LiteMap<Arc<str>, Arc<Detection>>;

impl Detection {
    /// The rule that detects the operation.
    pub fn rule(&self) -> Option<&CompiledRule> {
        self.rule_set.rules.get(self.says.order)
    }

    /// Returns true if both yield the same operation, apart from the state. The state may have to
    /// wait for the rule's `stateAfter`.
    fn shows_the_same(&self, other: &Self) -> bool {
        let (own, its) = (&self.says, &other.says);
        self.rule_set.name == other.rule_set.name
            && self.rule_set.component == other.rule_set.component
            && own.labels == its.labels
            && own.reason == its.reason
            && own.message == its.message
            && own.progress == its.progress
    }
}

/// An operation in flight.
#[derive(Debug)]
pub struct Operation {
    /// Its identity within the subject.
    pub what: OperationName,
    /// Namespace and name of its object.
    pub key: Key,
    /// The UID of its object.
    pub uid: Uuid,
    /// Its start. The second is a part of the name and the UID.
    pub start: Timestamp,
    start_source: StartTimeSource,
    /// The rule sets that currently detect it, by name. Empty while it settles.
    pub detections: Detections,
    /// The end of the debounce period, while no rule set detects it.
    pub settling: Option<Instant>,
    /// True if it is not detected because the subject no longer matches the selector.
    pub left: bool,
    /// The rule set that describes the operation, with its rule.
    pub speaker: Arc<Detection>,
    /// The state that is shown while it is detected.
    state: State,
    /// The state that its rule yields. It is shown when it has lasted for the rule's `stateAfter`.
    /// While the operation settles, this is the state that was shown last, because the time starts
    /// again when the operation is detected again.
    pub yielded: Yielded,
    /// The `instance` of the run, if the rule has yielded one.
    instance: Option<Arc<str>>,
    /// The names for `detectedBy`: the rule sets that detect it, or detected it last.
    detected_by: Vec<Arc<str>>,
    /// The time of the last detection.
    pub last_detected: Timestamp,
    /// The time since which the status of `Detected` has been the same.
    detected: Detected,
    detected_since: Timestamp,
}

/// Status of the condition `Detected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detected {
    True,
    False,
    Unknown,
}

/// The start of a new operation.
#[derive(Clone, Copy, Debug)]
pub struct OperationStart {
    /// The time.
    pub at: Timestamp,
    /// The source of the time.
    pub source: StartTimeSource,
}

impl OperationStart {
    /// A start at the time of the first detection.
    pub fn detected(at: Timestamp) -> Self {
        Self {
            at,
            source: StartTimeSource::Detected,
        }
    }
}

impl Operation {
    /// Creates an operation that `detections` (at least one) report for the first time. It has the
    /// state `Progressing` until [`Operation::update_state`] is called.
    pub fn start(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Arc<str>,
        (detections, yielded): (Detections, Yielded),
        what: OperationName,
        start: OperationStart,
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
            settling: None,
            left: false,
            instance: speaker.says.instance.clone(),
            speaker,
            state: State::Progressing,
            yielded,
            detected_by: Vec::new(),
            last_detected: now,
            detected: Detected::True,
            detected_since: now,
        };
        started.settle_speaker();
        Some(started)
    }

    /// Namespace and name of an operation with this start, and its UID.
    fn names(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Arc<str>,
        what: &OperationName,
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

    /// The component under which the operation is counted.
    pub fn component(&self) -> &str {
        &self.speaker.rule_set.component
    }

    /// Returns true if the rule of `rule_set` describes the operation.
    pub fn is_spoken_for_by(&self, rule_set: &str) -> bool {
        *self.speaker.rule_set.name == *rule_set
    }

    /// Returns true if the current detection is another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let next = self.next_speaker().says.instance.as_ref();
        let mut runs = next.zip(self.instance.as_ref()).into_iter();
        !self.detections.is_empty() && runs.any(|(next, own)| next != own)
    }

    /// Starts the debounce period. No rule has detected the operation since then. `debounce` is the
    /// server's period.
    pub fn settle(&mut self, since: Timestamp, debounce: Duration, now: ClockReading) {
        let own = self.speaker.rule().and_then(|rule| rule.debounce);
        let debounce = own.unwrap_or(debounce);
        self.settling = Some(now.steady + debounce.saturating_sub(now.since(since)));
    }

    /// The reason with which it ends after the debounce period.
    pub fn end(&self) -> End {
        if self.left {
            End::SelectorLeft
        } else {
            End::NotDetected
        }
    }

    /// Applies the current `detections`. Returns true if anything visible changed.
    pub fn redetected(&mut self, now: Timestamp, gap: bool, observed: Observed) -> bool {
        let before = self.speaker.clone();
        let names = self.detected_by.clone();
        let state = self.state;
        self.settle_speaker();
        self.settle_state(gap, observed);
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
        let changed = flipped
            || state != self.state
            || names != self.detected_by
            || !self.speaker.shows_the_same(&before);
        if changed && (status == Detected::True || flipped && status == Detected::False) {
            self.last_detected = now;
        }
        changed
    }

    /// The first rule set by name describes the operation, until it no longer detects it.
    fn settle_speaker(&mut self) {
        if self.detections.is_empty() {
            return;
        }
        // Collecting would allocate room for four.
        let mut names = Vec::with_capacity(self.detections.len());
        names.extend(self.detections.keys().cloned());
        self.detected_by = names;
        self.speaker = self.next_speaker().clone();
        if self.instance.is_none() {
            self.instance.clone_from(&self.speaker.says.instance);
        }
    }

    /// The rule set that describes the operation from now on.
    pub fn next_speaker(&self) -> &Arc<Detection> {
        let same = self.detections.get(&self.speaker.rule_set.name);
        let next = same.or_else(|| self.detections.values().next());
        next.unwrap_or(&self.speaker)
    }
}

/// `<subject>-<operation>-<hash>`, which is always a valid DNS subdomain.
fn object_name(subject: &str, operation: &str, hash: &str) -> String {
    let clean = |text: &str| {
        let is_other = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.');
        text.to_ascii_lowercase().replace(is_other, "-")
    };
    // An operation is a label value of at most 63 bytes and may contain dots. In a name, a dot
    // needs a letter or a digit on both sides.
    let operation = clean(operation).replace('.', "-");
    let rest = operation.len() + hash.len() + 2;
    let mut subject: String = clean(subject).chars().take(MAX_NAME - rest).collect();
    // Both sides of a dot and both ends must be letters or digits.
    subject = subject.trim_matches(|c| c == '-' || c == '.').to_owned();
    if !labels::is_subdomain(&subject) {
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
    fn operation_names_are_valid_for_every_subject_name() {
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
