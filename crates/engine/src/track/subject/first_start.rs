//! Computes the start time of an operation that is detected for the first time. The time comes from
//! the object's `managedFields` if possible, and otherwise from the clock.

use crate::detect::Subject;
use crate::track::operation::OperationStart;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};

/// If an event arrives within this time after the object's newest time in `managedFields`, the
/// operation starts at the time in `managedFields`. If the time is older, the operation starts now.
///
/// Events usually arrive within this time. An older time has one of two reasons: the event was
/// delayed by an interruption of the watch, or the change has no entry in `managedFields`. For
/// example, a deletion has no entry.
const MAX_CHANGE_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the start of an operation that an evaluation of `subject` detects. `initial` is true if
/// the first list of a watch contained the object. The operation may then have started long ago.
///
/// The name of an operation depends on its start. A new leader that receives the same event
/// computes the same start, so it gives the operation the same name.
pub(super) fn first_start(subject: &Subject, initial: bool, now: Timestamp) -> OperationStart {
    match subject.managed {
        Some(managed) if initial => OperationStart {
            at: managed.min(now),
            source: StartTimeSource::ManagedFields,
        },
        Some(managed) if managed <= now && now.duration_since(managed) <= MAX_CHANGE_AGE => {
            OperationStart::detected(managed)
        }
        _ => OperationStart::detected(now),
    }
}
