//! One operation while it is in flight: what it is called, who detects it, since when.

mod json;
mod object;
mod restored;
mod state;

pub use restored::{Restored, UNCLAIMED};
pub use state::{Observed, Yielded};

use super::arbitrate::What;
use super::end::End;
use crate::ClockReading;
use crate::detect::{Says, Subject};
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
    pub fn rule(&self) -> Option<&CompiledRule> {
        self.rule_set.rules.get(self.says.order)
    }

    /// Whether an operation shows the same for both, except for the state, which may have
    /// to wait for the rule's `stateAfter`.
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
    /// Which of its subject's operations it is.
    pub what: What,
    /// Where its object is.
    pub key: Key,
    /// Identifies it among all operations that ever were.
    pub uid: Uuid,
    /// When it started. The second is a part of its name and UID.
    pub start: Timestamp,
    start_source: StartTimeSource,
    /// Rule sets that detect it now, by name. Empty while it settles.
    pub detections: Detections,
    /// When its debounce ends, while no rule set detects it.
    pub settling: Option<Instant>,
    /// It is not detected because the subject left the selection.
    pub left: bool,
    /// The rule set that speaks for it, and its rule there.
    pub speaker: Arc<Detection>,
    /// The state that it shows while it is detected.
    state: State,
    /// The state that its rule yields. It is shown once it has lasted for the rule's
    /// `stateAfter`. While the operation settles, it is the state that was shown last: the
    /// rule's state has to last anew when the operation is detected again.
    pub yielded: Yielded,
    /// The run that it is, once a rule has told.
    instance: Option<Arc<str>>,
    /// Names for `detectedBy`: who detects it, or last did.
    detected_by: Vec<Arc<str>>,
    /// When it was last detected.
    pub last_detected: Timestamp,
    /// Since when it is (not) detected, and whether that is known.
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

/// Where the start of a new operation is.
#[derive(Clone, Copy, Debug)]
pub struct OperationStart {
    /// The time.
    pub at: Timestamp,
    /// Where the time comes from.
    pub source: StartTimeSource,
}

impl OperationStart {
    /// Seen then, for the first time.
    pub fn detected(at: Timestamp) -> Self {
        Self {
            at,
            source: StartTimeSource::Detected,
        }
    }
}

impl Operation {
    /// An operation that `detections` (at least one) see for the first time. It shows
    /// `Progressing` until [`Operation::update_state`] is called.
    pub fn start(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Arc<str>,
        (detections, yielded): (Detections, Yielded),
        what: What,
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

    /// The component that the operation is counted under.
    pub fn component(&self) -> &str {
        &self.speaker.rule_set.component
    }

    /// Whether it is the rule of `rule_set` that speaks for it.
    pub fn is_spoken_for_by(&self, rule_set: &str) -> bool {
        *self.speaker.rule_set.name == *rule_set
    }

    /// Whether what is detected now is another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let next = self.next_speaker().says.instance.as_ref();
        let mut runs = next.zip(self.instance.as_ref()).into_iter();
        !self.detections.is_empty() && runs.any(|(next, own)| next != own)
    }

    /// Starts its debounce, for the rest of its time: no rule has detected it since then.
    /// `debounce` is that of the server.
    pub fn settle(&mut self, since: Timestamp, debounce: Duration, now: ClockReading) {
        let own = self.speaker.rule().and_then(|rule| rule.debounce);
        let debounce = own.unwrap_or(debounce);
        self.settling = Some(now.steady + debounce.saturating_sub(now.since(since)));
    }

    /// Why it ends when its debounce is over.
    pub fn end(&self) -> End {
        if self.left {
            End::SelectorLeft
        } else {
            End::NotDetected
        }
    }

    /// Takes over what `detections` holds now. True if anything visible changed.
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

    /// The first by name speaks, until it does not detect the operation any more.
    fn settle_speaker(&mut self) {
        if self.detections.is_empty() {
            return;
        }
        // Collected it would have room for four.
        let mut names = Vec::with_capacity(self.detections.len());
        names.extend(self.detections.keys().cloned());
        self.detected_by = names;
        self.speaker = self.next_speaker().clone();
        if self.instance.is_none() {
            self.instance.clone_from(&self.speaker.says.instance);
        }
    }

    /// The rule set that speaks for it from now on.
    pub fn next_speaker(&self) -> &Arc<Detection> {
        let same = self.detections.get(&self.speaker.rule_set.name);
        let next = same.or_else(|| self.detections.values().next());
        next.unwrap_or(&self.speaker)
    }
}

/// `<subject>-<operation>-<hash>`, a valid DNS subdomain whatever the parts hold.
fn object_name(subject: &str, operation: &str, hash: &str) -> String {
    let clean = |text: &str| {
        let is_other = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.');
        text.to_ascii_lowercase().replace(is_other, "-")
    };
    // An operation is a label value, at most 63 bytes, and may hold dots: as part of
    // a name they would need a letter or digit on both sides.
    let operation = clean(operation).replace('.', "-");
    let rest = operation.len() + hash.len() + 2;
    let mut subject: String = clean(subject).chars().take(MAX_NAME - rest).collect();
    // Both sides of a dot, and both ends, must be letters or digits.
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
