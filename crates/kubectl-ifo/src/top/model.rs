//! The state of `top`.
//!
//! Input: keys, changes of operations, the time, and the size of the terminal. Output: a model that
//! `view` can draw. This module does no I/O.

use super::detail;
use super::family::{RelatedSubject, family};
use super::row::{CellWidths, Rows, TopRow};
use super::theme::Theme;
use super::view::ScreenAreas;
use crate::columns::OperationColumn;
use crate::operation::OperationKey;
use crate::sort::urgency;
use crate::source::OperationChange;
use clap::ValueEnum;
use crossterm::event::KeyEvent;
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
    /// Returns the order that is `steps` further in the list, which is cyclic.
    pub(super) fn step(self, steps: usize) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|it| *it == self).unwrap_or_default();
        all[(at + steps) % all.len()]
    }

    /// The column by which the order sorts.
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
    /// Time has passed.
    Tick(Timestamp),
    /// Operations or the connection have changed.
    Change(OperationChange),
    /// The reason for which operations may be missing, in one line. None if the list is complete.
    Incomplete(Option<String>),
}

/// The action of the main loop after an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoopAction {
    /// Continue.
    On,
    /// Draw the whole screen again.
    Redraw,
    /// End the command.
    Quit,
}

/// The state of the watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopLink {
    /// The first list is not complete.
    Listing,
    /// The shown operations are current.
    Live,
    /// The watch is interrupted, so the shown operations may be outdated.
    Lost {
        /// Time of the interruption.
        since: Timestamp,
        /// The last reason.
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

/// One operation, with its owners and descendants.
#[derive(Debug)]
pub(super) struct Detail {
    /// The last known state of the operation.
    pub(super) row: Arc<TopRow>,
    /// True if the operation was deleted.
    pub(super) gone: bool,
    /// Its subject among its owners and descendants.
    pub(super) family: Vec<RelatedSubject>,
    /// Number of lines above the visible part.
    pub(super) scroll: usize,
}

/// The number of operations in each state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The states of operations in flight, the most urgent first.
    pub(super) active: Vec<(String, usize)>,
    /// The number of completed operations.
    pub(super) completed: usize,
}

/// The model.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    /// Columns and rows of the terminal.
    pub(super) size: (u16, u16),
    /// The server and the filters, in words.
    pub(super) about: String,
    pub(super) link: TopLink,
    /// The reason for which operations may be missing, in one line.
    pub(super) incomplete: Option<String>,
    rows: Rows,
    pub(super) counts: Counts,
    /// The rows of the table, in order.
    pub(super) visible: Vec<Arc<TopRow>>,
    /// The largest widths of their texts.
    pub(super) widths: CellWidths,
    pub(super) order: TopOrder,
    pub(super) reversed: bool,
    pub(super) completed: bool,
    pub(super) filter: String,
    pub(super) typing: bool,
    /// Row of the cursor.
    pub(super) cursor: usize,
    /// First visible row.
    pub(super) offset: usize,
    /// The operation under the cursor, which the cursor follows. None if the cursor is on the first
    /// row: then it stays on the first row.
    pub(super) selected: Option<OperationKey>,
    pub(super) page: TopPage,
    /// True if `settle` has to recompute the rows.
    stale: bool,
}

impl Model {
    /// Creates a model without operations, which waits for the first list.
    pub(super) fn new(about: String, order: TopOrder, completed: bool, now: Timestamp) -> Self {
        Self {
            now,
            size: (80, 24),
            about,
            link: TopLink::Listing,
            incomplete: None,
            rows: Rows::default(),
            counts: Counts::default(),
            visible: Vec::new(),
            widths: CellWidths::default(),
            order,
            reversed: false,
            completed,
            filter: String::new(),
            typing: false,
            cursor: 0,
            offset: 0,
            selected: None,
            page: TopPage::List,
            stale: true,
        }
    }

    /// Processes an event.
    pub(super) fn update(&mut self, event: TopEvent) -> LoopAction {
        match event {
            TopEvent::Key(key) => {
                // A key refers to the visible rows, so they must be up to date.
                self.settle();
                return self.key(key);
            }
            TopEvent::Paste(text) if self.typing => {
                self.insert(text.lines().next().unwrap_or_default());
                self.stale = true;
            }
            // A text that was pasted by mistake must not be executed as commands.
            TopEvent::Paste(_) => {}
            TopEvent::Resize(width, height) => {
                self.size = (width, height);
                self.stale = true;
            }
            TopEvent::Tick(now) => self.now = now,
            TopEvent::Change(change) => self.change(change),
            TopEvent::Incomplete(incomplete) => self.incomplete = incomplete,
        }
        LoopAction::On
    }

    fn change(&mut self, change: OperationChange) {
        match change {
            OperationChange::Applied(operation) => self.rows.apply(*operation),
            OperationChange::Deleted { operation, .. } => self.rows.delete(operation.key()),
            OperationChange::Synced => self.link = TopLink::Live,
            OperationChange::Lost(problem) => {
                let since = match self.link {
                    TopLink::Lost { since, .. } => since,
                    TopLink::Listing | TopLink::Live => self.now,
                };
                self.link = TopLink::Lost {
                    since,
                    why: problem.to_string(),
                };
            }
        }
        self.stale = true;
    }

    /// Marks the visible rows as outdated.
    pub(super) fn touch(&mut self) {
        self.stale = true;
    }

    /// Recomputes the visible rows, if necessary. The work grows with the number of operations. So
    /// it is done once per frame and not once per change.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.count();
        let order = self.order.column();
        self.visible = self
            .rows
            .visible(&self.filter, self.completed, order, self.reversed);
        self.widths = self
            .visible
            .iter()
            .fold(CellWidths::default(), |widest, row| {
                std::array::from_fn(|at| widest[at].max(row.widths[at]))
            });
        if let Some(selected) = &self.selected {
            let is = |row: &Arc<TopRow>| {
                row.operation.name == selected.1 && row.operation.namespace == selected.0
            };
            // Usually the operation is still on the same row.
            if !self.visible.get(self.cursor).is_some_and(is)
                && let Some(place) = self.visible.iter().position(is)
            {
                self.cursor = place;
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
                    detail.gone = row.forgotten;
                }
                None => detail.gone = true,
            }
            detail.family = family(&detail.row, self.rows.iter());
        }
        // The page may have become shorter.
        if let TopPage::Detail(detail) = &self.page {
            self.scroll_to(detail.scroll);
        }
    }

    fn count(&mut self) {
        let mut active: Vec<(&str, u8, usize)> = Vec::new();
        let mut completed = 0;
        for row in self.rows.iter() {
            let operation = &row.operation;
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
        };
    }

    /// Moves the cursor to a row, or to the last row, and makes it visible.
    pub(super) fn move_to(&mut self, row: usize) {
        self.cursor = row.min(self.visible.len().saturating_sub(1));
        let selected = self.visible.get(self.cursor).filter(|_| self.cursor > 0);
        self.selected = selected.map(|row| row.operation.key());
        let page = self.page_rows();
        let last = self.visible.len().saturating_sub(page);
        self.offset = self
            .offset
            .clamp((self.cursor + 1).saturating_sub(page), self.cursor)
            .min(last);
    }

    /// Number of visible rows of the table. At least one.
    pub(super) fn page_rows(&self) -> usize {
        ScreenAreas::of(self.size.1.into()).table.max(1)
    }

    /// Opens the operation under the cursor.
    pub(super) fn open(&mut self) {
        if let Some(row) = self.visible.get(self.cursor) {
            self.page = TopPage::Detail(Detail {
                row: Arc::clone(row),
                gone: row.forgotten,
                family: family(row, self.rows.iter()),
                scroll: 0,
            });
        }
    }

    /// Scrolls the open operation to a line, or to the end.
    pub(super) fn scroll_to(&mut self, line: usize) {
        let rows = ScreenAreas::of(self.size.1.into()).body;
        if let TopPage::Detail(detail) = &mut self.page {
            let lines = detail::lines(detail, self.now, self.size.0.into(), Theme::default());
            detail.scroll = line.min(lines.len().saturating_sub(rows));
        }
    }
}
