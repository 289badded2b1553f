//! The reasons why a watch, or an attempt to open a watch, has ended. The reason decides which
//! request the feed sends next.

use crate::observe::GapReason;
use crate::observe::requests_and_failures::Refusal;
use std::time::Duration;

/// The reason why a watch, or an attempt to open a watch, has ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// The server closed the watch, as it does after some minutes.
    Closed,
    /// The server no longer has the changes since the last version, or changes may have been
    /// missed. All objects must be read again.
    Expired,
    /// The `WatchList` did not yield all objects, so the feed lists them. If `for_good` is true,
    /// the server does not support `WatchList`, and the feed never requests it again.
    NoWatchList { for_good: bool },
    /// Any other failure, with the delay that the server requests (`Retry-After`).
    Failed(GapReason, Option<Duration>),
}

impl From<Refusal> for WatchEnd {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Expired => Self::Expired,
            Refusal::Invalid(message) => {
                Self::Failed(GapReason::Refused { code: 400, message }, None)
            }
            Refusal::Lost(lost, retry_after) => Self::Failed(lost, retry_after),
        }
    }
}
