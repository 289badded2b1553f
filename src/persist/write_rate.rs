//! Limits how many writes of custom resources the leader sends per second. Pauses all requests for
//! custom resources after failures that concern all objects.

use std::time::Duration;
use tokio::time::Instant;

/// The steady rate: the number of writes per second while more writes are waiting. For example, if
/// 1,000 operations start together, the first 100 writes ([`BURST`]) are sent without delay. The
/// other 900 writes take 18 s. This is a small load for a kube-apiserver, which handles thousands
/// of writes per second.
const WRITES_PER_SECOND: u32 = 50;

/// The time between two writes at the steady rate: 20 ms.
const WRITE_INTERVAL: Duration = Duration::from_millis(1000 / WRITES_PER_SECOND as u64);

/// The largest number of writes that may be sent without delay after an idle period of 2 s or more.
const BURST: u32 = 100;

/// The longest delay after the first failure. Each further failure doubles this longest delay, up
/// to the limit that the caller passes to [`delay`].
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// A write that the kube-apiserver refuses counts as this number of writes. So if all writes are
/// refused, the leader sends at most 5 writes per second (50 / 10) after the first burst.
const REFUSED_WRITE_COST: u32 = 10;

/// The longest back-off while the kube-apiserver is unreachable.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(30);

/// The longest back-off between two attempts for one object while the server stops. The server has
/// only 10 s to write all waiting changes, so the back-off must be short.
pub(super) const MAX_DRAINING_DELAY: Duration = Duration::from_secs(1);

/// The longest pause. If a header `Retry-After` asks for a longer pause, the leader still pauses
/// only for this time.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Returns the delay between a failure and the next attempt. `failures` is the number of failures
/// before this failure.
///
/// The longest delay is 500 ms, doubled for each of the earlier failures, but at most `most`. The
/// returned delay is random: at least half of the longest delay, and at most the longest delay. For
/// example, after two earlier failures the delay is 1 s to 2 s. Because the delay is random, the
/// retries of several objects do not all come at the same time.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // The limit of 16 prevents an overflow. 500 ms · 2^16 is 9 hours.
    let step = (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Limits the rate of writes, and pauses all requests for custom resources while the kube-apiserver
/// is unavailable.
#[derive(Debug)]
pub(super) struct WritePace {
    /// The time at which the next write is due at the steady rate. Each write makes this time later
    /// by [`WRITE_INTERVAL`]. A write may be sent up to `BURST - 1` intervals before this time.
    next_steady_write: Instant,
    /// The end of the current or last pause. No request is sent during a pause. None if there was
    /// no pause yet.
    paused_until: Option<Instant>,
    /// The number of consecutive failures that concern all objects, for example because the
    /// kube-apiserver is unreachable or the CRD is missing. If the kube-apiserver refuses a write
    /// of one object, this number becomes 0.
    failures: u32,
}

impl WritePace {
    pub fn new(now: Instant) -> Self {
        Self {
            next_steady_write: now,
            paused_until: None,
            failures: 0,
        }
    }

    /// Returns the end of the current pause. Returns None if no pause is active.
    pub fn pause_end(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Returns true after a failure that concerns all objects, until the kube-apiserver processes
    /// or refuses a request.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Takes the permission for one write. If no write is allowed now, returns the time from which
    /// on the next write is allowed.
    pub fn take_slot(&mut self, now: Instant) -> Result<(), Instant> {
        let ahead = WRITE_INTERVAL * (BURST - 1);
        if self.next_steady_write > now + ahead {
            return Err(self.next_steady_write - ahead);
        }
        self.next_steady_write = self.next_steady_write.max(now) + WRITE_INTERVAL;
        Ok(())
    }

    /// Records that the kube-apiserver processed a request. The next back-off starts again with
    /// [`FIRST_DELAY`].
    pub fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Records that the kube-apiserver refused a write. The write counts as
    /// [`REFUSED_WRITE_COST`] writes.
    pub fn record_refusal(&mut self, now: Instant) {
        self.record_success();
        self.next_steady_write =
            self.next_steady_write.max(now) + WRITE_INTERVAL * (REFUSED_WRITE_COST - 1);
    }

    /// Starts a pause, because requests for all objects fail. The pause lasts for the back-off or
    /// for `pause`, whichever is longer, but at most [`MAX_RETRY_AFTER`]. `pause` is the time in
    /// the header `Retry-After`, or the retry interval for a missing CRD. None if there is no such
    /// time.
    pub fn record_general_failure(&mut self, pause: Option<Duration>, now: Instant) {
        if self.pause_end(now).is_some() && pause.is_none() {
            // Several requests can be in flight at the same time. If they fail together, only the
            // first failure counts.
            return;
        }
        let own = delay(self.failures, MAX_UNREACHABLE_DELAY);
        self.failures = self.failures.saturating_add(1);
        let pause = pause.unwrap_or_default().max(own).min(MAX_RETRY_AFTER);
        self.paused_until = self.paused_until.max(Some(now + pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_applies_after_a_burst() {
        let start = Instant::now();
        let mut pace = WritePace::new(start);
        let mut now = start;
        for _ in 0..(BURST + 10 * WRITES_PER_SECOND) {
            while let Err(at) = pace.take_slot(now) {
                assert!(at > now);
                now = at;
            }
        }
        assert_eq!((now - start).as_millis(), 10_000);
        let mut free = 0;
        while pace.take_slot(now + Duration::from_mins(1)).is_ok() {
            free += 1;
        }
        assert_eq!(free, BURST, "an idle period must allow at most one burst");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_writes_take_ten_slots() {
        let start = Instant::now();
        let (mut pace, mut now, mut attempts) = (WritePace::new(start), start, 0);
        while now < start + Duration::from_mins(1) {
            match pace.take_slot(now) {
                Ok(()) => {
                    attempts += 1;
                    pace.record_refusal(now);
                }
                Err(at) => now = at,
            }
        }
        assert_eq!(
            attempts,
            BURST / REFUSED_WRITE_COST + 60 * WRITES_PER_SECOND / REFUSED_WRITE_COST
        );
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_30_s_and_simultaneous_failures_count_once() {
        let mut pace = WritePace::new(Instant::now());
        let mut now = Instant::now();
        for step in 0..20 {
            for _ in 0..4 {
                pace.record_general_failure(None, now);
            }
            let until = pace.pause_end(now).expect("a failure starts a pause");
            let most = (FIRST_DELAY * 2_u32.pow(step)).min(MAX_UNREACHABLE_DELAY);
            assert!(until - now >= most / 2 && until - now <= most, "{step}");
            now = until;
            assert_eq!(pace.pause_end(now), None);
            assert!(pace.is_failing());
        }
        pace.record_success();
        assert!(!pace.is_failing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_lasts_as_long_as_the_longest_retry_after() {
        let now = Instant::now();
        let mut pace = WritePace::new(now);
        pace.record_general_failure(None, now);
        pace.record_general_failure(Some(Duration::from_secs(42)), now);
        assert_eq!(pace.pause_end(now), Some(now + Duration::from_secs(42)));
        pace.record_general_failure(Some(Duration::from_secs(7)), now);
        assert_eq!(pace.pause_end(now), Some(now + Duration::from_secs(42)));
    }
}
