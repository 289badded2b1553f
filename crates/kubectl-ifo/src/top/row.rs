//! `kubectl ifo top` shows operations, such as migrations, in a table. This module keeps the
//! operations as rows. It returns the rows of the table: filtered by the words that the user has
//! typed, and sorted. A row keeps its texts, so `top` does not compute the texts again for each
//! frame.
//!
//! A piece of work is a group of operations that belong together, such as the operations of one
//! migration (see `work_groups`). These operations are the members of the piece. The
//! table shows one line for each piece. If the user presses `e`, a row for each member follows the
//! line.

use crate::columns::{OperationColumn, with_member_prefix};
use crate::listed_operation::{ListedOperation, OperationKey};
use crate::plain_text::one_line;
use crate::sort::by_subject;
use crate::work_groups::{group_by_work, line_of, member_row};
use ifo_client::short_names::ShortNames;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use unicode_width::UnicodeWidthStr as _;

/// Largest number of completed operations that `top` keeps after the server has deleted them. If
/// the server deletes one more, `top` removes the operation that the server deleted first. An
/// upgrade of a cluster has fewer operations. Each operation takes some KB of memory.
const MAX_KEPT: usize = 1000;

/// Widths of the texts of a row, or the largest widths of several rows, in terminal columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CellWidths {
    pub(super) subject: usize,
    /// Width of the subject with the short name of its kind.
    pub(super) short_subject: usize,
    pub(super) namespace: usize,
    pub(super) operation: usize,
    pub(super) state: usize,
    pub(super) message: usize,
}

impl CellWidths {
    /// Returns the larger width for each text.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            subject: self.subject.max(other.subject),
            short_subject: self.short_subject.max(other.short_subject),
            namespace: self.namespace.max(other.namespace),
            operation: self.operation.max(other.operation),
            state: self.state.max(other.state),
            message: self.message.max(other.message),
        }
    }
}

/// The identity of a row: the key of the operation, and true if the row shows a member below the
/// line of its piece of work.
pub(super) type RowId = (OperationKey, bool);

/// The choices of the user that decide which rows the table has.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowFilter<'a> {
    /// The words that the user has typed, separated by blanks. A piece of work is shown if one of
    /// its rows contains all words.
    pub(super) words: &'a str,
    /// True if completed operations are included.
    pub(super) shows_completed: bool,
    /// True if the members of a piece of work follow its line.
    pub(super) is_expanded: bool,
}

/// An operation with the texts that `top` shows for the operation.
#[derive(Debug)]
pub(super) struct TopRow {
    /// The operation.
    pub(super) operation: ListedOperation,
    /// The subject of the operation (the object that the operation is about): `Kind/name`, or
    /// `Kind/name/item` if the operation is about a part of the subject. In the row of a member, a
    /// prefix precedes the subject.
    pub(super) subject: String,
    /// The subject for narrow terminals, such as `vm/web` for `VirtualMachine/web`.
    pub(super) short_subject: String,
    /// The state with its markers, such as `Progressing (overdue)`.
    pub(super) state: String,
    /// Namespace of the subject.
    pub(super) namespace: String,
    /// The message, in one line.
    pub(super) message: String,
    /// The widths of the texts, in terminal columns.
    pub(super) widths: CellWidths,
    /// True if the operation ended and the server has deleted it.
    pub(super) deleted_by_server: bool,
    /// The texts in which `top` searches for the words of the filter. The texts are in lower case,
    /// one in each line.
    searched_text: String,
}

impl TopRow {
    /// Creates a row and computes its texts.
    pub(super) fn new(operation: ListedOperation, short_names: &ShortNames) -> Self {
        let with_prefix = |name: String| with_member_prefix(&operation, one_line(&name));
        let subject = with_prefix(operation.subject_name());
        let short_subject = with_prefix(operation.short_subject_name(short_names));
        let state = one_line(&operation.marked_state());
        let namespace = one_line(operation.subject.namespace.as_deref().unwrap_or_default());
        let message = one_line(&operation.message);
        let searched = [
            &namespace,
            &subject,
            &operation.operation,
            &state,
            &operation.component,
            &operation.rule_set,
            &operation.reason,
            &operation.message,
        ];
        Self {
            searched_text: searched.map(|it| it.to_lowercase()).join("\n"),
            widths: CellWidths {
                subject: subject.width(),
                short_subject: short_subject.width(),
                namespace: namespace.width(),
                operation: operation.operation.width(),
                state: state.width(),
                message: message.width(),
            },
            operation,
            subject,
            state,
            short_subject,
            namespace,
            message,
            deleted_by_server: false,
        }
    }

    /// Returns the identity of the row. The line of a piece of work and the row of its first member
    /// (the root) have the same operation key. They still have different identities, because only
    /// the row of the root is the row of a member.
    pub(super) fn id(&self) -> RowId {
        (self.operation.key(), self.operation.is_member_row)
    }

    /// Returns true if the row contains all `words`, which are in lower case.
    fn contains_all(&self, words: &[String]) -> bool {
        words
            .iter()
            .all(|word| self.searched_text.contains(word.as_str()))
    }
}

/// All operations that `top` knows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    all: BTreeMap<OperationKey, Arc<TopRow>>,
    /// The completed operations that the server has deleted, in the order of their deletion.
    deleted_by_server: VecDeque<OperationKey>,
    short_names: Arc<ShortNames>,
}

impl Rows {
    /// Creates an empty collection. `short_names` are the short names of kinds.
    pub(super) fn new(short_names: Arc<ShortNames>) -> Self {
        Self {
            short_names,
            ..Self::default()
        }
    }

    fn row(&self, operation: ListedOperation) -> TopRow {
        TopRow::new(operation, &self.short_names)
    }

    /// Adds or replaces an operation.
    pub(super) fn apply(&mut self, operation: ListedOperation) {
        let key = operation.key();
        let row = Arc::new(self.row(operation));
        let before = self.all.insert(key.clone(), row);
        if before.is_some_and(|row| row.deleted_by_server) {
            self.deleted_by_server.retain(|it| *it != key);
        }
    }

    /// Processes the deletion of an operation by the server. Keeps a completed operation, so that
    /// the user can still see its result.
    pub(super) fn delete(&mut self, key: OperationKey) {
        let Some(row) = self.all.remove(&key) else {
            return;
        };
        if row.operation.active || row.deleted_by_server {
            return;
        }
        let row = TopRow {
            deleted_by_server: true,
            ..self.row(row.operation.clone())
        };
        self.all.insert(key.clone(), Arc::new(row));
        self.deleted_by_server.push_back(key);
        if self.deleted_by_server.len() > MAX_KEPT
            && let Some(oldest) = self.deleted_by_server.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    /// Removes an operation that the filters exclude.
    pub(super) fn remove(&mut self, key: &OperationKey) {
        self.all.remove(key);
        self.deleted_by_server.retain(|it| it != key);
    }

    /// Returns the row of an operation.
    pub(super) fn get(&self, key: &OperationKey) -> Option<&Arc<TopRow>> {
        self.all.get(key)
    }

    /// Returns the rows of all operations.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<TopRow>> {
        self.all.values()
    }

    /// Groups the operations by piece of work. An operation on its own is also a piece.
    pub(super) fn pieces(&self) -> Vec<TopPiece> {
        let rows: Vec<&Arc<TopRow>> = self.iter().collect();
        let operations: Vec<&ListedOperation> = rows.iter().map(|it| &it.operation).collect();
        let grouped = group_by_work(&operations).into_iter();
        let pieces = grouped.map(|row_indices| match row_indices.as_slice() {
            [one] => TopPiece {
                line: Arc::clone(rows[*one]),
                members: Vec::new(),
            },
            row_indices => {
                let members: Vec<&ListedOperation> =
                    row_indices.iter().map(|it| operations[*it]).collect();
                let mut line = self.row(line_of(&members));
                line.deleted_by_server = row_indices.iter().all(|it| rows[*it].deleted_by_server);
                TopPiece {
                    line: Arc::new(line),
                    members: row_indices.iter().map(|it| Arc::clone(rows[*it])).collect(),
                }
            }
        });
        pieces.collect()
    }

    /// Returns the rows of the pieces that the filter selects, sorted by the column `order`.
    pub(super) fn table_rows(
        &self,
        pieces: Vec<TopPiece>,
        filter: RowFilter<'_>,
        order: OperationColumn,
        reversed: bool,
    ) -> Vec<Arc<TopRow>> {
        let words: Vec<String> = filter
            .words
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let is_shown = |row: &Arc<TopRow>| filter.shows_completed || row.operation.active;
        let mut pieces = pieces;
        pieces.retain(|piece| is_shown(&piece.line) && piece.contains_all(&words));
        pieces.sort_by(|a, b| {
            let (a, b) = (&a.line.operation, &b.line.operation);
            let by = order.compare(a, b).then_with(|| by_subject(a, b));
            if reversed { by.reverse() } else { by }
        });
        let mut rows = Vec::with_capacity(pieces.len());
        for piece in pieces {
            rows.push(piece.line);
            if filter.is_expanded {
                let members = piece.members.iter().filter(|it| is_shown(it));
                rows.extend(members.map(|row| {
                    Arc::new(TopRow {
                        deleted_by_server: row.deleted_by_server,
                        ..self.row(member_row(&row.operation))
                    })
                }));
            }
        }
        rows
    }
}

/// A piece of work.
#[derive(Debug)]
pub(super) struct TopPiece {
    /// The row that is shown for the piece.
    pub(super) line: Arc<TopRow>,
    /// The rows of the members, the root first. Empty if the piece is a single operation.
    pub(super) members: Vec<Arc<TopRow>>,
}

impl TopPiece {
    /// Returns true if a single row of the piece (the line or a member) contains all words.
    fn contains_all(&self, words: &[String]) -> bool {
        self.line.contains_all(words) || self.members.iter().any(|it| it.contains_all(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::short_names;

    fn operation(name: &str, active: bool) -> ListedOperation {
        let mut operation = ListedOperation {
            name: name.to_owned(),
            active,
            ..ListedOperation::default()
        };
        operation.subject.kind = "VirtualMachine".to_owned();
        operation.subject.name = name.to_owned();
        operation
    }

    fn names(rows: &Rows, words: &str, shows_completed: bool) -> Vec<String> {
        let filter = RowFilter {
            words,
            shows_completed,
            is_expanded: false,
        };
        let filtered = rows.table_rows(rows.pieces(), filter, OperationColumn::Subject, false);
        filtered
            .iter()
            .map(|row| row.operation.name.clone())
            .collect()
    }

    #[test]
    fn a_deleted_operation_stays_only_if_it_had_completed() {
        let mut rows = Rows::default();
        for (name, active) in [("a", true), ("b", false), ("c", true)] {
            rows.apply(operation(name, active));
        }
        assert_eq!(names(&rows, "", false), ["a", "c"]);
        for name in ["a", "b"] {
            rows.delete((None, name.to_owned()));
        }
        assert_eq!(names(&rows, "", true), ["b", "c"]);
        assert!(rows.get(&(None, "b".to_owned())).unwrap().deleted_by_server);
    }

    #[test]
    fn deleted_operations_are_limited_and_a_restarted_operation_does_not_count() {
        let mut rows = Rows::default();
        for number in 0..MAX_KEPT {
            rows.apply(operation(&format!("{number:05}"), false));
            rows.delete((None, format!("{number:05}")));
        }
        rows.apply(operation("00000", true));
        for number in MAX_KEPT..MAX_KEPT + 2 {
            rows.apply(operation(&format!("{number:05}"), false));
            rows.delete((None, format!("{number:05}")));
        }
        let names = names(&rows, "", true);
        assert_eq!(names.len(), MAX_KEPT + 1);
        assert_eq!(names[..2], ["00000", "00002"]);
    }

    #[test]
    fn filter_words_match_in_any_order_and_case() {
        let mut rows = Rows::default();
        for name in ["data-0", "data-1", "web-1"] {
            rows.apply(operation(name, true));
        }
        assert_eq!(names(&rows, "-1 VIRTUAL da", false), ["data-1"]);
        assert!(names(&rows, "pod", false).is_empty());
    }

    #[test]
    fn a_kind_is_replaced_only_by_its_own_short_name() {
        let mut machine = operation("x", true);
        machine.subject.api_version = "kubevirt.io/v1".to_owned();
        let mut image = operation("x", true);
        image.subject.kind = "VirtualMachineImage".to_owned();
        image.subject.api_version = "harvesterhci.io/v1beta1".to_owned();
        for (operation, subject, short_subject) in [
            (machine, "VirtualMachine/x", "vm/x"),
            // The initials of this kind are the short name of another kind.
            (image, "VirtualMachineImage/x", "VirtualMachineImage/x"),
        ] {
            let row = TopRow::new(operation, &short_names());
            assert_eq!(
                (&*row.subject, &*row.short_subject),
                (subject, short_subject)
            );
        }
    }
}
