//! Decides whether the goal of `kubectl ifo wait` is reached. The decision depends on the changes
//! of operations (such as migrations), the state of the watch, and the time. This module does no
//! I/O.

use crate::clock;
use crate::operation::{InFlightOperation, OperationFacts, OperationKey};
use crate::problem::Problem;
use clap::ValueEnum;
use ifo_api::live::State;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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
    /// Like completed, but the operations must succeed; ends with 1 as soon as one fails
    Succeeded,
}

impl fmt::Display for WaitGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |it| it.get_name()))
    }
}

/// The flags that decide when the goal is reached. An operation is relevant if the settings do not ignore it, and if it is
/// not held: a held operation is not work in flight. All goals except `Started` also need a quiet
/// period in which no relevant operation was ever active.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WaitSettings {
    /// Goal of the wait
    #[arg(long = "for", value_enum, default_value_t = WaitGoal::Idle, value_name = "GOAL")]
    pub(crate) goal: WaitGoal,
    /// Time without active operations before idle, completed or succeeded is reached
    #[arg(long, value_parser = clock::duration, value_name = "TIME")]
    pub(crate) quiet_period: Option<Duration>,
    /// Do not wait for operations that are failing
    #[arg(long)]
    pub(crate) ignore_failing: bool,
    /// Do not wait for operations that are blocked
    #[arg(long)]
    pub(crate) ignore_blocked: bool,
}

/// The operations that a wait knows.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) settings: WaitSettings,
    /// The active operations. The flag is true if the operation was relevant at any time.
    active: BTreeMap<OperationKey, (InFlightOperation, bool)>,
    /// True if all operations are known. False before the first list, and while the watch is
    /// interrupted.
    is_complete: bool,
    /// Time since which all operations are known and no relevant operation is active. None while a
    /// relevant operation is active, or while not all operations are known.
    quiet_since: Option<Instant>,
    /// Time of the last answer that a relevant operation was active.
    last_busy: Option<Instant>,
    /// True if a relevant operation has ended as the goal demands. The operation can have been
    /// ignored at its end.
    has_ended: bool,
    /// The end of the wait, if an operation has ended so that the goal cannot be reached.
    end: Option<WaitVerdict>,
}

/// The decision whether the goal of a wait is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitVerdict {
    /// The goal is reached.
    Reached,
    /// The goal will be reached at this time if no operation changes.
    ReachedAt(Instant),
    /// The goal is not reached.
    NotReached,
    /// The goal cannot be reached, because an operation has failed. The text describes it.
    Failed(String),
    /// It is unknown whether the goal is reached. The text is the reason.
    Unknown(String),
    /// The command failed.
    Error(Problem),
}

/// The result of a step of the wait. If the wait ends, the step returns the verdict as an error.
pub(crate) type Step<T = ()> = Result<T, WaitVerdict>;

impl From<Problem> for WaitVerdict {
    fn from(problem: Problem) -> Self {
        Self::Error(problem)
    }
}

impl WaitVerdict {
    pub(crate) fn unknown(why: &str) -> Self {
        Self::Unknown(why.to_owned())
    }

    /// Returns true if no later change can revise the verdict.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unknown(_))
    }
}

impl WaitState {
    /// Creates the state of a wait that knows no operations.
    pub(crate) fn new(settings: WaitSettings) -> Self {
        Self {
            settings,
            active: BTreeMap::new(),
            is_complete: false,
            quiet_since: None,
            last_busy: None,
            has_ended: false,
            end: None,
        }
    }

    /// Returns true if the operation is active and not ignored.
    pub(crate) fn is_relevant_and_active(&self, operation: &InFlightOperation) -> bool {
        let is_ignored = match operation.status.state {
            State::Held => true,
            State::Failing | State::Failed => self.settings.ignore_failing,
            State::Blocked => self.settings.ignore_blocked,
            _ => false,
        };
        operation.is_active() && !is_ignored
    }

    /// Processes a new or changed operation.
    pub(crate) fn applied(&mut self, operation: InFlightOperation, now: Instant) {
        if !operation.is_active() {
            return self.ended_or_deleted(&operation, now);
        }
        let is_relevant = self.is_relevant_and_active(&operation);
        if is_relevant {
            self.last_busy = Some(now);
        }
        let key = operation.key();
        let was_relevant = self.active.get(&key).is_some_and(|(_, relevant)| *relevant);
        let known = (operation, is_relevant || was_relevant);
        self.active.insert(key, known);
        self.update_quiet_period(now);
    }

    /// Processes the end or the deletion of an operation.
    pub(crate) fn ended_or_deleted(&mut self, operation: &InFlightOperation, now: Instant) {
        if let Some((_, true)) = self.active.remove(&operation.key()) {
            self.last_busy = Some(now);
            let what = format!("{}: {}", operation.place_name(), operation.spec.operation);
            match (self.settings.goal, operation.status.state) {
                (WaitGoal::Succeeded, State::Failed) => {
                    let failed = format!("{what}: {}", operation.status.message);
                    self.end = Some(WaitVerdict::Failed(failed));
                }
                // Another operation has replaced this one.
                (WaitGoal::Succeeded, State::Superseded) => {}
                (WaitGoal::Succeeded, state) if state != State::Succeeded => {
                    let why = format!("{what} has ended, but its result is unknown");
                    self.end.get_or_insert(WaitVerdict::Unknown(why));
                }
                _ => self.has_ended = true,
            }
        }
        self.update_quiet_period(now);
    }

    /// Returns the active operations that are missing from a new list.
    pub(crate) fn missing_from(&self, listed: &[InFlightOperation]) -> Vec<InFlightOperation> {
        let listed: BTreeSet<OperationKey> = listed.iter().map(OperationFacts::key).collect();
        let missing = self.active.iter().filter(|(key, _)| !listed.contains(*key));
        missing
            .map(|(_, (operation, _))| operation.clone())
            .collect()
    }

    /// Processes a complete list. The caller has processed the end of the operations that are
    /// missing from the list.
    pub(crate) fn listed(&mut self, operations: &[InFlightOperation], now: Instant) {
        for operation in operations {
            self.applied(operation.clone(), now);
        }
        self.is_complete = true;
        self.update_quiet_period(now);
    }

    /// Processes the answer of an activity that nothing has been in flight for the time `age`.
    /// The quiet period begins after the last answer that an operation was active, even if the clocks
    /// of this machine and of the server differ.
    pub(crate) fn idle(&mut self, age: Duration, now: Instant) {
        let since = now.checked_sub(age);
        self.active.clear();
        self.is_complete = true;
        self.quiet_since = Some(since.max(self.last_busy).unwrap_or(now));
    }

    /// Processes the answer of an activity that an operation is in flight.
    pub(crate) fn busy(&mut self, now: Instant) {
        self.last_busy = Some(now);
    }

    /// Records that the watch is interrupted. Changes can be missed from now on, so the quiet
    /// period begins again.
    pub(crate) fn lost(&mut self) {
        self.is_complete = false;
        self.quiet_since = None;
    }

    /// Begins or ends the quiet period. A quiet period that has already begun continues.
    fn update_quiet_period(&mut self, now: Instant) {
        let is_quiet = self.is_complete && !self.is_any_active();
        self.quiet_since = is_quiet.then(|| self.quiet_since.unwrap_or(now));
    }

    /// Decides whether the goal is reached at the time `now`.
    pub(crate) fn verdict(&self, now: Instant) -> WaitVerdict {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let quiet = self
            .quiet_since
            .map(|it| it + self.settings.quiet_period.unwrap_or_default());
        match (self.settings.goal, quiet) {
            (WaitGoal::Started, _) if self.is_any_active() => WaitVerdict::Reached,
            (WaitGoal::Started, _) | (_, None) => WaitVerdict::NotReached,
            // If an operation becomes ignored, the quiet period can begin, although the operation
            // has not ended.
            (WaitGoal::Completed | WaitGoal::Succeeded, _) if !self.has_ended => {
                WaitVerdict::NotReached
            }
            (_, Some(at)) if at <= now => WaitVerdict::Reached,
            (_, Some(at)) => WaitVerdict::ReachedAt(at),
        }
    }

    /// Returns true if a relevant operation is certainly active. After an interruption of the
    /// watch, the known operations can have ended. So the result is false until all operations are
    /// known again.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_complete && self.is_any_active()
    }

    fn is_any_active(&self) -> bool {
        self.active().next().is_some()
    }

    /// Returns true if a relevant operation has been active.
    pub(crate) fn has_begun(&self) -> bool {
        self.last_busy.is_some()
    }

    /// Returns the number of active operations that are ignored or held.
    pub(crate) fn ignored(&self) -> usize {
        self.active.len() - self.active().count()
    }

    /// Returns the known active operations that are not ignored.
    pub(crate) fn active(&self) -> impl Iterator<Item = &InFlightOperation> {
        let all = self.active.values().map(|(operation, _)| operation);
        all.filter(|it| self.is_relevant_and_active(it))
    }
}

#[cfg(test)]
mod tests;
