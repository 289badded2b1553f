//! Reads the time of day ([`now`]) and the steady (monotonic) clock ([`steady`]).
//!
//! The time of day is read only here, so that tests can simulate it. There are two exceptions,
//! which always read the time of the host:
//!
//! - The crates rustls and x509-parser, with which the module `auth` verifies client certificates.
//! - The crate `tracing-subscriber`, for the log lines.
//!
//! The steady clock is the clock of tokio. Code with timers reads it with `tokio::time::Instant`,
//! and other code with [`steady`]. If a test pauses tokio's clock, both return the paused time.

use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// Returns the time of day. A test can simulate the time of day with `simulated::begin`.
#[expect(
    clippy::disallowed_methods,
    reason = "the time of day is read only here"
)]
pub fn now() -> Timestamp {
    #[cfg(any(test, feature = "testing"))]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// Returns the time on the steady clock.
pub fn steady() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Returns the time that has passed on the steady clock since `then`, or zero if `then` is in the
/// future.
pub fn since(then: Instant) -> Duration {
    steady().saturating_duration_since(then)
}

/// A clock that is set once to a time of day, and then advances with the steady clock. Later
/// changes of the host's time of day do not affect it.
#[derive(Clone, Copy, Debug)]
pub struct SteadyTime {
    at: Timestamp,
    since: Instant,
}

impl SteadyTime {
    /// Creates a clock that shows `at` now.
    pub fn starting(at: Timestamp) -> Self {
        Self {
            at,
            since: steady(),
        }
    }

    /// Returns the time that the clock shows.
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(since(self.since)).unwrap_or(SignedDuration::MAX);
        self.at.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// The time of day in a test. The test sets the time once. Then the time advances with tokio's
/// clock. If the test pauses tokio's clock, a test of several hours takes no real time.
///
/// A test can simulate several hosts on one thread. The hosts share the time of day, and each host
/// can add an offset ([`Skew`](simulated::Skew)).
#[cfg(any(test, feature = "testing"))]
pub mod simulated {
    use super::SteadyTime;
    use jiff::{SignedDuration, Timestamp};
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        /// The simulated time of day of this thread.
        static TIME: Cell<Option<SteadyTime>> = const { Cell::new(None) };
        /// The clock offsets of the simulated host whose code is running on this thread.
        static SKEW: Cell<Skew> = const { Cell::new(Skew::NONE) };
    }

    /// The offsets of the clocks of one simulated host. Two hosts with different offsets have
    /// different times.
    #[derive(Clone, Copy, Debug)]
    pub struct Skew {
        /// The offset from the simulated time of day.
        pub wall: SignedDuration,
        /// The offset of the boot clock (`CLOCK_BOOTTIME`). This library does not read the boot
        /// clock. A program that uses this library can simulate its boot clock with this offset.
        pub boot: Duration,
    }

    impl Skew {
        /// A host whose clocks have no offset.
        pub const NONE: Self = Self {
            wall: SignedDuration::ZERO,
            boot: Duration::ZERO,
        };

        /// Returns the offsets of the simulated host whose code is running on this thread.
        pub fn current() -> Self {
            SKEW.get()
        }

        /// Runs `body` as if on a host with these clock offsets.
        pub fn within<T>(self, body: impl FnOnce() -> T) -> T {
            let outer = Restore(SKEW.replace(self));
            let result = body();
            drop(outer);
            result
        }
    }

    /// The previous offsets. Dropping this value restores them, also if a test panics.
    struct Restore(Skew);

    impl Drop for Restore {
        fn drop(&mut self) {
            SKEW.set(self.0);
        }
    }

    /// While this value exists, [`now`](super::now) returns the simulated time of day on the thread
    /// that called [`begin`].
    #[derive(Debug)]
    pub struct Simulated(());

    /// Sets the simulated time of day to `at`.
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
        let now = TIME.get()?.now();
        Some(now.checked_add(SKEW.get().wall).unwrap_or(Timestamp::MAX))
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
