//! Formats operations as a table. On a terminal that is narrower than [`MESSAGE_COLUMN_WIDTH`],
//! messages are on lines of their own. A table that is too wide shows the short names of kinds, and
//! is then narrowed in the steps of [`STEPS`]. The table of `list --watch` is not narrowed, because
//! rows are added later. Lines that are too long for the terminal are cut.

use super::OperationColumn::{
    self, Expected, Message, Namespace, Operation, Progress, Started, State, Subject,
};
use super::{ALL_COLUMNS, DEFAULT_COLUMNS};
use crate::operations::operation::OperationFacts as _;
use crate::output::plain_text::one_line;
use crate::output::print::{COLUMN_GAP, TerminalText, TextStyle, cells};
use crate::work_groups::Row;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Smallest width of a terminal, in columns, on which messages are in a column. On a narrower
/// terminal, the column would have space for the first words of a message only.
const MESSAGE_COLUMN_WIDTH: usize = 120;

/// Smallest width of the column with messages. If the other columns leave less room, messages
/// follow on lines of their own.
const MIN_MESSAGE_WIDTH: usize = 40;

/// The blanks before a message on a line of its own.
const MESSAGE_INDENT: &str = "  ";

/// The steps that narrow a table, in this order, until it fits on the terminal. Each step narrows a
/// column to a width in terminal columns. The width 0 removes the column.
///
/// At the widths of the first steps, most texts are still understandable. The age always stays,
/// because it shows which operations are new and which hang. If messages have no column, they
/// follow on lines of their own.
const STEPS: [(OperationColumn, usize); 15] = [
    (Message, MIN_MESSAGE_WIDTH),
    (Message, 0),
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
    /// True if the table was too wide. Kinds are then replaced by their short names, such as `vm`
    /// for `VirtualMachine`, and there is one blank less between two columns.
    is_narrow: bool,
    style: TextStyle,
}

impl Table {
    /// Formats a table with a row for each operation.
    pub(crate) fn text(rows: &[Row], now: Timestamp, style: &TextStyle) -> TerminalText {
        let table = Self::new(rows, now, style).fitted(rows, now);
        let rows = rows.iter().map(|it| table.row(it, now));
        std::iter::once(table.header()).chain(rows).collect()
    }

    /// Creates a table whose columns are wide enough for `rows`, even if the terminal is narrower.
    pub(crate) fn new(rows: &[Row], now: Timestamp, style: &TextStyle) -> Self {
        let columns = match (style.columns, style.wide) {
            ([], true) => ALL_COLUMNS,
            ([], false) => DEFAULT_COLUMNS,
            (columns, _) => columns,
        };
        let columns = columns.iter().map(|it| (*it, it.header().width()));
        let mut table = Self {
            columns: columns.collect(),
            is_narrow: false,
            style: style.clone(),
        };
        table.widen(rows, now);
        table
    }

    /// Makes the columns wide enough for further rows.
    fn widen(&mut self, rows: &[Row], now: Timestamp) {
        for index in 0..self.columns.len() {
            let (column, width) = self.columns[index];
            let cells = rows.iter().map(|it| self.cell(column, it, now).width());
            self.columns[index].1 = cells.fold(width, usize::max);
        }
    }

    /// Narrows the table until it fits on the terminal.
    pub(crate) fn fitted(mut self, rows: &[Row], now: Timestamp) -> Self {
        let Some(screen) = self.style.screen else {
            return self;
        };
        let has_messages = screen >= MESSAGE_COLUMN_WIDTH;
        self.columns
            .retain(|(it, _)| *it != Message || has_messages);
        if self.excess(screen) > 0 {
            self.is_narrow = true;
            for (column, width) in &mut self.columns {
                *width = column.header().width();
            }
            self.widen(rows, now);
        }
        for (narrowed, least) in STEPS {
            let excess = self.excess(screen);
            if excess > 0 && least == 0 {
                self.columns.retain(|(it, _)| *it != narrowed);
            }
            for (_, width) in self.columns.iter_mut().filter(|(it, _)| *it == narrowed) {
                *width -= excess.min(width.saturating_sub(least));
            }
        }
        self
    }

    /// Returns by how many terminal columns the table is too wide.
    fn excess(&self, screen: usize) -> usize {
        let widths = self.columns.iter().map(|(_, width)| width + self.gap());
        widths.sum::<usize>().saturating_sub(self.gap() + screen)
    }

    /// Returns the number of blanks between two columns.
    fn gap(&self) -> usize {
        COLUMN_GAP - usize::from(self.is_narrow)
    }

    /// Returns the text of a cell. The message is the last column, so an empty message needs no
    /// dash.
    fn cell(&self, column: OperationColumn, row: &Row, now: Timestamp) -> String {
        let text = match column {
            Subject if self.is_narrow => one_line(&row.short_subject_name(&self.style.short_names)),
            column => column.text(&row.operation, now),
        };
        match (column, text.as_str()) {
            (Subject, _) if row.is_member => format!("{MEMBER_PREFIX}{text}"),
            (Message, _) => text,
            (_, "") => EMPTY_CELL.to_owned(),
            _ => text,
        }
    }

    /// Formats the header.
    pub(crate) fn header(&self) -> TerminalText {
        self.line(|column| self.style.paint.heading(&column.header()))
    }

    /// Formats a further row. Columns that are too narrow for the row become wider, also for later
    /// rows.
    pub(crate) fn further_row(&mut self, row: &Row, now: Timestamp) -> TerminalText {
        self.widen(std::slice::from_ref(row), now);
        self.row(row, now)
    }

    /// Formats the row of one operation. If the table has no column for messages, the message
    /// follows on a second line.
    pub(crate) fn row(&self, row: &Row, now: Timestamp) -> TerminalText {
        let mut text = self.line(|column| {
            let text = self.cell(column, row, now);
            match column {
                State => self.style.paint.state(row.color_state(), &text),
                _ => text.into(),
            }
        });
        let message = one_line(&row.operation.status.message);
        if !message.is_empty() && self.columns.iter().all(|it| it.0 != Message) {
            text += self.cut(&(TerminalText::from(MESSAGE_INDENT) + message)) + "\n";
        }
        text
    }

    /// Formats a line of the table. `cell` returns the text of a cell.
    fn line(&self, cell: impl Fn(OperationColumn) -> TerminalText) -> TerminalText {
        let columns = self.columns.iter();
        let all = columns.map(|(column, width)| (cell(*column).cut(*width), *width));
        self.cut(&cells(all, self.gap())) + "\n"
    }

    /// Cuts a line at the end of the terminal.
    fn cut(&self, line: &TerminalText) -> TerminalText {
        line.cut(self.style.screen.unwrap_or(usize::MAX))
    }
}

/// Returns the width of the terminal in columns. None if standard output is not a terminal, or if
/// the width is unknown.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = terminal_size::terminal_size_of(std::io::stdout());
    size.map(|(terminal_size::Width(width), _)| usize::from(width))
}
