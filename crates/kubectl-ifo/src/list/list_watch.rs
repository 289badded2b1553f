//! `kubectl ifo list --watch`: prints a row or a document each time an operation changes, as kubectl
//! does. Operations of one piece of work have rows of their own.

use super::{ListView, print_incomplete};
use crate::clock;
use crate::columns::Table;
use crate::filter::Filters;
use crate::operation::{InFlightOperation, OperationFacts, OperationKey};
use crate::operation_source::{OperationChange, OperationSource};
use crate::output::{TextStyle, complain, print};
use crate::problem::Problem;
use crate::work_groups::Row;
use ifo_api::live::{Phase, State};
use std::collections::HashSet;
use std::process::ExitCode;

/// Prints the listed `operations`. Then prints each change of an operation for which `is_selected`
/// returns true. If the user has given names, `is_selected` returns true only for operations with
/// these names. Otherwise it returns true for all operations. Depending on the output format, the
/// output is rows of a table, documents or names.
///
/// When an operation leaves the states in `filters`, this function prints the operation once more,
/// with its new state.
pub(super) async fn watch(
    view: &ListView,
    source: &OperationSource,
    operations: Vec<InFlightOperation>,
    filters: &Filters,
    is_selected: &dyn Fn(&InFlightOperation) -> bool,
) -> Result<ExitCode, Problem> {
    let rows: Vec<Row> = operations.iter().map(Row::from).collect();
    // The widths of later rows are unknown, so no column is narrowed.
    let unlimited = TextStyle {
        screen: None,
        ..view.style.clone()
    };
    let mut table = Table::of_rows(&rows, clock::now(), &unlimited);
    if view.format.is_table() {
        print(table.header())?;
    }
    for row in &rows {
        print(view.format_change(&mut table, row, clock::now())?)?;
    }
    print_incomplete(source.incomplete().as_ref());
    let mut is_interrupted = false;
    let mut in_selected_state: HashSet<OperationKey> =
        operations.iter().map(OperationFacts::key).collect();
    let mut incomplete = source.incomplete();
    let mut follower = source.follow(operations)?;
    loop {
        let changed = match follower.next().await? {
            OperationChange::Applied(operation) => *operation,
            // The operation was deleted while it was active. So this watch has not received its
            // outcome.
            OperationChange::Deleted {
                operation,
                was_active: true,
            } => ended(*operation),
            OperationChange::Deleted { operation, .. } => {
                in_selected_state.remove(&operation.key());
                continue;
            }
            OperationChange::Synced => {
                if std::mem::take(&mut is_interrupted) {
                    complain("note", "up to date again");
                }
                continue;
            }
            OperationChange::Lost(problem) => {
                if !std::mem::replace(&mut is_interrupted, true) {
                    complain("note", format!("not up to date: {problem}"));
                }
                continue;
            }
            OperationChange::Incomplete(newest) => {
                if newest != incomplete {
                    print_incomplete(newest.as_ref());
                }
                incomplete = newest;
                continue;
            }
        };
        let was_in_selected_state = in_selected_state.remove(&changed.key());
        if filters.has_state(&changed) {
            in_selected_state.insert(changed.key());
        } else if !was_in_selected_state {
            continue;
        }
        if is_selected(&changed) {
            let row = Row::from(&changed);
            print(view.format_change(&mut table, &row, clock::now())?)?;
        }
    }
}

/// Marks a deleted operation that was still active as completed, with the state `Ended`, because
/// the outcome is unknown. All other fields keep their last known values.
pub(super) fn ended(mut operation: InFlightOperation) -> InFlightOperation {
    if operation.is_active() {
        operation.status.phase = Phase::Completed;
        operation.status.state = State::Ended;
    }
    operation
}
