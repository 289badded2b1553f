//! Computes the start time of an operation that is detected for the first time. The time comes from
//! the object's `managedFields` if possible, and otherwise from the clock.

use crate::detect::Subject;
use crate::track::operation::OperationStart;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};

/// Maximum age of the object's newest time in `managedFields` when an event arrives. If this time
/// is older, it is not used as the start, and the operation starts now. Objects from the first list
/// of a watch have no maximum age.
///
/// Events usually arrive within this age. An older time usually has one of two reasons: an
/// interruption of the watch delayed the event, or the change has no entry in `managedFields`. For
/// example, the change that sets `deletionTimestamp` has no entry.
const MAX_CHANGE_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the start of an operation that an evaluation of `subject` detects. `initial` is true if
/// the evaluated object comes from the first list of a watch. The operation may then have started
/// long ago.
///
/// The name of an operation depends on its start. If the start comes from `managedFields`, a new
/// leader that receives the same event computes the same start and the same name.
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
