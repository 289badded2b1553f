//! `kubectl ifo list --watch`: prints a row or a document each time an operation changes, as
//! kubectl does. Each operation has its own row, even if operations belong to one piece of work.

use super::objects;
use crate::clock;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation::{InFlightOperation, OperationFacts, OperationKey};
use crate::operations::operation_source::{OperationChange, OperationSource};
use crate::output::columns::Table;
use crate::output::print::{Format, TerminalText, TextStyle, print};
use crate::output::reprint::WatchNotes;
use crate::work_groups::Row;
use ifo_api::live::{Phase, State};
use std::collections::HashSet;
use std::process::ExitCode;

/// Prints the listed `operations`, and then each change of an operation. Depending on the output
/// format, the output is rows of a table, documents or names.
///
/// When an operation leaves the states in `filters`, this function prints the operation once more,
/// with its new state.
pub(super) async fn watch(
    format: Format,
    style: &TextStyle,
    source: &OperationSource,
    operations: Vec<InFlightOperation>,
    filters: &Filters,
) -> Result<ExitCode, Problem> {
    let rows: Vec<Row> = operations.iter().map(Row::from).collect();
    let mut table = Table::new(&rows, clock::now(), style);
    if format.is_table() {
        print(table.header())?;
    }
    for row in &rows {
        print(format_row(format, &mut table, row)?)?;
    }
    let mut notes = WatchNotes::default();
    notes.show_incomplete(source.incomplete());
    let mut in_selected_state: HashSet<OperationKey> =
        operations.iter().map(OperationFacts::key).collect();
    let mut follower = source.follow(operations)?;
    loop {
        let changed = match follower.next().await? {
            OperationChange::Applied(operation) => *operation,
            // The operation was deleted while it was active, so its outcome is unknown. The row
            // shows the state `Ended`. All other fields keep their last known values.
            OperationChange::Deleted(mut operation) if operation.is_active() => {
                operation.status.phase = Phase::Completed;
                operation.status.state = State::Ended;
                *operation
            }
            OperationChange::Deleted(operation) => {
                in_selected_state.remove(&operation.key());
                continue;
            }
            change => {
                notes.show(change);
                continue;
            }
        };
        let was_in_selected_state = in_selected_state.remove(&changed.key());
        if filters.has_state(&changed) {
            in_selected_state.insert(changed.key());
        } else if !was_in_selected_state {
            continue;
        }
        print(format_row(format, &mut table, &Row::from(&changed))?)?;
    }
}

/// Formats a row of the table, or the operation of the row in another format.
fn format_row(format: Format, table: &mut Table, row: &Row) -> Result<TerminalText, Problem> {
    let separator = match format {
        Format::Table | Format::Wide => return Ok(table.further_row(row, clock::now())),
        Format::Yaml => "---\n",
        Format::Name | Format::Json => "",
    };
    let object = objects(std::slice::from_ref(&row.operation), format, true)?;
    Ok(TerminalText::from(separator) + object)
}
