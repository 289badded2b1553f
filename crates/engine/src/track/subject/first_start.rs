//! The start of an operation that is detected for the first time. Input: the time of the subject's
//! managed fields, and the time of day. Output: the start and its source.

use crate::detect::Subject;
use crate::track::operation::OperationStart;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};

/// The greatest age of a change that counts as the start of what is detected by it. Events
/// arrive faster. A later event was held up by a gap, or its change has no managed fields, as a
/// deletion; then the operation starts now.
const MAX_CHANGE_AGE: SignedDuration = SignedDuration::from_secs(10);

/// When the operation started. All replicas and restarts that see the same event derive the same
/// start from it, and so the same name of the operation. `initial` stands for an object of the
/// first list, whose operation may have started long ago.
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
