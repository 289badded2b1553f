//! Computes the delay before the next attempt to reach an API server (exponential backoff). When an
//! API server restarts, all watches lose their connection at the same moment. The delay has a random
//! part (jitter), so that the watches do not reconnect at the same moment. The server also waits for
//! this delay before it restarts a feed that has ended unexpectedly.

use kube::runtime::utils;
use std::time::Duration;
use tokio::time::Instant;

/// The first step, from which the delay is computed. The delay is a random time between half of the
/// step and the whole step. Each ended attempt doubles the step, up to a maximum.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// An attempt that lasts at least this long resets the number of ended attempts. The attempt begins
/// before its first request, and ends when its watch ends. A shorter attempt does not reset the
/// number, even if the attempt ends without an error. So if an API server ends each watch at once,
/// the delay grows.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Minimum delay of a [`WatchBackoff`], as in the kube crate. Just after its start, a kube-apiserver
/// does not serve all resources yet.
const MIN_WATCH_DELAY: Duration = Duration::from_millis(800);

/// Maximum delay of a [`WatchBackoff`]. It is short, because users of the plugin wait for the
/// watch.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(10);

/// Counts the attempts that ended since the last attempt that lasted at least `STABLE_AFTER`.
#[derive(Debug, Default)]
pub struct Backoff {
    ended_attempts: u32,
}

impl Backoff {
    /// Returns the delay after an attempt that began at `began` and has just ended. The delay is a
    /// random time between half of a step and the whole step. The step begins at `FIRST_DELAY`
    /// and doubles with each ended attempt, up to `cap`.
    pub fn next(&mut self, began: Instant, cap: Duration) -> Duration {
        if began.elapsed() >= STABLE_AFTER {
            self.ended_attempts = 0;
        }
        // The exponent is limited, so that the product cannot overflow. The largest step is
        // 250 ms · 2^16, which is 4.5 h.
        let step = (FIRST_DELAY * 2_u32.pow(self.ended_attempts.min(16))).min(cap);
        self.ended_attempts = self.ended_attempts.saturating_add(1);
        step.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// The delays after errors of a watch of the kube crate: at least 800 ms, and at most 10 s.
#[derive(Debug, Default)]
pub struct WatchBackoff {
    backoff: Backoff,
    /// Begin of the newest attempt. None before the first error.
    began: Option<Instant>,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let delay = self
            .backoff
            .next(self.began.unwrap_or(now), MAX_WATCH_DELAY)
            .max(MIN_WATCH_DELAY);
        self.began = Some(now + delay);
        Some(delay)
    }
}

impl utils::Backoff for WatchBackoff {
    /// Does nothing. The kube crate calls this method after each `Ok` of the watch, also after
    /// `Event::Init`. The watch returns this event before each list, even if the list then fails.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use kube::runtime::WatchStreamExt as _;

    #[test]
    fn delays_double_with_jitter_up_to_the_cap() {
        let cap = Duration::from_secs(5);
        let mut backoff = Backoff::default();
        let delays: Vec<_> = (0..40).map(|_| backoff.next(Instant::now(), cap)).collect();
        for (n, delay) in delays.iter().enumerate() {
            let step = (FIRST_DELAY * 2_u32.pow(u32::try_from(n).unwrap().min(16))).min(cap);
            assert!(*delay >= step / 2 && *delay <= step, "{n}: {delay:?}");
        }
        assert!(
            delays[30..].iter().any(|d| d != &delays[30]),
            "the delays must have jitter"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_stable_attempt_resets_the_delay() {
        let cap = Duration::from_secs(5);
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.next(Instant::now(), cap);
        }
        let began = Instant::now();
        assert!(backoff.next(began, cap) > FIRST_DELAY);
        tokio::time::advance(STABLE_AFTER).await;
        assert!(backoff.next(began, cap) <= FIRST_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_list_always_fails_backs_off() {
        let init_then_failure = stream::iter([Ok("Init"), Err("403")]).cycle();
        let events = init_then_failure.backoff(WatchBackoff::default());
        let began = Instant::now();
        let errors: Vec<_> = events.take(40).collect().await;
        assert_eq!(errors.len(), 40);
        let elapsed = began.elapsed().as_secs();
        // 19 delays: seven shorter ones, and at least 12 of 5 s to 10 s.
        assert!((60..180).contains(&elapsed), "{elapsed} s");
    }
}
