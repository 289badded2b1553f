//! The progress messages of a waiting command.

use super::gate::{GateVerdict, WaitGoal, WaitState};
use super::wait_loop::CHECK_INTERVAL;
use crate::clock;
use crate::columns;
use crate::operation::ListedOperation;
use crate::plain_text;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;
use tokio::time::Instant;

/// Describes the active operations briefly.
pub(super) fn count(gate: &WaitState) -> String {
    let mut active: Vec<&ListedOperation> = gate.active().collect();
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
pub(super) fn never_begun(gate: &WaitState) -> Option<String> {
    let waits_for_end = gate.terms.goal == WaitGoal::Completed && !gate.has_begun();
    waits_for_end.then(|| "no operation has started, so none has completed".to_owned())
}

/// Describes the progress in one line.
fn situation(
    gate: &WaitState,
    why_not: Option<&str>,
    verdict: GateVerdict,
    now: Instant,
) -> String {
    match (why_not, verdict) {
        (Some(why), _) => format!("unknown yet: {why}"),
        (None, _) if !gate.is_whole() => "listing the operations".to_owned(),
        (None, GateVerdict::HoldsAt(at)) => {
            let left = at.saturating_duration_since(now);
            format!("quiet; {} s to go", left.as_millis().div_ceil(1000))
        }
        (None, _) => {
            let stands = never_begun(gate).unwrap_or_else(|| count(gate));
            format!("waiting: {stands}")
        }
    }
}

/// Describes the ignored operations, as the end of a sentence.
pub(super) fn but_ignored(gate: &WaitState) -> String {
    match gate.ignored() {
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
        gate: &WaitState,
        why_not: Option<&(String, Instant)>,
        verdict: GateVerdict,
    ) {
        // Doubts are printed only on a terminal.
        if why_not.is_none() && !gate.is_whole() && !self.terminal {
            return;
        }
        let text = situation(
            gate,
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
    use crate::wait::gate::WaitSettings;

    #[test]
    fn the_awaited_operations_can_be_shown_at_any_time() {
        let now = Instant::now();
        let mut gate = WaitState::new(WaitSettings {
            goal: WaitGoal::Idle,
            quiet_period: Duration::from_secs(30),
            ignore_failing: false,
            ignore_blocked: false,
        });
        let line =
            |gate: &WaitState, why: Option<&str>| situation(gate, why, gate.verdict(now), now);
        assert_eq!(line(&gate, None), "listing the operations");
        assert_eq!(line(&gate, Some("no rules")), "unknown yet: no rules");
        let operation = ListedOperation {
            name: "a".to_owned(),
            operation: "Migrating".to_owned(),
            state: "Blocked".to_owned(),
            active: true,
            ..ListedOperation::default()
        };
        gate.applied(operation.clone(), now);
        gate.synced(now);
        let waiting = line(&gate, None);
        assert!(waiting.starts_with("waiting: "), "{waiting}");
        assert!(waiting.contains("Migrating (Blocked)"), "{waiting}");
        let stateless = ListedOperation {
            state: String::new(),
            ..operation.clone()
        };
        gate.applied(stateless, now);
        let waiting = line(&gate, None);
        assert!(!waiting.contains('('), "{waiting}");
        gate.deleted(&operation, now);
        assert_eq!(line(&gate, None), "quiet; 30 s to go");
    }
}
