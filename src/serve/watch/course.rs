//! How a watch goes. Enters: its options. Leaves: where it starts, which bookmarks it gets, and
//! how long it lasts.

use crate::index::Rv;
use crate::serve::options::Options;
use crate::serve::request::Query;
use crate::serve::status::ErrorStatus;
use std::time::Duration;

/// A watch without `timeoutSeconds` ends after this long, and up to twice as long: spread,
/// so that the watches that started together do not come back together.
pub(super) const SHORTEST_DEFAULT: u64 = 1800;
/// Upper bound of `timeoutSeconds`, which only keeps the clock from overflowing.
pub(super) const LONGEST: u64 = 365 * 24 * 3600;

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchStart {
    /// With what comes after this version.
    After(Rv),
    /// With what comes from now on.
    Now,
    /// With the present state, which must be at least of this version.
    State(Option<Rv>),
}

/// How a watch goes.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) start: WatchStart,
    pub(super) bookmarks: bool,
    /// Whether a bookmark tells the end of the initial events.
    pub(super) marked: bool,
    /// Whether `sendInitialEvents` was asked for: such a watch never gets a 410.
    pub(super) explicit: bool,
    pub(super) lasts: Duration,
}

impl Course {
    /// Reads the options. `by_path`: of the old paths, and not by option as well.
    pub(super) fn of(
        query: &Query,
        options: &Options<'_>,
        by_path: bool,
    ) -> Result<Self, ErrorStatus> {
        let initial = options.initial;
        let rv = query.resource_version()?.filter(|rv| *rv > 0).map(Rv);
        let lasts = match options.seconds {
            None => Duration::from_secs(SHORTEST_DEFAULT + spread(SHORTEST_DEFAULT)),
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LONGEST)),
        };
        Ok(Self {
            start: match (initial, rv) {
                (Some(true), rv) => WatchStart::State(rv),
                (None, None) => WatchStart::State(None),
                (Some(false), None) => WatchStart::Now,
                (_, Some(rv)) => WatchStart::After(rv),
            },
            bookmarks: query.flag("allowWatchBookmarks"),
            // Upstream's default of `sendInitialEvents` is for these very versions, and
            // for what it knows from the options to be a watch.
            marked: initial.unwrap_or(!by_path && matches!(options.version, "" | "0")),
            explicit: initial == Some(true),
            lasts,
        })
    }
}

/// A number below `bound`, other for each call.
fn spread(bound: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % bound
}
