//! Checks for the options of every watch.

use super::Options;
use super::lifetime::{MAX_SECONDS, MIN_DEFAULT_SECONDS, WatchLifetime, WatchStart};
use crate::index::Rv;
use crate::serve::fuzzing::{World, refused};
use crate::serve::request::Query;
use std::time::Duration;

/// The parsed options of a watch, in a form that can be compared. A default duration is left out,
/// because it is random.
pub fn options(world: &World, query: &Query) -> String {
    let options = Options::of_watch(query, &world.live);
    let course = match options.and_then(|options| WatchLifetime::of(query, &options, false)) {
        Ok(course) => course,
        Err(failure) => {
            refused(&failure, &[400, 422]);
            return failure.to_string();
        }
    };
    let WatchLifetime {
        start,
        bookmarks,
        marked,
        explicit,
        lasts,
    } = course;
    let initial = query.truth("sendInitialEvents");
    assert_eq!(
        initial.is_some(),
        query.text("resourceVersionMatch") == "NotOlderThan"
    );
    assert_eq!(explicit, initial == Some(true));
    let from_present = matches!(query.text("resourceVersion"), "" | "0");
    assert_eq!(marked, explicit || (initial.is_none() && from_present));
    let version = query.resource_version().expect("it was read before");
    match (initial, version.unwrap_or_default()) {
        (Some(true) | None, 0) => assert_eq!(start, WatchStart::State(None)),
        (Some(true), rv) => assert_eq!(start, WatchStart::State(Some(Rv(rv)))),
        (Some(false), 0) => assert_eq!(start, WatchStart::Now),
        (_, rv) => assert_eq!(start, WatchStart::After(Rv(rv))),
    }
    let told = query.number("timeoutSeconds").expect("it was read before");
    let told = match told {
        None | Some(0) => {
            let default = MIN_DEFAULT_SECONDS..2 * MIN_DEFAULT_SECONDS;
            assert!(default.contains(&lasts.as_secs()));
            None
        }
        Some(seconds) => {
            assert_eq!(lasts.is_zero(), seconds < 0);
            assert!(lasts <= Duration::from_secs(MAX_SECONDS));
            Some(lasts)
        }
    };
    format!("{start:?} {bookmarks} {marked} {explicit} {told:?}")
}
