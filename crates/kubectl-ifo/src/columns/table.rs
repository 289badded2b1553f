//! Formats operations as a table. On a terminal that is narrower than [`MESSAGE_COLUMN_WIDTH`],
//! messages are on lines of their own. A table that is too wide shows the short names of kinds,
//! then messages on lines of their own, and is then narrowed in the steps of [`STEPS`]. A watch
//! (`list --watch`) adds rows to a table that is not narrowed.

use super::OperationColumn::{
    self, Expected, Message, Namespace, Operation, Progress, Started, State, Subject,
};
use super::{ALL_COLUMNS, DEFAULT_COLUMNS};
use crate::operation::OperationFacts as _;
use crate::output::{COLUMN_GAP, MESSAGE_INDENT, MIN_MESSAGE_WIDTH, TerminalText, TextStyle, line};
use crate::plain_text::{cut, one_line};
use crate::work_groups::Row;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Smallest width of a terminal, in columns, on which messages are in a column. On a narrower
/// terminal, the column would have space for the first words of a message only.
const MESSAGE_COLUMN_WIDTH: usize = 120;

/// The steps that narrow a table, in this order, until it fits on the terminal. Each step narrows a
/// column to a width in terminal columns. The width 0 removes the column.
///
/// At the widths of the first steps, most texts are still understandable. The age always stays,
/// because it shows which operations are new and which hang.
const STEPS: [(OperationColumn, usize); 13] = [
    (Started, 0),
    (Expected, 0),
    (Subject, 24),
    (Namespace, 12),
    (Operation, 12),
    (Progress, 0),
    (Namespace, 8),
    (Operation, 8),
    (Subject, 8),
    (Namespace, 0),
    (State, 0),
    (Operation, 0),
    (Subject, 1),
];

/// The prefix of the subject in the row of a member of a piece of work.
const MEMBER_PREFIX: &str = "└ ";

/// The text of a cell without a value.
const EMPTY_CELL: &str = "-";

/// The columns of a table with their widths.
pub(crate) struct Table {
    columns: Vec<(OperationColumn, usize)>,
    /// Number of blanks between two columns.
    gap: usize,
    /// True if kinds are replaced by their short names, such as `vm` for `VirtualMachine`.
    short: bool,
    style: TextStyle,
}

impl Table {
    /// Formats a table with a row for each operation.
    pub(crate) fn text(rows: &[Row], now: Timestamp, style: &TextStyle) -> TerminalText {
        Self::of_columns(columns_of(style), rows, now, style)
    }

    /// Formats a table with these columns.
    pub(crate) fn of_columns(
        columns: &[OperationColumn],
        rows: &[Row],
        now: Timestamp,
        style: &TextStyle,
    ) -> TerminalText {
        let table = Self::new(columns, rows, now, style);
        let rows = rows.iter().map(|it| table.row(it, now));
        std::iter::once(table.header()).chain(rows).collect()
    }

    /// Creates a table for the terminal, whose columns are wide enough for `rows`.
    pub(crate) fn of_rows(rows: &[Row], now: Timestamp, style: &TextStyle) -> Self {
        Self::new(columns_of(style), rows, now, style)
    }

    fn new(columns: &[OperationColumn], rows: &[Row], now: Timestamp, style: &TextStyle) -> Self {
        let mut table = Self {
            columns: Vec::new(),
            gap: COLUMN_GAP,
            short: false,
            style: style.clone(),
        };
        let measure = |table: &Self, column: OperationColumn| {
            let cells = rows.iter();
            let cells = cells.map(|it| table.cell(column, it, now).width());
            cells.fold(column.header().width(), usize::max)
        };
        let is_narrow = style.width().is_some_and(|it| it < MESSAGE_COLUMN_WIDTH);
        let columns = columns.iter().filter(|it| **it != Message || !is_narrow);
        let measured = columns.map(|it| (*it, measure(&table, *it)));
        table.columns = measured.collect();
        let Some(screen) = style.width() else {
            return table;
        };
        if table.excess(screen) > 0 {
            table.short = true;
            let subject = measure(&table, Subject);
            table.narrow(Subject, subject, 0);
        }
        // A long message is cut, and needs only its smallest width. Without a column, messages
        // follow on a line of their own.
        table.narrow(Message, MIN_MESSAGE_WIDTH, screen);
        table.narrow(Message, 0, screen);
        if table.excess(screen) > 0 {
            table.gap = COLUMN_GAP - 1;
        }
        let has_progress = |it: &Row| it.operation.status.progress.is_some();
        if !rows.iter().any(has_progress) {
            table.narrow(Progress, 0, screen);
        }
        for (column, width) in STEPS {
            table.narrow(column, width, screen);
        }
        table
    }

    /// Returns the text of a cell. The message is the last column, so an empty message needs no
    /// dash.
    fn cell(&self, column: OperationColumn, row: &Row, now: Timestamp) -> String {
        let text = match column {
            Subject if self.short => one_line(&row.short_subject_name(&self.style.short_names)),
            column => column.text(&row.operation, now),
        };
        match (column, text.as_str()) {
            (Subject, _) if row.is_member => format!("{MEMBER_PREFIX}{text}"),
            (Message, _) => text,
            (_, "") => EMPTY_CELL.to_owned(),
            _ => text,
        }
    }

    /// Returns by how many terminal columns the table is too wide.
    fn excess(&self, screen: usize) -> usize {
        let widths: usize = self.columns.iter().map(|(_, width)| width + self.gap).sum();
        widths.saturating_sub(self.gap + screen)
    }

    /// Narrows a column until the table fits on the terminal, but not below `least`. Removes the
    /// column if `least` is 0 and the table does not fit.
    fn narrow(&mut self, column: OperationColumn, least: usize, screen: usize) {
        let excess = self.excess(screen);
        if excess > 0 && least == 0 {
            self.columns.retain(|(it, _)| *it != column);
        }
        for (_, width) in self.columns.iter_mut().filter(|(it, _)| *it == column) {
            *width -= excess.min(width.saturating_sub(least));
        }
    }

    /// Formats the header.
    pub(crate) fn header(&self) -> TerminalText {
        let cells = self.columns.iter().map(|(column, width)| {
            let text = cut(&column.header(), *width);
            (self.style.paint.heading(&text), *width)
        });
        line(cells, self.gap)
    }

    /// Formats a further row. Columns that are too narrow for the row become wider, also for later
    /// rows.
    pub(crate) fn further_row(&mut self, row: &Row, now: Timestamp) -> TerminalText {
        for index in 0..self.columns.len() {
            let (column, width) = self.columns[index];
            let needed = self.cell(column, row, now).width();
            self.columns[index].1 = width.max(needed);
        }
        self.row(row, now)
    }

    /// Formats the row of one operation. The message takes all space that remains. If the table has
    /// no column for messages, or too little space for this message, the message follows on a
    /// second line.
    pub(crate) fn row(&self, row: &Row, now: Timestamp) -> TerminalText {
        let screen = self.style.width();
        let others = self.columns.iter().filter(|it| it.0 != Message);
        let used: usize = others.map(|(_, width)| width + self.gap).sum();
        let room = screen.map_or(usize::MAX, |screen| screen.saturating_sub(used));
        let message = one_line(&row.operation.status.message);
        let has_column = self.columns.iter().any(|it| it.0 == Message);
        let fits = has_column && room >= message.width().min(MIN_MESSAGE_WIDTH);
        let cells = self.columns.iter().map(|(column, width)| {
            let text = match column {
                Message if fits => cut(&message, room),
                Message => String::new(),
                column => cut(&self.cell(*column, row, now), *width),
            };
            let painted = match column {
                State => self.style.paint.state(row.color_state(), &text),
                _ => text.as_str().into(),
            };
            (painted, *width)
        });
        let mut text = line(cells, self.gap);
        if let Some(screen) = screen.filter(|_| !fits && !message.is_empty()) {
            text += cut(&format!("{MESSAGE_INDENT}{message}"), screen) + "\n";
        }
        text
    }
}

fn columns_of(style: &TextStyle) -> &'static [OperationColumn] {
    if style.wide {
        ALL_COLUMNS
    } else {
        DEFAULT_COLUMNS
    }
}

/// Returns the width of the terminal in columns. None if standard output is not a terminal, or if
/// the width is unknown.
pub(crate) fn terminal_width() -> Option<usize> {
    use std::io::IsTerminal as _;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(terminal_size::Width(width), _)| usize::from(width))
}
