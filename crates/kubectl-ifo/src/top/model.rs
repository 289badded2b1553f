//! The model of `top`, which contains everything that is shown on the screen.
//!
//! The model changes when an event ([`TopEvent`]) arrives, such as a key or a change of an
//! operation. The module `view` draws the model. This module does no I/O.

use crate::colors::Paint;
use crate::columns::OperationColumn;
use crate::filter::Filters;
use crate::listed_operation::{ListedOperation, OperationKey};
use crate::operation_source::OperationChange;
use crate::sort::{by_need, by_subject};
use crate::work_groups::{PieceOfWork, pieces_of_work, rank};
use clap::ValueEnum;
use crossterm::event::KeyEvent;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Largest number of completed operations that `top` keeps after the server has deleted them. If
/// the server deletes one more, `top` removes the operation that the server deleted first. An
/// upgrade of a cluster has fewer operations. Each operation takes some KB of memory.
pub(super) const MAX_KEPT: usize = 1000;

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TopOrder {
    /// The worst first: failing, blocked, stalled, overdue, then the longest running
    #[default]
    State,
    /// The longest running first
    Age,
    /// The most advanced first
    Progress,
    /// By namespace, kind and name
    Subject,
}

impl TopOrder {
    /// Returns the order that is `steps` positions later. The first order follows the last.
    pub(super) fn step(self, steps: usize) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|it| *it == self).unwrap_or_default();
        all[(at + steps) % all.len()]
    }

    fn compare(self, a: &ListedOperation, b: &ListedOperation) -> Ordering {
        let order = match self {
            Self::State => by_need(a, b),
            Self::Age => OperationColumn::Age.compare(a, b),
            Self::Progress => OperationColumn::Progress.compare(a, b),
            Self::Subject => Ordering::Equal,
        };
        order.then_with(|| by_subject(a, b))
    }
}

/// An event that changes the model.
#[derive(Debug)]
pub(super) enum TopEvent {
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The size of the terminal has changed.
    Resize,
    /// A second has passed. The value is the current time.
    Tick(Timestamp),
    /// Operations or the connection have changed.
    Change(OperationChange),
    /// The reason why operations may be missing, in one line. None if no reason is known.
    Incomplete(Option<String>),
}

/// The action of the main loop after an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoopAction {
    /// Process the next event.
    Continue,
    /// Draw the whole screen again.
    Redraw,
    /// End the command.
    Quit,
}

/// The state of the watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopWatchState {
    /// The first list is still being received.
    Listing,
    /// The shown operations are current.
    Live,
    /// The watch is interrupted since this time, for this reason.
    Lost { since: Timestamp, why: String },
}

/// The content of the detail page.
#[derive(Debug)]
pub(super) struct Detail {
    /// The operation as `top` received it last.
    pub(super) operation: ListedOperation,
    /// Number of lines that are scrolled out at the top.
    pub(super) scroll: usize,
}

/// The model of `top`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    pub(super) paint: Paint,
    pub(super) short_names: Arc<ShortNames>,
    /// The filters and the address of the kube-apiserver, in words.
    pub(super) about: String,
    /// True if the operations come from files.
    pub(super) reads_files: bool,
    /// The filters in the flags of the command. The watch delivers operations in all states, so the
    /// model selects the states.
    pub(super) filters: Filters,
    pub(super) watch_state: TopWatchState,
    /// The reason why operations may be missing, in one line. None if no reason is known.
    pub(super) incomplete: Option<String>,
    operations: BTreeMap<OperationKey, ListedOperation>,
    /// The completed operations that the server has deleted, in the order of their deletion. `top`
    /// keeps them, so that the user can still see the result.
    deleted: VecDeque<OperationKey>,
    /// The number of pieces of work in each state. The worst state comes first. The key of
    /// completed pieces is `(u8::MAX, "completed")`.
    pub(super) counts: BTreeMap<(u8, String), usize>,
    /// The rows of the table, in order: the pieces of work that match the typed filter. If
    /// `is_expanded` is true, the members of each piece follow it.
    pub(super) rows: Vec<ListedOperation>,
    pub(super) order: TopOrder,
    pub(super) reversed: bool,
    pub(super) shows_completed: bool,
    /// True if the members of a piece of work are shown below its line.
    pub(super) is_expanded: bool,
    /// The words that the user has typed. A piece of work is shown if one of its operations
    /// contains all words.
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
    selected: Option<(OperationKey, bool)>,
    /// True if [`Model::refresh_rows`] has to compute the rows again.
    stale: bool,
}

impl Model {
    /// Creates a model without operations, in the state before the first list.
    pub(super) fn new(about: String, order: TopOrder, now: Timestamp) -> Self {
        Self {
            now,
            paint: Paint::default(),
            short_names: Arc::default(),
            about,
            reads_files: false,
            filters: Filters::default(),
            watch_state: TopWatchState::Listing,
            incomplete: None,
            operations: BTreeMap::new(),
            deleted: VecDeque::new(),
            counts: BTreeMap::new(),
            rows: Vec::new(),
            order,
            reversed: false,
            shows_completed: false,
            is_expanded: false,
            filter: String::new(),
            is_typing: false,
            shows_help: false,
            detail: None,
            cursor: 0,
            offset: 0,
            page_rows: 1,
            selected: None,
            stale: true,
        }
    }

    /// Changes the model for an event, and returns the action of the main loop.
    pub(super) fn update(&mut self, event: TopEvent) -> LoopAction {
        match event {
            TopEvent::Key(key) => {
                // A key applies to the rows of the table, so the rows must be up to date.
                self.refresh_rows();
                return self.key(key);
            }
            TopEvent::Paste(text) if self.is_typing => {
                self.insert(text.lines().next().unwrap_or_default());
                self.stale = true;
            }
            // A text that the user pastes by mistake must not be executed as commands.
            TopEvent::Paste(_) => {}
            // The view scrolls the table down until the cursor is visible.
            TopEvent::Resize => self.offset = 0,
            TopEvent::Tick(now) => self.now = now,
            TopEvent::Change(change) => self.change(change),
            TopEvent::Incomplete(incomplete) => self.incomplete = incomplete,
        }
        LoopAction::Continue
    }

    fn change(&mut self, change: OperationChange) {
        match change {
            OperationChange::Applied(operation) => {
                let key = operation.key();
                self.deleted.retain(|it| *it != key);
                self.operations.remove(&key);
                if self.filters.has_state(&operation) {
                    self.operations.insert(key, *operation);
                }
            }
            OperationChange::Deleted { operation, .. } => self.delete(operation.key()),
            OperationChange::Synced => self.watch_state = TopWatchState::Live,
            OperationChange::Lost(problem) => {
                let since = match self.watch_state {
                    TopWatchState::Lost { since, .. } => since,
                    TopWatchState::Listing | TopWatchState::Live => self.now,
                };
                let why = problem.to_string();
                self.watch_state = TopWatchState::Lost { since, why };
            }
        }
        self.stale = true;
    }

    /// Processes the deletion of an operation by the server.
    fn delete(&mut self, key: OperationKey) {
        if self.operations.get(&key).is_none_or(|it| it.active) {
            self.operations.remove(&key);
        } else if !self.deleted.contains(&key) {
            self.deleted.push_back(key);
            if self.deleted.len() > MAX_KEPT
                && let Some(oldest) = self.deleted.pop_front()
            {
                self.operations.remove(&oldest);
            }
        }
    }

    /// Marks the rows of the table as outdated.
    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Computes the rows of the table again if they are outdated. This method runs once for each
    /// frame and each key, and not for each change, because its work grows with the number of
    /// operations.
    pub(super) fn refresh_rows(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let operations: Vec<ListedOperation> = self.operations.values().cloned().collect();
        let mut pieces = pieces_of_work(&operations);
        self.counts.clear();
        for PieceOfWork { line, .. } in &pieces {
            let key = if line.active {
                (rank(line), line.state.clone())
            } else {
                (u8::MAX, "completed".to_owned())
            };
            *self.counts.entry(key).or_default() += 1;
        }
        let words: Vec<String> = self
            .filter
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        pieces.retain(|piece| {
            let mut all = std::iter::once(&piece.line).chain(&piece.members);
            self.is_shown(&piece.line)
                && (words.is_empty() || all.any(|it| contains_all(it, &words, self.now)))
        });
        pieces.sort_by(|a, b| {
            let by = self.order.compare(&a.line, &b.line);
            if self.reversed { by.reverse() } else { by }
        });
        let mut rows = Vec::with_capacity(pieces.len());
        for piece in pieces {
            if self.is_expanded {
                let members = piece.member_rows().filter(|it| self.is_shown(it));
                let members: Vec<ListedOperation> = members.collect();
                rows.push(piece.line);
                rows.extend(members);
            } else {
                rows.push(piece.line);
            }
        }
        self.rows = rows;
        self.follow_selected();
    }

    fn is_shown(&self, operation: &ListedOperation) -> bool {
        self.shows_completed || operation.active
    }

    /// Moves the cursor to the row that it follows, and updates the detail page.
    fn follow_selected(&mut self) {
        let mut cursor = self.cursor;
        if let Some((key, is_member_row)) = &self.selected {
            let mut rows = self.rows.iter();
            let found = rows.position(|it| it.is_member_row == *is_member_row && it.key() == *key);
            cursor = found.unwrap_or(cursor);
        }
        self.move_to(cursor);
        if let Some(detail) = &mut self.detail
            && let Some(newest) = self.operations.get(&detail.operation.key())
        {
            detail.operation = newest.clone();
        }
    }

    /// Returns true if the server has deleted the operation.
    pub(super) fn is_deleted(&self, key: &OperationKey) -> bool {
        !self.operations.contains_key(key) || self.deleted.contains(key)
    }

    /// Moves the cursor to the row with the index `row`, or to the last row if the table has fewer
    /// rows.
    pub(super) fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.rows.len().saturating_sub(1));
        let selected = self.rows.get(self.cursor).filter(|_| self.cursor > 0);
        self.selected = selected.map(|it| (it.key(), it.is_member_row));
    }

    /// Opens the detail page of the operation under the cursor. If the cursor is on the line of a
    /// piece of work, opens the page of its first member (the root).
    pub(super) fn open(&mut self) {
        let key = self.rows.get(self.cursor).map(ListedOperation::key);
        let operation = key.and_then(|key| self.operations.get(&key)).cloned();
        self.detail = operation.map(|operation| Detail {
            operation,
            scroll: 0,
        });
    }
}

/// Returns true if the texts of an operation contain all `words`, which are in lower case.
fn contains_all(operation: &ListedOperation, words: &[String], now: Timestamp) -> bool {
    let texts = OperationColumn::sortable().map(|it| it.text(operation, now).to_lowercase());
    let texts: Vec<String> = texts.collect();
    words
        .iter()
        .all(|word| texts.iter().any(|text| text.contains(word)))
}
