//! Prints the output of `summary` and `tree`: once, or with `--watch` again below the previous
//! output each time operations change.

use crate::cluster::problem::Problem;
use crate::list::{OutputArgs, print_incomplete};
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::{OperationChange, OperationFollower, OperationSource};
use crate::output::print::{Format, TerminalText, complain, print, print_error_line};
use ifo_api::completeness::Incomplete;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Time for which changes are collected before the output is printed or drawn again.
const COALESCE_PERIOD: Duration = Duration::from_millis(50);

/// Prints a text once. With `--watch`, prints it after each change, until the user interrupts the
/// command. A change that does not affect the text prints nothing.
///
/// `text` computes the text. Its arguments are the operations, and the reason why operations may be
/// missing. With `--watch`, `text` gets only operations for which `is_wanted` returns true.
///
/// `empty_message` is printed to standard error in place of an empty text.
pub(crate) async fn run(
    source: &OperationSource,
    operations: Vec<InFlightOperation>,
    format: Format,
    output: &OutputArgs,
    empty_message: &str,
    is_wanted: impl Fn(&InFlightOperation) -> bool,
    mut text: impl AsyncFnMut(
        Vec<InFlightOperation>,
        Option<&Incomplete>,
    ) -> Result<TerminalText, Problem>,
) -> Result<ExitCode, Problem> {
    let mut notes = WatchNotes::default();
    if !output.watch {
        if let Some(sort) = &output.sort_by {
            sort.check(&operations)?;
        }
        let incomplete = source.incomplete();
        let text = text(operations, incomplete.as_ref()).await?;
        if text.is_empty() {
            print_error_line(empty_message);
        }
        print(text)?;
        notes.show_incomplete(incomplete);
        return Ok(ExitCode::SUCCESS);
    }
    let (mut follower, mut printed) = (source.follow(operations)?, None);
    notes.show_incomplete(source.incomplete());
    loop {
        let operations = follower.known.values().filter(|it| is_wanted(it));
        let operations = operations.cloned().collect();
        let text = text(operations, notes.incomplete.as_ref()).await?;
        if printed.as_ref() != Some(&text) {
            let separator = match format {
                Format::Yaml => "---\n",
                Format::Table | Format::Wide if printed.is_some() => "\n",
                _ => "",
            };
            if text.is_empty() {
                print_error_line(empty_message);
            } else {
                print(TerminalText::from(separator) + text.clone())?;
            }
            printed = Some(text);
        }
        let first = follower.next().await?;
        for change in with_later_changes(first, &mut follower).await? {
            notes.show(change);
        }
    }
}

/// Returns a change and the changes of the next [`COALESCE_PERIOD`].
pub(crate) async fn with_later_changes(
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

/// Prints notes when a watch is interrupted, and when operations may be missing.
#[derive(Default)]
pub(crate) struct WatchNotes {
    is_interrupted: bool,
    incomplete: Option<Incomplete>,
}

impl WatchNotes {
    /// Prints a note if the watch is interrupted or works again, or if there is a new reason why
    /// operations may be missing. Other changes print nothing.
    pub(crate) fn show(&mut self, change: OperationChange) {
        match change {
            OperationChange::Lost(problem) => {
                if !std::mem::replace(&mut self.is_interrupted, true) {
                    complain("note", format!("not up to date: {problem}"));
                }
            }
            OperationChange::Synced => {
                if std::mem::take(&mut self.is_interrupted) {
                    complain("note", "up to date again");
                }
            }
            OperationChange::Incomplete(newest) => self.show_incomplete(newest),
            OperationChange::Applied(_) | OperationChange::Deleted(_) => {}
        }
    }

    /// Prints a note if there is a new reason why operations may be missing.
    pub(crate) fn show_incomplete(&mut self, newest: Option<Incomplete>) {
        if newest != self.incomplete {
            print_incomplete(newest.as_ref());
        }
        self.incomplete = newest;
    }
}
