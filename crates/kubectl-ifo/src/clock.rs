//! Reads the time of day. No other module of the plugin reads the system clock. Functions under
//! test get the time as an argument, and timers use the clock of tokio.

use jiff::Timestamp;
use std::sync::OnceLock;

/// The time at which the files of `--from` were recorded. The flag `--from` makes commands read
/// files instead of a cluster.
static TIME_OF_FILES: OnceLock<Timestamp> = OnceLock::new();

/// Makes [`now`] return `time`, which is the time at which the files of `--from` were recorded. So
/// ages in the output are relative to this time. Only the first call has an effect.
pub(crate) fn set_time_of_files(time: Timestamp) {
    let _ = TIME_OF_FILES.set(time);
}

/// Returns the time that was passed to [`set_time_of_files`]. If [`set_time_of_files`] was not
/// called, returns the current time of the system clock.
#[expect(
    clippy::disallowed_methods,
    reason = "only this function reads the system clock"
)]
pub(crate) fn now() -> Timestamp {
    TIME_OF_FILES.get().copied().unwrap_or_else(Timestamp::now)
}
