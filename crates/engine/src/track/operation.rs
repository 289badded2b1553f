//! One operation in flight on an object, such as the migration of a virtual machine. The object is
//! called the subject of the operation.
//!
//! A rule of a rule set (an `OperationRuleSet`) detects the operation. The values that the rule
//! yields are called a detection. Several rule sets can detect the same operation, so the operation
//! stores one detection for each rule set. The operation stores only the names of the rule sets:
//! [`Books`] contains their rules.
//!
//! If no rule detects the operation any more, its debounce period begins. If no rule detects it
//! again during this period, the operation completes.

mod identity;
mod object;
mod record;
mod restore;
mod state_delay;
mod timing;

pub use restore::Restored;
pub use state_delay::{Observed, Yielded};
pub use timing::{OperationTiming, TimingInput};

use super::baselines::{RunKind, SharedBaselines};
use super::books::Books;
use super::end_reason::End;
use super::retained::RuleSetId;
use super::superseded_operations::OperationName;
use crate::ClockReading;
use crate::detect::{RuleValues, Subject};
use crate::rules::CompiledRule;
use ifo_api::live::{InFlightOperation, StartTimeSource, State};
use ifo_api::{Key, Text};
use jiff::Timestamp;
use litemap::LiteMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The detections of one operation, by the name of the rule set. Usually, only one rule set detects
/// an operation.
pub type Detections = LiteMap<Text, Arc<RuleValues>>;

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
    /// True if no rule set detects the operation, because the labels of the subject no longer match
    /// the label selector. The selector is that of the rule set whose values clients see.
    pub left_selection: bool,
    /// The values that clients see. During the debounce period, these are the last values.
    pub values: Arc<RuleValues>,
    /// State that clients see while the operation is detected. During the debounce period, clients
    /// see `Settling` instead.
    state: State,
    /// State that the rule yields. Clients see this state after the rule has yielded the state for
    /// the time `stateAfter` (a field of the rule).
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
    /// The rules.
    pub books: &'a Books,
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
        let (rule_set, values) = detections.iter().next()?;
        let values = values.clone();
        let seconds = start.at.as_second();
        let (key, uid) =
            Self::key_and_uid(identity, change.subject, cluster_namespace, &what, seconds);
        let object = object::started(&what, key, uid, (rule_set, &values), start);
        let mut started = Self {
            what,
            object: Arc::new(object),
            detections,
            debounce_end: None,
            left_selection: false,
            values,
            state: State::Progressing,
            yielded,
            timing: OperationTiming::start(start.at, start.source, change.now),
        };
        started.update_state(change.now.steady, change);
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

    /// Returns the last known time at which a rule detected the operation. The server updates this
    /// time only together with changes that clients see.
    pub fn last_detected(&self) -> Timestamp {
        self.object.status.last_detected.0
    }

    /// Returns the name of the rule set whose values clients see.
    pub fn rule_set(&self) -> &Text {
        &self.object.spec.rule_set
    }

    /// Returns the component, and the name of the rule set whose values clients see.
    pub fn owner(&self) -> RuleSetId {
        (self.what.component.clone(), self.rule_set().clone())
    }

    /// Returns true if the rule whose values clients see has not arrived yet, and may still arrive.
    pub fn may_get_rule(&self, books: &Books) -> bool {
        books.may_arrive(self.rule_set(), &self.what.operation)
    }

    /// Returns the rule whose values clients see. None if the rule does not exist, or has not
    /// arrived yet.
    pub fn rule<'b>(&self, books: &'b Books) -> Option<&'b CompiledRule> {
        let (_, rule) = books.rule(self.rule_set(), &self.what.operation)?;
        Some(rule)
    }

    /// Returns true if the rule now yields another `instance` than the first one that it yielded.
    /// In this case, the detections belong to another run of the operation.
    pub fn is_another_run(&self) -> bool {
        let next = self.next_values().1.instance.as_ref();
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
    pub fn start_debounce(
        &mut self,
        since: Timestamp,
        debounce: Duration,
        books: &Books,
        now: ClockReading,
    ) {
        let own = self.rule(books).and_then(|rule| rule.debounce);
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

    /// Returns `end` with the details that depend on the rule:
    ///
    /// - If the object was deleted, the rule decides whether the deletion is a success.
    /// - If the outcome is `Succeeded` and the rule detects a problem, the end becomes
    ///   [`End::Recovered`].
    ///
    /// Returns `end` unchanged in all other cases, and if the rule is unknown.
    pub fn own_end(&self, end: End, books: &Books) -> End {
        let Some(rule) = self.rule(books) else {
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
        let (rule_set, values) = self.next_values();
        let is_other = rule_set != self.rule_set();
        let is_changed = is_other
            || values.shown != self.values.shown
            || values.has_new_expectation(&self.values);
        let (rule_set, values) = (rule_set.clone(), values.clone());
        if is_other {
            Arc::make_mut(&mut self.object).spec.rule_set = rule_set;
        }
        self.values = values;
        self.record_state(change, observed);
        self.update(change, is_changed)
    }

    /// Returns the values from which the times of the operation are updated.
    fn timing_input(&self, change: ChangeContext<'_>) -> TimingInput {
        let values = &self.values;
        let namespace = change.subject.reference.namespace.as_ref();
        let kind = self.run_kind(namespace, change.books);
        TimingInput {
            state: self.shown_state(),
            progress: values.shown.progress,
            is_watch_interrupted: change.gap,
            now: change.now,
            expected: values.expected,
            stalled_after: values.stalled_after,
            usual: kind.and_then(|kind| change.baselines.usual(kind)),
        }
    }

    /// Adds the duration of the run to the durations of earlier runs, if the run was successful.
    pub fn learn_duration(
        &self,
        namespace: Option<&Text>,
        end: &End,
        now: ClockReading,
        (baselines, books): (&SharedBaselines, &Books),
    ) {
        let rule = self.rule(books);
        let is_success = match end {
            // Without an `outcome`, the end of the detection counts as a success.
            End::NotDetected => rule.is_some_and(|rule| rule.program("outcome").is_none()),
            end => end.state() == State::Succeeded,
        };
        if let Some(kind) = self.run_kind(namespace, books)
            && is_success
            && let Some(duration) = self.timing.comparable_duration(now.steady)
        {
            baselines.learn(kind, duration, now.wall);
        }
    }

    /// Returns the identity of the baselines to which the runs of this operation belong. Returns
    /// None if this run cannot be compared with other runs: if the rule is unknown, or if its `size`
    /// yields no amount.
    fn run_kind<'a>(
        &'a self,
        namespace: Option<&'a Text>,
        books: &'a Books,
    ) -> Option<RunKind<'a>> {
        let rule = self.rule(books)?;
        let has_size = rule.program("size").is_some();
        Some(RunKind {
            rule_set: self.rule_set(),
            operation: &self.what.operation,
            timing_hash: &rule.timing_hash,
            namespace,
            size: if has_size { self.values.size? } else { 1.0 },
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

    /// Returns the rule set and the values that clients see from now on. The rule set stays the
    /// same while it detects the operation. Otherwise, the result is the first of the other rule
    /// sets that detect the operation, by name. If no rule set detects the operation, the rule set
    /// and the values stay the same.
    pub fn next_values(&self) -> (&Text, &Arc<RuleValues>) {
        let own = self.rule_set();
        let same = self.detections.get(own).map(|values| (own, values));
        let next = same.or_else(|| self.detections.iter().next());
        next.unwrap_or((own, &self.values))
    }
}
