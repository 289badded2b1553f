//! When a wait is over. Enters: operations as they come and go, whether the view of them
//! is whole, and the time. Leaves: a verdict. Nothing here asks anybody.

use crate::operation::{ListedOperation, OperationKey};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Goal {
    /// No operation that is meant is active
    Idle,
    /// An operation that is meant is active
    Started,
    /// The operations that are meant and were active have ended; if there was none, the next ones
    Completed,
}

/// What counts as active, and for how long nothing must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) goal: Goal,
    pub(crate) quiet_period: Duration,
    pub(crate) ignore_failing: bool,
    pub(crate) ignore_blocked: bool,
}

/// The operations that hold up what is waited for.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) terms: Terms,
    active: BTreeMap<OperationKey, ListedOperation>,
    /// Operations that are active and not waited for, and whether each is blocked.
    ignored: BTreeMap<OperationKey, bool>,
    /// Whether what is known is all there is.
    whole: bool,
    /// Since when nothing has been active, as far as is known without a gap.
    quiet_since: Option<Instant>,
    /// Whether anything was active.
    seen: bool,
    /// How many have ended.
    ended: usize,
}

/// Whether the wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateVerdict {
    /// What is waited for is so.
    Holds,
    /// It will be so at this time, if nothing happens.
    HoldsAt(Instant),
    /// It is not so.
    NotYet,
}

impl Gate {
    /// Nothing known yet.
    pub(crate) fn new(terms: Terms) -> Self {
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

    /// Whether an operation is one to wait for.
    pub(crate) fn counts(&self, operation: &ListedOperation) -> bool {
        operation.active
            && !(self.terms.ignore_failing && operation.is_failing())
            && !(self.terms.ignore_blocked && operation.is_blocked())
    }

    /// An operation is new, or other than before.
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

    /// An operation is gone.
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

    /// All there is has been told.
    pub(crate) fn synced(&mut self, now: Instant) {
        self.whole = true;
        self.settle(now);
    }

    /// Whether what is known is all there is.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Something may happen now that is not told: quiet does not count.
    pub(crate) fn lost(&mut self) {
        self.whole = false;
        self.quiet_since = None;
    }

    fn settle(&mut self, now: Instant) {
        if self.whole && self.active.is_empty() {
            self.quiet_since.get_or_insert(now);
        }
    }

    /// Whether it is over.
    pub(crate) fn verdict(&self, now: Instant) -> GateVerdict {
        let quiet = |since: Option<Instant>| match since.map(|it| it + self.terms.quiet_period) {
            Some(at) if at <= now => GateVerdict::Holds,
            Some(at) => GateVerdict::HoldsAt(at),
            None => GateVerdict::NotYet,
        };
        match self.terms.goal {
            Goal::Idle => quiet(self.quiet_since),
            Goal::Started if self.active.is_empty() => GateVerdict::NotYet,
            Goal::Started => GateVerdict::Holds,
            // What is ignored from some time on has not ended.
            Goal::Completed if self.seen && self.ended > 0 => quiet(self.quiet_since),
            Goal::Completed => GateVerdict::NotYet,
        }
    }

    /// Whether it is certain that one to wait for is active, whatever else is not known.
    pub(crate) fn is_busy(&self) -> bool {
        self.whole && !self.active.is_empty()
    }

    /// Whether an operation to wait for has been active.
    pub(crate) fn has_begun(&self) -> bool {
        self.seen
    }

    /// How many are active and not waited for: the blocked, and the failing ones.
    pub(crate) fn ignored(&self) -> (usize, usize) {
        let blocked = self.ignored.values().filter(|it| **it).count();
        (blocked, self.ignored.len() - blocked)
    }

    /// The operations that are active.
    pub(crate) fn active(&self) -> impl Iterator<Item = &ListedOperation> {
        self.active.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(30);

    fn gate(goal: Goal, quiet_period: Duration) -> Gate {
        Gate::new(Terms {
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
    fn an_empty_view_is_idle_only_once_it_is_whole() {
        let now = Instant::now();
        let mut gate = gate(Goal::Idle, Duration::ZERO);
        assert_eq!(gate.verdict(now), GateVerdict::NotYet);
        gate.synced(now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
        gate.lost();
        assert_eq!(gate.verdict(now), GateVerdict::NotYet);
    }

    #[test]
    fn one_that_is_active_is_certain_while_the_view_has_no_gap() {
        let now = Instant::now();
        let mut gate = gate(Goal::Idle, Duration::ZERO);
        gate.terms.ignore_failing = true;
        gate.applied(operation("a", "Failing"), now);
        gate.synced(now);
        assert!(!gate.is_busy(), "it is not waited for");
        gate.applied(operation("b", "Progressing"), now);
        assert!(gate.is_busy());
        gate.lost();
        assert!(!gate.is_busy(), "it may have ended");
        gate.synced(now);
        assert!(gate.is_busy());
    }

    #[test]
    fn the_quiet_period_begins_anew_with_each_operation_and_each_gap() {
        let begin = Instant::now();
        let mut gate = gate(Goal::Idle, QUIET);
        gate.applied(operation("a", "Progressing"), begin);
        gate.synced(begin);
        assert_eq!(gate.verdict(begin), GateVerdict::NotYet);
        gate.applied(operation("a", "Succeeded"), begin);
        assert_eq!(gate.verdict(begin), GateVerdict::HoldsAt(begin + QUIET));
        let later = begin + QUIET / 2;
        gate.applied(operation("b", "Settling"), later);
        assert_eq!(gate.verdict(begin + QUIET), GateVerdict::NotYet);
        gate.deleted(&operation("b", "Settling"), later);
        assert_eq!(gate.verdict(later), GateVerdict::HoldsAt(later + QUIET));
        gate.lost();
        gate.synced(begin + QUIET);
        assert_eq!(
            gate.verdict(later + QUIET),
            GateVerdict::HoldsAt(begin + QUIET * 2)
        );
        assert_eq!(gate.verdict(begin + QUIET * 2), GateVerdict::Holds);
    }

    #[test]
    fn a_fresh_list_makes_the_view_whole_and_ends_what_is_not_in_it() {
        let now = Instant::now();
        let mut gate = gate(Goal::Completed, Duration::ZERO);
        gate.applied(operation("a", "Progressing"), now);
        gate.synced(now);
        gate.lost();
        gate.deleted(&operation("a", "Progressing"), now);
        gate.applied(operation("b", "Progressing"), now);
        assert!(!gate.is_whole());
        gate.synced(now);
        assert!(gate.is_whole());
        assert_eq!(gate.active().count(), 1);
        gate.deleted(&operation("b", "Progressing"), now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
    }

    #[test]
    fn what_is_ignored_does_not_hold_it_up_until_it_goes_on() {
        let now = Instant::now();
        let mut gate = gate(Goal::Idle, Duration::ZERO);
        gate.terms.ignore_failing = true;
        gate.terms.ignore_blocked = true;
        gate.applied(operation("a", "Failing"), now);
        gate.applied(operation("b", "Blocked"), now);
        gate.synced(now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
        assert_eq!(gate.ignored(), (1, 1));
        gate.applied(operation("b", "Progressing"), now);
        assert_eq!(gate.verdict(now), GateVerdict::NotYet);
        assert_eq!(gate.ignored(), (0, 1));
        gate.applied(operation("b", "Blocked"), now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
        gate.deleted(&operation("a", "Failing"), now);
        assert_eq!(gate.ignored(), (1, 0));
    }

    #[test]
    fn started_holds_with_the_first_active_one() {
        let now = Instant::now();
        let mut gate = gate(Goal::Started, Duration::ZERO);
        gate.synced(now);
        gate.applied(operation("a", "Succeeded"), now);
        assert_eq!(gate.verdict(now), GateVerdict::NotYet);
        gate.applied(operation("b", "Progressing"), now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
    }

    #[test]
    fn completed_needs_one_that_was_active_and_then_all_of_them() {
        let now = Instant::now();
        let mut gate = gate(Goal::Completed, Duration::ZERO);
        gate.applied(operation("old", "Succeeded"), now);
        gate.synced(now);
        assert_eq!(gate.verdict(now), GateVerdict::NotYet, "it was over before");
        gate.applied(operation("a", "Progressing"), now);
        gate.applied(operation("b", "Progressing"), now);
        gate.applied(operation("a", "Failed"), now);
        assert_eq!(gate.verdict(now), GateVerdict::NotYet);
        gate.deleted(&operation("b", "Progressing"), now);
        assert_eq!(gate.verdict(now), GateVerdict::Holds);
    }
}
