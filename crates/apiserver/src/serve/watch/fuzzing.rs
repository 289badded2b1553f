//! Checks of watch options for the fuzz targets.

use super::Options;
use super::plan::{MAX_SECONDS, MIN_DEFAULT_SECONDS, WatchPlan, WatchStart};
use crate::serve::fuzzing::{FuzzServer, check_error};
use crate::serve::request::Query;
use crate::store::Rv;
use std::time::Duration;

/// Checks the `WatchPlan` that follows from the options of a watch, or the status code of the
/// error. Returns the plan or the error as a text, so that two results can be compared. The
/// text contains the duration only if `timeoutSeconds` sets it, because the default duration is
/// random.
pub fn options(fuzz_server: &FuzzServer, query: &Query) -> String {
    let options = Options::of_watch(query, &fuzz_server.live);
    let plan = match options.and_then(|options| WatchPlan::of(query, &options, false)) {
        Ok(plan) => plan,
        Err(failure) => {
            check_error(&failure, &[400, 422]);
            return failure.to_string();
        }
    };
    let WatchPlan {
        start,
        bookmarks,
        marks_initial_end,
        initial_events_requested,
        duration,
    } = plan;
    let initial = query.optional_flag("sendInitialEvents");
    assert_eq!(
        initial.is_some(),
        query.text("resourceVersionMatch") == "NotOlderThan"
    );
    assert_eq!(initial_events_requested, initial == Some(true));
    let from_present = matches!(query.text("resourceVersion"), "" | "0");
    assert_eq!(
        marks_initial_end,
        initial_events_requested || (initial.is_none() && from_present)
    );
    let version = query
        .resource_version()
        .expect("the options were parsed before");
    match (initial, version.unwrap_or_default()) {
        (Some(true) | None, 0) => assert_eq!(start, WatchStart::State(None)),
        (Some(true), rv) => assert_eq!(start, WatchStart::State(Some(Rv(rv)))),
        (Some(false), 0) => assert_eq!(start, WatchStart::Now),
        (_, rv) => assert_eq!(start, WatchStart::After(Rv(rv))),
    }
    let seconds = query
        .number("timeoutSeconds")
        .expect("the options were parsed before");
    let fixed_duration = match seconds {
        None | Some(0) => {
            let default = MIN_DEFAULT_SECONDS..2 * MIN_DEFAULT_SECONDS;
            assert!(default.contains(&duration.as_secs()));
            None
        }
        Some(seconds) => {
            assert_eq!(duration.is_zero(), seconds < 0);
            assert!(duration <= Duration::from_secs(MAX_SECONDS));
            Some(duration)
        }
    };
    format!(
        "{start:?} {bookmarks} {marks_initial_end} {initial_events_requested} {fixed_duration:?}"
    )
}
