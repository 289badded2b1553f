//! Restores the times of an operation after a restart or a change of the leader.

use super::{OperationTiming, ProgressRises};
use ifo_api::live::{StartTimeSource, State, Status};
use jiff::Timestamp;
use std::time::Duration;

/// Precision of the times in JSON.
const SECOND: Duration = Duration::from_secs(1);

impl OperationTiming {
    /// Restores the times from the status of an operation that started at `start`.
    ///
    /// `known_until` is the time until which the status is up to date. For an operation of the
    /// index, this is the current time. For a custom resource, this is the last detection.
    ///
    /// The status does not contain the counted time. This time can be computed only if the
    /// operation has been `Progressing` since its start, and the start does not come from
    /// `managedFields`. In all other cases, the operation never becomes overdue, and its duration
    /// is not added to the durations of earlier runs.
    pub fn restored(status: &Status, start: Timestamp, known_until: Timestamp) -> Self {
        let between = |then: Timestamp, later: Timestamp| {
            Duration::try_from(later.duration_since(then)).unwrap_or_default()
        };
        let always_progressing = status.state == State::Progressing
            && (status.state_since).is_some_and(|since| between(start, since.0) <= SECOND);
        let is_start_known = status.start_time_source != StartTimeSource::ManagedFields;
        let counted = between(start, known_until);
        let since_rise = status.last_progress.map(|it| between(it.0, known_until));
        Self {
            progress: status.progress,
            counted,
            counting_since: None,
            counted_at_rise: counted.saturating_sub(since_rise.unwrap_or_default()),
            rises: ProgressRises::default(),
            is_comparable: always_progressing && is_start_known,
            // `update` sets the deadline when the subject is evaluated for the first time.
            deadline: None,
        }
    }
}
