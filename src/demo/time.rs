//! The time in the demo's world, and the timestamps of its objects. It starts at the time
//! of day, and moves with the steady clock, so that a test that pauses tokio's time sees
//! timestamps that move with it.

use crate::clock::SteadyTime;
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};

/// Tells the time of one world.
#[derive(Clone, Copy, Debug)]
pub struct WorldTime(SteadyTime);

impl WorldTime {
    /// It is `at` now.
    pub fn starting(at: Timestamp) -> Self {
        Self(SteadyTime::starting(at))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.0.now()
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
        let time = WorldTime::starting("2026-01-01T00:00:00.9Z".parse().unwrap());
        assert_eq!(time.stamp(), "2026-01-01T00:00:00Z");
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(time.stamp(), "2026-01-01T00:01:30Z");
        assert_eq!(time.ago(31), "2026-01-01T00:00:59Z");
    }
}
