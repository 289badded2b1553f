//! Delays changes of an operation's state. If a rule yields the state `Blocked` or `Failing`,
//! clients do not see this state at once. First, the rule must yield the state for the time
//! `stateAfter`, without a break. Clients see `Progressing` and `Held` at once.

use super::Operation;
use crate::detect::RuleValues;
use crate::rules::CompiledRule;
use crate::track::books::Books;
use crate::track::subject::SubjectEventContext;
use ifo_api::live::State;
use std::time::{Duration, Instant};

/// A state that a rule yields, and the time since which the rule has yielded this state.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    pub(super) state: State,
    pub(super) since: Instant,
}

impl Yielded {
    /// Creates the value for the first evaluation. `rule` is the rule that yields `values`. None if
    /// the rule is unknown.
    pub fn first(
        values: &RuleValues,
        rule: Option<&CompiledRule>,
        step: &SubjectEventContext<'_>,
    ) -> Self {
        Self {
            state: values.state,
            since: step.yielded_since(rule.is_some_and(CompiledRule::state_reads_now)),
        }
    }

    /// Records the state of a further evaluation. If the state is the same, the time does not
    /// change.
    pub fn update(
        &mut self,
        values: &RuleValues,
        rule: Option<&CompiledRule>,
        step: &SubjectEventContext<'_>,
    ) {
        if values.state != self.state {
            *self = Self::first(values, rule, step);
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
    pub(super) fn update_state(&mut self, step: &SubjectEventContext<'_>) {
        let state = self.yielded.state;
        if state == self.state {
            return;
        }
        let after = self.state_after(step.books);
        let at_once = matches!(state, State::Progressing | State::Held) || after.is_zero();
        if at_once || !step.gap && self.yielded.since + after <= step.now.steady {
            self.state = state;
        }
    }

    /// Records the state that the rule yields, and updates the state that clients see. If no rule
    /// detects the operation any more, forgets a state that waits for `stateAfter`.
    pub(super) fn record_state(&mut self, step: &SubjectEventContext<'_>) {
        if self.detections.is_empty() {
            self.yielded.state = self.state;
        } else {
            let rule = self.rule(step.books);
            self.yielded.update(&self.values, rule, step);
        }
        self.update_state(step);
    }
}
