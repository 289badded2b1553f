//! Determines the start, the bookmarks and the duration of a watch from its options.

use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::request::Query;
use crate::store::Rv;
use std::time::Duration;

/// Shortest duration in seconds of a watch whose option `timeoutSeconds` is absent or 0. The
/// duration is random: at least 30 minutes, and less than 60 minutes. So watches that started
/// together do not end together.
const MIN_DEFAULT_SECONDS: u64 = 1800;
/// Longest duration of a watch in seconds: one year. A longer `timeoutSeconds` counts as one year.
/// Without a limit, the computation of the end time could overflow.
const MAX_SECONDS: u64 = 365 * 24 * 3600;

/// The point at which a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStart {
    /// The watch sends the changes after this version.
    After(Rv),
    /// The watch sends the changes after the current version.
    Now,
    /// The watch first sends the current state as initial events. If a version is given, the watch
    /// waits until the state has at least this version.
    State(Option<Rv>),
}

/// The start, the bookmarks and the duration of a watch.
#[derive(Debug)]
pub(super) struct WatchPlan {
    pub(super) start: WatchStart,
    /// True if the client allows bookmarks.
    pub(super) bookmarks: bool,
    /// True if a bookmark marks the end of the initial events. The bookmark is sent only if
    /// `bookmarks` is true, too.
    pub(super) marks_initial_end: bool,
    pub(super) duration: Duration,
}

impl WatchPlan {
    /// Evaluates the options. `by_path` is true if the request has a deprecated path with `/watch/`
    /// and does not have the option `watch`.
    pub(super) fn of(query: &Query, by_path: bool) -> Result<Self, ErrorStatus> {
        let initial = query.optional_flag("sendInitialEvents");
        let rv = query.resource_version()?.filter(|rv| *rv > 0).map(Rv);
        let seconds = match query.number("timeoutSeconds")?.unwrap_or(0) {
            0 => MIN_DEFAULT_SECONDS + random_below(MIN_DEFAULT_SECONDS),
            seconds => u64::try_from(seconds).unwrap_or(0).min(MAX_SECONDS),
        };
        Ok(Self {
            start: match (initial, rv) {
                (Some(true), rv) => WatchStart::State(rv),
                (None, None) => WatchStart::State(None),
                (Some(false), None) => WatchStart::Now,
                (_, Some(rv)) => WatchStart::After(rv),
            },
            bookmarks: query.flag("allowWatchBookmarks"),
            // As in the kube-apiserver, a watch without the option `sendInitialEvents` has this
            // bookmark only if the resourceVersion is empty or `0`, and `by_path` is false.
            marks_initial_end: initial
                .unwrap_or(!by_path && matches!(query.text("resourceVersion"), "" | "0")),
            duration: Duration::from_secs(seconds),
        })
    }
}

/// Returns a random number below `bound`.
fn random_below(bound: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % bound
}
