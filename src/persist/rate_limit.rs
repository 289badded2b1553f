//! Limits the rate of writes, and pauses them after failures.

use std::time::Duration;
use tokio::time::Instant;

/// Largest number of writes per second if there is a backlog. With it, a thousand operations that
/// start together are written in 20 s. A kube-apiserver handles thousands of writes per second.
const WRITES_PER_SECOND: u32 = 50;

/// Interval between two writes at this rate.
const WRITE_INTERVAL: Duration = Duration::from_millis(1000 / WRITES_PER_SECOND as u64);

/// Number of writes that may be sent together after an idle period.
const BURST: u32 = 100;

/// The first delay after a failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// Number of other writes that a refused write counts for. So if every write is refused, there are
/// five attempts per second.
const REFUSED_WRITE_COST: u32 = 10;

/// The longest delay while the kube-apiserver is unreachable.
const MAX_UNREACHABLE_DELAY: Duration = Duration::from_secs(30);
/// The longest delay for one object while the queue is emptied before the end, which takes at most
/// 10 s.
pub(super) const MAX_DRAINING_DELAY: Duration = Duration::from_secs(1);

/// The longest `Retry-After` that is honoured. A longer one is treated as an error.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Returns a random delay from half to all of the back-off step, which is at most `most`.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // 500 ms · 2^16 is 9 h, and no limit is longer.
    let step = (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Limits the rate of writes.
#[derive(Debug)]
pub(super) struct WritePace {
    /// The scheduled time of the next write at the steady rate.
    on_time: Instant,
    paused_until: Option<Instant>,
    /// Number of consecutive failures that affect all requests.
    failures: u32,
}

impl WritePace {
    pub fn new(now: Instant) -> Self {
        Self {
            on_time: now,
            paused_until: None,
            failures: 0,
        }
    }

    /// Returns the time until which no request may be sent.
    pub fn paused(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Returns true if no request succeeded since the last failure.
    pub fn in_trouble(&self) -> bool {
        self.failures > 0
    }

    /// Takes a slot for a write. If none is free, returns the time of the next free slot.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let ahead = WRITE_INTERVAL * (BURST - 1);
        if self.on_time > now + ahead {
            return Err(self.on_time - ahead);
        }
        self.on_time = self.on_time.max(now) + WRITE_INTERVAL;
        Ok(())
    }

    /// Records a success.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records that the server refused a write.
    pub fn refused(&mut self, now: Instant) {
        self.succeeded();
        self.on_time = self.on_time.max(now) + WRITE_INTERVAL * (REFUSED_WRITE_COST - 1);
    }

    /// Records that the server is unreachable, or requests a pause of this time.
    pub fn failed(&mut self, pause: Option<Duration>, now: Instant) {
        if self.paused(now).is_some() && pause.is_none() {
            return; // Another of the same moment.
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
    async fn a_burst_is_free_and_then_the_rate_applies() {
        let start = Instant::now();
        let mut pace = WritePace::new(start);
        let mut now = start;
        for _ in 0..(BURST + 10 * WRITES_PER_SECOND) {
            while let Err(at) = pace.take(now) {
                assert!(at > now);
                now = at;
            }
        }
        assert_eq!((now - start).as_millis(), 10_000);
        let mut free = 0;
        while pace.take(now + Duration::from_mins(1)).is_ok() {
            free += 1;
        }
        assert_eq!(free, BURST, "a long rest saves up no more than that");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_writes_are_slower() {
        let start = Instant::now();
        let (mut pace, mut now, mut attempts) = (WritePace::new(start), start, 0);
        while now < start + Duration::from_mins(1) {
            match pace.take(now) {
                Ok(()) => {
                    attempts += 1;
                    pace.refused(now);
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
                pace.failed(None, now);
            }
            let until = pace.paused(now).expect("it is paused");
            let most = (FIRST_DELAY * 2_u32.pow(step)).min(MAX_UNREACHABLE_DELAY);
            assert!(until - now >= most / 2 && until - now <= most, "{step}");
            now = until;
            assert_eq!(pace.paused(now), None);
            assert!(pace.in_trouble());
        }
        pace.succeeded();
        assert!(!pace.in_trouble());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_waited_in_full() {
        let now = Instant::now();
        let mut pace = WritePace::new(now);
        pace.failed(None, now);
        pace.failed(Some(Duration::from_secs(42)), now);
        assert_eq!(pace.paused(now), Some(now + Duration::from_secs(42)));
        pace.failed(Some(Duration::from_secs(7)), now);
        assert_eq!(pace.paused(now), Some(now + Duration::from_secs(42)));
    }
}
