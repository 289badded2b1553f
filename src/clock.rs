//! The time of day. Tests move it along with tokio's clock, so that hours of it pass without
//! waiting and two servers of one test read the same time.

use jiff::Timestamp;

/// The time now.
pub fn now() -> Timestamp {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// A clock of the tests' own.
#[cfg(test)]
pub mod simulated {
    use jiff::Timestamp;
    use std::cell::Cell;
    use tokio::time::Instant;

    thread_local! {
        /// What time it was when, on this thread.
        static SINCE: Cell<Option<(Timestamp, Instant)>> = const { Cell::new(None) };
    }

    /// As long as it is there, the time of day on this thread goes as tokio's clock does.
    #[derive(Debug)]
    pub struct Simulated(());

    /// It is `at` now.
    pub fn begin(at: Timestamp) -> Simulated {
        SINCE.set(Some((at, Instant::now())));
        Simulated(())
    }

    impl Drop for Simulated {
        fn drop(&mut self) {
            SINCE.set(None);
        }
    }

    pub(super) fn now() -> Option<Timestamp> {
        let (at, since) = SINCE.get()?;
        Some(at + since.elapsed())
    }
}
