//! Answers get, list and watch from the store.

pub mod get;
pub mod list;
pub mod watch;

use super::answer::error_status::ErrorStatus;
use crate::Model;
use crate::store::{Reader, Rv};
use std::time::Duration;

/// Maximum time that a request waits until the store reaches the requested resourceVersion. After
/// this time, the request gets an error. The kube-apiserver's watch cache has the same limit
/// (`blockTimeout`).
const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// Waits until the store has reached the version. Returns a 504 after [`FRESHNESS_TIMEOUT`].
async fn wait_until_reached<M: Model>(
    reader: &Reader<M>,
    version: Option<u64>,
) -> Result<(), ErrorStatus> {
    match version {
        Some(rv) if !reader.wait_until_reached(Rv(rv), FRESHNESS_TIMEOUT).await => {
            Err(ErrorStatus::version_not_reached(rv, reader.head().0))
        }
        _ => Ok(()),
    }
}
