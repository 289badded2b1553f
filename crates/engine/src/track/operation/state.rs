//! The state of an operation. Input: the state that its rule yields at each evaluation. Output: the
//! shown state, which changes when the new state has lasted for the rule's `stateAfter`.

use super::{Detection, Operation};
use crate::rules::CompiledRule;
use ifo_api::live::State;
use std::time::{Duration, Instant};

/// The time of an evaluation on the steady clock.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The time of the evaluation.
    pub now: Instant,
    /// The time of the object's last change. If it is not known, this is `now`.
    pub unchanged: Instant,
}

impl Observed {
    /// An evaluation of an object whose last change is not known.
    pub fn now(now: Instant) -> Self {
        Self {
            now,
            unchanged: now,
        }
    }

    /// The time since which the rule has yielded the same value. If the rule reads the time, it can
    /// change without a change of the object.
    pub fn since(self, reads_now: bool) -> Instant {
        if reads_now { self.now } else { self.unchanged }
    }
}

/// A state that a rule yields, and the time since which it has yielded it without a break.
#[derive(Clone, Copy, Debug)]
pub struct Yielded {
    state: State,
    since: Instant,
}

impl Yielded {
    /// The first state that the rule of `speaker` yields. The speaker is the detection that
    /// describes the operation.
    pub fn first(speaker: &Detection, observed: Observed) -> Self {
        Self {
            state: speaker.state(),
            since: observed.since(speaker.rule().is_some_and(CompiledRule::state_reads_now)),
        }
    }

    /// Records the state that the rule of `speaker` yields.
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
    /// The time at which the yielded state will have lasted for `stateAfter`, if it is not shown
    /// yet.
    pub fn state_due(&self) -> Option<Instant> {
        (self.state != self.yielded.state).then(|| self.yielded.since + self.state_after())
    }

    fn state_after(&self) -> Duration {
        self.speaker
            .rule()
            .map_or(Duration::ZERO, |rule| rule.state_after)
    }

    /// Shows the yielded state if it has lasted for long enough. During a gap of the feed, the
    /// shown state stays, because the server cannot know whether the state lasted.
    pub fn update_state(&mut self, now: Instant, gap: bool) {
        let state = self.yielded.state;
        let after = self.state_after();
        let at_once = state == State::Progressing || after.is_zero();
        if at_once || !gap && self.yielded.since + after <= now {
            self.state = state;
        }
    }

    /// Records the yielded state. While no rule detects the operation, the shown state stays, and a
    /// state that waits for its `stateAfter` is dropped.
    pub(super) fn settle_state(&mut self, gap: bool, observed: Observed) {
        if self.detections.is_empty() {
            self.yielded.state = self.state;
        } else {
            self.yielded.update(&self.speaker, observed);
        }
        self.update_state(observed.now, gap);
    }
}
