//! Implements `--watch` of `summary` and `tree`: prints the output again each time operations
//! change. On a terminal, a new table replaces the old table in place. Without a terminal, and in
//! formats such as YAML, the plugin prints each new output below the previous output.

use super::columns::terminal_width;
use super::list::incomplete_line;
use super::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use super::operation_source::{OperationChange, OperationFollower, OperationSource};
use super::output::{ListFormat, TerminalText, complain, print, print_error_line};
use super::plain_text::one_line;
use super::problem::Problem;
use crate::clock;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Time for which changes are collected before the output is printed again.
const COALESCE_PERIOD: Duration = Duration::from_millis(100);

/// Interval at which the output is redrawn on a terminal, so that ages are current.
const AGE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the plugin asks `ifo-apiserver` whether its list is complete. The watch does
/// not report that a rule set has stopped working, and that operations can be missing since then.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Escape sequences. In this order, they move the cursor to the first line, clear the rest of the
/// line, and clear the rest of the screen.
const CURSOR_HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// An output of a command: a text that is computed from all matching operations.
pub(super) trait WatchOutputText {
    /// Returns true if the text depends on this operation.
    fn wants(&self, operation: &InFlightOperation) -> bool;
    /// Returns the text. A line can be wider than the terminal, because [`run`] cuts the lines of a
    /// table on a terminal.
    async fn text(
        &mut self,
        operations: Vec<InFlightOperation>,
        shown: &WatchOutputInputs,
    ) -> Result<TerminalText, Problem>;
}

/// The inputs of a text besides the operations.
pub(super) struct WatchOutputInputs {
    /// The current time, for ages.
    pub(super) now: Timestamp,
    /// Width of the terminal in columns. None if standard output is not a terminal.
    pub(super) screen: Option<usize>,
    /// The reason why operations may be missing. None if no reason is known.
    pub(super) incomplete: Option<Incomplete>,
}

impl WatchOutputInputs {
    /// Reads the current values.
    pub(super) fn now(incomplete: Option<Incomplete>) -> Self {
        Self {
            now: clock::now(),
            screen: terminal_width(),
            incomplete,
        }
    }
}

/// Prints the text after each change, until the user interrupts the command. A table on a terminal
/// is redrawn in place.
pub(super) async fn run(
    source: &OperationSource,
    operations: Vec<InFlightOperation>,
    format: ListFormat,
    mut view: impl WatchOutputText,
) -> Result<ExitCode, Problem> {
    let mut known: BTreeMap<OperationKey, InFlightOperation> =
        operations.iter().map(|it| (it.key(), it.clone())).collect();
    let mut follower = source.follow(operations)?;
    let redraws_in_place = terminal_width().is_some() && format.is_table();
    let mut lost = None;
    let mut first = true;
    let mut printed = None;
    let mut last_incomplete = None;
    let mut incomplete_now = source.incomplete();
    let mut probed = Instant::now();
    let mut last_height = 0;
    loop {
        let operations = known.values().cloned().collect();
        if probed.elapsed() >= PROBE_INTERVAL {
            // The watch delivers operations that were missing from the list, so the newest answer
            // counts. An error is ignored, because the watch also reports a server that does not
            // answer.
            if let Ok(completeness) = source.probe().await {
                incomplete_now = completeness.incomplete();
            }
            probed = Instant::now();
        }
        let shown = WatchOutputInputs::now(incomplete_now.clone());
        let text = view.text(operations, &shown).await?;
        let incomplete = shown.incomplete.as_ref().map(incomplete_line);
        if redraws_in_place {
            let note = lost
                .as_deref()
                .map(|why: &str| format!("not up to date: {why}"))
                .or_else(|| incomplete.clone());
            let size = size();
            // Before the first frame, the screen shows earlier lines. If the user makes the
            // terminal higher, the screen shows earlier lines again. These lines are scrolled away.
            if size.1 > last_height {
                print(scroll_away(size.1))?;
            }
            last_height = size.1;
            print(frame(&text, note, size))?;
        } else if printed.as_ref() != Some(&text) {
            // A change that does not affect the text prints nothing.
            print(with_separator(&text, format, first))?;
            printed = Some(text);
            first = false;
        }
        if !redraws_in_place && incomplete != last_incomplete {
            if let Some(incomplete) = &incomplete {
                print_error_line(incomplete);
            }
            last_incomplete = incomplete;
        }
        let pause = if redraws_in_place {
            AGE_INTERVAL
        } else {
            PROBE_INTERVAL
        };
        let mut at = Instant::now() + pause;
        while let Some(change) = next_change_before(&mut follower, at).await {
            let changed = match change? {
                OperationChange::Lost(problem) => {
                    if !redraws_in_place && lost.is_none() {
                        complain("note", format!("not up to date: {problem}"));
                    }
                    lost = Some(problem.to_string());
                    redraws_in_place
                }
                OperationChange::Synced => lost.take().is_some() && redraws_in_place,
                OperationChange::Applied(operation) if view.wants(&operation) => {
                    known.insert(operation.key(), *operation);
                    true
                }
                OperationChange::Applied(operation)
                | OperationChange::Deleted { operation, .. } => {
                    known.remove(&operation.key()).is_some()
                }
            };
            if changed {
                at = at.min(Instant::now() + COALESCE_PERIOD);
            }
        }
    }
}

/// Returns the next change. None if there is no change before the time `at`.
async fn next_change_before(
    follower: &mut OperationFollower,
    at: Instant,
) -> Option<Result<OperationChange, Problem>> {
    tokio::select! {
        biased;
        () = sleep_until(at) => None,
        change = follower.next() => Some(change),
    }
}

/// Adds a separator before `text`: the line `---` before a YAML document, and an empty line before
/// each table except the first one. `first` is true for the first output.
fn with_separator(text: &TerminalText, format: ListFormat, first: bool) -> TerminalText {
    let separator = match format {
        ListFormat::Yaml => "---\n",
        ListFormat::Table | ListFormat::Wide if !first => "\n",
        _ => "",
    };
    TerminalText::from(separator) + text
}

/// Returns the line feeds that scroll the current lines out of the screen. The frames then cover
/// the whole screen, and the user can scroll back to the earlier lines.
///
/// The alternate screen is not used, because the last frame would disappear when the command ends.
/// kubectl also leaves the output of a watch visible.
fn scroll_away(height: usize) -> String {
    "\n".repeat(height.saturating_sub(1))
}

/// Returns the text that draws `text`, and `note` below it, on a terminal of this size. If `text`
/// has too many lines, `… 7 more lines` takes the place of its last lines.
fn frame(
    text: &TerminalText,
    note: Option<String>,
    (width, height): (usize, usize),
) -> TerminalText {
    let mut lines = text.split_lines();
    // The last line of the terminal is kept free for the cursor.
    let room = height
        .saturating_sub(1 + usize::from(note.is_some()))
        .max(1);
    if lines.len() > room {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("… {more} more lines").into());
    }
    lines.extend(note.map(|note| one_line(&note).into()));
    let mut frame = TerminalText::command(CURSOR_HOME);
    for line in lines {
        // The line is cleared before it is written. If a line fills the whole width, clearing
        // afterwards would remove its last letter.
        frame += TerminalText::command(CLEAR_LINE);
        // A line that is too long would wrap and take two lines.
        frame += line.cut(width) + "\n";
    }
    frame + TerminalText::command(CLEAR_REST)
}

/// Returns the width and the height of the terminal, in columns and lines.
fn size() -> (usize, usize) {
    (terminal_width().unwrap_or(usize::MAX), height())
}

/// Returns the number of lines of the terminal, or 24 if the number is unknown.
fn height() -> usize {
    terminal_size::terminal_size().map_or(24, |(_, height)| usize::from(height.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_height() {
        let size = (80, 3);
        assert_eq!(
            &*frame(&"a\nb\n".into(), None, size),
            "\x1b[H\x1b[Ka\n\x1b[Kb\n\x1b[J"
        );
        assert_eq!(
            &*frame(&"a\nb\nc\n".into(), None, size),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[J"
        );
        assert_eq!(
            &*frame(&"a\nb\nc\n".into(), Some("gone".to_owned()), (80, 4)),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[Kgone\n\x1b[J"
        );
    }

    #[test]
    fn no_line_of_a_frame_wraps() {
        assert_eq!(
            &*frame(&"abcdef\n".into(), Some("broken".to_owned()), (4, 5)),
            "\x1b[H\x1b[Kabc…\n\x1b[Kbro…\n\x1b[J"
        );
    }

    #[test]
    fn consecutive_outputs_are_separated() {
        assert_eq!(
            &*with_separator(&"a\n".into(), ListFormat::Table, true),
            "a\n"
        );
        assert_eq!(
            &*with_separator(&"a\n".into(), ListFormat::Table, false),
            "\na\n"
        );
        assert_eq!(
            &*with_separator(&"a\n".into(), ListFormat::Yaml, true),
            "---\na\n"
        );
        assert_eq!(
            &*with_separator(&"{}\n".into(), ListFormat::Json, false),
            "{}\n"
        );
    }
}
