//! The progress messages of a waiting command.

use super::wait_loop::CHECK_INTERVAL;
use super::wait_state::{GateVerdict, WaitGoal, WaitState};
use crate::clock;
use crate::columns;
use crate::operation::ListedOperation;
use crate::plain_text;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;
use tokio::time::Instant;

/// Describes the active operations briefly.
pub(super) fn count(wait_state: &WaitState) -> String {
    let mut active: Vec<&ListedOperation> = wait_state.active().collect();
    active.sort_by_key(|it| it.started);
    match active.as_slice() {
        [] => "no operation in flight".to_owned(),
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
    let state = match operation.state.as_str() {
        // A custom resource without a status has no state.
        "" | "Progressing" | "Active" => String::new(),
        state => format!(" ({state})"),
    };
    let age = columns::age(operation, clock::now());
    format!("{}{progress}{state} {age}", operation.operation)
}

/// Reports that no operation has started, if the goal is `completed`.
pub(super) fn never_begun(wait_state: &WaitState) -> Option<String> {
    let waits_for_end = wait_state.terms.goal == WaitGoal::Completed && !wait_state.has_begun();
    waits_for_end.then(|| "no operation has started, so none has completed".to_owned())
}

/// Describes the progress in one line.
fn situation(
    wait_state: &WaitState,
    why_not: Option<&str>,
    verdict: GateVerdict,
    now: Instant,
) -> String {
    match (why_not, verdict) {
        (Some(why), _) => format!("unknown yet: {why}"),
        (None, _) if !wait_state.is_whole() => "listing the operations".to_owned(),
        (None, GateVerdict::HoldsAt(at)) => {
            let left = at.saturating_duration_since(now);
            format!("quiet; {} s to go", left.as_millis().div_ceil(1000))
        }
        (None, _) => {
            let stands = never_begun(wait_state).unwrap_or_else(|| count(wait_state));
            format!("waiting: {stands}")
        }
    }
}

/// Describes the ignored operations, as the end of a sentence.
pub(super) fn but_ignored(wait_state: &WaitState) -> String {
    match wait_state.ignored() {
        (0, 0) => String::new(),
        (blocked, 0) => format!(", but {blocked} blocked (ignored)"),
        (0, failing) => format!(", but {failing} failing (ignored)"),
        (blocked, failing) => format!(", but {blocked} blocked and {failing} failing (ignored)"),
    }
}

/// The progress output. On a terminal it is one line that changes. Otherwise, each new fact gets a
/// line, at most one in ten seconds.
pub(super) struct ProgressOutput {
    terminal: bool,
    quiet: bool,
    last: String,
    told: Option<Instant>,
}

impl ProgressOutput {
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            quiet,
            last: String::new(),
            told: None,
        }
    }

    /// Returns the time for which the output stays correct.
    pub(super) fn every(&self) -> Duration {
        if self.terminal {
            Duration::from_secs(1)
        } else {
            CHECK_INTERVAL
        }
    }

    pub(super) fn show(
        &mut self,
        wait_state: &WaitState,
        why_not: Option<&(String, Instant)>,
        verdict: GateVerdict,
    ) {
        // Doubts are printed only on a terminal.
        if why_not.is_none() && !wait_state.is_whole() && !self.terminal {
            return;
        }
        let text = situation(
            wait_state,
            why_not.map(|(why, _)| &**why),
            verdict,
            Instant::now(),
        );
        self.note(&text);
    }

    pub(super) fn note(&mut self, text: &str) {
        if self.quiet || self.last == text {
            return;
        }
        let mut out = std::io::stderr().lock();
        if self.terminal {
            let width = terminal_size::terminal_size_of(&out).map_or(80, |(width, _)| width.0);
            let line = plain_text::cut(
                &plain_text::one_line(text),
                usize::from(width).saturating_sub(1),
            );
            let _ = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
        } else {
            // A change of the age alone is not printed.
            if self
                .told
                .is_some_and(|told| told.elapsed() < CHECK_INTERVAL)
            {
                return;
            }
            let _ = writeln!(out, "{text}");
            self.told = Some(Instant::now());
        }
        text.clone_into(&mut self.last);
    }

    /// Removes the changing line.
    pub(super) fn clear(&mut self) {
        if self.terminal && !self.last.is_empty() {
            let mut out = std::io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_state::WaitSettings;

    #[test]
    fn the_awaited_operations_can_be_shown_at_any_time() {
        let now = Instant::now();
        let mut wait_state = WaitState::new(WaitSettings {
            goal: WaitGoal::Idle,
            quiet_period: Duration::from_secs(30),
            ignore_failing: false,
            ignore_blocked: false,
        });
        let line = |wait_state: &WaitState, why: Option<&str>| {
            situation(wait_state, why, wait_state.verdict(now), now)
        };
        assert_eq!(line(&wait_state, None), "listing the operations");
        assert_eq!(line(&wait_state, Some("no rules")), "unknown yet: no rules");
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
        wait_state.deleted(&operation, now);
        assert_eq!(line(&wait_state, None), "quiet; 30 s to go");
    }
}
