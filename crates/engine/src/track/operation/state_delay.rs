//! Delays changes of an operation's state. If a rule yields the state `Blocked` or `Failing`,
//! clients do not see this state at once. First, the rule must yield the state for the time
//! `stateAfter`, without a break. Clients see `Progressing` and `Held` at once.

use super::{ChangeContext, Operation};
use crate::detect::RuleValues;
use crate::rules::CompiledRule;
use crate::track::books::Books;
use ifo_api::live::State;
use std::time::{Duration, Instant};

/// The times of one evaluation of an object, on the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Time of the evaluation.
    pub now: Instant,
    /// Time since which the object has certainly been unchanged. For an object in the first list of
    /// a watch, this is the newest time in its `managedFields`, if this time is known. In all other
    /// cases, this is the time of the evaluation.
    pub unchanged: Instant,
}

impl Observed {
    /// Creates the times of an evaluation of an object that has just changed, or whose last change
    /// is unknown.
    pub fn now(now: Instant) -> Self {
        Self {
            now,
            unchanged: now,
        }
    }

    /// Returns the time since which the rule has certainly yielded its result. Usually, this is
    /// `unchanged`. If the rule reads `now` (`reads_now`), this is the time of the evaluation,
    /// because the result can change although the object does not change.
    pub fn since(self, reads_now: bool) -> Instant {
        if reads_now { self.now } else { self.unchanged }
    }
}

/// A state that a rule yields, and the time since which the rule has yielded this state.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    state: State,
    since: Instant,
}

impl Yielded {
    /// Creates the value for the first evaluation. `rule` is the rule that yields `values`. None if
    /// the rule is unknown.
    pub fn first(values: &RuleValues, rule: Option<&CompiledRule>, observed: Observed) -> Self {
        Self {
            state: values.state,
            since: observed.since(rule.is_some_and(CompiledRule::state_reads_now)),
        }
    }

    /// Records the state of a further evaluation. If the state is the same, the time does not
    /// change.
    pub fn update(&mut self, values: &RuleValues, rule: Option<&CompiledRule>, observed: Observed) {
        if values.state != self.state {
            *self = Self::first(values, rule, observed);
        }
    }
}

impl Operation {
    /// Returns the time from which clients must see the yielded state. Returns None if clients
    /// already see this state.
    pub fn state_due(&self, books: &Books) -> Option<Instant> {
        (self.state != self.yielded.state).then(|| self.yielded.since + self.state_after(books))
    }

    fn state_after(&self, books: &Books) -> Duration {
        let rule = self.rule(books);
        rule.map_or(Duration::ZERO, |rule| rule.state_after)
    }

    /// Replaces the state that clients see by the yielded state, if the rule has yielded it for
    /// `stateAfter`. Clients see the states `Progressing` and `Held` without this delay. `Held`
    /// does not flap, because a person sets it.
    ///
    /// While the watch is interrupted, a state that waits for `stateAfter` does not become
    /// visible. The server may have missed a change to another state. `stateAfter` starts again
    /// after such a change.
    pub(super) fn update_state(&mut self, now: Instant, change: ChangeContext<'_>) {
        let state = self.yielded.state;
        if state == self.state {
            return;
        }
        let after = self.state_after(change.books);
        let at_once = matches!(state, State::Progressing | State::Held) || after.is_zero();
        if at_once || !change.gap && self.yielded.since + after <= now {
            self.state = state;
        }
    }

    /// Records the state that the rule yields, and updates the state that clients see. If no rule
    /// detects the operation any more, forgets a state that waits for `stateAfter`.
    pub(super) fn record_state(&mut self, change: ChangeContext<'_>, observed: Observed) {
        if self.detections.is_empty() {
            self.yielded.state = self.state;
        } else {
            let rule = self.rule(change.books);
            self.yielded.update(&self.values, rule, observed);
        }
        self.update_state(observed.now, change);
    }
}
