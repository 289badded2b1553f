//! The time of the demo's world: the wall clock at the start, carried on by tokio's
//! clock, so that a test that pauses tokio's time sees timestamps that move with it.

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};
use tokio::time::Instant;

/// Tells the time of one world.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    at: Timestamp,
}

impl Clock {
    /// A clock that shows `at` now.
    pub fn starting(at: Timestamp) -> Self {
        Self {
            started: Instant::now(),
            at,
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        let passed =
            SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// The time `seconds` ago, as objects carry it.
    pub fn ago(&self, seconds: i64) -> String {
        let then = self.now().checked_sub(SignedDuration::from_secs(seconds));
        stamp(then.unwrap_or(Timestamp::MIN))
    }

    /// The time now, as objects carry it: RFC 3339 in whole seconds.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

/// RFC 3339 in whole seconds, as Kubernetes writes it.
fn stamp(at: Timestamp) -> String {
    whole_second(at).to_string()
}

/// The second in which `at` is: cut, not rounded, so never in the future.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    let floor = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    at.round(floor).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_time_follows_tokio_and_is_cut_to_whole_seconds() {
        let clock = Clock::starting("2026-01-01T00:00:00.9Z".parse().unwrap());
        assert_eq!(clock.stamp(), "2026-01-01T00:00:00Z");
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.stamp(), "2026-01-01T00:01:30Z");
        assert_eq!(clock.ago(31), "2026-01-01T00:00:59Z");
    }
}
