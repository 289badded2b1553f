//! One operation in flight on an object, such as the migration of a virtual machine. The object is
//! called the subject of the operation.
//!
//! A rule of a rule set (an `OperationRuleSet`) detects the operation. The result of this rule is
//! called a detection. Several rule sets can detect the same operation, so the operation stores one
//! detection for each rule set.
//!
//! If no rule detects the operation any more, its debounce period begins. If no rule detects it
//! again during this period, the operation completes.

mod detection;
mod identity;
mod object;
mod record;
mod restore;
mod state_delay;
mod timing;

pub use detection::{Detection, Detections};
use ifo_api::Text;
pub use restore::{Restored, UNKNOWN_TARGET};
pub use state_delay::{Observed, Yielded};
pub use timing::{OperationTiming, TimingInput};

use super::baselines::{RunKind, SharedBaselines};
use super::end_reason::End;
use super::retained::RuleSetId;
use super::superseded_operations::OperationName;
use crate::ClockReading;
use crate::detect::Subject;
use ifo_api::Key;
use ifo_api::live::{StartTimeSource, State};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The fields of a subject that its operations show.
#[derive(Clone, Debug)]
pub struct SubjectView {
    /// Identity and metadata of the object.
    pub subject: Subject,
    /// `apiVersion` of the object.
    pub api_version: Text,
    /// `kind` of the object.
    pub kind: Text,
}

/// An operation in flight.
#[derive(Debug)]
pub struct Operation {
    /// Identity of the operation among the operations on the subject.
    pub what: OperationName,
    /// Namespace and name of the `InFlightOperation`, the object that clients read.
    pub key: Key,
    /// UID of the `InFlightOperation`.
    pub uid: Uuid,
    /// Start time. Name and UID of the operation depend on this time in whole seconds.
    pub start: Timestamp,
    start_source: StartTimeSource,
    /// Detections of the rule sets that currently detect the operation. Empty during the debounce
    /// period.
    pub detections: Detections,
    /// End of the debounce period. None if no debounce period has begun, for example because the
    /// operation is detected.
    pub debounce_end: Option<Instant>,
    /// True if the labels of the subject no longer match the label selector of the rule set in
    /// `primary`, and no rule set detects the operation.
    pub left_selection: bool,
    /// Detection whose values clients see. During the debounce period, this is the last detection.
    pub primary: Arc<Detection>,
    /// State that clients see while the operation is detected. During the debounce period, clients
    /// see `Settling` instead.
    state: State,
    /// State that the rule of `primary` yields. Clients see this state after the rule has yielded
    /// it for the time `stateAfter` (a field of the rule).
    ///
    /// During the debounce period, this is the last state that clients saw before that period. If a
    /// rule detects the operation again with another state, the time `stateAfter` starts again.
    pub yielded: Yielded,
    /// First value that the `instance` of a rule yielded, such as the UID of a migration. If a
    /// later value differs, another run of the operation has started. None if no rule has yielded a
    /// value.
    instance: Option<Text>,
    /// Who or what started the operation, as the rule yielded it at the start.
    initiator: Option<Text>,
    /// Time since which the operation waited for its start, as the rule yielded it at the start.
    queued: Option<Timestamp>,
    /// Names for the field `detectedBy`: the rule sets that detect the operation, or that detected
    /// it last.
    detected_by: Vec<Text>,
    /// Value for `status.lastDetected`: the last time at which the server knew that a rule detected
    /// the operation. The server updates this time only together with changes that clients see.
    pub last_detected: Timestamp,
    /// Status of the condition `Detected`.
    detected: Detected,
    /// Time since which the condition `Detected` has had this status.
    detected_since: Timestamp,
    /// Measured times of the operation. The conditions `Overdue` and `Stalled` depend on them.
    pub timing: OperationTiming,
}

/// The status of the condition `Detected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detected {
    True,
    False,
    Unknown,
}

/// The circumstances of a change of an operation.
#[derive(Clone, Copy, Debug)]
pub struct ChangeContext<'a> {
    /// The time of the change, as clients see it. It can be earlier than `now`, because a watch can
    /// report a change late.
    pub at: Timestamp,
    /// The current time.
    pub now: ClockReading,
    /// True while the watch of the subject is interrupted.
    pub gap: bool,
    /// Namespace of the subject. None for a cluster-scoped subject.
    pub namespace: Option<&'a Text>,
    /// The durations of earlier runs.
    pub baselines: &'a SharedBaselines,
}

/// The start of a new operation.
#[derive(Clone, Copy, Debug)]
pub struct OperationStart {
    /// Start time.
    pub at: Timestamp,
    /// Source of the start time.
    pub source: StartTimeSource,
}

impl OperationStart {
    /// Creates a start with the source `Detected`.
    pub fn detected(at: Timestamp) -> Self {
        Self {
            at,
            source: StartTimeSource::Detected,
        }
    }
}

impl Operation {
    /// Creates a new operation. Returns None if `detections` is empty. The state is `Progressing`
    /// until [`Operation::update_state`] is called.
    pub fn start(
        identity: &str,
        view: &SubjectView,
        cluster_namespace: &Text,
        (detections, yielded): (Detections, Yielded),
        what: OperationName,
        start: OperationStart,
        now: ClockReading,
    ) -> Option<Self> {
        let primary = detections.values().next()?.clone();
        let seconds = start.at.as_second();
        let (key, uid) = Self::key_and_uid(identity, view, cluster_namespace, &what, seconds);
        let mut started = Self {
            what,
            key,
            uid,
            start: start.at,
            start_source: start.source,
            detections,
            debounce_end: None,
            left_selection: false,
            instance: primary.values.instance.clone(),
            initiator: primary.values.initiator.clone(),
            queued: primary.values.queued.filter(|it| *it <= start.at),
            primary,
            state: State::Progressing,
            yielded,
            detected_by: Vec::new(),
            last_detected: now.wall,
            detected: Detected::True,
            detected_since: now.wall,
            timing: OperationTiming::start(start.at, start.source, now),
        };
        started.update_primary();
        Some(started)
    }

    /// Returns the component that the operation belongs to, such as `kubevirt`. The metrics have
    /// the component as a label.
    pub fn component(&self) -> &str {
        &self.what.component
    }

    /// Returns the component, and the name of the rule set whose values clients see.
    pub fn owner(&self) -> RuleSetId {
        let rule_set = &self.primary.rule_set.name;
        (self.what.component.clone(), rule_set.clone())
    }

    /// Returns true if clients see the values that the rule set with the name `rule_set` yields.
    pub fn is_described_by(&self, rule_set: &str) -> bool {
        *self.primary.rule_set.name == *rule_set
    }

    /// Returns true if the rule now yields another `instance` than at first. In this case, the
    /// detections belong to another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let next = self.next_primary().values.instance.as_ref();
        let mut runs = next.zip(self.instance.as_ref()).into_iter();
        !self.detections.is_empty() && runs.any(|(next, own)| next != own)
    }

    /// Starts the debounce period. It counts from `since`, the time since which no rule has
    /// detected the operation. `debounce` is the default length, for a rule without a `debounce` of
    /// its own.
    ///
    /// If the last state was `Held`, the default length is zero: a person has removed the hold, and
    /// nothing flaps.
    pub fn start_debounce(&mut self, since: Timestamp, debounce: Duration, now: ClockReading) {
        let own = self.primary.rule().and_then(|rule| rule.debounce);
        let default = if self.state == State::Held {
            Duration::ZERO
        } else {
            debounce
        };
        let debounce = own.unwrap_or(default);
        self.debounce_end = Some(now.steady + debounce.saturating_sub(now.since(since)));
    }

    /// Returns the reason with which the operation completes at the end of its debounce period.
    pub fn end_reason(&self) -> End {
        if self.left_selection {
            End::SelectorLeft
        } else {
            End::NotDetected
        }
    }

    /// Returns what an end means for this operation. The rule decides in two cases: whether the
    /// deletion of the object is the success of the operation, and whether the end of a trouble is
    /// a success.
    pub fn own_end(&self, end: End) -> End {
        let Some(rule) = self.primary.rule() else {
            return end;
        };
        match end {
            End::SubjectDeleted { .. } => End::SubjectDeleted {
                is_success: rule.deletes_subject,
            },
            End::Outcome(State::Succeeded, text) if rule.detects_trouble() => End::Recovered(text),
            end => end,
        }
    }

    /// Uses the current `detections` to update the values that clients see. Returns true if the
    /// caller must write the operation, because one of these values has changed.
    pub fn apply_detections(&mut self, change: ChangeContext<'_>, observed: Observed) -> bool {
        let (at, gap) = (change.at, change.gap);
        let before = self.primary.clone();
        let names = self.detected_by.clone();
        let state = self.state;
        self.update_primary();
        self.record_state(gap, observed);
        let status = match (gap, self.detections.is_empty()) {
            (true, _) => Detected::Unknown,
            (false, true) => Detected::False,
            (false, false) => Detected::True,
        };
        let flipped = status != self.detected;
        if flipped {
            self.detected = status;
            self.detected_since = at;
        }
        let input = self.timing_input(change);
        let conditions_changed = self.timing.update(input);
        let changed = flipped
            || conditions_changed
            || self.timing.needs_usual_duration(input)
            || state != self.state
            || names != self.detected_by
            || !self.primary.shows_same_values(&before);
        if changed && (status == Detected::True || flipped && status == Detected::False) {
            self.last_detected = at;
        }
        if changed {
            self.timing.refresh(input);
        }
        changed
    }

    /// Begins to measure the times of the operation. The caller must first set the state with
    /// [`Operation::update_state`].
    pub fn begin_timing(&mut self, change: ChangeContext<'_>) {
        let input = self.timing_input(change);
        self.timing.apply_first_state(input);
    }

    /// Returns the values from which the times of the operation are updated.
    fn timing_input(&self, change: ChangeContext<'_>) -> TimingInput {
        let detection = &self.primary;
        let kind = self.run_kind(change.namespace);
        TimingInput {
            state: self.shown_state(),
            progress: detection.values.progress,
            is_watch_interrupted: change.gap,
            at: change.at,
            now: change.now,
            expected: detection.values.expected,
            stalled_after: detection.values.stalled_after,
            size: detection.values.size,
            usual: kind.and_then(|kind| change.baselines.usual(kind)),
        }
    }

    /// Adds the duration of a successful run to the durations of earlier runs.
    pub fn learn_duration(
        &self,
        namespace: Option<&Text>,
        end: &End,
        now: ClockReading,
        baselines: &SharedBaselines,
    ) {
        let rule = self.primary.rule();
        let is_success = match end {
            // Without an `outcome`, the end of the detection counts as a success.
            End::NotDetected => rule.is_some_and(|rule| rule.program("outcome").is_none()),
            end => end.state() == State::Succeeded,
        };
        if let Some(kind) = self.run_kind(namespace)
            && is_success
            && let Some(duration) = self.timing.comparable_duration(now.steady)
        {
            let size = self.primary.values.size.unwrap_or(1.0);
            baselines.learn(kind, duration, size, now.wall);
        }
    }

    /// Returns the identity of the baselines to which the runs of this operation belong. Returns
    /// None if the rule set is known only by name ([`Detection::is_unbound`]).
    fn run_kind<'a>(&'a self, namespace: Option<&'a Text>) -> Option<RunKind<'a>> {
        Some(RunKind {
            rule_set: &self.primary.rule_set.name,
            operation: &self.what.operation,
            timing_hash: self.primary.timing_hash()?,
            namespace,
        })
    }

    /// Returns the state that clients see.
    pub fn shown_state(&self) -> State {
        if self.detections.is_empty() {
            State::Settling
        } else {
            self.state
        }
    }

    /// Updates `primary` and the values that depend on it. Does nothing while the operation is not
    /// detected.
    fn update_primary(&mut self) {
        if self.detections.is_empty() {
            return;
        }
        self.detected_by = self.detections.keys().cloned().collect();
        self.primary = self.next_primary().clone();
        if self.instance.is_none() {
            self.instance.clone_from(&self.primary.values.instance);
        }
    }

    /// Returns the detection whose values clients see from now on. This is the detection of the
    /// same rule set as before. If that rule set no longer detects the operation, the result is the
    /// detection of the rule set whose name comes first in the alphabet. If no rule set detects the
    /// operation, the detection stays the same.
    pub fn next_primary(&self) -> &Arc<Detection> {
        let same = self.detections.get(&self.primary.rule_set.name);
        let next = same.or_else(|| self.detections.values().next());
        next.unwrap_or(&self.primary)
    }
}
