//! Restores the times of an operation after a restart or a change of the leader.

use super::{OperationTiming, ProgressRises, TimingCondition};
use ifo_api::live::{StartTimeSource, State, Status};
use ifo_api::metadata::Time;
use jiff::Timestamp;
use std::time::Duration;

/// Precision of the times in JSON.
const SECOND: Duration = Duration::from_secs(1);

impl OperationTiming {
    /// Restores the times from the status of an operation that started at `start`. The values that
    /// clients see do not change.
    ///
    /// `known_until` is the time until which the status is up to date. For an operation of the
    /// index, this is the current time. For a custom resource, this is the last detection.
    ///
    /// The status does not contain the counted time. This time can be computed only if the
    /// operation has been `Progressing` since its start, and the start does not come from
    /// `managedFields`. In all other cases, the operation never becomes overdue, and its duration
    /// is not added to the durations of earlier runs.
    pub fn restored(status: &Status, start: Timestamp, known_until: Timestamp) -> Self {
        let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
        let state_since = time(&status.state_since).unwrap_or(start);
        let last_progress = time(&status.last_progress);
        let since = |then: Timestamp| {
            let passed = known_until.duration_since(then);
            Duration::try_from(passed).unwrap_or_default()
        };
        let always_progressing = status.state == State::Progressing
            && status.state_since.is_some()
            && Duration::try_from(state_since.duration_since(start)).unwrap_or_default() <= SECOND;
        let counted = since(start);
        let is_start_known = status.start_time_source != StartTimeSource::ManagedFields;
        let restored = |kind: &str| {
            let condition = status.condition(kind)?;
            Some(TimingCondition {
                is_raised: *condition.status == *"True",
                since: condition.last_transition_time.0,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            })
        };
        Self {
            state: status.state,
            state_since,
            progress: status.progress,
            last_progress,
            counted,
            counting_since: None,
            counted_at_rise: counted.saturating_sub(last_progress.map(since).unwrap_or_default()),
            rises: ProgressRises::default(),
            is_comparable: always_progressing && is_start_known,
            // `update` sets the deadline when the subject is evaluated for the first time.
            deadline: None,
            overdue: restored("Overdue"),
            stalled: restored("Stalled"),
            expected: status.expected.clone(),
            estimated_completion: time(&status.estimated_completion),
        }
    }
}
