//! The reasons why a watch, a list, or an attempt to open a watch has ended. The reason decides
//! which request the feed sends next.

use crate::observe::GapReason;
use crate::observe::apiserver_requests::Refusal;
use std::time::Duration;

/// The reason why a watch, a list, or an attempt to open a watch has ended.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    /// The kube-apiserver closed the watch, as it does after some minutes, or the watch was silent
    /// for too long. The next watch continues from the last resourceVersion.
    Closed,
    /// The kube-apiserver no longer has the changes since the requested resourceVersion, or the
    /// feed may have missed changes. The feed must read all objects again.
    Expired,
    /// The `WatchList` did not yield all objects, so the feed lists them. If `for_good` is true,
    /// the kube-apiserver does not support `WatchList`, and the feed never requests a `WatchList`
    /// again.
    NoWatchList { for_good: bool },
    /// Any other failure, with the delay that the kube-apiserver requests (`Retry-After`). `None`
    /// if it requests no delay.
    Failed(GapReason, Option<Duration>),
}

impl From<Refusal> for AttemptEnd {
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
