//! Computes the start time of an operation that is detected for the first time. The time comes from
//! the object's `managedFields` if possible, and otherwise from the clock.

use crate::detect::Subject;
use crate::track::operation::OperationStart;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};

/// Maximum age of an object's newest time in `managedFields` that is used as the start of an
/// operation. Events usually arrive within this time. An older time does not belong to the change
/// that started the operation: either the event was delayed by an interruption of the watch, or the
/// change has no entry in `managedFields`, such as a deletion. The operation then starts now.
const MAX_CHANGE_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the start of an operation that an evaluation of `subject` detects. `initial` is true if
/// the first list of a watch contained the object. The operation may then have started long ago.
///
/// All replicas that receive the same event derive the same start, even after a restart. So they
/// give the operation the same name, because the name contains the start.
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
