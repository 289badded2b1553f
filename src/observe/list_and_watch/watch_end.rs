//! The reason why a watch, or an attempt to open a watch, has ended. It decides which request
//! follows.

use crate::observe::GapReason;
use crate::observe::request::Refusal;
use std::time::Duration;

/// The reason why a watch, or an attempt to open a watch, has ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// The server closed the watch, as it does after some minutes.
    Closed,
    /// The server no longer has the changes since the last version. The whole state must be read
    /// again.
    Expired,
    /// `WatchList` does not work. `for_good` is true if the server has refused it, so that it is
    /// not tried again.
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
