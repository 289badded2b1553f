//! The standard metrics of a process, such as its memory and CPU time.

use super::table::MetricTable;
use crate::clock;
use std::sync::atomic::Ordering;

/// Sets the start time of the process to the current time.
#[allow(clippy::cast_precision_loss)] // The seconds since 1970 are far below 2^52.
pub(super) fn set_start(table: &MetricTable) {
    table.process_start.set(clock::now().as_second() as f64);
}

/// Reads the current values from `/proc`. On systems without `/proc`, the values stay 0.
#[allow(clippy::cast_precision_loss)] // The clock ticks of one process are far below 2^52.
pub(super) fn read(table: &MetricTable) {
    /// Ticks per second of the times in `/proc` (`USER_HZ`, fixed by the Linux ABI).
    const TICKS_PER_SECOND: f64 = 100.0;
    if let Ok(stat) = std::fs::read_to_string("/proc/self/stat")
        // The second field is the command, such as `(ifo-apiserver)`. A command can contain
        // spaces and parentheses, so the fields are counted from the last parenthesis.
        && let Some((_, rest)) = stat.rsplit_once(')')
    {
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| {
            fields
                .get(index)
                .and_then(|field| field.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let seconds = (ticks(11) + ticks(12)) as f64 / TICKS_PER_SECOND;
        table
            .cpu
            .inner()
            .store(seconds.to_bits(), Ordering::Relaxed);
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<i64>().ok());
        table.resident.set(kilobytes.unwrap_or(0) * 1024);
    }
    if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
        table
            .descriptors
            .set(i64::try_from(descriptors.count()).unwrap_or(i64::MAX));
    }
}
