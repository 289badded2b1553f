//! The model of `top`, which contains everything that is shown on the screen.
//!
//! The model changes when an event ([`TopEvent`]) arrives, such as a key or a change of an
//! operation. The module `view` draws the model. This module does no I/O.

use super::detail;
use super::related_objects::{RelatedObject, related_objects};
use super::row::{CellWidths, RowFilter, RowId, Rows, TopPiece, TopRow};
use super::table_layout::TopLayout;
use super::theme::Theme;
use super::view::ScreenAreas;
use crate::columns::OperationColumn;
use crate::filter::Filters;
use crate::operation_source::OperationChange;
use crate::sort::urgency;
use clap::ValueEnum;
use crossterm::event::KeyEvent;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use std::sync::Arc;

/// The order of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TopOrder {
    /// The longest running first
    #[default]
    Age,
    /// The most advanced first
    Progress,
    /// The most urgent first
    State,
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

    /// Returns the column by which the order sorts.
    pub(super) fn column(self) -> OperationColumn {
        match self {
            Self::Age => OperationColumn::Age,
            Self::Progress => OperationColumn::Progress,
            Self::State => OperationColumn::State,
            Self::Subject => OperationColumn::Subject,
        }
    }
}

/// An event that changes the model.
#[derive(Debug)]
pub(super) enum TopEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The size of the terminal has changed: columns and rows.
    Resize(u16, u16),
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
    /// The operations come from files, which do not change.
    Files,
    /// The watch is interrupted, so the shown operations may be outdated.
    Lost {
        /// Time at which the interruption began.
        since: Timestamp,
        /// The reason of the last failure.
        why: String,
    },
}

/// The page on the screen.
#[derive(Debug)]
pub(super) enum TopPage {
    /// The table.
    List,
    /// The details of one operation.
    Detail(Detail),
    /// The help with the keys. The value is the page to return to.
    Help(Box<TopPage>),
}

/// The content of the detail page.
#[derive(Debug)]
pub(super) struct Detail {
    /// The operation as `top` received it last.
    pub(super) row: Arc<TopRow>,
    /// True if the operation was deleted.
    pub(super) is_deleted: bool,
    /// The subject of the operation (the object that the operation is about), with its owners
    /// before it and its descendants after it.
    pub(super) related_objects: Vec<RelatedObject>,
    /// Number of lines that are scrolled out at the top.
    pub(super) scroll: usize,
}

/// The number of pieces of work in each state. Operations whose rules yield the same key
/// (`spec.work`) are one piece of work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The states of the pieces in flight, each with the number of pieces. The most urgent state
    /// comes first.
    pub(super) active: Vec<(String, usize)>,
    /// The number of completed pieces.
    pub(super) completed: usize,
    /// The number of pieces in flight that are overdue or stalled.
    pub(super) overdue_or_stalled: usize,
}

/// The model of `top`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    /// Columns and rows of the terminal.
    pub(super) size: (u16, u16),
    /// The filters and the address of the kube-apiserver, in words.
    pub(super) about: String,
    /// True if the operations come from files.
    pub(super) reads_files: bool,
    /// The filters in the flags of the command. The watch delivers operations in all states, so the
    /// model selects the states.
    pub(super) filters: Filters,
    /// The state of the watch.
    pub(super) watch_state: TopWatchState,
    /// The reason why operations may be missing, in one line. None if no reason is known.
    pub(super) incomplete: Option<String>,
    /// All known operations.
    rows: Rows,
    pub(super) counts: Counts,
    /// The rows of the table, in order: the pieces of work that match the typed filter. If
    /// `is_expanded` is true, the members of each piece (its operations) follow it.
    pub(super) table_rows: Vec<Arc<TopRow>>,
    /// The largest widths of the texts in `table_rows`.
    pub(super) widths: CellWidths,
    pub(super) order: TopOrder,
    pub(super) reversed: bool,
    /// True if completed operations are shown.
    pub(super) shows_completed: bool,
    /// True if the members of a piece of work are shown below its line.
    pub(super) is_expanded: bool,
    /// The typed filter.
    pub(super) filter: String,
    /// True while the user types the filter.
    pub(super) is_typing: bool,
    /// Index in `table_rows` of the row under the cursor.
    pub(super) cursor: usize,
    /// Index in `table_rows` of the first row on the screen.
    pub(super) offset: usize,
    /// The operation that the cursor follows if rows move. None if the cursor is on the first row,
    /// where the cursor stays even if rows move.
    pub(super) selected: Option<RowId>,
    pub(super) page: TopPage,
    /// True if [`Model::refresh_rows`] has to compute the rows again.
    stale: bool,
}

impl Model {
    /// Creates a model without operations, in the state before the first list.
    pub(super) fn new(
        about: String,
        order: TopOrder,
        shows_completed: bool,
        now: Timestamp,
    ) -> Self {
        Self {
            now,
            size: (80, 24),
            about,
            reads_files: false,
            filters: Filters::default(),
            watch_state: TopWatchState::Listing,
            incomplete: None,
            rows: Rows::default(),
            counts: Counts::default(),
            table_rows: Vec::new(),
            widths: CellWidths::default(),
            order,
            reversed: false,
            shows_completed,
            is_expanded: false,
            filter: String::new(),
            is_typing: false,
            cursor: 0,
            offset: 0,
            selected: None,
            page: TopPage::List,
            stale: true,
        }
    }

    /// Sets the short names of kinds. Call this method before the first event.
    pub(super) fn set_short_names(&mut self, short_names: Arc<ShortNames>) {
        self.rows = Rows::new(short_names);
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
            TopEvent::Resize(width, height) => {
                self.size = (width, height);
                self.stale = true;
            }
            TopEvent::Tick(now) => self.now = now,
            TopEvent::Change(change) => self.change(change),
            TopEvent::Incomplete(incomplete) => self.incomplete = incomplete,
        }
        LoopAction::Continue
    }

    fn change(&mut self, change: OperationChange) {
        match change {
            OperationChange::Applied(operation) if self.filters.has_state(&operation) => {
                self.rows.apply(*operation);
            }
            OperationChange::Applied(operation) => self.rows.remove(&operation.key()),
            OperationChange::Deleted { operation, .. } => self.rows.delete(operation.key()),
            OperationChange::Synced => {
                self.watch_state = if self.reads_files {
                    TopWatchState::Files
                } else {
                    TopWatchState::Live
                };
            }
            OperationChange::Lost(problem) => {
                let since = match self.watch_state {
                    TopWatchState::Lost { since, .. } => since,
                    TopWatchState::Listing | TopWatchState::Live | TopWatchState::Files => self.now,
                };
                self.watch_state = TopWatchState::Lost {
                    since,
                    why: problem.to_string(),
                };
            }
        }
        self.stale = true;
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
        let pieces = self.rows.pieces();
        self.count(&pieces);
        let filter = RowFilter {
            words: &self.filter,
            shows_completed: self.shows_completed,
            is_expanded: self.is_expanded,
        };
        self.table_rows = self
            .rows
            .table_rows(pieces, filter, self.order.column(), self.reversed);
        self.widths = self
            .table_rows
            .iter()
            .fold(CellWidths::default(), |widest, row| widest.max(row.widths));
        if let Some(selected) = &self.selected {
            let is_selected = |row: &Arc<TopRow>| row.id() == *selected;
            // The search is skipped if the operation is still on the row under the cursor.
            if !self.table_rows.get(self.cursor).is_some_and(is_selected)
                && let Some(index) = self.table_rows.iter().position(is_selected)
            {
                self.cursor = index;
            }
        }
        self.move_to(self.cursor);
        let page = match &mut self.page {
            TopPage::Help(page) => page,
            page => page,
        };
        if let TopPage::Detail(detail) = page {
            match self.rows.get(&detail.row.operation.key()) {
                Some(row) => {
                    detail.row = Arc::clone(row);
                    detail.is_deleted = row.deleted_by_server;
                }
                None => detail.is_deleted = true,
            }
            detail.related_objects = related_objects(&detail.row, self.rows.iter());
        }
        // The detail page can have become shorter, so the old scroll position can be below its end.
        if let TopPage::Detail(detail) = &self.page {
            self.scroll_to(detail.scroll);
        }
    }

    /// Counts the pieces of work.
    fn count(&mut self, pieces: &[TopPiece]) {
        let mut active: Vec<(&str, u8, usize)> = Vec::new();
        let mut completed = 0;
        for piece in pieces {
            let operation = &piece.line.operation;
            if !operation.active {
                completed += 1;
                continue;
            }
            match active.iter_mut().find(|it| it.0 == operation.state) {
                Some((_, _, count)) => *count += 1,
                None => active.push((&operation.state, urgency(operation), 1)),
            }
        }
        active.sort_by_key(|(state, urgency, _)| (*urgency, *state));
        let active = active.into_iter();
        self.counts = Counts {
            active: active
                .map(|(state, _, count)| (state.to_owned(), count))
                .collect(),
            completed,
            overdue_or_stalled: pieces
                .iter()
                .filter(|it| it.line.operation.is_overdue() || it.line.operation.is_stalled())
                .count(),
        };
    }

    /// Moves the cursor to the row with the index `row`, or to the last row if the table has fewer
    /// rows. Scrolls the table so that the cursor is on the screen.
    pub(super) fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.table_rows.len().saturating_sub(1));
        let selected = self.table_rows.get(self.cursor).filter(|_| self.cursor > 0);
        self.selected = selected.map(|row| row.id());
        let last = self.table_rows.len().saturating_sub(1);
        self.offset = self
            .offset
            .clamp(self.first_row_with(self.cursor), self.cursor)
            .min(self.first_row_with(last));
    }

    /// Returns the columns of the table for the current size of the terminal.
    pub(super) fn layout(&self) -> TopLayout {
        TopLayout::new(self.widths, self.size.0.into())
    }

    /// Returns the index of the first row on the screen, if the row with the index `last` is the
    /// last row on the screen.
    fn first_row_with(&self, last: usize) -> usize {
        let layout = self.layout();
        let mut room = ScreenAreas::of(self.size.1.into()).table;
        let rows = self.table_rows.iter().take(last + 1).rev();
        let fitting = rows.take_while(|row| {
            let left = room.checked_sub(layout.lines(row));
            room = left.unwrap_or_default();
            left.is_some()
        });
        (last + 1 - fitting.count()).min(last)
    }

    /// Returns the number of rows by which a page key moves the cursor, at least one.
    pub(super) fn page_rows(&self) -> usize {
        let lines_of_row = 1 + usize::from(self.layout().has_messages_below);
        (ScreenAreas::of(self.size.1.into()).table / lines_of_row).max(1)
    }

    /// Opens the detail page of the operation under the cursor. If the cursor is on the line of a
    /// piece of work, opens the page of its first member (the root).
    pub(super) fn open(&mut self) {
        let line = self.table_rows.get(self.cursor);
        let row = line.and_then(|it| self.rows.get(&it.operation.key()));
        if let Some(row) = row {
            self.page = TopPage::Detail(Detail {
                row: Arc::clone(row),
                is_deleted: row.deleted_by_server,
                related_objects: related_objects(row, self.rows.iter()),
                scroll: 0,
            });
        }
    }

    /// Scrolls the detail page to the line with the index `line`, or to the end of the page if the
    /// page is shorter.
    pub(super) fn scroll_to(&mut self, line: usize) {
        let rows = ScreenAreas::of(self.size.1.into()).body;
        if let TopPage::Detail(detail) = &mut self.page {
            let lines = detail::lines(detail, self.now, self.size.0.into(), Theme::default());
            detail.scroll = line.min(lines.len().saturating_sub(rows));
        }
    }
}
