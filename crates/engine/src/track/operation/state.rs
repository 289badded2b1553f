//! The state that an operation shows. Enters: what its rule yields at each evaluation.
//! Leaves: that state, once it has lasted for the rule's `stateAfter`.

use super::{Detection, Operation};
use crate::rules::CompiledRule;
use ifo_api::live::State;
use std::time::{Duration, Instant};

/// When an object is evaluated, by the steady clock.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The time of the evaluation.
    pub now: Instant,
    /// When the object last changed. If the object does not show that, this is `now`.
    pub unchanged: Instant,
}

impl Observed {
    /// An evaluation of an object that does not show when it last changed.
    pub fn now(now: Instant) -> Self {
        Self {
            now,
            unchanged: now,
        }
    }

    /// Since when a rule has yielded the same. Time alone can change what a rule yields that
    /// reads the time.
    pub fn since(self, reads_now: bool) -> Instant {
        if reads_now { self.now } else { self.unchanged }
    }
}

/// A state that a rule yields, and since when it has yielded it without a break.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    state: State,
    since: Instant,
}

impl Yielded {
    /// The state that the rule of `speaker` yields for the first time. The speaker is the
    /// detection whose state and message the operation shows.
    pub fn first(speaker: &Detection, observed: Observed) -> Self {
        Self {
            state: speaker.state(),
            since: observed.since(speaker.rule().is_some_and(CompiledRule::state_reads_now)),
        }
    }

    /// Records the state that the rule of `speaker` yields now.
    pub fn update(&mut self, speaker: &Detection, observed: Observed) {
        if speaker.state() != self.state {
            *self = Self::first(speaker, observed);
        }
    }
}

impl Detection {
    /// The state that its rule yields.
    pub(super) fn state(&self) -> State {
        self.says.state.unwrap_or(State::Progressing)
    }
}

impl Operation {
    /// When the state that its rule yields has lasted for `stateAfter`, if it is not shown.
    pub fn state_due(&self) -> Option<Instant> {
        (self.state != self.yielded.state).then(|| self.yielded.since + self.state_after())
    }

    fn state_after(&self) -> Duration {
        self.speaker
            .rule()
            .map_or(Duration::ZERO, |rule| rule.state_after)
    }

    /// Shows the state that its rule yields, if that has lasted for long enough. During a
    /// gap of the feed the server cannot tell whether the state lasted, so the operation keeps its state.
    pub fn update_state(&mut self, now: Instant, gap: bool) {
        let state = self.yielded.state;
        let after = self.state_after();
        let at_once = state == State::Progressing || after.is_zero();
        if at_once || !gap && self.yielded.since + after <= now {
            self.state = state;
        }
    }

    /// Records the state that its rule yields now. While no rule detects the operation, the
    /// shown state stays, and a state that waits for its `stateAfter` is dropped.
    pub(super) fn settle_state(&mut self, gap: bool, observed: Observed) {
        if self.detections.is_empty() {
            self.yielded.state = self.state;
        } else {
            self.yielded.update(&self.speaker, observed);
        }
        self.update_state(observed.now, gap);
    }
}
