//! The end of a watch, or of an attempt to open one, which decides the next request.

use crate::observe::GapReason;
use crate::observe::request::Refusal;
use std::time::Duration;

/// Why an attempt ended.
#[derive(Debug)]
pub(super) enum WatchEnd {
    /// The server closed the watch, as it does after some minutes.
    Closed,
    /// The server no longer has the changes since the last version: the whole state must be read.
    Expired,
    /// A `WatchList` does not work. `for_good` if the server refused it.
    NoWatchList { for_good: bool },
    /// Any other failure, with the wait that the server asks for (`Retry-After`).
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
