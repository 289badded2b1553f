//! Decides when a wait is over. This module does no I/O.
//!
//! Input: changes of operations, the completeness of the list, and the time. Output: a verdict.

use crate::operation::{ListedOperation, OperationKey};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitGoal {
    /// No matching operation is active
    Idle,
    /// A matching operation is active
    Started,
    /// All matching operations that were active have ended; if none was active, the next ones
    Completed,
}

/// The goal, the operations that count as active, and the quiet period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitSettings {
    pub(crate) goal: WaitGoal,
    pub(crate) quiet_period: Duration,
    pub(crate) ignore_failing: bool,
    pub(crate) ignore_blocked: bool,
}

/// The operations on which the wait depends.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) terms: WaitSettings,
    active: BTreeMap<OperationKey, ListedOperation>,
    /// Operations that are active but ignored. The value is true if the operation is blocked.
    ignored: BTreeMap<OperationKey, bool>,
    /// True if all operations are known.
    whole: bool,
    /// Time since when no operation has been active, without a gap.
    quiet_since: Option<Instant>,
    /// True if an operation was active.
    seen: bool,
    /// Number of ended operations.
    ended: usize,
}

/// The result of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateVerdict {
    /// The goal is reached.
    Holds,
    /// The goal will be reached at this time if no operation changes.
    HoldsAt(Instant),
    /// The goal is not reached.
    NotYet,
}

impl WaitState {
    /// Creates the state of a wait that knows no operations.
    pub(crate) fn new(terms: WaitSettings) -> Self {
        Self {
            terms,
            active: BTreeMap::new(),
            ignored: BTreeMap::new(),
            whole: false,
            quiet_since: None,
            seen: false,
            ended: 0,
        }
    }

    /// Returns true if the wait depends on the operation.
    pub(crate) fn counts(&self, operation: &ListedOperation) -> bool {
        operation.active
            && !(self.terms.ignore_failing && operation.is_failing_or_failed())
            && !(self.terms.ignore_blocked && operation.is_blocked())
    }

    /// Processes a new or changed operation.
    pub(crate) fn applied(&mut self, operation: ListedOperation, now: Instant) {
        self.ignored.remove(&operation.key());
        if self.counts(&operation) {
            self.seen = true;
            self.quiet_since = None;
            self.active.insert(operation.key(), operation);
        } else {
            let over = !operation.active;
            if !over {
                self.ignored.insert(operation.key(), operation.is_blocked());
            }
            self.remove(&operation, over, now);
        }
    }

    /// Processes a deletion.
    pub(crate) fn deleted(&mut self, operation: &ListedOperation, now: Instant) {
        self.ignored.remove(&operation.key());
        self.remove(operation, true, now);
    }

    fn remove(&mut self, operation: &ListedOperation, over: bool, now: Instant) {
        if self.active.remove(&operation.key()).is_some() {
            self.ended += usize::from(over);
            self.settle(now);
        }
    }

    /// Records that all operations are known.
    pub(crate) fn synced(&mut self, now: Instant) {
        self.whole = true;
        self.settle(now);
    }

    /// Returns true if all operations are known.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Records that changes may be missed from now on, so quiet time does not count.
    pub(crate) fn lost(&mut self) {
        self.whole = false;
        self.quiet_since = None;
    }

    fn settle(&mut self, now: Instant) {
        if self.whole && self.active.is_empty() {
            self.quiet_since.get_or_insert(now);
        }
    }

    /// Returns the verdict.
    pub(crate) fn verdict(&self, now: Instant) -> GateVerdict {
        let quiet = |since: Option<Instant>| match since.map(|it| it + self.terms.quiet_period) {
            Some(at) if at <= now => GateVerdict::Holds,
            Some(at) => GateVerdict::HoldsAt(at),
            None => GateVerdict::NotYet,
        };
        match self.terms.goal {
            WaitGoal::Idle => quiet(self.quiet_since),
            WaitGoal::Started if self.active.is_empty() => GateVerdict::NotYet,
            WaitGoal::Started => GateVerdict::Holds,
            // An operation that becomes ignored has not ended.
            WaitGoal::Completed if self.seen && self.ended > 0 => quiet(self.quiet_since),
            WaitGoal::Completed => GateVerdict::NotYet,
        }
    }

    /// Returns true if a relevant operation is certainly active, also if others are unknown.
    pub(crate) fn is_busy(&self) -> bool {
        self.whole && !self.active.is_empty()
    }

    /// Returns true if a relevant operation has been active.
    pub(crate) fn has_begun(&self) -> bool {
        self.seen
    }

    /// Returns the number of ignored active operations: the blocked and the failing ones.
    pub(crate) fn ignored(&self) -> (usize, usize) {
        let blocked = self.ignored.values().filter(|it| **it).count();
        (blocked, self.ignored.len() - blocked)
    }

    /// Returns the active operations.
    pub(crate) fn active(&self) -> impl Iterator<Item = &ListedOperation> {
        self.active.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(30);

    fn wait_state(goal: WaitGoal, quiet_period: Duration) -> WaitState {
        WaitState::new(WaitSettings {
            goal,
            quiet_period,
            ignore_failing: false,
            ignore_blocked: false,
        })
    }

    fn operation(name: &str, state: &str) -> ListedOperation {
        ListedOperation {
            name: name.to_owned(),
            active: !matches!(state, "Succeeded" | "Failed"),
            state: state.to_owned(),
            ..ListedOperation::default()
        }
    }

    #[test]
    fn an_empty_view_is_idle_only_once_it_is_complete() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        assert_eq!(wait_state.verdict(now), GateVerdict::NotYet);
        wait_state.synced(now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
        wait_state.lost();
        assert_eq!(wait_state.verdict(now), GateVerdict::NotYet);
    }

    #[test]
    fn an_active_operation_is_certain_while_the_view_has_no_gap() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        wait_state.terms.ignore_failing = true;
        wait_state.applied(operation("a", "Failing"), now);
        wait_state.synced(now);
        assert!(!wait_state.is_busy(), "it is not waited for");
        wait_state.applied(operation("b", "Progressing"), now);
        assert!(wait_state.is_busy());
        wait_state.lost();
        assert!(!wait_state.is_busy(), "it may have ended");
        wait_state.synced(now);
        assert!(wait_state.is_busy());
    }

    #[test]
    fn the_quiet_period_begins_anew_with_each_operation_and_each_gap() {
        let begin = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
        wait_state.applied(operation("a", "Progressing"), begin);
        wait_state.synced(begin);
        assert_eq!(wait_state.verdict(begin), GateVerdict::NotYet);
        wait_state.applied(operation("a", "Succeeded"), begin);
        assert_eq!(
            wait_state.verdict(begin),
            GateVerdict::HoldsAt(begin + QUIET)
        );
        let later = begin + QUIET / 2;
        wait_state.applied(operation("b", "Settling"), later);
        assert_eq!(wait_state.verdict(begin + QUIET), GateVerdict::NotYet);
        wait_state.deleted(&operation("b", "Settling"), later);
        assert_eq!(
            wait_state.verdict(later),
            GateVerdict::HoldsAt(later + QUIET)
        );
        wait_state.lost();
        wait_state.synced(begin + QUIET);
        assert_eq!(
            wait_state.verdict(later + QUIET),
            GateVerdict::HoldsAt(begin + QUIET * 2)
        );
        assert_eq!(wait_state.verdict(begin + QUIET * 2), GateVerdict::Holds);
    }

    #[test]
    fn a_new_list_completes_the_view_and_ends_missing_operations() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
        wait_state.applied(operation("a", "Progressing"), now);
        wait_state.synced(now);
        wait_state.lost();
        wait_state.deleted(&operation("a", "Progressing"), now);
        wait_state.applied(operation("b", "Progressing"), now);
        assert!(!wait_state.is_whole());
        wait_state.synced(now);
        assert!(wait_state.is_whole());
        assert_eq!(wait_state.active().count(), 1);
        wait_state.deleted(&operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
    }

    #[test]
    fn ignored_operations_do_not_block_until_they_become_active_again() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        wait_state.terms.ignore_failing = true;
        wait_state.terms.ignore_blocked = true;
        wait_state.applied(operation("a", "Failing"), now);
        wait_state.applied(operation("b", "Blocked"), now);
        wait_state.synced(now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
        assert_eq!(wait_state.ignored(), (1, 1));
        wait_state.applied(operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::NotYet);
        assert_eq!(wait_state.ignored(), (0, 1));
        wait_state.applied(operation("b", "Blocked"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
        wait_state.deleted(&operation("a", "Failing"), now);
        assert_eq!(wait_state.ignored(), (1, 0));
    }

    #[test]
    fn started_is_met_by_the_first_active_operation() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Started, Duration::ZERO);
        wait_state.synced(now);
        wait_state.applied(operation("a", "Succeeded"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::NotYet);
        wait_state.applied(operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
    }

    #[test]
    fn completed_needs_an_active_operation_and_then_the_completion_of_all() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
        wait_state.applied(operation("old", "Succeeded"), now);
        wait_state.synced(now);
        assert_eq!(
            wait_state.verdict(now),
            GateVerdict::NotYet,
            "it was over before"
        );
        wait_state.applied(operation("a", "Progressing"), now);
        wait_state.applied(operation("b", "Progressing"), now);
        wait_state.applied(operation("a", "Failed"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::NotYet);
        wait_state.deleted(&operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), GateVerdict::Holds);
    }
}
