//! The standard metrics of a process, such as its memory and CPU time.

use super::gauge_value;
use super::table::MetricTable;
use crate::clock;
use std::sync::atomic::Ordering;

/// Sets the start time of the process to the current time.
#[allow(clippy::cast_precision_loss)] // The seconds since 1970 are far below 2^52.
pub(super) fn set_start(table: &MetricTable) {
    table.process_start.set(clock::now().as_second() as f64);
}

/// Reads the current values from `/proc`. On systems without `/proc`, the values are 0.
#[allow(clippy::cast_precision_loss)] // The clock ticks of one process are far below 2^52.
pub(super) fn read(table: &MetricTable) {
    /// Ticks per second of the times in `/proc` (`USER_HZ`, fixed by the Linux ABI).
    const TICKS_PER_SECOND: f64 = 100.0;
    let file = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    // The second field is the command, such as `(ifo-apiserver)`. A command can contain spaces and
    // parentheses, so the fields are counted from the last parenthesis.
    let stat = file("stat");
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let user_and_system = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = user_and_system
        .filter_map(|it| it.parse::<u64>().ok())
        .sum();
    let seconds = ticks as f64 / TICKS_PER_SECOND;
    table
        .cpu
        .inner()
        .store(seconds.to_bits(), Ordering::Relaxed);
    let status = file("status");
    let mut lines = status.lines();
    let resident = lines.find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix(" kB"));
    let kilobytes: i64 = resident.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    table.resident.set(kilobytes * 1024);
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    table.descriptors.set(gauge_value(descriptors));
}
