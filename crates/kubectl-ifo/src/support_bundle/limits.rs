//! The limits of a support bundle. `--help` and docs/kubectl-ifo.md state them.

use std::time::Duration;

/// Time limit of one request, unless `--request-timeout` sets another one.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Time limit of the whole collection. Parts that are missing then are recorded as missing.
pub(super) const TOTAL_TIME: Duration = Duration::from_mins(3);

/// Largest number of operations.
pub(super) const OPERATIONS: usize = 20_000;

/// Largest number of objects in any other list, such as Events.
pub(super) const OBJECTS: usize = 1_000;

/// Largest size of any other list: 1,000 rule sets of 30 KB.
pub(super) const LIST_BYTES: usize = 32 * 1024 * 1024;

/// Largest size of the log of one container.
pub(super) const LOG_BYTES: usize = 1024 * 1024;

/// Age of the oldest log lines.
pub(super) const LOG_SECONDS: u32 = 60 * 60;

/// Largest number of Pods whose logs and metrics are read. More than three replicas are unusual,
/// but Pods of earlier revisions can exist, too.
pub(super) const PODS: usize = 10;

/// Largest size of the metrics of one Pod. With 1,000 values of each label, they have about 2 MB.
pub(super) const METRICS_BYTES: usize = 8 * 1024 * 1024;

/// Largest number of rights of the server that are checked: each needs a request.
pub(super) const REVIEWS: usize = 1_000;

/// Largest size of the answer to one review.
pub(super) const REVIEW_BYTES: usize = 64 * 1024;
