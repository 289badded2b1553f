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
    let mut active: Vec<&ListedOperation> = wait_state.active().collect();
    active.sort_by_key(|it| it.started);
    match active.as_slice() {
        [] => format!("no operation in flight{}", ignored_text(wait_state)),
        [one] => format!("{}: {}", one.place_name(), about(one)),
        [oldest, rest @ ..] => format!(
            "{} operations in flight, the oldest {}: {}",
            rest.len() + 1,
            oldest.place_name(),
            about(oldest)
        ),
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

/// Returns a message if the goal is `completed` and no operation has started yet. None otherwise.
pub(super) fn not_started_message(wait_state: &WaitState) -> Option<String> {
    let waits_for_end = wait_state.settings.goal == WaitGoal::Completed && !wait_state.has_begun();
    waits_for_end.then(|| {
        let ignored = ignored_text(wait_state);
        format!("no operation has started, so none has completed{ignored}")
    })
}

/// Describes the state of the wait in one line.
fn state_text(
    wait_state: &WaitState,
    unknown_reason: Option<&str>,
    verdict: WaitVerdict,
    now: Instant,
) -> String {
    match (unknown_reason, verdict) {
        (Some(why), _) => format!("still unknown: {why}"),
        (None, _) if !wait_state.is_complete() => "listing the operations".to_owned(),
        (None, WaitVerdict::ReachedAt(at)) => {
            let left = at.saturating_duration_since(now);
            format!(
                "no operation in flight{}; the quiet period ends in {} s",
                ignored_text(wait_state),
                left.as_millis().div_ceil(1000)
            )
        }
        (None, _) => {
            let state = not_started_message(wait_state).unwrap_or_else(|| active_text(wait_state));
            format!("waiting: {state}")
        }
    }
}

/// Describes the ignored operations as the end of a sentence, such as `, but 1 blocked (ignored)`.
/// Held operations are always ignored, so they are only counted: `, but 1 held`. Empty if no
/// operation is ignored.
pub(super) fn ignored_text(wait_state: &WaitState) -> String {
    let parts: Vec<String> = [
        ("Blocked", "blocked (ignored)"),
        ("Failing", "failing (ignored)"),
        ("Held", "held"),
    ]
    .into_iter()
    .map(|(state, text)| (wait_state.ignored(state), text))
    .filter(|(count, _)| *count > 0)
    .map(|(count, text)| format!("{count} {text}"))
    .collect();
    if parts.is_empty() {
        return String::new();
    }
    format!(", but {}", parts.join(" and "))
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

    pub(super) fn show(
        &mut self,
        wait_state: &WaitState,
        unknown_reason: Option<&(String, Instant)>,
        verdict: WaitVerdict,
    ) {
        // The message `listing the operations` is printed only on a terminal.
        if unknown_reason.is_none() && !wait_state.is_complete() && !self.terminal {
            return;
        }
        let text = state_text(
            wait_state,
            unknown_reason.map(|(why, _)| &**why),
            verdict,
            Instant::now(),
        );
        self.print_if_new(&text);
    }

    pub(super) fn print_if_new(&mut self, text: &str) {
        if self.quiet || self.last == text {
            return;
        }
        if self.terminal {
            let size = terminal_size::terminal_size_of(std::io::stderr());
            let width = size.map_or(80, |(width, _)| usize::from(width.0));
            let line = cut(&one_line(text), width.saturating_sub(1));
            print_error_text(TerminalText::command(CLEAR_LINE) + line);
        } else {
            // At most one line is printed in `CHECK_INTERVAL`, because many messages differ only in
            // an age.
            if self
                .last_printed
                .is_some_and(|printed| printed.elapsed() < CHECK_INTERVAL)
            {
                return;
            }
            print_error_line(text);
            self.last_printed = Some(Instant::now());
        }
        text.clone_into(&mut self.last);
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
            quiet_period: Duration::from_secs(30),
            ignore_failing: false,
            ignore_blocked: false,
        });
        let line = |wait_state: &WaitState, why: Option<&str>| {
            state_text(wait_state, why, wait_state.verdict(now), now)
        };
        assert_eq!(line(&wait_state, None), "listing the operations");
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
