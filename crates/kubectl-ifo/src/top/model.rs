//! What `top` shows, and what changes it. Enters: keys, changes of operations, the time,
//! the size of the terminal. Leaves: a model that `view` can draw. Nothing here reads or
//! writes anything.

use super::detail;
use super::family::{Relative, family};
use super::row::{Rows, TopRow, Widths};
use super::theme::Theme;
use super::view::Areas;
use crate::columns::OperationColumn;
use crate::operation::OperationKey;
use crate::sort::urgency;
use crate::source::OperationChange;
use clap::ValueEnum;
use crossterm::event::KeyEvent;
use jiff::Timestamp;
use std::sync::Arc;

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TopOrder {
    /// The oldest first
    #[default]
    Age,
    /// The farthest first
    Progress,
    /// What needs somebody first
    State,
    /// By namespace, kind and name
    Subject,
}

impl TopOrder {
    /// The one that is `steps` farther, round and round.
    pub(super) fn step(self, steps: usize) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|it| *it == self).unwrap_or_default();
        all[(at + steps) % all.len()]
    }

    /// The column that it sorts by.
    pub(super) fn column(self) -> OperationColumn {
        match self {
            Self::Age => OperationColumn::Age,
            Self::Progress => OperationColumn::Progress,
            Self::State => OperationColumn::State,
            Self::Subject => OperationColumn::Subject,
        }
    }
}

/// What happened.
#[derive(Debug)]
pub(super) enum TopEvent {
    /// Somebody pressed a key.
    Key(KeyEvent),
    /// Somebody pasted a text.
    Paste(String),
    /// The terminal has another size: columns and rows.
    Resize(u16, u16),
    /// The clock has moved on.
    Tick(Timestamp),
    /// Operations, or the connection, changed.
    Change(OperationChange),
    /// Why operations may be missing, in one line; None if none are.
    Incomplete(Option<String>),
}

/// How it goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// As before.
    On,
    /// With the whole screen drawn anew.
    Redraw,
    /// Somebody has seen enough.
    Quit,
}

/// How the watch is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopLink {
    /// Not all operations have been told yet.
    Listing,
    /// What is shown is what is.
    Live,
    /// What is shown is what was.
    Lost {
        /// When it broke.
        since: Timestamp,
        /// The last reason.
        why: String,
    },
}

/// What fills the screen.
#[derive(Debug)]
pub(super) enum TopPage {
    /// The table.
    List,
    /// One operation.
    Detail(Detail),
    /// The keys, and what was there before.
    Help(Box<TopPage>),
}

/// One operation, and what is around it.
#[derive(Debug)]
pub(super) struct Detail {
    /// The operation as it was told last.
    pub(super) row: Arc<TopRow>,
    /// Whether it is there no more.
    pub(super) gone: bool,
    /// Its subject among its owners and descendants.
    pub(super) family: Vec<Relative>,
    /// Lines that are above the screen.
    pub(super) scroll: usize,
}

/// How many operations there are in each state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Of those under way; the most urgent state first.
    pub(super) active: Vec<(String, usize)>,
    /// Of those that ended.
    pub(super) completed: usize,
}

/// All that is shown.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Debug)]
pub(super) struct Model {
    pub(super) now: Timestamp,
    /// Columns and rows of the terminal.
    pub(super) size: (u16, u16),
    /// What is asked, in words: the server and what is meant there.
    pub(super) about: String,
    pub(super) link: TopLink,
    /// Why operations may be missing, in one line.
    pub(super) incomplete: Option<String>,
    rows: Rows,
    pub(super) counts: Counts,
    /// The rows of the table, in order.
    pub(super) visible: Vec<Arc<TopRow>>,
    /// The widest of their texts.
    pub(super) widths: Widths,
    pub(super) order: TopOrder,
    pub(super) reversed: bool,
    pub(super) completed: bool,
    pub(super) filter: String,
    pub(super) typing: bool,
    /// Row that the cursor is on.
    pub(super) cursor: usize,
    /// First row on the screen.
    pub(super) offset: usize,
    /// What the cursor is on, unless it is at the top: there it stays with whatever
    /// comes first.
    pub(super) selected: Option<OperationKey>,
    pub(super) page: TopPage,
    /// Whether `settle` has anything to do.
    stale: bool,
}

impl Model {
    /// An empty table, which waits for the first list.
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
            widths: Widths::default(),
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

    /// Takes what happened.
    pub(super) fn update(&mut self, event: TopEvent) -> Flow {
        match event {
            TopEvent::Key(key) => {
                // Keys speak of what is on the screen, so it must be true.
                self.settle();
                return self.key(key);
            }
            TopEvent::Paste(text) if self.typing => {
                self.insert(text.lines().next().unwrap_or_default());
                self.stale = true;
            }
            // A text that is pasted by mistake is no series of commands.
            TopEvent::Paste(_) => {}
            TopEvent::Resize(width, height) => {
                self.size = (width, height);
                self.stale = true;
            }
            TopEvent::Tick(now) => self.now = now,
            TopEvent::Change(change) => self.change(change),
            TopEvent::Incomplete(incomplete) => self.incomplete = incomplete,
        }
        Flow::On
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

    /// Says that what is shown must be worked out anew.
    pub(super) fn touch(&mut self) {
        self.stale = true;
    }

    /// Works out what is to be seen, if anything changed. The work grows with the number
    /// of operations; so it is done once for each frame, and not for each change.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        self.count();
        let order = self.order.column();
        self.visible = self
            .rows
            .visible(&self.filter, self.completed, order, self.reversed);
        self.widths = self.visible.iter().fold(Widths::default(), |widest, row| {
            std::array::from_fn(|at| widest[at].max(row.widths[at]))
        });
        if let Some(selected) = &self.selected {
            let is = |row: &Arc<TopRow>| {
                row.operation.name == selected.1 && row.operation.namespace == selected.0
            };
            // Mostly it is where it was.
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
        // It may have become shorter.
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

    /// Puts the cursor on a row, or on the last one, and the row on the screen.
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

    /// Rows of the table that are on the screen; at least one.
    pub(super) fn page_rows(&self) -> usize {
        Areas::of(self.size.1.into()).table.max(1)
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

    /// Scrolls the open operation to a line, or as far as it goes.
    pub(super) fn scroll_to(&mut self, line: usize) {
        let rows = Areas::of(self.size.1.into()).body;
        if let TopPage::Detail(detail) = &mut self.page {
            let lines = detail::lines(detail, self.now, self.size.0.into(), Theme::default());
            detail.scroll = line.min(lines.len().saturating_sub(rows));
        }
    }
}
