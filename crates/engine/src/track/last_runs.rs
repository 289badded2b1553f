//! Remembers when the last completed run of each operation started and ended. The next run must not
//! start in the same second as the last run. Otherwise, both runs would get the same name, because
//! the name depends on the start in whole seconds. A run is one occurrence of an operation, from
//! its start to its end.

use super::expiring_map::ExpiringMap;
use super::operation::OperationStart;
use super::superseded_operations::OperationName;
use ifo_api::Text;
use ifo_api::live::StartTimeSource;
use jiff::Timestamp;
use std::time::Instant;

/// The identity of an object with operations (a subject).
pub(super) type Identity = Text;

/// The identity of an operation among all operations. All runs of an operation have the same
/// identity.
pub(super) type OperationId = (Identity, OperationName);

/// Maximum number of operations whose last completed run is remembered. If the setting `RETAIN_MAX`
/// is larger, `RETAIN_MAX` is the maximum. Beyond the maximum, the tracker forgets the runs that
/// expire first.
const MAX_LAST_RUNS: usize = 10_000;

/// The last completed run of each operation.
#[derive(Debug, Default)]
pub(super) struct LastRuns(ExpiringMap<OperationId, LastRun>);

/// Start and end of a run, in seconds since 1970.
#[derive(Debug)]
struct LastRun {
    start: i64,
    end: i64,
}

impl LastRuns {
    /// Remembers a completed run until `until`.
    pub fn add(&mut self, id: OperationId, start: Timestamp, end: Timestamp, until: Instant) {
        let (mut start, mut end, mut until) = (start.as_second(), end.as_second(), until);
        if let Some((later, before)) = self.0.remove(&id) {
            until = until.max(later);
            start = start.max(before.start);
            end = end.max(before.end);
        }
        self.0.insert(id, LastRun { start, end }, until);
    }

    /// Returns the start of a run that follows an earlier run of the same operation. The result is
    /// `start` or the earliest possible start, whichever is later:
    ///
    /// - If the rule's `startedAt` sets the start, the earliest start is one second after the start
    ///   of the previous run. The name of an operation depends on its start in whole seconds, so
    ///   the two runs then have different names.
    /// - In all other cases, the run also starts no earlier than the end of the previous run. This
    ///   end can be later than `start` if the watch reported the end late.
    pub fn next_start(&self, id: &OperationId, start: OperationStart) -> OperationStart {
        let Some(last_run) = self.0.get(id) else {
            return start;
        };
        let earliest = match start.source {
            StartTimeSource::Expression => last_run.start + 1,
            _ => last_run.end.max(last_run.start + 1),
        };
        if start.at.as_second() >= earliest {
            return start;
        }
        let at = Timestamp::from_second(earliest).unwrap_or(start.at);
        OperationStart { at, ..start }
    }

    /// Forgets the runs that have expired, and the runs beyond the maximum. `retained` is the
    /// setting `RETAIN_MAX`.
    pub fn expire(&mut self, retained: usize, now: Instant) {
        self.0.expire(retained.max(MAX_LAST_RUNS), now);
    }
}
