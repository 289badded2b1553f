//! Reads the time of day. No other module of the plugin reads the system clock. Functions under
//! test get the time as an argument, and timers use the clock of tokio.

use jiff::Timestamp;
use std::sync::OnceLock;

/// The time of the files that the command reads instead of a cluster.
static TIME_OF_FILES: OnceLock<Timestamp> = OnceLock::new();

/// Stops the clock at the time of the files that the command reads, so that ages are relative to
/// that time. Only the first call has an effect.
pub(crate) fn set(time: Timestamp) {
    let _ = TIME_OF_FILES.set(time);
}

/// Returns the time that was passed to [`set`]. If [`set`] was not called, returns the current time
/// of the system clock.
#[expect(clippy::disallowed_methods, reason = "the plugin's one reader of it")]
pub(crate) fn now() -> Timestamp {
    TIME_OF_FILES.get().copied().unwrap_or_else(Timestamp::now)
}
