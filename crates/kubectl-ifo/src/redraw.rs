//! Prints a text about all operations again when they change. On a terminal the text is redrawn in
//! place. Otherwise it is printed again.

use super::columns::screen;
use super::list::incomplete_line;
use super::operation::{ListedOperation, OperationKey};
use super::output::{OutputShape, complain, print, print_error_line};
use super::plain_text::cut_painted;
use super::problem::Problem;
use super::source::{OperationChange, OperationFollower, OperationSource};
use crate::clock;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Changes within this time are drawn together.
const COALESCE_PERIOD: Duration = Duration::from_millis(100);

/// Interval at which the ages are updated.
const AGE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the server is asked which rule sets do not work. A watch does not report that.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// Escape sequences: move to the first line, clear the rest of the line, clear the rest of the
/// screen.
const CURSOR_HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// A text that is computed from all matching operations.
pub(super) trait RedrawnText {
    /// Returns true if the text depends on an operation.
    fn wants(&self, operation: &ListedOperation) -> bool;
    /// Returns the text, at most as wide as the screen.
    async fn text(
        &mut self,
        operations: Vec<ListedOperation>,
        shown: &RedrawContext,
    ) -> Result<String, Problem>;
}

/// Other inputs of a text beside the operations.
pub(super) struct RedrawContext {
    /// The current time, for ages.
    pub(super) now: Timestamp,
    /// Columns of the terminal. None without a terminal.
    pub(super) screen: Option<usize>,
    /// The reason for which operations may be missing.
    pub(super) incomplete: Option<Incomplete>,
}

impl RedrawContext {
    /// Reads the current values, with the newest answer to `source`.
    pub(super) fn now(source: &OperationSource) -> Self {
        Self {
            now: clock::now(),
            screen: screen(),
            incomplete: source.incomplete(),
        }
    }
}

/// Shows the text until the user interrupts it. A table is redrawn in place.
pub(super) async fn run(
    source: &OperationSource,
    operations: Vec<ListedOperation>,
    shape: OutputShape,
    mut picture: impl RedrawnText,
) -> Result<ExitCode, Problem> {
    let mut known: BTreeMap<OperationKey, ListedOperation> =
        operations.iter().map(|it| (it.key(), it.clone())).collect();
    let mut follower = source.follow(Some(operations))?;
    let on_screen = screen().is_some() && shape.is_table();
    let mut lost = None;
    let mut first = true;
    let mut printed = None;
    let mut last_gaps = None;
    let mut probed = Instant::now();
    let mut last_height = 0;
    loop {
        let operations = known.values().cloned().collect();
        if probed.elapsed() >= PROBE_INTERVAL {
            // The watch reports a server that does not answer.
            let _ = source.probe().await;
            probed = Instant::now();
        }
        let shown = RedrawContext::now(source);
        let text = picture.text(operations, &shown).await?;
        let gaps = shown.incomplete.as_ref().map(incomplete_line);
        if on_screen {
            let note = lost
                .as_deref()
                .map(|why: &str| format!("not up to date: {why}"))
                .or_else(|| gaps.clone());
            let size = size();
            // When a terminal grows, it shows old lines again.
            if size.1 > last_height {
                print(&away(size.1))?;
            }
            last_height = size.1;
            print(&frame(&text, note, size))?;
        } else if printed.as_ref() != Some(&text) {
            // The change may not affect the text.
            print(&document(&text, shape, first))?;
            printed = Some(text);
            first = false;
        }
        if !on_screen && gaps != last_gaps {
            if let Some(gaps) = &gaps {
                print_error_line(gaps);
            }
            last_gaps = gaps;
        }
        let pause = if on_screen {
            AGE_INTERVAL
        } else {
            PROBE_INTERVAL
        };
        let mut at = Instant::now() + pause;
        while let Some(change) = next(&mut follower, at).await {
            let changed = match change? {
                OperationChange::Lost(problem) => {
                    if !on_screen && lost.is_none() {
                        complain("note", format!("not up to date: {problem}"));
                    }
                    lost = Some(problem.to_string());
                    on_screen
                }
                OperationChange::Synced => lost.take().is_some() && on_screen,
                OperationChange::Applied(operation) if picture.wants(&operation) => {
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

/// Returns the next change before `at`.
async fn next(
    follower: &mut OperationFollower,
    at: Instant,
) -> Option<Result<OperationChange, Problem>> {
    tokio::select! {
        biased;
        () = sleep_until(at) => None,
        change = follower.next() => Some(change),
    }
}

/// Prints to an output that is not a terminal: one text after the other.
fn document(text: &str, shape: OutputShape, first: bool) -> String {
    match shape {
        OutputShape::Yaml => format!("---\n{text}"),
        OutputShape::Table | OutputShape::Wide if !first => format!("\n{text}"),
        _ => text.to_owned(),
    }
}

/// Returns the text that scrolls the current lines out of the screen, so that the user can scroll
/// back to them. Frames are drawn over the whole terminal. The alternate screen would also keep the
/// lines, but the last frame would disappear at the end. kubectl's watches leave their output
/// visible.
fn away(height: usize) -> String {
    "\n".repeat(height.saturating_sub(1))
}

/// Returns the text that draws `text` on a terminal of this size, as far as it fits.
fn frame(text: &str, note: Option<String>, (width, height): (usize, usize)) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The cursor is on the last line of the terminal.
    let room = height
        .saturating_sub(1 + usize::from(note.is_some()))
        .max(1);
    if lines.len() > room {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("… {more} more lines"));
    }
    lines.extend(note);
    let mut frame = CURSOR_HOME.to_owned();
    for line in lines {
        // Clear the line before writing it. After a full line, clearing would remove its last
        // letter.
        frame += CLEAR_LINE;
        // A line that wraps would take two lines.
        frame += &cut_painted(&line, width);
        frame.push('\n');
    }
    frame + CLEAR_REST
}

/// Returns the columns and lines of the terminal.
fn size() -> (usize, usize) {
    (screen().unwrap_or(usize::MAX), height())
}

/// Returns the lines of the terminal.
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
            frame("a\nb\n", None, size),
            "\x1b[H\x1b[Ka\n\x1b[Kb\n\x1b[J"
        );
        assert_eq!(
            frame("a\nb\nc\n", None, size),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[J"
        );
        assert_eq!(
            frame("a\nb\nc\n", Some("gone".to_owned()), (80, 4)),
            "\x1b[H\x1b[Ka\n\x1b[K… 2 more lines\n\x1b[Kgone\n\x1b[J"
        );
    }

    #[test]
    fn no_line_of_a_frame_wraps() {
        assert_eq!(
            frame("abcdef\n", Some("broken".to_owned()), (4, 5)),
            "\x1b[H\x1b[Kabc…\n\x1b[Kbro…\n\x1b[J"
        );
    }

    #[test]
    fn consecutive_outputs_are_separated() {
        assert_eq!(document("a\n", OutputShape::Table, true), "a\n");
        assert_eq!(document("a\n", OutputShape::Table, false), "\na\n");
        assert_eq!(document("a\n", OutputShape::Yaml, true), "---\na\n");
        assert_eq!(document("{}\n", OutputShape::Json, false), "{}\n");
    }
}
