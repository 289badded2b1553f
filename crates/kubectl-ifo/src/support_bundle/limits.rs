//! The limits of a support bundle. `--help` and docs/kubectl-ifo.md state these limits. A part is,
//! for example, the log of one container. If a part reaches a limit, the index of the bundle
//! records this. Two limits are exceptions: Pods beyond [`PODS`] and log lines older than
//! [`LOG_SECONDS`] are left out without a record.

use std::time::Duration;

/// Default time limit of one request. `--request-timeout` overrides this limit.
pub(super) const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Time limit of the whole collection. The index of the bundle records the parts that were not read
/// in this time as missing.
pub(super) const TOTAL_TIME: Duration = Duration::from_mins(3);

/// Largest number of operations. Further operations are left out.
pub(super) const OPERATIONS: usize = 20_000;

/// Largest number of records of completed operations. A record has at most 1 KB, so 20,000 records
/// fit into [`LIST_BYTES`]. Further records are left out.
pub(super) const RECORDS: usize = 20_000;

/// Largest number of objects in any other list, such as Events. Further objects are left out.
pub(super) const OBJECTS: usize = 1_000;

/// Largest size of one list in bytes. The list of operations does not have this limit. The limit is
/// enough for 1,000 rule sets of 30 KB. A larger list is left out.
pub(super) const LIST_BYTES: usize = 32 * 1024 * 1024;

/// Largest size of the log of one container in the bundle, in bytes. If the log is larger, the
/// bundle contains its newest lines.
pub(super) const LOG_BYTES: usize = 1024 * 1024;

/// Largest number of log lines that are requested for one container. If the log is longer, the
/// kubelet returns its newest lines.
pub(super) const LOG_LINES: usize = 10_000;

/// Largest size of the kubelet's answer to a request for log lines, in bytes. If the requested
/// lines are larger, the kubelet leaves out the newest of them, which matter most. To avoid this,
/// the limit is larger than [`LOG_BYTES`]. [`LOG_LINES`] lines of 800 bytes fit into the answer.
pub(super) const LOG_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Largest age of the collected log lines, in seconds.
pub(super) const LOG_SECONDS: u32 = 60 * 60;

/// Largest number of Pods whose logs and metrics are read. More than three replicas are unusual,
/// but Pods of earlier revisions can exist, too. For further Pods, the bundle contains only their
/// entries in the list of Pods.
pub(super) const PODS: usize = 10;

/// Largest size of the metrics of one Pod, in bytes. Larger metrics are left out. If each label has
/// 1,000 values, the metrics have about 2 MB.
pub(super) const METRICS_BYTES: usize = 8 * 1024 * 1024;

/// Largest number of rights of the server that are checked, because each check needs a request.
/// Further rights are not checked.
pub(super) const REVIEWS: usize = 1_000;

/// Largest size of the answer to one such check (an access review), in bytes. A check with a larger
/// answer fails.
pub(super) const REVIEW_BYTES: usize = 64 * 1024;
