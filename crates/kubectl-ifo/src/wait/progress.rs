//! Prints the progress of `kubectl ifo wait` to standard error.

use super::wait_state::{WaitGoal, WaitState, WaitVerdict};
use crate::clock;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::output::print_error_line;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest time between two lines.
const PRINT_INTERVAL: Duration = Duration::from_secs(10);

/// Describes the active operations in one line. For several operations, the line has their number
/// and the oldest one. For one operation, it is `VirtualMachine/web in shop: Migrating 45% 3m`.
pub(super) fn active_text(wait_state: &WaitState) -> String {
    let oldest = wait_state.active().min_by_key(|it| it.started());
    let oldest = oldest.map(|it| format!("{}: {}", it.place_name(), about(it)));
    match (wait_state.active().count(), oldest) {
        (_, None) => format!("no operation in flight{}", ignored_text(wait_state)),
        (1, Some(one)) => one,
        (count, Some(oldest)) => format!("{count} operations in flight, the oldest {oldest}"),
    }
}

fn about(operation: &InFlightOperation) -> String {
    let state = match operation.marked_state().as_str() {
        // A custom resource of the Go operator has the state `Active`.
        "Progressing" | "Active" => String::new(),
        state => format!(" ({state})"),
    };
    let (name, progress) = (&operation.spec.operation, operation.percent(" "));
    let age = operation.age(clock::now());
    format!("{name}{progress}{state} {age}")
}

/// Describes why the goal is not reached, in one line.
pub(super) fn reason(wait_state: &WaitState) -> String {
    let needs_start = matches!(
        wait_state.settings.goal,
        WaitGoal::Completed | WaitGoal::Succeeded
    );
    if needs_start && !wait_state.has_begun() {
        return format!("no operation has started{}", ignored_text(wait_state));
    }
    active_text(wait_state)
}

/// Describes the state of the wait in one line.
fn state_text(wait_state: &WaitState, doubt: Option<&str>, now: Instant) -> String {
    match (doubt, wait_state.verdict(now)) {
        (Some(why), _) => format!("still unknown: {why}"),
        (None, WaitVerdict::ReachedAt(at)) => format!(
            "{}; the quiet period ends in {} s",
            active_text(wait_state),
            (at - now).as_millis().div_ceil(1000)
        ),
        (None, _) => format!("waiting: {}", reason(wait_state)),
    }
}

/// Describes the active operations for which the wait does not wait as the end of a sentence. Empty
/// if there are none.
pub(super) fn ignored_text(wait_state: &WaitState) -> String {
    match wait_state.ignored() {
        0 => String::new(),
        count => format!(", but {count} held or ignored"),
    }
}

/// Prints the progress, at most one line in [`PRINT_INTERVAL`]. Other lines are dropped, because
/// many of them differ only in an age.
#[derive(Default)]
pub(super) struct ProgressOutput {
    last: String,
    last_printed: Option<Instant>,
}

impl ProgressOutput {
    pub(super) fn show(&mut self, wait_state: &WaitState, doubt: Option<&str>) {
        let text = state_text(wait_state, doubt, Instant::now());
        let is_early = |it: Instant| it.elapsed() < PRINT_INTERVAL;
        if self.last != text && !self.last_printed.is_some_and(is_early) {
            print_error_line(&text);
            self.last_printed = Some(Instant::now());
            self.last = text;
        }
    }
}
