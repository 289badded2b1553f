//! Decides whether the goal of `kubectl ifo wait` is reached. The decision depends on the changes
//! of operations (such as migrations), the state of the watch, and the time. This module does no
//! I/O.

use crate::listed_operation::{ListedOperation, OperationKey};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The goal of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitGoal {
    /// No matching operation is active; held operations do not count
    Idle,
    /// A matching operation is active; held operations do not count
    Started,
    /// At least one matching operation has ended during the wait, and none is active
    Completed,
}

/// The settings of a wait. An operation is relevant if the settings do not ignore it, and if it is
/// not held: a held operation is not work in flight. The goals `Idle` and `Completed` also need a
/// quiet period in which no relevant operation was ever active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitSettings {
    pub(crate) goal: WaitGoal,
    pub(crate) quiet_period: Duration,
    pub(crate) ignore_failing: bool,
    pub(crate) ignore_blocked: bool,
}

/// The operations that a wait knows.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) settings: WaitSettings,
    /// The active operations that are not ignored.
    active: BTreeMap<OperationKey, ListedOperation>,
    /// The active operations that are ignored.
    ignored: BTreeMap<OperationKey, IgnoredOperation>,
    /// True if all operations are known. False before the first list is complete, and while the
    /// watch is interrupted.
    is_complete: bool,
    /// Time since which all operations are known and no relevant operation is active. None while a
    /// relevant operation is active, or while not all operations are known.
    quiet_since: Option<Instant>,
    /// True if a relevant operation has been active.
    has_begun: bool,
    /// Number of operations that have ended and were relevant before. An operation also counts if
    /// the settings ignored it at its end.
    ended: usize,
}

/// An active operation that is ignored.
#[derive(Clone, Debug)]
struct IgnoredOperation {
    /// State of the operation: `Blocked`, `Failing` or `Held`.
    state: String,
    /// True if the operation was relevant before it became ignored.
    was_relevant: bool,
}

/// The decision whether the goal of a wait is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitVerdict {
    /// The goal is reached.
    Reached,
    /// The goal will be reached at this time if no operation changes.
    ReachedAt(Instant),
    /// The goal is not reached.
    NotReached,
}

impl WaitState {
    /// Creates the state of a wait that knows no operations.
    pub(crate) fn new(settings: WaitSettings) -> Self {
        Self {
            settings,
            active: BTreeMap::new(),
            ignored: BTreeMap::new(),
            is_complete: false,
            quiet_since: None,
            has_begun: false,
            ended: 0,
        }
    }

    /// Returns true if the operation is active and not ignored.
    pub(crate) fn is_relevant_and_active(&self, operation: &ListedOperation) -> bool {
        let is_ignored = operation.is_held()
            || self.settings.ignore_failing && operation.is_failing_or_failed()
            || self.settings.ignore_blocked && operation.is_blocked();
        operation.active && !is_ignored
    }

    /// Processes a new or changed operation.
    pub(crate) fn applied(&mut self, operation: ListedOperation, now: Instant) {
        let key = operation.key();
        if self.is_relevant_and_active(&operation) {
            self.has_begun = true;
            self.quiet_since = None;
            self.ignored.remove(&key);
            self.active.insert(key, operation);
        } else if operation.active {
            let was_relevant = self.remove(&key, now);
            let ignored = IgnoredOperation {
                state: operation.state,
                was_relevant,
            };
            self.ignored.insert(key, ignored);
        } else {
            self.ended_or_deleted(&operation, now);
        }
    }

    /// Processes the end or the deletion of an operation.
    pub(crate) fn ended_or_deleted(&mut self, operation: &ListedOperation, now: Instant) {
        let was_relevant = self.remove(&operation.key(), now);
        self.ended += usize::from(was_relevant);
    }

    /// Removes an active operation. Returns true if the operation was relevant at any time.
    fn remove(&mut self, key: &OperationKey, now: Instant) -> bool {
        if self.active.remove(key).is_some() {
            self.begin_quiet_period(now);
            return true;
        }
        let ignored = self.ignored.remove(key);
        ignored.is_some_and(|it| it.was_relevant)
    }

    /// Records that all operations are known.
    pub(crate) fn synced(&mut self, now: Instant) {
        self.is_complete = true;
        self.begin_quiet_period(now);
    }

    /// Returns true if all operations are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Records that the watch is interrupted. Changes can be missed from now on, so the quiet
    /// period begins again.
    pub(crate) fn lost(&mut self) {
        self.is_complete = false;
        self.quiet_since = None;
    }

    /// Begins the quiet period if all operations are known and no relevant operation is active. A
    /// quiet period that has already begun continues.
    fn begin_quiet_period(&mut self, now: Instant) {
        if self.is_complete && self.active.is_empty() {
            self.quiet_since.get_or_insert(now);
        }
    }

    /// Decides whether the goal is reached at the time `now`.
    pub(crate) fn verdict(&self, now: Instant) -> WaitVerdict {
        let quiet = |since: Option<Instant>| match since.map(|it| it + self.settings.quiet_period) {
            Some(at) if at <= now => WaitVerdict::Reached,
            Some(at) => WaitVerdict::ReachedAt(at),
            None => WaitVerdict::NotReached,
        };
        match self.settings.goal {
            WaitGoal::Idle => quiet(self.quiet_since),
            WaitGoal::Started if self.active.is_empty() => WaitVerdict::NotReached,
            WaitGoal::Started => WaitVerdict::Reached,
            // If an operation becomes ignored, the quiet period can begin, although the operation
            // has not ended. So this arm also checks `ended`.
            WaitGoal::Completed if self.ended > 0 => quiet(self.quiet_since),
            WaitGoal::Completed => WaitVerdict::NotReached,
        }
    }

    /// Returns true if a relevant operation is certainly active. After an interruption of the
    /// watch, the known operations can have ended. So the result is false until all operations are
    /// known again.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_complete && !self.active.is_empty()
    }

    /// Returns true if a relevant operation has been active.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the number of ignored operations with this state.
    pub(crate) fn ignored(&self, state: &str) -> usize {
        self.ignored.values().filter(|it| it.state == state).count()
    }

    /// Returns the active operations that are not ignored.
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

    /// Returns the numbers of the ignored operations that are blocked and failing.
    fn ignored(wait_state: &WaitState) -> (usize, usize) {
        (wait_state.ignored("Blocked"), wait_state.ignored("Failing"))
    }

    #[test]
    fn a_held_operation_is_not_waited_for() {
        let now = Instant::now();
        for (goal, verdict) in [
            (WaitGoal::Idle, WaitVerdict::Reached),
            (WaitGoal::Started, WaitVerdict::NotReached),
            (WaitGoal::Completed, WaitVerdict::NotReached),
        ] {
            let mut wait_state = wait_state(goal, Duration::ZERO);
            wait_state.applied(operation("a", "Held"), now);
            wait_state.synced(now);
            assert_eq!(wait_state.verdict(now), verdict, "{goal:?}");
            assert_eq!(wait_state.ignored("Held"), 1);
            assert!(!wait_state.is_busy());
        }
    }

    #[test]
    fn an_operation_counts_again_when_it_is_no_longer_held() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        wait_state.applied(operation("a", "Held"), now);
        wait_state.synced(now);
        wait_state.applied(operation("a", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
        wait_state.applied(operation("a", "Held"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    }

    #[test]
    fn no_operation_means_idle_only_if_all_operations_are_known() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
        wait_state.synced(now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
        wait_state.lost();
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
    }

    #[test]
    fn an_active_operation_is_certain_until_the_watch_is_interrupted() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        wait_state.settings.ignore_failing = true;
        wait_state.applied(operation("a", "Failing"), now);
        wait_state.synced(now);
        assert!(!wait_state.is_busy(), "an ignored operation must not count");
        wait_state.applied(operation("b", "Progressing"), now);
        assert!(wait_state.is_busy());
        wait_state.lost();
        assert!(
            !wait_state.is_busy(),
            "the operation can have ended during the interruption"
        );
        wait_state.synced(now);
        assert!(wait_state.is_busy());
    }

    #[test]
    fn the_quiet_period_restarts_after_each_operation_and_each_interruption() {
        let begin = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, QUIET);
        wait_state.applied(operation("a", "Progressing"), begin);
        wait_state.synced(begin);
        assert_eq!(wait_state.verdict(begin), WaitVerdict::NotReached);
        wait_state.applied(operation("a", "Succeeded"), begin);
        assert_eq!(
            wait_state.verdict(begin),
            WaitVerdict::ReachedAt(begin + QUIET)
        );
        let later = begin + QUIET / 2;
        wait_state.applied(operation("b", "Settling"), later);
        assert_eq!(wait_state.verdict(begin + QUIET), WaitVerdict::NotReached);
        wait_state.ended_or_deleted(&operation("b", "Settling"), later);
        assert_eq!(
            wait_state.verdict(later),
            WaitVerdict::ReachedAt(later + QUIET)
        );
        wait_state.lost();
        wait_state.synced(begin + QUIET);
        assert_eq!(
            wait_state.verdict(later + QUIET),
            WaitVerdict::ReachedAt(begin + QUIET * 2)
        );
        assert_eq!(wait_state.verdict(begin + QUIET * 2), WaitVerdict::Reached);
    }

    #[test]
    fn after_an_interruption_all_operations_are_known_when_the_list_is_complete() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
        wait_state.applied(operation("a", "Progressing"), now);
        wait_state.synced(now);
        wait_state.lost();
        wait_state.ended_or_deleted(&operation("a", "Progressing"), now);
        wait_state.applied(operation("b", "Progressing"), now);
        assert!(!wait_state.is_complete());
        wait_state.synced(now);
        assert!(wait_state.is_complete());
        assert_eq!(wait_state.active().count(), 1);
        wait_state.ended_or_deleted(&operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    }

    #[test]
    fn operations_do_not_prevent_idle_while_they_are_ignored() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Idle, Duration::ZERO);
        wait_state.settings.ignore_failing = true;
        wait_state.settings.ignore_blocked = true;
        wait_state.applied(operation("a", "Failing"), now);
        wait_state.applied(operation("b", "Blocked"), now);
        wait_state.synced(now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
        assert_eq!(ignored(&wait_state), (1, 1));
        wait_state.applied(operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
        assert_eq!(ignored(&wait_state), (0, 1));
        wait_state.applied(operation("b", "Blocked"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
        wait_state.ended_or_deleted(&operation("a", "Failing"), now);
        assert_eq!(ignored(&wait_state), (1, 0));
    }

    #[test]
    fn started_is_reached_with_the_first_active_operation() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Started, Duration::ZERO);
        wait_state.synced(now);
        wait_state.applied(operation("a", "Succeeded"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
        wait_state.applied(operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    }

    #[test]
    fn completed_needs_an_active_operation_and_then_the_completion_of_all() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
        wait_state.applied(operation("old", "Succeeded"), now);
        wait_state.synced(now);
        assert_eq!(
            wait_state.verdict(now),
            WaitVerdict::NotReached,
            "an operation that had completed before must not count"
        );
        wait_state.applied(operation("a", "Progressing"), now);
        wait_state.applied(operation("b", "Progressing"), now);
        wait_state.applied(operation("a", "Failed"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::NotReached);
        wait_state.ended_or_deleted(&operation("b", "Progressing"), now);
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    }

    #[test]
    fn completed_is_reached_if_an_operation_ends_while_it_is_ignored() {
        let now = Instant::now();
        let mut wait_state = wait_state(WaitGoal::Completed, Duration::ZERO);
        wait_state.settings.ignore_failing = true;
        wait_state.synced(now);
        wait_state.applied(operation("other", "Failing"), now);
        wait_state.applied(operation("other", "Failed"), now);
        wait_state.applied(operation("a", "Progressing"), now);
        wait_state.applied(operation("a", "Failing"), now);
        wait_state.applied(operation("a", "Failing"), now);
        assert_eq!(
            wait_state.verdict(now),
            WaitVerdict::NotReached,
            "no operation that was relevant has ended"
        );
        wait_state.applied(operation("a", "Failed"), now);
        assert_eq!(ignored(&wait_state), (0, 0));
        assert_eq!(wait_state.verdict(now), WaitVerdict::Reached);
    }
}
