//! Implements `--watch` of `summary` and `tree`: prints the output again each time operations
//! change. On a terminal, a new table replaces the old table in place. Without a terminal, and in
//! formats such as YAML, the plugin prints each new output below the previous output.

use super::columns::terminal_width;
use super::list::incomplete_line;
use super::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use super::operation_source::{OperationChange, OperationFollower, OperationSource};
use super::output::{Format, TerminalText, print, print_error_line};
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
    format: Format,
    mut view: impl WatchOutputText,
) -> Result<ExitCode, Problem> {
    let mut known: BTreeMap<OperationKey, InFlightOperation> =
        operations.iter().map(|it| (it.key(), it.clone())).collect();
    let mut follower = source.follow(operations)?;
    let redraws_in_place = terminal_width().is_some() && format.is_table();
    let mut notes = Notes {
        lost: None,
        incomplete: source.incomplete(),
    };
    let (mut printed, mut printed_notes) = (None, Notes::default());
    if redraws_in_place {
        // The lines of earlier commands are scrolled out of the screen, so that no frame covers them.
        print("\n".repeat(height().saturating_sub(1)))?;
    }
    loop {
        let operations = known.values().cloned().collect();
        let shown = WatchOutputInputs::now(notes.incomplete.clone());
        let text = view.text(operations, &shown).await?;
        if redraws_in_place {
            let width = terminal_width().unwrap_or(usize::MAX);
            print(frame(&text, &notes.lines(), (width, height())))?;
        } else {
            // A change that does not affect the text prints nothing.
            if printed.as_ref() != Some(&text) {
                print(with_separator(&text, format, printed.is_none()))?;
                printed = Some(text);
            }
            if notes != printed_notes {
                notes.lines().iter().for_each(|it| print_error_line(it));
                printed_notes = notes.clone();
            }
        }
        let mut at = Instant::now() + AGE_INTERVAL;
        while let Some(change) = next_change_before(&mut follower, at).await {
            match change? {
                OperationChange::Lost(problem) => notes.lost = Some(problem.to_string()),
                OperationChange::Synced => notes.lost = None,
                OperationChange::Incomplete(incomplete) => notes.incomplete = incomplete,
                OperationChange::Applied(operation) if view.wants(&operation) => {
                    known.insert(operation.key(), *operation);
                }
                OperationChange::Applied(operation)
                | OperationChange::Deleted { operation, .. } => {
                    known.remove(&operation.key());
                }
            }
            at = at.min(Instant::now() + COALESCE_PERIOD);
        }
    }
}

/// The reasons why the output may lack operations.
#[derive(Clone, Default, PartialEq)]
struct Notes {
    /// The problem of the watch. None while it works.
    lost: Option<String>,
    incomplete: Option<Incomplete>,
}

impl Notes {
    fn lines(&self) -> Vec<String> {
        let lost = self.lost.iter();
        let lost = lost.map(|why| format!("note: not up to date: {why}"));
        lost.chain(self.incomplete.as_ref().map(incomplete_line))
            .collect()
    }
}

/// Returns the next change. None if there is no change before the time `at`.
async fn next_change_before(
    follower: &mut OperationFollower<'_>,
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
fn with_separator(text: &TerminalText, format: Format, first: bool) -> TerminalText {
    let separator = match format {
        Format::Yaml => "---\n",
        Format::Table | Format::Wide if !first => "\n",
        _ => "",
    };
    TerminalText::from(separator) + text
}

/// Returns the text that draws `text`, and `notes` below it, on a terminal of this size. If `text`
/// has too many lines, `… 7 more lines` takes the place of its last lines.
fn frame(text: &TerminalText, notes: &[String], (width, height): (usize, usize)) -> TerminalText {
    let mut lines = text.split_lines();
    // The last line of the terminal is kept free for the cursor.
    let room = height.saturating_sub(1 + notes.len()).max(1);
    if lines.len() > room {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("… {more} more lines").into());
    }
    lines.extend(notes.iter().map(|it| one_line(it).into()));
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
            &*frame(&"a\nb\n".into(), &[], size),
            "\x1b[H\x1b[Ka\n\x1b[Kb\n\x1b[J"
        );
        assert_eq!(
            &*frame(&"a\nb\nc\n".into(), &[], size),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[J"
        );
        assert_eq!(
            &*frame(&"a\nb\nc\n".into(), &["gone".to_owned()], (80, 4)),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[Kgone\n\x1b[J"
        );
    }

    #[test]
    fn no_line_of_a_frame_wraps() {
        assert_eq!(
            &*frame(&"abcdef\n".into(), &["broken".to_owned()], (4, 5)),
            "\x1b[H\x1b[Kabc…\n\x1b[Kbro…\n\x1b[J"
        );
    }

    #[test]
    fn consecutive_outputs_are_separated() {
        assert_eq!(&*with_separator(&"a\n".into(), Format::Table, true), "a\n");
        assert_eq!(
            &*with_separator(&"a\n".into(), Format::Table, false),
            "\na\n"
        );
        assert_eq!(
            &*with_separator(&"a\n".into(), Format::Yaml, true),
            "---\na\n"
        );
        assert_eq!(
            &*with_separator(&"{}\n".into(), Format::Json, false),
            "{}\n"
        );
    }
}
