//! Formats operations as a table.
//!
//! Input: operations, and the width of the terminal. Output: aligned lines. If they do not fit,
//! cells are cut, the message first.

#[cfg(test)]
mod tests;

use super::OperationColumn::{self, Age, Message, Namespace, Operation, Progress, State, Subject};
use super::{ALL_COLUMNS, DEFAULT_COLUMNS, EMPTY_CELL};
use crate::colors::Paint;
use crate::operation::ListedOperation;
use crate::output::{COLUMN_GAP, TextStyle};
use crate::plain_text::{cut, one_line};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Number of blanks between two columns on a narrow screen, as in `top`.
const NARROW_GAP: usize = 2;

/// Smallest useful widths of a name, a namespace and an operation. Second, the widths on a screen
/// that is unusually narrow.
const MIN_SUBJECT: usize = 24;
const MIN_NAMESPACE: usize = 12;
const MIN_OPERATION: usize = 12;
const MIN_ON_NARROW_SCREEN: usize = 8;

/// Smallest useful width of a message. With less, the column is left out.
const MIN_MESSAGE: usize = 10;

/// Usual widths for a table whose later rows are unknown. `Progressing` and `2d10h` fit completely.
const USUAL_WIDTHS: [(OperationColumn, usize); 5] = [
    (State, 11),
    (Age, 5),
    (Subject, 30),
    (Operation, 14),
    (Namespace, 10),
];

/// A table that grows. Its widths come from the first rows and from [`Table::grow`].
pub(crate) struct Table {
    columns: Vec<OperationColumn>,
    widths: Vec<usize>,
    /// True if unknown rows follow.
    open: bool,
    gap: usize,
    /// True if kinds are shortened to their initials.
    short: bool,
    paint: Paint,
    screen: Option<usize>,
}

impl Table {
    /// Formats the whole table of these operations. It is as wide as necessary, and at most as wide
    /// as the screen.
    pub(crate) fn text(operations: &[ListedOperation], now: Timestamp, style: TextStyle) -> String {
        let table = Self::begun(operations, now, style, false);
        let rows = operations.iter().map(|it| table.row(it, now));
        std::iter::once(table.header()).chain(rows).collect()
    }

    /// Creates a table that continues with [`Table::grow`], with the usual widths.
    pub(crate) fn open(operations: &[ListedOperation], now: Timestamp, style: TextStyle) -> Self {
        Self::begun(operations, now, style, true)
    }

    fn begun(operations: &[ListedOperation], now: Timestamp, style: TextStyle, open: bool) -> Self {
        let (screen, paint) = (style.width(), style.paint);
        let columns = if style.wide {
            ALL_COLUMNS
        } else {
            DEFAULT_COLUMNS
        };
        let mut table = Self {
            columns: columns.to_vec(),
            widths: Vec::new(),
            open,
            gap: COLUMN_GAP,
            short: false,
            paint,
            screen,
        };
        let width = |it: &OperationColumn| table.needed(*it, operations, now);
        table.widths = columns.iter().map(width).collect();
        if let Some(screen) = screen {
            table.fit(operations, now, screen);
            if open {
                table.make_room(screen);
            }
        }
        table
    }

    /// Widens columns to their usual width, as far as the message leaves space.
    fn make_room(&mut self, screen: usize) {
        if let Some(place) = self.place(Message) {
            let least = self.widths[place].clamp(MIN_MESSAGE, 2 * MIN_MESSAGE);
            self.widths[place] = least;
        }
        for (column, typical) in USUAL_WIDTHS {
            let Some(place) = self.place(column) else {
                continue;
            };
            let gaps = self.gap * self.widths.len().saturating_sub(1);
            let room = screen.saturating_sub(self.widths.iter().sum::<usize>() + gaps);
            self.widths[place] += room.min(typical.saturating_sub(self.widths[place]));
        }
    }

    /// Returns the width that a column needs for all its cells.
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
        // The later rows are unknown.
        if self.open && operations.is_empty() {
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
            Subject if self.short => one_line(&operation.short_subject_name()),
            column => column.text(operation, now),
        };
        match text.as_str() {
            // The message is the last column, so it needs no dash.
            "" if column != Message => EMPTY_CELL.to_owned(),
            _ => text,
        }
    }

    /// Shrinks the table step by step until it fits the screen, least important columns first. The
    /// age always stays, because users need it to recognize new and hanging operations.
    fn fit(&mut self, operations: &[ListedOperation], now: Timestamp, screen: usize) {
        self.narrow(Message, MIN_MESSAGE, screen);
        self.give_up(Message, screen);
        if self.excess(screen) > 0 {
            self.short = true;
            let needed = self.needed(Subject, operations, now);
            self.set(Subject, needed);
        }
        if self.excess(screen) > 0 {
            self.gap = NARROW_GAP;
        }
        if !operations.is_empty() && operations.iter().all(|it| it.progress.is_none()) {
            self.give_up(Progress, screen);
        }
        self.narrow(Subject, MIN_SUBJECT, screen);
        self.narrow(Namespace, MIN_NAMESPACE, screen);
        self.narrow(Operation, MIN_OPERATION, screen);
        self.give_up(Progress, screen);
        for column in [Namespace, Operation, Subject] {
            self.narrow(column, MIN_ON_NARROW_SCREEN, screen);
        }
        self.give_up(Namespace, screen);
        self.give_up(State, screen);
        self.give_up(Operation, screen);
        self.narrow(Subject, 1, screen);
    }

    /// Returns the number of columns that the table exceeds the screen.
    fn excess(&self, screen: usize) -> usize {
        let gaps = self.gap * self.widths.len().saturating_sub(1);
        (self.widths.iter().sum::<usize>() + gaps).saturating_sub(screen)
    }

    fn place(&self, column: OperationColumn) -> Option<usize> {
        self.columns.iter().position(|it| *it == column)
    }

    fn set(&mut self, column: OperationColumn, width: usize) {
        if let Some(place) = self.place(column) {
            self.widths[place] = width;
        }
    }

    /// Narrows a column if necessary, but not below `least`.
    fn narrow(&mut self, column: OperationColumn, least: usize, screen: usize) {
        if let Some(place) = self.place(column) {
            let most = self.widths[place].saturating_sub(least);
            self.widths[place] -= self.excess(screen).min(most);
        }
    }

    /// Removes a column if the table does not fit.
    fn give_up(&mut self, column: OperationColumn, screen: usize) {
        if self.excess(screen) > 0
            && let Some(place) = self.place(column)
        {
            self.columns.remove(place);
            self.widths.remove(place);
        }
    }

    /// Formats the header.
    pub(crate) fn header(&self) -> String {
        let cells = self.columns.iter().map(|it| it.header().to_owned());
        self.line(cells.collect(), &self.widths, |_, cell| {
            self.paint.heading(cell)
        })
    }

    /// Formats the row of one operation.
    fn row(&self, operation: &ListedOperation, now: Timestamp) -> String {
        let cells = self.columns.iter().map(|it| self.cell(*it, operation, now));
        self.painted(operation, cells.collect(), &self.widths)
    }

    /// Formats the row of an operation that is new in the table. If its cells are wider than their
    /// columns and the screen has space, the columns grow for all later rows. They do not grow if
    /// the messages would lose all their space.
    pub(crate) fn grow(&mut self, operation: &ListedOperation, now: Timestamp) -> String {
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
        if let Some(place) = self.place(Subject)
            && self.left(&widths, screen).is_none()
        {
            cells[place] = one_line(&operation.short_subject_name());
            widths[place] = cells[place].width().max(self.widths[place]);
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
            if let Some(place) = self.place(column) {
                let excess = self.taken(&widths).saturating_sub(screen);
                let least = self.widths[place].max(least);
                widths[place] -= excess.min(widths[place].saturating_sub(least));
            }
        }
        let has_message = |widths: &[usize]| {
            let left = self.left(widths, screen).unwrap_or_default();
            left >= MIN_MESSAGE + self.gap
        };
        if has_message(&widths) || !has_message(&self.widths) {
            self.widths.clone_from(&widths);
        }
        self.painted(operation, cells, &widths)
    }

    /// Returns the width of all columns except the message, which takes the rest.
    fn taken(&self, widths: &[usize]) -> usize {
        let columns = self.columns.iter().zip(widths);
        let others = columns.filter(|(column, _)| **column != Message);
        others
            .map(|(_, width)| width + self.gap)
            .sum::<usize>()
            .saturating_sub(self.gap)
    }

    /// Returns the width that remains for the message. None if the columns do not fit.
    fn left(&self, widths: &[usize], screen: usize) -> Option<usize> {
        screen.checked_sub(self.taken(widths))
    }

    fn painted(&self, operation: &ListedOperation, cells: Vec<String>, widths: &[usize]) -> String {
        self.line(cells, widths, |column, cell| match column {
            State => self.paint.state(&operation.state, cell),
            _ => cell.to_owned(),
        })
    }

    fn line(
        &self,
        cells: Vec<String>,
        widths: &[usize],
        paint: impl Fn(OperationColumn, &str) -> String,
    ) -> String {
        let mut line = String::new();
        // Blanks are written only before a later text.
        let mut blanks = 0;
        let mut room = self.screen.unwrap_or(usize::MAX);
        for ((cell, width), column) in cells.into_iter().zip(widths).zip(&self.columns) {
            // The message is the last column.
            let most = if self.screen.is_some() && *column != Message {
                (*width).min(room)
            } else {
                room
            };
            let cell = if *column == Message && most < MIN_MESSAGE {
                String::new()
            } else {
                cut(&cell, most)
            };
            if !cell.is_empty() {
                line.extend(std::iter::repeat_n(' ', std::mem::take(&mut blanks)));
                line.push_str(&paint(*column, &cell));
            }
            let taken = (*width).max(cell.width()) + self.gap;
            blanks += taken - cell.width();
            room = room.saturating_sub(taken);
        }
        line.push('\n');
        line
    }
}

/// Returns the columns of the terminal of standard output. None if it is not a terminal.
pub(crate) fn screen() -> Option<usize> {
    use std::io::IsTerminal as _;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(terminal_size::Width(width), _)| usize::from(width))
}
