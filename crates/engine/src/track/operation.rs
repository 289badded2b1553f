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
pub use restore::{Restored, UNKNOWN_TARGET};
pub use state_delay::{Observed, Yielded};
pub use timing::{OperationTiming, TimingInput};

use super::baselines::{RunKind, SharedBaselines};
use super::end_reason::End;
use super::retained::RuleSetId;
use super::superseded_operations::OperationName;
use crate::ClockReading;
use crate::detect::Subject;
use ifo_api::live::{InFlightOperation, StartTimeSource, State};
use ifo_api::{Key, Text};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An operation in flight: the object that clients read, and what the tracker needs to change it.
#[derive(Debug)]
pub struct Operation {
    /// Identity of the operation among the operations on the subject.
    pub what: OperationName,
    /// The object that clients read. The index shares it.
    pub object: Arc<InFlightOperation>,
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
    /// Measured times of the operation. The conditions `Overdue` and `Stalled` depend on them.
    pub timing: OperationTiming,
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
    /// The subject.
    pub subject: &'a Subject,
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
    /// Creates a new operation. Returns None if `detections` is empty.
    pub fn start(
        identity: &str,
        cluster_namespace: &Text,
        (detections, yielded): (Detections, Yielded),
        what: OperationName,
        start: OperationStart,
        change: ChangeContext<'_>,
    ) -> Option<Self> {
        let primary = detections.values().next()?.clone();
        let seconds = start.at.as_second();
        let (key, uid) =
            Self::key_and_uid(identity, change.subject, cluster_namespace, &what, seconds);
        let object = object::started(&what, key, uid, &primary.values, start);
        let mut started = Self {
            what,
            object: Arc::new(object),
            detections,
            debounce_end: None,
            left_selection: false,
            primary,
            state: State::Progressing,
            yielded,
            timing: OperationTiming::start(start.at, start.source, change.now),
        };
        started.update_state(change.now.steady, change.gap);
        Arc::make_mut(&mut started.object).status.state = started.state;
        if started.state != State::Progressing {
            // Only time in the state `Progressing` counts.
            started.timing.counted = Duration::ZERO;
        }
        let at = change.at.max(start.at);
        started.update_object(ChangeContext { at, ..change });
        Some(started)
    }

    /// Returns namespace and name of the object that clients read.
    pub fn key(&self) -> Key {
        let metadata = &self.object.metadata;
        Key::new(metadata.namespace.clone(), metadata.name.clone())
    }

    /// Returns the start time, in whole seconds. Name and UID of the operation depend on it.
    pub fn started(&self) -> Timestamp {
        self.object.metadata.creation_timestamp.0
    }

    /// Returns the last time at which the server knew that a rule detected the operation. The server
    /// updates this time only together with changes that clients see.
    pub fn last_detected(&self) -> Timestamp {
        self.object.status.last_detected.0
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

    /// Returns the detections of all rule sets, and the detection whose values clients see.
    pub fn all_detections(&self) -> impl Iterator<Item = &Detection> {
        let detections = self.detections.values().chain([&self.primary]);
        detections.map(|it| &**it)
    }

    /// Returns true if the rule now yields another `instance` than at first. In this case, the
    /// detections belong to another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let next = self.next_primary().values.instance.as_ref();
        let own = self.object.status.instance.as_ref();
        let mut runs = next.zip(own).into_iter();
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

    /// Uses the current `detections` to update the object that clients read. Returns true if the
    /// object has changed.
    pub fn apply_detections(&mut self, change: ChangeContext<'_>, observed: Observed) -> bool {
        let before = self.primary.clone();
        if !self.detections.is_empty() {
            self.primary = self.next_primary().clone();
        }
        self.record_state(change.gap, observed);
        self.update(change, !self.primary.shows_same_values(&before))
    }

    /// Returns the values from which the times of the operation are updated.
    fn timing_input(&self, change: ChangeContext<'_>) -> TimingInput {
        let values = &self.primary.values;
        let kind = self.run_kind(change.subject.reference.namespace.as_ref());
        TimingInput {
            state: self.shown_state(),
            progress: values.shown.progress,
            is_watch_interrupted: change.gap,
            now: change.now,
            expected: values.expected,
            stalled_after: values.stalled_after,
            size: values.size,
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
    fn shown_state(&self) -> State {
        if self.detections.is_empty() {
            State::Settling
        } else {
            self.state
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
