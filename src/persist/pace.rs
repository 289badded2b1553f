//! How fast writes may follow each other: a steady rate, and none for a while after
//! trouble.

use std::time::Duration;
use tokio::time::Instant;

/// Writes in a second, when there is a backlog: a thousand operations that start at once
/// are in the cluster after 20 s, and the kube-apiserver, which does thousands in a
/// second, does not notice.
const RATE: u32 = 50;

/// Writes that may come at once after a quiet time.
const BURST: u32 = 100;

/// The first delay after trouble; the next ones double.
const FIRST: Duration = Duration::from_millis(500);

/// The longest delay while the kube-apiserver is away …
const MAX_AWAY: Duration = Duration::from_secs(30);
/// … and for an object that is refused again and again.
pub(super) const MAX_OBJECT: Duration = Duration::from_mins(5);
/// The same while the queue empties itself before the end: it has 10 s.
pub(super) const MAX_DRAINING: Duration = Duration::from_secs(1);

/// The longest delay after one of the first refusals in a row …
pub(super) const MAX_REFUSED: Duration = Duration::from_secs(4);
/// … and after the next ones: a few writes a second find out which are not refused.
pub(super) const PROBE: Duration = Duration::from_millis(200);

/// The longest `Retry-After` that is honoured: a larger one is taken for a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Half to all of a doubling step, of at most `most`.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // 500 ms · 2^16 is 9 h; no limit is longer.
    let step = (FIRST * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// See above.
#[derive(Debug)]
pub(super) struct Pace {
    /// When a write would be on time, were there one at each tick of the rate.
    on_time: Instant,
    paused_until: Option<Instant>,
    /// Times in a row that the server was away.
    failures: u32,
    /// Whether the last write failed for a reason that is about all of them.
    trouble: bool,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self {
            on_time: now,
            paused_until: None,
            failures: 0,
            trouble: false,
        }
    }

    /// Until when nothing may be sent.
    pub fn paused(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Whether nothing succeeded since the last trouble.
    pub fn in_trouble(&self) -> bool {
        self.trouble
    }

    /// Takes a place, or says when the next one is free.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let tick = Duration::from_secs(1) / RATE;
        let ahead = tick * (BURST - 1);
        if self.on_time > now + ahead {
            return Err(self.on_time - ahead);
        }
        self.on_time = self.on_time.max(now) + tick;
        Ok(())
    }

    /// The server answers as it should.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.trouble = false;
    }

    /// The server was away, and may have said for how long.
    pub fn failed(&mut self, retry_after: Option<Duration>, now: Instant) {
        if self.paused(now).is_some() && retry_after.is_none() {
            return; // Another of the same moment.
        }
        let own = delay(self.failures, MAX_AWAY);
        self.failures = self.failures.saturating_add(1);
        self.wait(retry_after.map_or(own, |after| after.max(own)), now);
    }

    /// Nothing is to be sent for `time`.
    pub fn wait(&mut self, time: Duration, now: Instant) {
        self.trouble = true;
        let until = now + time.min(MAX_RETRY_AFTER);
        self.paused_until = Some(self.paused_until.map_or(until, |before| before.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_there_is_a_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut now = start;
        for _ in 0..(BURST + 10 * RATE) {
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
    async fn delays_double_up_to_half_a_minute_and_failures_of_one_moment_count_once() {
        let mut pace = Pace::new(Instant::now());
        let mut now = Instant::now();
        for step in 0..20 {
            for _ in 0..4 {
                pace.failed(None, now);
            }
            let until = pace.paused(now).expect("it is paused");
            let most = (FIRST * 2_u32.pow(step)).min(MAX_AWAY);
            assert!(until - now >= most / 2 && until - now <= most, "{step}");
            now = until;
            assert_eq!(pace.paused(now), None);
            assert!(pace.in_trouble());
        }
        pace.succeeded();
        assert!(!pace.in_trouble());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_asks_for_is_waited_in_full() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.failed(None, now);
        pace.failed(Some(Duration::from_secs(42)), now);
        assert_eq!(pace.paused(now), Some(now + Duration::from_secs(42)));
        pace.wait(Duration::from_secs(7), now);
        assert_eq!(pace.paused(now), Some(now + Duration::from_secs(42)));
    }
}
