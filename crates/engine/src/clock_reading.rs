//! The type in which the engine's caller passes the time. The engine itself reads no clock.

use jiff::Timestamp;
use std::time::{Duration, Instant};

/// The times that the caller's two clocks show at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Time of day, which users see.
    pub wall: Timestamp,
    /// Time of the monotonic clock. Timers use it, because it never jumps.
    pub steady: Instant,
}

impl ClockReading {
    /// Returns the duration from `then` to this reading, or zero if `then` is in the future.
    pub(crate) fn since(self, then: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(then)).unwrap_or_default()
    }

    /// Returns the reading of both clocks at the earlier time of day `then`. If `then` is in the
    /// future, returns this reading. If an [`Instant`] cannot represent the earlier monotonic time,
    /// the result has the monotonic time of this reading.
    pub(crate) fn back_at(self, then: Timestamp) -> Self {
        let steady = self.steady.checked_sub(self.since(then));
        Self {
            wall: then.min(self.wall),
            steady: steady.unwrap_or(self.steady),
        }
    }
}
