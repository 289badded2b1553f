//! The time of day. The plugin reads it only here, so that tests can replace it. Timers use tokio's
//! clock.

use jiff::Timestamp;

/// Returns the time of day.
#[expect(clippy::disallowed_methods, reason = "the plugin's one reader of it")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
