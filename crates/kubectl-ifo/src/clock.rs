//! The time of day. The plugin reads it only here; steady time it takes from tokio.

use jiff::Timestamp;

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "the plugin's one reader of it")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
