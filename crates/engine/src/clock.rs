//! The time, which the caller of the engine reads and gives to it.

use jiff::Timestamp;
use std::time::{Duration, Instant};

/// The times of the caller's clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The time of day. It is shown to people.
    pub wall: Timestamp,
    /// The steady clock. Timers use it, because it does not jump.
    pub steady: Instant,
}

impl ClockReading {
    /// The time since `then`. It is zero if `then` is still to come.
    pub(crate) fn since(self, then: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(then)).unwrap_or_default()
    }

    /// The moment `then` on both clocks, at the latest the moment of this reading.
    pub(crate) fn back_at(self, then: Timestamp) -> Self {
        let steady = self.steady.checked_sub(self.since(then));
        Self {
            wall: then.min(self.wall),
            steady: steady.unwrap_or(self.steady),
        }
    }
}
