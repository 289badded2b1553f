//! Prints the progress of `kubectl ifo wait` to standard error.

use super::wait_loop::CHECK_INTERVAL;
use super::wait_state::{WaitGoal, WaitState, WaitVerdict};
use crate::clock;
use crate::columns;
use crate::listed_operation::ListedOperation;
use crate::output::{TerminalText, print_error_line, print_error_text};
use crate::plain_text::{cut, one_line};
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::time::Instant;

/// The command that moves the cursor to the beginning of the line and clears the line.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Describes the active operations in one line. For several operations, the line has their number
/// and the oldest one. For one operation, it is `VirtualMachine/web in shop: Migrating 45% 3m`.
pub(super) fn active_text(wait_state: &WaitState) -> String {
    let oldest = wait_state.active().min_by_key(|it| it.started);
    let oldest = oldest.map(|it| format!("{}: {}", it.place_name(), about(it)));
    match (wait_state.number(), oldest) {
        (0, _) => format!("no operation in flight{}", ignored_text(wait_state)),
        (1, Some(one)) => one,
        (count, Some(oldest)) => format!("{count} operations in flight, the oldest {oldest}"),
        // The oldest operation has ended, or the user may not read it.
        (1, None) => "1 operation in flight".to_owned(),
        (count, None) => format!("{count} operations in flight"),
    }
}

fn about(operation: &ListedOperation) -> String {
    let progress = operation.percent(" ");
    let state = match operation.marked_state().as_str() {
        // A custom resource without a status has no state.
        "" | "Progressing" | "Active" => String::new(),
        state => format!(" ({state})"),
    };
    let age = columns::age(operation, clock::now());
    format!("{}{progress}{state} {age}", operation.operation)
}

/// Describes why the goal is not reached, in one line.
pub(super) fn reason(wait_state: &WaitState) -> String {
    let has_ended = match wait_state.settings.goal {
        WaitGoal::Completed if !wait_state.has_begun() => "completed",
        WaitGoal::Succeeded if !wait_state.has_begun() => "succeeded",
        _ => return active_text(wait_state),
    };
    let ignored = ignored_text(wait_state);
    format!("no operation has started, so none has {has_ended}{ignored}")
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

/// Describes the ignored operations as the end of a sentence, such as `, but 1 blocked (ignored)`.
/// Held operations are always ignored, so they are only counted: `, but 1 held`. Empty if no
/// operation is ignored.
pub(super) fn ignored_text(wait_state: &WaitState) -> String {
    let texts = [
        ("Blocked", "blocked (ignored)"),
        ("Failing", "failing (ignored)"),
        ("Held", "held"),
    ];
    let counts = texts.map(|(state, text)| (wait_state.ignored(state), text));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = counts
        .map(|(count, text)| format!("{count} {text}"))
        .collect();
    match parts.as_slice() {
        [] => String::new(),
        parts => format!(", but {}", parts.join(" and ")),
    }
}

/// Prints the progress. On a terminal, each message overwrites the message before it. If standard
/// error is not a terminal, each message gets its own line. At most one message is printed in ten
/// seconds, and the others are dropped.
pub(super) struct ProgressOutput {
    terminal: bool,
    quiet: bool,
    last: String,
    /// Time at which the last line was printed. None on a terminal, and before the first line.
    last_printed: Option<Instant>,
}

impl ProgressOutput {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            quiet,
            last: String::new(),
            last_printed: None,
        }
    }

    /// Returns the interval at which the output must be updated.
    pub(super) fn update_interval(&self) -> Duration {
        if self.terminal {
            Duration::from_secs(1)
        } else {
            CHECK_INTERVAL
        }
    }

    pub(super) fn show(&mut self, wait_state: &WaitState, doubt: Option<&str>) {
        let text = state_text(wait_state, doubt, Instant::now());
        if self.quiet || self.last == text {
            return;
        }
        if self.terminal {
            let size = terminal_size::terminal_size_of(std::io::stderr());
            let width = size.map_or(80, |(width, _)| usize::from(width.0));
            let line = cut(&one_line(&text), width.saturating_sub(1));
            print_error_text(TerminalText::command(CLEAR_LINE) + line);
        } else {
            // At most one line is printed in `CHECK_INTERVAL`, because many messages differ only in
            // an age.
            let printed = self.last_printed;
            if printed.is_some_and(|it| it.elapsed() < CHECK_INTERVAL) {
                return;
            }
            print_error_line(&text);
            self.last_printed = Some(Instant::now());
        }
        self.last = text;
    }

    /// Clears the line on the terminal.
    pub(super) fn clear(&mut self) {
        if self.terminal && !self.last.is_empty() {
            print_error_text(TerminalText::command(CLEAR_LINE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_state::WaitSettings;

    #[test]
    fn the_progress_describes_each_stage_of_a_wait() {
        let now = Instant::now();
        let mut wait_state = WaitState::new(WaitSettings {
            goal: WaitGoal::Idle,
            quiet_period: Some(Duration::from_secs(30)),
            ignore_failing: false,
            ignore_blocked: false,
        });
        let line = |wait_state: &WaitState, why: Option<&str>| state_text(wait_state, why, now);
        assert_eq!(
            line(&wait_state, Some("no rules")),
            "still unknown: no rules"
        );
        let operation = ListedOperation {
            name: "a".to_owned(),
            operation: "Migrating".to_owned(),
            state: "Blocked".to_owned(),
            active: true,
            ..ListedOperation::default()
        };
        wait_state.applied(operation.clone(), now);
        wait_state.synced(now);
        let waiting = line(&wait_state, None);
        assert!(waiting.starts_with("waiting: "), "{waiting}");
        assert!(waiting.contains("Migrating (Blocked)"), "{waiting}");
        let stateless = ListedOperation {
            state: String::new(),
            ..operation.clone()
        };
        wait_state.applied(stateless, now);
        let waiting = line(&wait_state, None);
        assert!(!waiting.contains('('), "{waiting}");
        wait_state.ended_or_deleted(&operation, now);
        assert_eq!(
            line(&wait_state, None),
            "no operation in flight; the quiet period ends in 30 s"
        );
    }
}
