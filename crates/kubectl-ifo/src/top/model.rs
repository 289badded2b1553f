//! The model of `top`, which contains everything that is shown on the screen.
//!
//! The model changes when the user presses a key, and when an operation or the connection changes.
//! The module `view` draws the model. This module does no I/O.

use crate::describe::DescribedFacts;
use crate::filters::filter::Filters;
use crate::list::incomplete_line;
use crate::operations::operation::{InFlightOperation, OperationFacts, OperationKey};
use crate::operations::operation_source::OperationChange;
use crate::output::columns::{ALL_COLUMNS, OperationColumn};
use crate::output::print::TextStyle;
use crate::output::sort::SortBy;
use crate::work_groups::{PieceOfWork, Row, pieces_of_work, rank};
use ifo_api::live::State;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Largest number of completed operations. `top` keeps them after the server has deleted them, so
/// that the user can still see the result. If there are more when the server deletes an operation,
/// `top` forgets the one that ended first. Each operation takes some KB of memory.
pub(super) const MAX_COMPLETED: usize = 10_000;

/// The columns by which the keys sort the table, in this order.
const ORDERS: [OperationColumn; 4] = [
    OperationColumn::State,
    OperationColumn::Age,
    OperationColumn::Progress,
    OperationColumn::Subject,
];

/// The action of the main loop after an event.
#[derive(Debug)]
pub(super) enum LoopAction {
    /// Process the next event.
    Continue,
    /// Read the facts of the detail page of this operation.
    Read(Box<InFlightOperation>),
    /// Draw the whole screen again.
    Redraw,
    /// End the command.
    Quit,
}

/// The content of the detail page.
#[derive(Debug)]
pub(super) struct Detail {
    /// The key of the operation in [`Model::operations`].
    pub(super) key: OperationKey,
    /// The rule and the Events.
    pub(super) facts: DescribedFacts,
    /// Number of lines that are scrolled out at the top.
    pub(super) scroll: usize,
}

/// The model of `top`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    pub(super) style: TextStyle,
    /// The filters and the address of the kube-apiserver, in words.
    pub(super) about: String,
    /// True if the operations come from files.
    pub(super) reads_files: bool,
    /// The filters in the flags of the command. The watch delivers operations in all states, so the
    /// model selects the states.
    pub(super) filters: Filters,
    /// The time of the last answer, and the reason why there are no answers now. None while the
    /// cluster answers.
    pub(super) lost: Option<(Timestamp, String)>,
    /// The time of the last answer of the cluster.
    pub(super) answered: Timestamp,
    /// The reason why operations may be missing, in one line. None if no reason is known.
    pub(super) incomplete: Option<String>,
    pub(super) operations: BTreeMap<OperationKey, InFlightOperation>,
    /// The number of pieces of work in each state. The worst state comes first.
    pub(super) counts: BTreeMap<(u8, &'static str), (State, usize)>,
    /// The rows of the table, in order: the pieces of work that match the typed filter. If
    /// `is_expanded` is true, the members of each piece follow it.
    pub(super) rows: Vec<Row>,
    pub(super) order: SortBy,
    pub(super) reversed: bool,
    pub(super) shows_completed: bool,
    /// True if the members of a piece of work are shown below its line.
    pub(super) is_expanded: bool,
    /// The words that the user has typed. A piece of work is shown if the texts of one of its
    /// operations contain all words.
    pub(super) filter: String,
    /// True while the user types the filter.
    pub(super) is_typing: bool,
    pub(super) shows_help: bool,
    /// The open detail page.
    pub(super) detail: Option<Detail>,
    /// Index in `rows` of the row under the cursor.
    pub(super) cursor: usize,
    /// Index in `rows` of the first row on the screen.
    pub(super) offset: usize,
    /// The number of rows of the table, or lines of the detail page, on the screen.
    pub(super) page_rows: usize,
    /// The row that the cursor follows if rows move: its operation, and true if it is the row of a
    /// member. None if the cursor is on the first row, where the cursor stays even if rows move.
    pub(super) selected: Option<(OperationKey, bool)>,
    /// True if the rows are up to date. Otherwise [`Model::refresh_rows`] computes them again.
    pub(super) is_fresh: bool,
}

impl Model {
    /// Processes a change of the operations or of the connection.
    pub(super) fn change(&mut self, change: OperationChange) {
        if !matches!(change, OperationChange::Lost(_)) {
            self.answered = self.now;
        }
        match change {
            OperationChange::Applied(operation) => {
                let key = operation.key();
                self.operations.remove(&key);
                if self.filters.has_state(&operation) {
                    self.operations.insert(key, *operation);
                }
            }
            OperationChange::Deleted(operation) => self.delete(&operation.key()),
            OperationChange::Synced => self.lost = None,
            OperationChange::Incomplete(incomplete) => {
                self.incomplete = incomplete.as_ref().map(incomplete_line);
            }
            OperationChange::Lost(problem) => {
                let since = self.lost.take().map_or(self.answered, |(since, _)| since);
                self.lost = Some((since, problem.to_string()));
            }
        }
        self.is_fresh = false;
    }

    /// Processes the deletion of an operation by the server. A completed operation stays on the
    /// screen.
    fn delete(&mut self, key: &OperationKey) {
        let known = self.operations.get(key);
        if known.is_none_or(OperationFacts::is_active) {
            self.operations.remove(key);
        }
        let completed = self.operations.values().filter(|it| !it.is_active());
        if completed.clone().count() > MAX_COMPLETED
            && let Some(first) = completed.min_by_key(|it| it.completed())
        {
            let first = first.key();
            self.operations.remove(&first);
        }
    }

    /// Computes the rows of the table again if they are outdated. This method runs once for each
    /// frame and each key, and not for each change, because its work grows with the number of
    /// operations.
    pub(super) fn refresh_rows(&mut self) {
        if std::mem::replace(&mut self.is_fresh, true) {
            return;
        }
        let mut pieces = pieces_of_work(self.operations.values());
        self.counts.clear();
        for PieceOfWork { line, .. } in &pieces {
            let state = line.status.state;
            let key = (rank(line), state.name());
            self.counts.entry(key).or_insert((state, 0)).1 += 1;
        }
        let filter = self.filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        pieces.retain(|piece| {
            let mut all = std::iter::once(&piece.line).chain(&piece.members);
            self.is_shown(&piece.line)
                && (words.is_empty() || all.any(|it| contains_all(it, &words, self.now)))
        });
        self.order.sort(&mut pieces);
        if self.reversed {
            pieces.reverse();
        }
        let rows = pieces.into_iter().flat_map(|it| it.rows(self.is_expanded));
        self.rows = rows.filter(|it| self.is_shown(&it.operation)).collect();
        self.follow_selected();
    }

    fn is_shown(&self, operation: &InFlightOperation) -> bool {
        self.shows_completed || operation.is_active()
    }

    /// Moves the cursor to the row that it follows. Closes the detail page of an operation that is
    /// gone.
    fn follow_selected(&mut self) {
        let selected = |it: &Row| self.selected.as_ref() == Some(&(it.key(), it.is_member));
        let found = self.rows.iter().position(selected);
        self.move_to(found.unwrap_or(self.cursor));
        self.detail
            .take_if(|it| !self.operations.contains_key(&it.key));
    }

    /// Moves the cursor to the row with the index `row`, or to the last row if the table has fewer
    /// rows.
    pub(super) fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        let selected = self.rows.get(self.cursor).filter(|_| self.cursor > 0);
        self.selected = selected.map(|it| (it.key(), it.is_member));
    }

    /// Sorts by the column that comes `columns` positions after the present one in [`ORDERS`].
    /// After the last column, the first one follows. If the present order is not in [`ORDERS`],
    /// sorts by the first column.
    pub(super) fn change_order(&mut self, columns: usize) {
        let mut orders = ORDERS.iter();
        let now = orders.position(|it| matches!(self.order, SortBy::Column(now) if now == *it));
        let next = now.map_or(0, |it| (it + columns) % ORDERS.len());
        self.order = SortBy::Column(ORDERS[next]);
    }

    /// Opens the detail page of the operation under the cursor. If the cursor is on the line of a
    /// piece of work, opens the page of its first member (the root).
    pub(super) fn open(&mut self) -> LoopAction {
        let key = self.rows.get(self.cursor).map(OperationFacts::key);
        let Some(operation) = key.and_then(|it| self.operations.get(&it)) else {
            return LoopAction::Continue;
        };
        self.detail = Some(Detail {
            key: operation.key(),
            facts: DescribedFacts::unread(),
            scroll: 0,
        });
        LoopAction::Read(Box::new(operation.clone()))
    }
}

/// Returns true if the texts of an operation contain all `words`, which are in lower case.
fn contains_all(operation: &InFlightOperation, words: &[&str], now: Timestamp) -> bool {
    let texts = ALL_COLUMNS.iter().map(|it| it.text(operation, now));
    let texts = texts.collect::<Vec<_>>().join("\n").to_lowercase();
    words.iter().all(|word| texts.contains(word))
}
