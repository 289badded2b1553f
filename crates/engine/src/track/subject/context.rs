//! The context in which the tracker applies one event to an object and its operations. The context
//! contains the time, the rules, and the state that all objects share.

use crate::ClockReading;
use crate::detect::Subject;
use crate::track::books::Books;
use crate::track::operation::{ChangeContext, Observed, OperationStart};
use crate::track::shared_state::SharedState;
use ifo_api::live::StartTimeSource;
use jiff::{SignedDuration, Timestamp};

/// The context for one event, such as an evaluation, an expired timer, new rules, or an
/// interruption of a watch.
pub struct SubjectEventContext<'a> {
    pub shared: &'a mut SharedState,
    pub books: &'a Books,
    pub now: ClockReading,
    /// True if a watch of the object is interrupted, or if the target of the object is unknown. The
    /// target is the resource that a rule set names, such as `virtualmachines`.
    ///
    /// After a restart, the tracker restores operations and their objects. The target of a restored
    /// object is unknown until its first evaluation, or until the rules for its kind arrive.
    pub gap: bool,
    /// The times from which `appearAfter` and `stateAfter` count.
    pub(super) observed: Observed,
    /// The time at which this event changes operations. If an operation is superseded or yields an
    /// outcome, its run ends at this time.
    ///
    /// If rules still detect a superseded operation, its next run starts when the superseding
    /// operation ends.
    pub transition: OperationStart,
}

impl<'a> SubjectEventContext<'a> {
    pub fn new(
        shared: &'a mut SharedState,
        books: &'a Books,
        now: ClockReading,
        gap: bool,
    ) -> Self {
        Self {
            shared,
            books,
            now,
            gap,
            observed: Observed::now(now.steady),
            transition: OperationStart::detected(now.wall),
        }
    }

    /// Returns the circumstances of a change that this event causes.
    pub fn change<'s>(&'s self, subject: &'s Subject) -> ChangeContext<'s> {
        ChangeContext {
            at: self.transition.at,
            now: self.now,
            gap: self.gap,
            subject,
            baselines: &self.shared.baselines,
            books: self.books,
        }
    }
}

/// Precision of the times in `managedFields`.
pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Maximum age of the object's newest time in `managedFields` when an event arrives. If this time
/// is older, the operation starts at the current time instead. Objects from the first list of a
/// watch have no maximum age.
///
/// Events usually arrive within this age. There are two usual reasons for an older time. Either an
/// interruption of the watch delayed the event, or the change has no entry in `managedFields`. For
/// example, the change that sets `deletionTimestamp` has no entry.
const MAX_CHANGE_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Returns the start of an operation that an evaluation detects. The object changed at `changed`,
/// according to its `managedFields`. `initial` is true if the evaluated object comes from the first
/// list of a watch. The operation may then have started long ago.
///
/// The name of an operation depends on its start. If the start comes from `managedFields`, a new
/// leader that receives the same event computes the same start and the same name.
pub(super) fn first_start(
    changed: Option<Timestamp>,
    initial: bool,
    now: Timestamp,
) -> OperationStart {
    match changed {
        Some(changed) if initial => OperationStart {
            at: changed.min(now),
            source: StartTimeSource::ManagedFields,
        },
        Some(changed) if changed <= now && now.duration_since(changed) <= MAX_CHANGE_AGE => {
            OperationStart::detected(changed)
        }
        _ => OperationStart::detected(now),
    }
}

/// Returns the times of the evaluation of an object from the first list of a watch. `changed` is
/// the time of the last change of the object, according to its `managedFields`. The periods
/// `appearAfter` and `stateAfter` of a rule count from the returned times.
pub(super) fn observed_since(changed: Timestamp, now: ClockReading) -> Observed {
    // Kubernetes rounds times down to seconds, so the change was up to one second later.
    let changed = changed.saturating_add(SECOND).unwrap_or(now.wall);
    Observed {
        now: now.steady,
        unchanged: now.back_at(changed).steady,
    }
}
