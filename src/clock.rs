//! The clocks of the server:
//!
//! - The time of day and the steady clock come from [`aggregated_apiserver::clock`].
//! - The boot clock ([`boot`]) also runs while the host is suspended.
//! - The processor time of the current thread ([`processor_time`]) advances only while the thread
//!   runs.

pub use aggregated_apiserver::clock::{SteadyTime, now, since, steady};
use ifo_engine::ClockReading;
use std::time::Duration;

/// Reads the time of day and the steady clock.
pub fn reading() -> ClockReading {
    ClockReading {
        wall: now(),
        steady: steady(),
    }
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
/// the host is suspended, or is a paused virtual machine.
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

/// The simulated clocks of a test: the time of day, and the boot clock, which advances with tokio's
/// clock.
#[cfg(test)]
pub mod simulated {
    use super::{BootTime, steady};
    pub use aggregated_apiserver::clock::simulated::{Simulated, Skew, begin};
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    /// The time at which the simulated boot clock shows [`UPTIME`]. This is the time of the host's
    /// steady clock at the first use, even if the test pauses tokio's clock.
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// The boot clock's time at [`BEGIN`].
    ///
    /// If a test pauses tokio's clock, that clock stands still while the host's clock advances. If
    /// [`BEGIN`] is read after the pause, tokio's clock shows a time before [`BEGIN`]. The
    /// difference is at most the duration of the test run. A boot time cannot be negative, so this
    /// value is longer than any test run.
    const UPTIME: Duration = Duration::from_hours(24 * 365);

    pub(super) fn boot() -> BootTime {
        let now = steady();
        let (after, before) = (
            now.saturating_duration_since(*BEGIN),
            BEGIN.saturating_duration_since(now),
        );
        BootTime((UPTIME + after).saturating_sub(before) + Skew::current().boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

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
