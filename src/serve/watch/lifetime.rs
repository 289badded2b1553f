//! The course of a watch. Input: its options. Output: its start, its bookmarks and its length.

use crate::index::Rv;
use crate::serve::options::Options;
use crate::serve::request::Query;
use crate::serve::status::ErrorStatus;
use std::time::Duration;

/// A watch without `timeoutSeconds` ends after this time, or after up to twice this time. The end
/// is random, so that watches that started together do not return together.
pub(super) const MIN_DEFAULT_SECONDS: u64 = 1800;
/// Upper limit of `timeoutSeconds`. It keeps the clock from overflowing.
pub(super) const MAX_SECONDS: u64 = 365 * 24 * 3600;

/// The start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStart {
    /// After this version.
    After(Rv),
    /// After the current version.
    Now,
    /// With the current state, which must have at least this version.
    State(Option<Rv>),
}

/// The course of a watch.
#[derive(Debug)]
pub(super) struct WatchLifetime {
    pub(super) start: WatchStart,
    pub(super) bookmarks: bool,
    /// True if a bookmark marks the end of the initial events.
    pub(super) marked: bool,
    /// True if `sendInitialEvents` was requested. Such a watch never gets a 410.
    pub(super) explicit: bool,
    pub(super) lasts: Duration,
}

impl WatchLifetime {
    /// Parses the options. `by_path` is true for the old paths without the option `watch`.
    pub(super) fn of(
        query: &Query,
        options: &Options<'_>,
        by_path: bool,
    ) -> Result<Self, ErrorStatus> {
        let initial = options.initial;
        let rv = query.resource_version()?.filter(|rv| *rv > 0).map(Rv);
        let lasts = match options.seconds {
            None => Duration::from_secs(MIN_DEFAULT_SECONDS + spread(MIN_DEFAULT_SECONDS)),
            Some(seconds) => {
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(MAX_SECONDS))
            }
        };
        Ok(Self {
            start: match (initial, rv) {
                (Some(true), rv) => WatchStart::State(rv),
                (None, None) => WatchStart::State(None),
                (Some(false), None) => WatchStart::Now,
                (_, Some(rv)) => WatchStart::After(rv),
            },
            bookmarks: query.flag("allowWatchBookmarks"),
            // In upstream, `sendInitialEvents` is the default only for these versions, and only for
            // requests whose options contain `watch`.
            marked: initial.unwrap_or(!by_path && matches!(options.version, "" | "0")),
            explicit: initial == Some(true),
            lasts,
        })
    }
}

/// A random number below `bound`.
fn spread(bound: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % bound
}
