//! Limits the rate of writes of custom resources, and delays them after failures.

use std::time::Duration;
use tokio::time::Instant;

/// The largest number of writes per second while many writes wait. A thousand operations that start
/// together are then written in 20 s. A kube-apiserver handles thousands of writes per second.
const WRITES_PER_SECOND: u32 = 50;

/// The time between two writes at the largest rate.
const WRITE_INTERVAL: Duration = Duration::from_millis(1000 / WRITES_PER_SECOND as u64);

/// The number of writes that may be sent at once after an idle period.
const BURST: u32 = 100;

/// The delay after the first failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The number of slots that a refused write takes. A slot is the permission for one write. So if
/// every write is refused, five writes per second are attempted.
const REFUSED_WRITE_COST: u32 = 10;

/// The longest delay while the kube-apiserver is unreachable.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(30);

/// The longest delay for one object while the server stops. It is short, because the server then
/// has only 10 s to write all waiting changes.
pub(super) const MAX_DRAINING_DELAY: Duration = Duration::from_secs(1);

/// The longest accepted `Retry-After`. A longer time is shortened to this time.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Returns the delay after this number of earlier failures: a random time between half of the
/// back-off step and the whole step. The step is at most `most`.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // 500 ms · 2^16 is 9 h, which is longer than any `most`.
    let step = (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Limits the rate of writes, and pauses all requests after failures.
#[derive(Debug)]
pub(super) struct WritePace {
    /// The time at which the next write would be sent at the steady rate.
    next_steady_write: Instant,
    paused_until: Option<Instant>,
    /// The number of consecutive failures that affect all requests.
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

    /// Returns the end of the pause in which no request may be sent. Returns None if there is no
    /// pause.
    pub fn pause_end(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Returns true if no request has succeeded since the last failure that affects all requests.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Takes a slot for one write. If no slot is free, returns the time of the next free slot.
    pub fn take_slot(&mut self, now: Instant) -> Result<(), Instant> {
        let ahead = WRITE_INTERVAL * (BURST - 1);
        if self.next_steady_write > now + ahead {
            return Err(self.next_steady_write - ahead);
        }
        self.next_steady_write = self.next_steady_write.max(now) + WRITE_INTERVAL;
        Ok(())
    }

    /// Records that a request succeeded.
    pub fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Records that the kube-apiserver refused a write.
    pub fn record_refusal(&mut self, now: Instant) {
        self.record_success();
        self.next_steady_write =
            self.next_steady_write.max(now) + WRITE_INTERVAL * (REFUSED_WRITE_COST - 1);
    }

    /// Records that the kube-apiserver is unreachable, or that it requests a pause of `pause`.
    pub fn record_failure(&mut self, pause: Option<Duration>, now: Instant) {
        if self.pause_end(now).is_some() && pause.is_none() {
            // If requests that were sent together fail together, their failures count once.
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
                pace.record_failure(None, now);
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
        pace.record_failure(None, now);
        pace.record_failure(Some(Duration::from_secs(42)), now);
        assert_eq!(pace.pause_end(now), Some(now + Duration::from_secs(42)));
        pace.record_failure(Some(Duration::from_secs(7)), now);
        assert_eq!(pace.pause_end(now), Some(now + Duration::from_secs(42)));
    }
}
