//! `kubectl ifo list --watch`: prints a row or a document each time operations change.

use super::{ListView, RowMode, print_incomplete};
use crate::clock;
use crate::columns::Table;
use crate::filter::Filters;
use crate::operation::{InFlightOperation, OperationFacts, OperationKey};
use crate::operation_source::{OperationChange, OperationSource};
use crate::output::{complain, print};
use crate::problem::Problem;
use crate::work_groups::{PieceOfWork, Row, group_by_work, pieces_of_work};
use ifo_api::Text;
use ifo_api::live::{Phase, State};
use std::collections::{BTreeMap, HashMap, HashSet};
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
    let rows = view.rows(&operations);
    let mut table = Table::growing(&rows, clock::now(), &view.style);
    if view.format.is_table() {
        print(table.header())?;
    }
    for row in &rows {
        print(view.format_change(&mut table, row, clock::now())?)?;
    }
    print_incomplete(source);
    let mut watched_pieces = WatchedPieces::new(&operations);
    let mut is_interrupted = false;
    let mut in_selected_state: HashSet<OperationKey> =
        operations.iter().map(OperationFacts::key).collect();
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
        };
        let was_in_selected_state = in_selected_state.remove(&changed.key());
        if filters.has_state(&changed) {
            in_selected_state.insert(changed.key());
        } else if !was_in_selected_state {
            continue;
        }
        if !is_selected(&changed) {
            continue;
        }
        let rows = if view.format.is_table() {
            watched_pieces.change(changed, view.rows)
        } else {
            vec![Row::from(&changed)]
        };
        for row in rows {
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

/// The texts of a printed row, without the age.
type RowTexts = [String; 5];

/// The pieces of work (operations that belong together) that a watch knows.
#[derive(Debug, Default)]
struct WatchedPieces {
    /// The operations with a key, by component. They include the completed members of a piece that is
    /// in flight.
    known: HashMap<Text, BTreeMap<OperationKey, InFlightOperation>>,
    /// For each member of a printed piece, the texts of the row of the piece.
    printed: HashMap<OperationKey, RowTexts>,
}

impl WatchedPieces {
    fn new(operations: &[InFlightOperation]) -> Self {
        let mut watched = Self::default();
        for it in operations.iter().filter(|it| it.work_key().is_some()) {
            let known = watched.known.entry(it.spec.component.clone()).or_default();
            known.insert(it.key(), it.clone());
        }
        for piece in pieces_of_work(watched.known.values().flat_map(BTreeMap::values)) {
            watched.mark_printed(&piece);
        }
        watched
    }

    /// Keeps the texts of the row of a piece. Returns true if the row must be printed, because its
    /// texts differ from the previous row of the piece.
    fn mark_printed(&mut self, piece: &PieceOfWork) -> bool {
        let line = &piece.line;
        let texts = [
            line.subject_name(),
            line.spec.operation.to_string(),
            line.marked_state(),
            line.percent(""),
            line.status.message.to_string(),
        ];
        let mut has_changed = true;
        for member in piece.operations() {
            let before = self.printed.insert(member.key(), texts.clone());
            has_changed &= before.as_ref() != Some(&texts);
        }
        has_changed
    }

    /// Processes a new or changed operation, and returns the rows to print:
    ///
    /// - If the operation belongs to no piece of work, or `mode` is [`RowMode::Operations`]: the
    ///   row of the operation.
    /// - If the operation belongs to a piece: the row of the piece, if the texts of this row have
    ///   changed.
    /// - If `mode` is [`RowMode::Expanded`] and the piece has several members: also the row of the
    ///   operation.
    fn change(&mut self, operation: InFlightOperation, mode: RowMode) -> Vec<Row> {
        if mode == RowMode::Operations || operation.work_key().is_none() {
            return vec![Row::from(&operation)];
        }
        let key = operation.key();
        let component = operation.spec.component.clone();
        let known = self.known.entry(component.clone()).or_default();
        known.insert(key.clone(), operation.clone());
        let all: Vec<&InFlightOperation> = known.values().collect();
        let mut grouped = group_by_work(&all).into_iter();
        let Some(members) = grouped.find(|it| it.iter().any(|it| all[*it].key() == key)) else {
            return Vec::new();
        };
        let members: Vec<&InFlightOperation> = members.into_iter().map(|it| all[it]).collect();
        let piece = PieceOfWork::new(&members);
        let mut rows = Vec::new();
        if self.mark_printed(&piece) {
            rows.push(Row::from(&piece.line));
        }
        if mode == RowMode::Expanded && !piece.members.is_empty() {
            rows.push(Row {
                operation,
                is_member: true,
            });
        }
        if !piece.line.is_active() {
            for member in piece.operations() {
                self.printed.remove(&member.key());
                let known = self.known.get_mut(&component);
                known.map(|it| it.remove(&member.key()));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::test_fixtures::{OperationFixture as _, on};
    use super::*;

    fn member(name: &str, state: &str) -> InFlightOperation {
        let it = on("shop", "Pod", name, "Moving").work("m");
        it.state(state, None)
    }

    fn texts(rows: &[Row]) -> Vec<String> {
        let texts = rows.iter().map(|it| {
            let mark = if it.is_member { "-" } else { "" };
            let it = &it.operation;
            format!("{mark}{} {}", it.spec.subject.name, it.status.state.name())
        });
        texts.collect()
    }

    #[test]
    fn a_watch_prints_the_row_of_a_piece_only_if_it_has_changed() {
        let listed = [member("a", "Progressing"), member("b", "Progressing")];
        let mut pieces = WatchedPieces::new(&listed);
        let mut change = |name, state| texts(&pieces.change(member(name, state), RowMode::Pieces));
        assert_eq!(change("b", "Progressing"), [""; 0]);
        assert_eq!(change("b", "Failing"), ["a Failing"]);
        assert_eq!(change("b", "Failed"), ["a Progressing"]);
        assert_eq!(change("a", "Succeeded"), ["a Failed"]);
        // The piece has ended, so a later operation with its key is a new piece.
        assert_eq!(change("b", "Progressing"), ["b Progressing"]);
    }

    #[test]
    fn an_operation_with_an_open_key_changes_the_row_of_its_piece() {
        let of = |key: &str, name: &str, state: &str| member(name, state).work(key);
        let open = |state| of("m/", "machine", state);
        let mut pieces = WatchedPieces::new(&[of("m/1", "run", "Progressing")]);
        let mut change = |operation| texts(&pieces.change(operation, RowMode::Pieces));
        assert_eq!(change(open("Progressing")), ["machine Progressing"]);
        assert_eq!(change(of("m/1", "run", "Blocked")), ["machine Blocked"]);
        assert_eq!(
            change(of("m/1", "run", "Succeeded")),
            ["machine Progressing"]
        );
        assert_eq!(change(open("Ended")), ["machine Succeeded"]);
        // The next run is another piece. When the operation with the open key starts again, it
        // joins this piece.
        assert_eq!(
            change(of("m/2", "next", "Progressing")),
            ["next Progressing"]
        );
        assert_eq!(change(open("Failing")), ["machine Failing"]);
        assert_eq!(change(of("m/2", "next", "Failing")), [""; 0]);

        let listed = [open("Progressing"), of("m/1", "run", "Progressing")];
        let mut pieces = WatchedPieces::new(&listed);
        let changed = pieces.change(open("Failing"), RowMode::Pieces);
        assert_eq!(texts(&changed), ["machine Failing"]);
    }

    #[test]
    fn a_watch_prints_no_row_of_another_component_for_a_piece() {
        let listed = [member("a", "Progressing"), member("b", "Progressing")];
        let mut pieces = WatchedPieces::new(&listed);
        for key in ["m", "m/"] {
            let taken = member(key, "Failing").of("other").work(key);
            let rows = pieces.change(taken, RowMode::Pieces);
            assert_eq!(texts(&rows), [format!("{key} Failing")]);
        }
        let rows = pieces.change(member("b", "Blocked"), RowMode::Pieces);
        assert_eq!(texts(&rows), ["a Blocked"]);
    }

    #[test]
    fn an_expanded_watch_prints_each_changed_member() {
        let listed = [member("a", "Progressing"), member("b", "Progressing")];
        let mut pieces = WatchedPieces::new(&listed);
        let changed = pieces.change(member("b", "Blocked"), RowMode::Expanded);
        assert_eq!(texts(&changed), ["a Blocked", "-b Blocked"]);
        let changed = pieces.change(member("a", "Progressing"), RowMode::Expanded);
        assert_eq!(texts(&changed), ["-a Progressing"]);
    }
}
