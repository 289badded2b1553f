//! One step of a subject. Input: the ledger, the rules and the time. Output: the data that each
//! change of an operation in this step needs.

use crate::ClockReading;
use crate::track::operation::{Observed, OperationStart};
use crate::track::shared_state::SharedState;
use crate::track::tracker::Books;

/// One step of a subject: an evaluation, a timer, new rules, or a change of its feeds.
pub struct SubjectStep<'a> {
    pub ledger: &'a mut SharedState,
    pub books: &'a Books,
    pub now: ClockReading,
    /// True if a feed that watches the subject has a gap.
    pub gap: bool,
    pub(super) observed: Observed,
    /// The time for operations that stop being detected or are superseded in this step, and for
    /// superseded operations that start again.
    pub(super) again: OperationStart,
}

impl<'a> SubjectStep<'a> {
    pub fn new(
        ledger: &'a mut SharedState,
        books: &'a Books,
        now: ClockReading,
        gap: bool,
    ) -> Self {
        Self {
            ledger,
            books,
            now,
            gap,
            observed: Observed::now(now.steady),
            again: OperationStart::detected(now.wall),
        }
    }
}
