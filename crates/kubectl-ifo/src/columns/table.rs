//! Formats operations as a table. On a terminal, a table that is too wide is narrowed in this order:
//! kinds are replaced by their short names, messages are cut or go to a second line, names are cut,
//! and columns are left out. A watch (`list --watch`) can add rows to a table later.

#[cfg(test)]
mod tests;

use super::OperationColumn::{self, Age, Message, Namespace, Operation, Progress, State, Subject};
use super::{ALL_COLUMNS, DEFAULT_COLUMNS, EMPTY_CELL, with_member_prefix};
use crate::colors::Paint;
use crate::listed_operation::ListedOperation;
use crate::output::{COLUMN_GAP, MESSAGE_INDENT, MIN_MESSAGE_WIDTH, TerminalText, TextStyle};
use crate::plain_text::{cut, one_line};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use std::sync::Arc;
use unicode_width::UnicodeWidthStr as _;

/// Number of blanks between two columns if the table does not fit on the terminal with the usual
/// gap, [`COLUMN_GAP`].
const NARROW_GAP: usize = 2;

/// Widths in terminal columns to which the subject, the namespace and the operation are narrowed in
/// a first step. At these widths, most texts are still understandable.
const MIN_SUBJECT: usize = 24;
const MIN_NAMESPACE: usize = 12;
const MIN_OPERATION: usize = 12;
/// Width in terminal columns to which the subject, the namespace and the operation are narrowed in
/// a second step, on an unusually narrow terminal.
const MIN_ON_NARROW_SCREEN: usize = 8;

/// Widths in terminal columns for a table to which a watch adds rows later. Usual texts such as
/// `Progressing` and `2d10h` fit into these widths.
const USUAL_WIDTHS: [(OperationColumn, usize); 5] = [
    (State, 11),
    (Age, 5),
    (Subject, 30),
    (Operation, 14),
    (Namespace, 10),
];

/// The columns of a table with their widths. [`Table::further_row`] formats further rows and can
/// widen the columns. If there is no column for messages, each message is on a line of its own.
pub(crate) struct Table {
    columns: Vec<OperationColumn>,
    widths: Vec<usize>,
    /// True if a watch adds rows later.
    has_later_rows: bool,
    gap: usize,
    /// True if kinds are replaced by their short names, such as `vm` for `VirtualMachine`.
    short: bool,
    short_names: Arc<ShortNames>,
    paint: Paint,
    /// Width of the terminal. None for no limit.
    screen: Option<usize>,
}

impl Table {
    /// Formats a table with a row for each operation. The table is as wide as necessary, but not
    /// wider than the terminal.
    pub(crate) fn text(
        operations: &[ListedOperation],
        now: Timestamp,
        style: &TextStyle,
    ) -> TerminalText {
        Self::of_columns(columns_of(style), operations, now, style)
    }

    /// Formats a table with these columns.
    pub(crate) fn of_columns(
        columns: &[OperationColumn],
        operations: &[ListedOperation],
        now: Timestamp,
        style: &TextStyle,
    ) -> TerminalText {
        let table = Self::new(columns, operations, now, style, false);
        let rows = operations.iter().map(|it| table.row(it, now));
        std::iter::once(table.header()).chain(rows).collect()
    }

    /// Creates a table whose rows are formatted by [`Table::further_row`]. The columns are wide
    /// enough for `operations` and for usual texts.
    pub(crate) fn growing(
        operations: &[ListedOperation],
        now: Timestamp,
        style: &TextStyle,
    ) -> Self {
        Self::new(columns_of(style), operations, now, style, true)
    }

    fn new(
        columns: &[OperationColumn],
        operations: &[ListedOperation],
        now: Timestamp,
        style: &TextStyle,
        has_later_rows: bool,
    ) -> Self {
        let (screen, paint) = (style.width(), style.paint);
        let mut table = Self {
            columns: columns.to_vec(),
            widths: Vec::new(),
            has_later_rows,
            gap: COLUMN_GAP,
            short: false,
            short_names: Arc::clone(&style.short_names),
            paint,
            screen,
        };
        let width = |it: &OperationColumn| table.needed(*it, operations, now);
        table.widths = columns.iter().map(width).collect();
        if let Some(screen) = screen {
            table.fit(operations, now, screen);
            if has_later_rows {
                table.reserve_usual_widths(screen);
            }
        }
        table
    }

    /// Widens the columns to their usual widths, and leaves [`MIN_MESSAGE_WIDTH`] for messages.
    fn reserve_usual_widths(&mut self, screen: usize) {
        self.set_width(Message, MIN_MESSAGE_WIDTH);
        for (column, typical) in USUAL_WIDTHS {
            let Some(index) = self.index_of(column) else {
                continue;
            };
            let gaps = self.gap * self.widths.len().saturating_sub(1);
            let room = screen.saturating_sub(self.widths.iter().sum::<usize>() + gaps);
            self.widths[index] += room.min(typical.saturating_sub(self.widths[index]));
        }
    }

    /// Returns the width at which no cell of a column is cut.
    fn needed(
        &self,
        column: OperationColumn,
        operations: &[ListedOperation],
        now: Timestamp,
    ) -> usize {
        let cells = operations
            .iter()
            .map(|it| self.cell(column, it, now).width());
        let mut least = column.header().width();
        if self.has_later_rows && column == Message {
            least = MIN_MESSAGE_WIDTH;
        }
        // If a watch adds rows later and no row is known yet, the usual widths apply.
        if self.has_later_rows && operations.is_empty() {
            let typical = USUAL_WIDTHS.iter().find(|(it, _)| *it == column);
            least = typical.map_or(least, |(_, width)| least.max(*width));
            if self.short && column == Subject {
                least = MIN_SUBJECT;
            }
        }
        cells.fold(least, usize::max)
    }

    fn cell(&self, column: OperationColumn, operation: &ListedOperation, now: Timestamp) -> String {
        let text = match column {
            Subject if self.short => self.short_subject(operation),
            column => column.text(operation, now),
        };
        match text.as_str() {
            // The message is the last column, so an empty message needs no dash.
            "" if column != Message => EMPTY_CELL.to_owned(),
            _ => text,
        }
    }

    /// Narrows the table step by step until it fits on the terminal, the less important columns
    /// first. The age always stays, because it shows which operations are new and which hang.
    fn fit(&mut self, operations: &[ListedOperation], now: Timestamp, screen: usize) {
        let has_messages = operations.iter().any(|it| !it.message.is_empty());
        if !has_messages && !self.has_later_rows {
            self.remove_if_too_wide(Message, screen);
        }
        if self.excess(screen) > 0 {
            self.short = true;
            let needed = self.needed(Subject, operations, now);
            self.set_width(Subject, needed);
        }
        self.narrow(Message, MIN_MESSAGE_WIDTH, screen);
        self.remove_if_too_wide(Message, screen);
        if self.excess(screen) > 0 {
            self.gap = NARROW_GAP;
        }
        if !operations.is_empty() && operations.iter().all(|it| it.progress.is_none()) {
            self.remove_if_too_wide(Progress, screen);
        }
        self.narrow(Subject, MIN_SUBJECT, screen);
        self.narrow(Namespace, MIN_NAMESPACE, screen);
        self.narrow(Operation, MIN_OPERATION, screen);
        self.remove_if_too_wide(Progress, screen);
        for column in [Namespace, Operation, Subject] {
            self.narrow(column, MIN_ON_NARROW_SCREEN, screen);
        }
        self.remove_if_too_wide(Namespace, screen);
        self.remove_if_too_wide(State, screen);
        self.remove_if_too_wide(Operation, screen);
        self.narrow(Subject, 1, screen);
    }

    /// Returns by how many terminal columns the table is too wide.
    fn excess(&self, screen: usize) -> usize {
        let gaps = self.gap * self.widths.len().saturating_sub(1);
        (self.widths.iter().sum::<usize>() + gaps).saturating_sub(screen)
    }

    fn index_of(&self, column: OperationColumn) -> Option<usize> {
        self.columns.iter().position(|it| *it == column)
    }

    fn set_width(&mut self, column: OperationColumn, width: usize) {
        if let Some(index) = self.index_of(column) {
            self.widths[index] = width;
        }
    }

    /// Narrows a column until the table fits on the terminal, but not below `least`.
    fn narrow(&mut self, column: OperationColumn, least: usize, screen: usize) {
        if let Some(index) = self.index_of(column) {
            let most = self.widths[index].saturating_sub(least);
            self.widths[index] -= self.excess(screen).min(most);
        }
    }

    /// Removes a column if the table does not fit on the terminal.
    fn remove_if_too_wide(&mut self, column: OperationColumn, screen: usize) {
        if self.excess(screen) > 0
            && let Some(index) = self.index_of(column)
        {
            self.columns.remove(index);
            self.widths.remove(index);
        }
    }

    /// Formats the header.
    pub(crate) fn header(&self) -> TerminalText {
        let cells = self.columns.iter().map(|it| it.header().to_owned());
        self.line(cells.collect(), &self.widths, |_, cell| {
            self.paint.heading(cell)
        })
    }

    /// Formats the row of one operation.
    fn row(&self, operation: &ListedOperation, now: Timestamp) -> TerminalText {
        let cells = self.columns.iter().map(|it| self.cell(*it, operation, now));
        self.painted(operation, cells.collect(), &self.widths)
    }

    /// Formats a further row. If a cell is wider than its column and the terminal has space, the
    /// column becomes wider for this row. It stays wider for later rows, with one exception: if the
    /// terminal then has too little space for messages but had enough before, later rows get the
    /// old width.
    pub(crate) fn further_row(
        &mut self,
        operation: &ListedOperation,
        now: Timestamp,
    ) -> TerminalText {
        let mut cells: Vec<String> = self
            .columns
            .iter()
            .map(|it| self.cell(*it, operation, now))
            .collect();
        let mut widths: Vec<usize> = cells
            .iter()
            .zip(&self.widths)
            .map(|(cell, width)| cell.width().max(*width))
            .collect();
        let Some(screen) = self.screen else {
            self.widths.clone_from(&widths);
            return self.painted(operation, cells, &widths);
        };
        let message = one_line(&operation.message).width();
        if let Some(index) = self.index_of(Subject)
            && self.room_for_message(&widths, screen) < message
        {
            cells[index] = self.short_subject(operation);
            widths[index] = cells[index].width().max(self.widths[index]);
        }
        for (column, least) in [
            (Subject, MIN_SUBJECT),
            (Namespace, MIN_NAMESPACE),
            (Operation, MIN_OPERATION),
            (Subject, 0),
            (Namespace, 0),
            (Operation, 0),
            (State, 0),
            (Progress, 0),
            (Age, 0),
        ] {
            if let Some(index) = self.index_of(column) {
                let excess = self.width_without_message(&widths).saturating_sub(screen);
                let least = self.widths[index].max(least);
                widths[index] -= excess.min(widths[index].saturating_sub(least));
            }
        }
        let has_space_for_message =
            |widths: &[usize]| self.room_for_message(widths, screen) >= MIN_MESSAGE_WIDTH;
        if has_space_for_message(&widths) || !has_space_for_message(&self.widths) {
            self.widths.clone_from(&widths);
        }
        self.painted(operation, cells, &widths)
    }

    /// Returns the width of all columns before the message, with the gaps between these columns.
    fn width_without_message(&self, widths: &[usize]) -> usize {
        let columns = self.columns.iter().zip(widths);
        let others = columns.filter(|(column, _)| **column != Message);
        others
            .map(|(_, width)| width + self.gap)
            .sum::<usize>()
            .saturating_sub(self.gap)
    }

    /// Returns the width that remains for the message on a line.
    fn room_for_message(&self, widths: &[usize], screen: usize) -> usize {
        screen.saturating_sub(self.width_without_message(widths) + self.gap)
    }

    /// Formats the line of an operation. If the line has too little room for the message, the
    /// message follows on a second line.
    fn painted(
        &self,
        operation: &ListedOperation,
        mut cells: Vec<String>,
        widths: &[usize],
    ) -> TerminalText {
        let mut below = None;
        if let Some(screen) = self.screen {
            let message = one_line(&operation.message);
            let column = self.index_of(Message);
            let room = column.map_or(0, |_| self.room_for_message(widths, screen));
            if room < message.width().min(MIN_MESSAGE_WIDTH) {
                below = Some(cut(&format!("{MESSAGE_INDENT}{message}"), screen) + "\n");
                if let Some(index) = column {
                    cells[index].clear();
                }
            }
        }
        let line = self.line(cells, widths, |column, cell| match column {
            State => self.paint.state(operation.color_state(), cell),
            _ => cell.into(),
        });
        line + &below.unwrap_or_default()
    }

    /// Returns the subject for a narrow terminal, with the short name of its kind.
    fn short_subject(&self, operation: &ListedOperation) -> String {
        let subject = one_line(&operation.short_subject_name(&self.short_names));
        with_member_prefix(operation, subject)
    }

    fn line(
        &self,
        cells: Vec<String>,
        widths: &[usize],
        paint: impl Fn(OperationColumn, &str) -> TerminalText,
    ) -> TerminalText {
        let mut line = TerminalText::default();
        // Blanks are written only if a text follows, so that no line ends with blanks.
        let mut blanks = 0;
        let mut room = self.screen.unwrap_or(usize::MAX);
        for ((cell, width), column) in cells.into_iter().zip(widths).zip(&self.columns) {
            // The message is the last column, and takes all space that remains.
            let most = if self.screen.is_some() && *column != Message {
                (*width).min(room)
            } else {
                room
            };
            let cell = cut(&cell, most);
            if !cell.is_empty() {
                line.push_str(&" ".repeat(std::mem::take(&mut blanks)));
                line += paint(*column, &cell);
            }
            let taken = (*width).max(cell.width()) + self.gap;
            blanks += taken - cell.width();
            room = room.saturating_sub(taken);
        }
        line.push_str("\n");
        line
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
