//! Reads the time of day, and parses durations in flags. No other module of the plugin reads the
//! system clock. Timers use the clock of tokio, which tests can pause.

use ifo_api::duration;
use jiff::Timestamp;
use std::sync::OnceLock;
use std::time::Duration;

/// The time at which the files of `--from` were recorded. The flag `--from` makes commands read
/// files instead of a cluster.
static TIME_OF_FILES: OnceLock<Timestamp> = OnceLock::new();

/// Makes [`now`] return `time`, the time at which the files of `--from` were recorded. Ages in the
/// output are then relative to this time. Only the first call has an effect.
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

/// Parses the value of a flag as a duration, such as `30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration; examples are 30s and 10m"))
}
