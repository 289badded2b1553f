//! Limits how many writes of custom resources the leader sends per second. Pauses all requests for
//! custom resources after failures that concern all objects.

use std::time::Duration;
use tokio::time::Instant;

/// The time between two writes at the steady rate of 50 writes per second. If 1,000 operations start
/// together, the first 100 writes ([`BURST`]) are sent without delay, and the others take 18 s. This
/// is a small load for a kube-apiserver.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// The largest number of writes that may be sent without delay after an idle period of 2 s or more.
const BURST: u32 = 100;

/// The longest delay after the first failure. Each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The longest back-off while the kube-apiserver is unreachable.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The longest pause that a kube-apiserver can request.
const MAX_PAUSE: Duration = Duration::from_mins(10);

/// Returns the delay between a failure and the next attempt. `failures` is the number of earlier
/// failures.
///
/// The longest delay is 500 ms, doubled for each earlier failure, but at most `most`. The returned
/// delay is random, and at least half of the longest delay. So the retries of several objects do not
/// all come at the same time.
pub(super) fn delay(failures: u32, most: Duration) -> Duration {
    // The limit of 16 prevents an overflow. 500 ms · 2^16 is 9 hours.
    let step = (FIRST_DELAY * 2_u32.pow(failures.min(16))).min(most);
    step.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// The times of the next requests.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time at which the next write is due at the steady rate. Each write makes this time later
    /// by [`WRITE_INTERVAL`]. A write may be sent up to `BURST - 1` intervals before this time.
    next_write: Instant,
    /// The end of the current or last pause. No request is sent during a pause.
    paused_until: Option<Instant>,
    /// The number of consecutive failures that concern all objects.
    failures: u32,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self {
            next_write: now,
            paused_until: None,
            failures: 0,
        }
    }

    /// Returns the end of the current pause. Returns None if no pause is active.
    pub fn pause_end(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Returns true after a failure that concerns all objects, until a request shows that the
    /// kube-apiserver works.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Takes the permission for one write. If no write is allowed now, returns the time from which
    /// on the next write is allowed.
    pub fn take_slot(&mut self, now: Instant) -> Result<(), Instant> {
        let ahead = WRITE_INTERVAL * (BURST - 1);
        if self.next_write > now + ahead {
            return Err(self.next_write - ahead);
        }
        self.next_write = self.next_write.max(now) + WRITE_INTERVAL;
        Ok(())
    }

    /// Records that the kube-apiserver works.
    pub fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Starts a pause, because requests for all objects fail. The pause lasts for the back-off or
    /// for `pause`, whichever is longer.
    pub fn record_failure(&mut self, pause: Option<Duration>, now: Instant) {
        if self.pause_end(now).is_some() && pause.is_none() {
            // Several requests can fail together. Then only the first failure counts.
            return;
        }
        let own = delay(self.failures, MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        let pause = pause.unwrap_or_default().max(own).min(MAX_PAUSE);
        self.paused_until = self.paused_until.max(Some(now + pause));
    }
}
