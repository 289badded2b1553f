//! `kubectl ifo list --watch`: prints a row or a document each time operations change.

use super::{ListView, RowMode, print_incomplete};
use crate::clock;
use crate::columns::Table;
use crate::filter::Filters;
use crate::listed_operation::{ListedOperation, OperationKey};
use crate::operation_source::{OperationChange, OperationSource};
use crate::output::{complain, print};
use crate::problem::Problem;
use crate::work_groups;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
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
    operations: Vec<ListedOperation>,
    filters: &Filters,
    is_selected: &dyn Fn(&ListedOperation) -> bool,
) -> Result<ExitCode, Problem> {
    let rows = view.rows(&operations);
    let mut table = Table::growing(&rows, clock::now(), &view.style());
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
        operations.iter().map(ListedOperation::key).collect();
    let mut follower = source.follow(Some(operations))?;
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
            vec![changed]
        };
        for row in rows {
            print(view.format_change(&mut table, &row, clock::now())?)?;
        }
    }
}

/// Marks a deleted operation that was still active as completed, with the state `Ended`, because
/// the outcome is unknown. All other fields keep their last known values.
fn ended(mut operation: ListedOperation) -> ListedOperation {
    if operation.active {
        operation.active = false;
        "Ended".clone_into(&mut operation.state);
        operation.raw = operation.raw.as_deref().and_then(ended_object);
    }
    operation
}

fn ended_object(raw: &RawValue) -> Option<Box<RawValue>> {
    let mut object: Value = serde_json::from_str(raw.get()).ok()?;
    let status = object.get_mut("status")?.as_object_mut()?;
    status.insert("phase".to_owned(), json!("Completed"));
    status.insert("state".to_owned(), json!("Ended"));
    to_raw_value(&object).ok()
}

/// The component and the key of a piece of work.
type OwnedWorkKey = (String, String);

/// The pieces of work (operations that belong together) that a watch knows, by key.
#[derive(Debug, Default)]
struct WatchedPieces {
    pieces: BTreeMap<OwnedWorkKey, WatchedPiece>,
    /// For each operation with an open key, the key of the piece that the operation has joined. An
    /// open key ends with `/`, such as `migration/web/`. The operation joins a piece whose key
    /// begins with the open key, such as `migration/web/1`.
    joined: HashMap<OperationKey, OwnedWorkKey>,
}

/// A piece of work that a watch knows.
#[derive(Debug, Default)]
struct WatchedPiece {
    /// The members, including those that have completed.
    members: BTreeMap<OperationKey, ListedOperation>,
    /// The texts of the last printed row of this piece, without the age. None if no row was
    /// printed.
    printed: Option<[String; 5]>,
}

impl WatchedPiece {
    fn line_operation(&self) -> ListedOperation {
        let members: Vec<&ListedOperation> = self.members.values().collect();
        let numbers = work_groups::root_first(&members).into_iter();
        let members: Vec<&ListedOperation> = numbers.map(|it| members[it]).collect();
        work_groups::line_of(&members)
    }

    /// Keeps the texts of the row `line`. Returns true if the row must be printed, because its
    /// texts differ from the previous row of the piece.
    fn mark_printed(&mut self, line: &ListedOperation) -> bool {
        let texts = [
            line.subject_name(),
            line.operation.clone(),
            line.marked_state(),
            line.percent(""),
            line.message.clone(),
        ];
        self.printed.replace(texts.clone()) != Some(texts)
    }
}

impl WatchedPieces {
    fn new(operations: &[ListedOperation]) -> Self {
        let mut watched = Self::default();
        let (open, others): (Vec<&ListedOperation>, Vec<&ListedOperation>) = operations
            .iter()
            .partition(|it| it.work.as_deref().is_some_and(work_groups::is_open));
        // An operation with an open key joins the piece of another operation. So the operations
        // with an open key are added last.
        for operation in others.into_iter().chain(open) {
            if let Some(key) = watched.piece_of(operation) {
                let piece = watched.pieces.entry(key).or_default();
                piece.members.insert(operation.key(), operation.clone());
            }
        }
        for piece in watched.pieces.values_mut() {
            let line = piece.line_operation();
            piece.mark_printed(&line);
        }
        watched
    }

    /// Processes a new or changed operation, and returns the rows to print:
    ///
    /// - If the operation belongs to no piece of work, or `mode` is [`RowMode::Operations`]: the
    ///   row of the operation.
    /// - If the operation belongs to a piece: the row of the piece, if the texts of this row have
    ///   changed.
    /// - If `mode` is [`RowMode::Expanded`] and the piece has several members: also the row of the
    ///   operation.
    fn change(&mut self, operation: ListedOperation, mode: RowMode) -> Vec<ListedOperation> {
        let key = match mode {
            RowMode::Operations => None,
            RowMode::Pieces | RowMode::Expanded => self.piece_of(&operation),
        };
        let Some(key) = key else {
            return vec![operation];
        };
        let piece = self.pieces.entry(key.clone()).or_default();
        let member = work_groups::member_row(&operation);
        piece.members.insert(operation.key(), operation);
        let line = piece.line_operation();
        let has_ended = !line.active;
        let is_single = piece.members.len() == 1;
        let mut rows = Vec::new();
        if piece.mark_printed(&line) {
            rows.push(line);
        }
        if mode == RowMode::Expanded && !is_single {
            rows.push(member);
        }
        if has_ended {
            self.pieces.remove(&key);
            self.joined.retain(|_, joined| *joined != key);
        }
        rows
    }

    /// Returns the key of the piece that the operation belongs to. Returns None if the operation
    /// has no key, or if no piece matches its open key. If an operation with an open key has joined
    /// a piece, it stays in this piece.
    fn piece_of(&mut self, operation: &ListedOperation) -> Option<OwnedWorkKey> {
        let own = operation.work_key()?;
        let owned = (own.0.to_owned(), own.1.to_owned());
        if !work_groups::is_open(own.1) {
            return Some(owned);
        }
        if let Some(joined) = self.joined.get(&operation.key()) {
            return Some(joined.clone());
        }
        let candidates = self
            .pieces
            .range(owned..)
            .take_while(|(it, _)| work_groups::begins_with((&it.0, &it.1), own))
            .map(|(key, piece)| (key, work_groups::TimeInFlight::of(piece.members.values())));
        let joined = work_groups::nearest_piece(operation, candidates)?.clone();
        self.joined.insert(operation.key(), joined.clone());
        Some(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshots::mixed;
    use super::super::super::test_fixtures::on;
    use super::*;

    fn member(name: &str, state: &str) -> ListedOperation {
        ListedOperation {
            work: Some("m".to_owned()),
            ..on("shop", "Pod", name, "Moving").state(state, None)
        }
    }

    fn texts(rows: &[ListedOperation]) -> Vec<String> {
        let texts = rows.iter().map(|it| {
            let mark = if it.is_member_row { "-" } else { "" };
            format!("{mark}{} {}", it.subject.name, it.state)
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
        let of = |key: &str, name: &str, state: &str| ListedOperation {
            work: Some(key.to_owned()),
            ..member(name, state)
        };
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
            let taken = ListedOperation {
                work: Some(key.to_owned()),
                ..member("taken", "Failing").of("other")
            };
            let rows = pieces.change(taken, RowMode::Pieces);
            assert_eq!(texts(&rows), ["taken Failing"], "{key}");
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

    #[test]
    fn a_deleted_operation_is_printed_as_completed() {
        let end = ended(mixed().remove(1));
        assert!(!end.active);
        let raw: Value =
            serde_json::from_str(end.raw.expect("the test operations keep their JSON").get())
                .expect("the output is JSON");
        assert_eq!(raw["status"]["phase"], "Completed");
        assert_eq!(raw["status"]["state"], "Ended");
    }
}
