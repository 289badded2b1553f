//! Decides whether the goal of `kubectl ifo wait` is reached. The decision depends on the changes
//! of operations (such as migrations), the state of the watch, and the time. This module does no
//! I/O.

use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::operation::{InFlightOperation, OperationFacts, OperationKey};
use clap::ValueEnum;
use ifo_api::live::State;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The reason why the result is unknown if a custom resource is gone, and its last state was active.
/// The leader of `ifo-apiserver`, a user or the garbage collector can have deleted it.
const NO_CUSTOM_RESOURCE: &str =
    "its custom resource was deleted, or no longer matches the filters; the operation may continue";

/// The goal of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitGoal {
    /// No matching operation is active; held operations do not count
    #[default]
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

/// The flags that decide when the goal is reached. An operation is relevant if the settings do not
/// ignore it, and if it is not held: a held operation is not work in flight. All goals except
/// `Started` also need a quiet period in which no relevant operation was ever active.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
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

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The goal is reached.
    Reached,
    /// The goal is not reached.
    NotReached,
    /// The goal cannot be reached, because an operation has failed. The text describes it.
    Failed(String),
    /// It is unknown whether the goal is reached. The text is the reason.
    Unknown(String),
    /// The command failed.
    Error(Problem),
}

impl From<Problem> for WaitEnd {
    fn from(problem: Problem) -> Self {
        Self::Error(problem)
    }
}

/// The result of a step of the wait. If the wait ends, the step returns its end as an error.
pub(crate) type Step<T = ()> = Result<T, WaitEnd>;

/// The operations that a wait knows.
#[derive(Debug, Default)]
pub(crate) struct WaitState {
    settings: WaitSettings,
    /// The active operations. The flag is true if the operation was relevant at any time.
    active: BTreeMap<OperationKey, (InFlightOperation, bool)>,
    /// Time since which all operations are known and no relevant operation is active. None while a
    /// relevant operation is active, or while not all operations are known.
    quiet_since: Option<Instant>,
    /// Time of the newest answer that showed a relevant operation as active. The end of a relevant
    /// operation also sets this time.
    last_busy: Option<Instant>,
    /// True if an operation has ended as the goal demands. An operation that was ignored at its end
    /// also counts, if it was relevant before.
    has_ended: bool,
    /// The end of the wait. Set if an operation failed or ended with an unknown result, so that the
    /// goal `Succeeded` cannot be reached.
    end: Option<WaitEnd>,
}

impl WaitState {
    /// Creates the state of a wait that knows no operations.
    pub(crate) fn new(settings: WaitSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Returns true if the operation is active and not ignored.
    fn is_relevant(&self, operation: &InFlightOperation) -> bool {
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
            return self.ended(&operation, true, now);
        }
        let is_relevant = self.is_relevant(&operation);
        if is_relevant {
            self.last_busy = Some(now);
        }
        let key = operation.key();
        let was_relevant = self.active.get(&key).is_some_and(|(_, relevant)| *relevant);
        let known = (operation, is_relevant || was_relevant);
        self.active.insert(key, known);
        self.update_quiet_period(now);
    }

    /// Processes the end of an operation, or the deletion of its object. `is_certain` is false if
    /// the operation may continue without its object.
    pub(crate) fn ended(&mut self, operation: &InFlightOperation, is_certain: bool, now: Instant) {
        if let Some((_, true)) = self.active.remove(&operation.key()) {
            self.last_busy = Some(now);
            let what = format!("{}: {}", operation.place_name(), operation.spec.operation);
            match (self.settings.goal, operation.status.state) {
                (WaitGoal::Completed | WaitGoal::Succeeded, _) if !is_certain => {
                    let why = format!("{what}: {NO_CUSTOM_RESOURCE}");
                    self.end.get_or_insert(WaitEnd::Unknown(why));
                }
                (WaitGoal::Succeeded, State::Failed) => {
                    let failed = format!("{what}: {}", operation.status.message);
                    self.end = Some(WaitEnd::Failed(failed));
                }
                // Another operation has replaced this one, so this end is neither a success nor a
                // failure.
                (WaitGoal::Succeeded, State::Superseded) => {}
                (WaitGoal::Succeeded, state) if state != State::Succeeded => {
                    let why = format!("{what} has ended, but its result is unknown");
                    self.end.get_or_insert(WaitEnd::Unknown(why));
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
        missing.map(|(_, known)| known.0.clone()).collect()
    }

    /// Processes a complete list. The caller has processed the end of the operations that are
    /// missing from the list.
    pub(crate) fn listed(&mut self, operations: &[InFlightOperation], now: Instant) {
        for operation in operations {
            self.applied(operation.clone(), now);
        }
        self.update_quiet_period(now);
    }

    /// Processes an activity which states that nothing has been in flight for the time `age`. The
    /// quiet period begins after the last answer that an operation was active, even if the clocks
    /// of this machine and of the server differ.
    pub(crate) fn idle(&mut self, age: Duration, now: Instant) {
        let age = age.min(self.settings.quiet_period.unwrap_or_default());
        let since = now.checked_sub(age).max(self.quiet_since);
        self.active.clear();
        self.quiet_since = Some(since.max(self.last_busy).unwrap_or(now));
    }

    /// Records that changes can be missed from now on, so the quiet period begins again.
    pub(crate) fn lost(&mut self) {
        self.quiet_since = None;
    }

    /// Begins or ends the quiet period. A quiet period that has already begun continues.
    fn update_quiet_period(&mut self, now: Instant) {
        let is_quiet = self.active().next().is_none();
        self.quiet_since = is_quiet.then(|| self.quiet_since.unwrap_or(now));
    }

    /// Returns the time at which the goal is reached if no operation changes. Returns None if the
    /// goal is not reached. The goal `Started` and a failure end the wait at once, because no later
    /// answer can revise them.
    pub(crate) fn reached_at(&self) -> Step<Option<Instant>> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let quiet_period = self.settings.quiet_period.unwrap_or_default();
        let quiet = self.quiet_since.map(|it| it + quiet_period);
        match self.settings.goal {
            WaitGoal::Started if self.active().next().is_some() => Err(WaitEnd::Reached),
            WaitGoal::Started => Ok(None),
            WaitGoal::Idle => Ok(quiet),
            // The quiet period alone is not enough: it can also begin if an operation becomes
            // ignored, although the operation has not ended.
            WaitGoal::Completed | WaitGoal::Succeeded => Ok(quiet.filter(|_| self.has_ended)),
        }
    }

    /// Returns the known active operations that are not ignored.
    pub(crate) fn active(&self) -> impl Iterator<Item = &InFlightOperation> {
        let all = self.active.values().map(|(operation, _)| operation);
        all.filter(|it| self.is_relevant(it))
    }

    /// Describes the state in one line: the oldest active operation, or why there is none. For one
    /// operation, the line is `VirtualMachine/web in shop: Migrating 45% (Progressing) 3m`.
    pub(crate) fn reason(&self) -> String {
        if let Some(oldest) = self.active().min_by_key(|it| it.started()) {
            let (place, progress) = (oldest.place_name(), oldest.percent(" "));
            let (state, age) = (oldest.marked_state(), oldest.age(clock::now()));
            let name = &oldest.spec.operation;
            let oldest = format!("{place}: {name}{progress} ({state}) {age}");
            return match self.active().count() {
                1 => oldest,
                count => format!("{count} operations in flight, the oldest {oldest}"),
            };
        }
        let needs_end = [WaitGoal::Completed, WaitGoal::Succeeded].contains(&self.settings.goal);
        let mut text = match self.last_busy {
            None if needs_end => "no operation has started".to_owned(),
            _ => "no operation in flight".to_owned(),
        };
        // Only ignored and held operations are left.
        if !self.active.is_empty() {
            text = format!("{text}, but {} held or ignored", self.active.len());
        }
        if matches!(self.reached_at(), Ok(Some(at)) if at > Instant::now()) {
            text += ", but not yet for the quiet period";
        }
        text
    }
}

#[cfg(test)]
mod tests;
