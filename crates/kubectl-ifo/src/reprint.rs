//! Implements `--watch` of `summary` and `tree`: prints the output again, below the previous output,
//! each time operations change.

use super::columns::terminal_width;
use super::list::incomplete_line;
use super::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use super::operation_source::{OperationChange, OperationFollower, OperationSource};
use super::output::{Format, TerminalText, print, print_error_line};
use super::problem::Problem;
use crate::clock;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time for which changes are collected before the output is printed or drawn again.
const COALESCE_PERIOD: Duration = Duration::from_millis(50);

/// An output of a command: a text that is computed from all matching operations.
pub(super) trait WatchOutputText {
    /// Returns true if the text depends on this operation.
    fn wants(&self, operation: &InFlightOperation) -> bool;
    /// Returns the text.
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

/// Prints the text after each change, until the user interrupts the command. A change that does not
/// affect the text prints nothing.
pub(super) async fn run(
    source: &OperationSource,
    operations: Vec<InFlightOperation>,
    format: Format,
    mut view: impl WatchOutputText,
) -> Result<ExitCode, Problem> {
    let mut known: BTreeMap<OperationKey, InFlightOperation> =
        operations.iter().map(|it| (it.key(), it.clone())).collect();
    let mut follower = source.follow(operations)?;
    let mut notes = Notes {
        lost: None,
        incomplete: source.incomplete(),
    };
    let (mut printed, mut printed_notes) = (None, Notes::default());
    loop {
        let operations = known.values().cloned().collect();
        let shown = WatchOutputInputs::now(notes.incomplete.clone());
        let text = view.text(operations, &shown).await?;
        if printed.as_ref() != Some(&text) {
            print(with_separator(&text, format, printed.is_none()))?;
            printed = Some(text);
        }
        if notes != printed_notes {
            notes.lines().iter().for_each(|it| print_error_line(it));
            printed_notes = notes.clone();
        }
        let first = follower.next().await?;
        for change in with_later_changes(first, &mut follower).await? {
            match change {
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
        }
    }
}

/// Returns a change and the changes of the next [`COALESCE_PERIOD`].
pub(super) async fn with_later_changes(
    first: OperationChange,
    follower: &mut OperationFollower<'_>,
) -> Result<Vec<OperationChange>, Problem> {
    let mut changes = vec![first];
    let end = Instant::now() + COALESCE_PERIOD;
    while let Ok(change) = timeout_at(end, follower.next()).await {
        changes.push(change?);
    }
    Ok(changes)
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

#[cfg(test)]
mod tests {
    use super::*;

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
