//! The clocks of the machine: the time of day, and the steady clock. The server reads the
//! time of day only here, so that tests can replace it.
//!
//! The steady clock is tokio's in all modules. Code that sets timers takes it from
//! `tokio::time::Instant`, and other code from [`steady`]. A test that pauses tokio's time
//! stops both.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// The time of day. A test can replace it with [`simulated::begin`].
#[expect(clippy::disallowed_methods, reason = "the server's one reader of it")]
pub fn now() -> Timestamp {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// The time on the steady clock.
pub fn steady() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// How long ago the steady clock showed `then`; zero if that is yet to come.
pub fn since(then: Instant) -> Duration {
    steady().saturating_duration_since(then)
}

/// A time of day that is set once, and moves with the steady clock from then on.
#[derive(Clone, Copy, Debug)]
pub struct SteadyTime {
    at: Timestamp,
    since: Instant,
}

impl SteadyTime {
    /// It is `at` now.
    pub fn starting(at: Timestamp) -> Self {
        Self {
            at,
            since: steady(),
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(since(self.since)).unwrap_or(SignedDuration::MAX);
        self.at.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// A time of day that a test sets. It moves with tokio's clock, so that hours of it pass
/// without waiting, and two servers of one test read the same time.
#[cfg(test)]
pub mod simulated {
    use super::SteadyTime;
    use jiff::Timestamp;
    use std::cell::Cell;

    thread_local! {
        /// The time of day on this thread.
        static TIME: Cell<Option<SteadyTime>> = const { Cell::new(None) };
    }

    /// While it exists, [`now`](super::now) gives the simulated time on this thread.
    #[derive(Debug)]
    pub struct Simulated(());

    /// It is `at` now.
    pub fn begin(at: Timestamp) -> Simulated {
        TIME.set(Some(SteadyTime::starting(at)));
        Simulated(())
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            TIME.set(None);
        }
    }

    pub(super) fn now() -> Option<Timestamp> {
        Some(TIME.get()?.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_time_moves_with_the_paused_clock_of_tokio() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let begun = steady();
        let simulated = simulated::begin(at);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(now(), at + SignedDuration::from_hours(1));
        assert_eq!(since(begun), Duration::from_hours(1));
        assert_eq!(since(steady() + Duration::from_secs(1)), Duration::ZERO);
        drop(simulated);
        assert!(now() > at + SignedDuration::from_hours(2));
    }
}
