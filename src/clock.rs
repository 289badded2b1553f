//! Reads four clocks of the host:
//!
//! - The time of day ([`now`]).
//! - The steady (monotonic) clock ([`steady`]), which is tokio's clock.
//! - The boot clock ([`boot`]), which also runs while the host is suspended.
//! - The clock of the current thread ([`processor_time`]), which runs only while the thread runs.
//!
//! The server reads the time of day only in this module, so that tests can replace the time of day.
//! There are two exceptions: rustls reads the time of day when it verifies client certificates, and
//! `tracing-subscriber` reads it for the log lines.
//!
//! Code with timers reads the steady clock with `tokio::time::Instant`, and other code reads it
//! with [`steady`]. If a test pauses tokio's clock, both ways return the paused time.

use ifo_engine::ClockReading;
use jiff::{SignedDuration, Timestamp};
use std::time::{Duration, Instant};

/// Returns the time of day. A test can replace it with `simulated::begin`.
#[expect(
    clippy::disallowed_methods,
    reason = "the server reads the time of day only here"
)]
pub fn now() -> Timestamp {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// Returns the time on the steady clock.
pub fn steady() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Reads the time of day and the steady clock.
pub fn reading() -> ClockReading {
    ClockReading {
        wall: now(),
        steady: steady(),
    }
}

/// Returns the time that has passed on the steady clock since `then`, or zero if `then` is in the
/// future.
pub fn since(then: Instant) -> Duration {
    steady().saturating_duration_since(then)
}

/// Returns the processor time that the current thread has used.
pub fn processor_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// A time on the boot clock, counted from the start of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// The latest time that the type can hold.
    pub const MAX: Self = Self(Duration::MAX);

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is after `self`.
    pub fn since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, duration: Duration) -> BootTime {
        BootTime(self.0.saturating_add(duration))
    }
}

/// Returns the time since the host started. Unlike the steady clock, the boot clock also runs while
/// the host is suspended, and while the host is a paused virtual machine.
pub fn boot() -> BootTime {
    #[cfg(test)]
    return simulated::boot();
    #[cfg(not(test))]
    {
        use rustix::time::{ClockId, clock_gettime};
        // Systems other than Linux may have no boot clock. There, CLOCK_MONOTONIC is the nearest
        // clock.
        #[cfg(target_os = "linux")]
        let id = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = ClockId::Monotonic;
        BootTime(duration(clock_gettime(id)))
    }
}

fn duration(time: rustix::time::Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
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

/// The time of day and the boot clock in a test. The test sets the time of day once. Then the time
/// of day advances with tokio's clock. If the test pauses tokio's clock, a test of several hours
/// takes no real time. Simulated hosts on one thread share the time of day, and each host can add
/// an offset ([`Skew`](simulated::Skew)).
#[cfg(test)]
pub mod simulated {
    use super::{BootTime, SteadyTime, steady};
    use jiff::{SignedDuration, Timestamp};
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    /// The time at which the simulated boot clock shows [`UPTIME`]. This is the time of the host's
    /// steady clock, even if the test pauses tokio's clock. It is read at the first use.
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// The boot clock's time at [`BEGIN`].
    ///
    /// If a test pauses tokio's clock, that clock stands still while the host's clock advances. If
    /// [`BEGIN`] is read after the pause, tokio's clock shows a time before [`BEGIN`]. The
    /// difference is at most the duration of the test run. A boot time cannot be negative, so this
    /// value is longer than any test run.
    const UPTIME: Duration = Duration::from_hours(24 * 365);

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
        /// The offset from the simulated boot clock.
        pub boot: Duration,
    }

    impl Skew {
        /// A host whose clocks have no offset.
        pub const NONE: Self = Self {
            wall: SignedDuration::ZERO,
            boot: Duration::ZERO,
        };

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

    pub(super) fn boot() -> BootTime {
        let now = steady();
        let (after, before) = (
            now.saturating_duration_since(*BEGIN),
            BEGIN.saturating_duration_since(now),
        );
        BootTime((UPTIME + after).saturating_sub(before) + SKEW.get().boot)
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

    #[tokio::test(start_paused = true)]
    async fn clocks_of_simulated_hosts_have_offsets_and_advance_together() {
        let skew = simulated::Skew {
            wall: SignedDuration::from_hours(-1),
            boot: Duration::from_hours(3),
        };
        let _simulated = simulated::begin("2026-01-01T00:00:00Z".parse().unwrap());
        let (wall, begun) = (now(), boot());
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(boot().since(begun), Duration::from_mins(2));
        assert_eq!(begun.since(boot()), Duration::ZERO);
        let (there, booted) = skew.within(|| (now(), boot()));
        assert_eq!(there, wall + SignedDuration::from_mins(2 - 60));
        assert_eq!(booted, begun + Duration::from_mins(182));
        assert_eq!(now(), wall + SignedDuration::from_mins(2));
    }
}
