//! The context in which the tracker applies one event to an object and its operations: the time,
//! the rules, and the state that all objects share.

use crate::ClockReading;
use crate::track::operation::{ChangeContext, Observed, OperationStart};
use crate::track::shared_state::SharedState;
use crate::track::tracker::Books;
use ifo_api::Text;

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
    /// If rules still detect a superseded operation, a next run of it waits until the superseding
    /// operation ends, and then starts. This run gets the start time that its rule yields. If the
    /// rule yields none, it gets the time at which the previous run was superseded.
    pub(super) transition: OperationStart,
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

    /// Returns the circumstances of a change that this event causes. `namespace` is the namespace
    /// of the subject.
    pub fn change<'s>(&'s self, namespace: Option<&'s Text>) -> ChangeContext<'s> {
        ChangeContext {
            at: self.transition.at,
            now: self.now,
            gap: self.gap,
            namespace,
            baselines: &self.shared.baselines,
        }
    }
}
