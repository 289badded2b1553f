//! The limits of a support bundle. `--help` and docs/kubectl-ifo.md state these limits. If a part
//! reaches a limit, the index of the bundle records this for the part. Two limits are exceptions:
//! Pods beyond [`PODS`] and lines older than [`LOG_SECONDS`] are left out without a record.

use std::time::Duration;

/// Default time limit of one request. `--request-timeout` overrides this limit.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Time limit of the whole collection. Parts that were not read by then are recorded as missing.
pub(super) const TOTAL_TIME: Duration = Duration::from_mins(3);

/// Largest number of operations. Further operations are left out.
pub(super) const OPERATIONS: usize = 20_000;

/// Largest number of records of completed operations. A record has at most 1 KB, so 20,000 records
/// fit into [`LIST_BYTES`]. Further records are left out.
pub(super) const RECORDS: usize = 20_000;

/// Largest number of objects in any other list, such as Events. Further objects are left out.
pub(super) const OBJECTS: usize = 1_000;

/// Largest size of one list of records or other objects, but not of operations. The limit is enough
/// for 1,000 rule sets of 30 KB. A larger list is left out.
pub(super) const LIST_BYTES: usize = 32 * 1024 * 1024;

/// Largest size of the log of one container in the bundle. Of a longer log, the bundle has the
/// newest lines.
pub(super) const LOG_BYTES: usize = 1024 * 1024;

/// Largest number of lines that are requested of the log of one container. The kubelet returns the
/// newest lines.
pub(super) const LOG_LINES: usize = 10_000;

/// Largest size of the answer with the requested lines. If the answer would be larger, the kubelet
/// leaves out the newest lines. So this limit is larger than [`LOG_BYTES`]: the [`LOG_LINES`] lines
/// may have 800 bytes on average.
pub(super) const LOG_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Largest age of the collected log lines, in seconds.
pub(super) const LOG_SECONDS: u32 = 60 * 60;

/// Largest number of Pods whose logs and metrics are read. More than three replicas are unusual,
/// but Pods of earlier revisions can exist, too. Further Pods are only in the list of Pods.
pub(super) const PODS: usize = 10;

/// Largest size of the metrics of one Pod. Larger metrics are left out. With 1,000 values of each
/// label, metrics have about 2 MB.
pub(super) const METRICS_BYTES: usize = 8 * 1024 * 1024;

/// Largest number of rights of the server that are checked, because each check needs a request.
/// Further rights are not checked.
pub(super) const REVIEWS: usize = 1_000;

/// Largest size of the answer to one review. A review with a larger answer fails.
pub(super) const REVIEW_BYTES: usize = 64 * 1024;
