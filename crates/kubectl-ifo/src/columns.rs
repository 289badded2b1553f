//! Operations as a table. Enters: operations, and how wide the terminal is. Leaves:
//! aligned lines; what does not fit is cut, the message first.

#[cfg(test)]
mod tests;

use super::operation::ListedOperation;
use super::output::{GAP, TextStyle};
use super::paint::Paint;
use super::plain_text::{cut, one_line};
use ifo_api::duration;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListColumn {
    Namespace,
    Subject,
    Operation,
    State,
    Progress,
    Age,
    Message,
    Name,
    Component,
    RuleSet,
    Reason,
    Started,
    Completed,
}

use ListColumn::{
    Age, Completed, Component, Message, Name, Namespace, Progress, Reason, RuleSet, Started, State,
    Subject,
};

/// The usual columns.
const USUAL: &[ListColumn] = &[
    Namespace,
    Subject,
    ListColumn::Operation,
    State,
    Progress,
    Age,
    Message,
];

/// All columns.
const WIDE: &[ListColumn] = &[
    Namespace,
    Subject,
    ListColumn::Operation,
    State,
    Progress,
    Age,
    Name,
    Component,
    RuleSet,
    Reason,
    Started,
    Completed,
    Message,
];

/// Between two columns where there is no room, as `top` has it.
const NARROW_GAP: usize = 2;

/// The least that is worth its place of a name, a namespace and an operation; then of
/// those on a screen that is narrower than any that people use.
const LEAST_SUBJECT: usize = 24;
const LEAST_NAMESPACE: usize = 12;
const LEAST_OPERATION: usize = 12;
const LEAST_OF_ALL: usize = 8;

/// A message shorter than this says nothing, and is left out.
const LEAST_MESSAGE: usize = 10;

/// What most operations need, for a table whose rows are not known yet: `Progressing` and
/// `2d10h` whole, and names as they usually are.
const TYPICAL: [(ListColumn, usize); 5] = [
    (State, 11),
    (Age, 5),
    (Subject, 30),
    (ListColumn::Operation, 14),
    (Namespace, 10),
];

/// What stands for nothing.
pub(super) const NONE: &str = "-";

impl ListColumn {
    fn header(self) -> &'static str {
        match self {
            Namespace => "NAMESPACE",
            Subject => "SUBJECT",
            Self::Operation => "OPERATION",
            State => "STATE",
            Progress => "PROGRESS",
            Age => "AGE",
            Message => "MESSAGE",
            Name => "NAME",
            Component => "COMPONENT",
            RuleSet => "RULESET",
            Reason => "REASON",
            Started => "STARTED",
            Completed => "COMPLETED",
        }
    }

    fn cell(self, operation: &ListedOperation, now: Timestamp) -> String {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        let text = match self {
            Namespace => operation.subject.namespace.clone().unwrap_or_default(),
            Subject => operation.subject_name(),
            Self::Operation => operation.operation.clone(),
            State => operation.state.clone(),
            Progress => operation.percent(""),
            Age => age(operation, now),
            Message => return one_line(&operation.message),
            Name => operation.name.clone(),
            Component => operation.component.clone(),
            RuleSet => operation.rule_set.clone(),
            Reason => operation.reason.clone(),
            Started => time(operation.started),
            Completed => time(operation.completed),
        };
        if text.is_empty() {
            NONE.to_owned()
        } else {
            one_line(&text)
        }
    }
}

/// How long ago it began, as kubectl prints it.
pub(super) fn age(operation: &ListedOperation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}

/// A table that grows: the widths are those of the rows that it began with, and of what
/// [`Table::grow`] added.
pub(super) struct Table {
    columns: Vec<ListColumn>,
    widths: Vec<usize>,
    /// Whether rows follow that nobody knows yet.
    open: bool,
    gap: usize,
    /// Whether kinds are shown by their initials.
    short: bool,
    paint: Paint,
    screen: Option<usize>,
}

impl Table {
    /// A table as wide as these operations need, and at most as the screen is.
    pub(super) fn new(operations: &[ListedOperation], now: Timestamp, style: TextStyle) -> Self {
        Self::begun(operations, now, style, false)
    }

    /// The same for a table that goes on with [`Table::grow`], with room for what is usual.
    pub(super) fn open(operations: &[ListedOperation], now: Timestamp, style: TextStyle) -> Self {
        Self::begun(operations, now, style, true)
    }

    fn begun(operations: &[ListedOperation], now: Timestamp, style: TextStyle, open: bool) -> Self {
        let (screen, paint) = (style.width(), style.paint);
        let columns = if style.wide { WIDE } else { USUAL };
        let mut table = Self {
            columns: columns.to_vec(),
            widths: Vec::new(),
            open,
            gap: GAP,
            short: false,
            paint,
            screen,
        };
        let width = |it: &ListColumn| table.needed(*it, operations, now);
        table.widths = columns.iter().map(width).collect();
        if let Some(screen) = screen {
            table.fit(operations, now, screen);
            if open {
                table.make_room(screen);
            }
        }
        table
    }

    /// Widens columns to what is usual, as far as the screen has room beside the message.
    fn make_room(&mut self, screen: usize) {
        if let Some(place) = self.place(Message) {
            let least = self.widths[place].clamp(LEAST_MESSAGE, 2 * LEAST_MESSAGE);
            self.widths[place] = least;
        }
        for (column, typical) in TYPICAL {
            let Some(place) = self.place(column) else {
                continue;
            };
            let gaps = self.gap * self.widths.len().saturating_sub(1);
            let room = screen.saturating_sub(self.widths.iter().sum::<usize>() + gaps);
            self.widths[place] += room.min(typical.saturating_sub(self.widths[place]));
        }
    }

    /// How wide a column must be for all that is in it.
    fn needed(&self, column: ListColumn, operations: &[ListedOperation], now: Timestamp) -> usize {
        let cells = operations
            .iter()
            .map(|it| self.cell(column, it, now).width());
        let mut least = column.header().width();
        // Nothing is known of what comes.
        if self.open && operations.is_empty() {
            let typical = TYPICAL.iter().find(|(it, _)| *it == column);
            least = typical.map_or(least, |(_, width)| least.max(*width));
            if self.short && column == Subject {
                least = LEAST_SUBJECT;
            }
        }
        cells.fold(least, usize::max)
    }

    fn cell(&self, column: ListColumn, operation: &ListedOperation, now: Timestamp) -> String {
        if self.short && column == Subject {
            one_line(&operation.short_name())
        } else {
            column.cell(operation, now)
        }
    }

    /// Gives up what is missed least, step by step, until all fits the screen. The age
    /// stays: whether something is new or hangs is what people look for.
    fn fit(&mut self, operations: &[ListedOperation], now: Timestamp, screen: usize) {
        self.narrow(Message, LEAST_MESSAGE, screen);
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
        self.narrow(Subject, LEAST_SUBJECT, screen);
        self.narrow(Namespace, LEAST_NAMESPACE, screen);
        self.narrow(ListColumn::Operation, LEAST_OPERATION, screen);
        self.give_up(Progress, screen);
        for column in [Namespace, ListColumn::Operation, Subject] {
            self.narrow(column, LEAST_OF_ALL, screen);
        }
        self.give_up(Namespace, screen);
        self.give_up(State, screen);
        self.give_up(ListColumn::Operation, screen);
        self.narrow(Subject, 1, screen);
    }

    /// Columns of the screen that are missing.
    fn excess(&self, screen: usize) -> usize {
        let gaps = self.gap * self.widths.len().saturating_sub(1);
        (self.widths.iter().sum::<usize>() + gaps).saturating_sub(screen)
    }

    fn place(&self, column: ListColumn) -> Option<usize> {
        self.columns.iter().position(|it| *it == column)
    }

    fn set(&mut self, column: ListColumn, width: usize) {
        if let Some(place) = self.place(column) {
            self.widths[place] = width;
        }
    }

    /// Makes a column narrower, if that helps, but not below `least`.
    fn narrow(&mut self, column: ListColumn, least: usize, screen: usize) {
        if let Some(place) = self.place(column) {
            let most = self.widths[place].saturating_sub(least);
            self.widths[place] -= self.excess(screen).min(most);
        }
    }

    /// Leaves a column out, if there is no room.
    fn give_up(&mut self, column: ListColumn, screen: usize) {
        if self.excess(screen) > 0
            && let Some(place) = self.place(column)
        {
            self.columns.remove(place);
            self.widths.remove(place);
        }
    }

    /// The line above all others.
    pub(super) fn header(&self) -> String {
        let cells = self.columns.iter().map(|it| it.header().to_owned());
        self.line(cells.collect(), &self.widths, |_, cell| {
            self.paint.heading(cell)
        })
    }

    /// The line of one operation.
    pub(super) fn row(&self, operation: &ListedOperation, now: Timestamp) -> String {
        let cells = self.columns.iter().map(|it| self.cell(*it, operation, now));
        self.painted(operation, cells.collect(), &self.widths)
    }

    /// The line of one operation that was not there when the table began. Its cells may be
    /// wider than their columns where the screen has room; so are those of later rows then,
    /// unless that leaves nothing of their messages.
    pub(super) fn grow(&mut self, operation: &ListedOperation, now: Timestamp) -> String {
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
            cells[place] = one_line(&operation.short_name());
            widths[place] = cells[place].width().max(self.widths[place]);
        }
        for (column, least) in [
            (Subject, LEAST_SUBJECT),
            (Namespace, LEAST_NAMESPACE),
            (ListColumn::Operation, LEAST_OPERATION),
            (Subject, 0),
            (Namespace, 0),
            (ListColumn::Operation, 0),
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
            left >= LEAST_MESSAGE + self.gap
        };
        if has_message(&widths) || !has_message(&self.widths) {
            self.widths.clone_from(&widths);
        }
        self.painted(operation, cells, &widths)
    }

    /// What all columns but the message take, which is the last one and takes the rest.
    fn taken(&self, widths: &[usize]) -> usize {
        let columns = self.columns.iter().zip(widths);
        let others = columns.filter(|(column, _)| **column != Message);
        others
            .map(|(_, width)| width + self.gap)
            .sum::<usize>()
            .saturating_sub(self.gap)
    }

    /// What they leave of the screen; None if they do not fit.
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
        paint: impl Fn(ListColumn, &str) -> String,
    ) -> String {
        let mut line = String::new();
        // Blanks are held back until something follows them.
        let mut blanks = 0;
        let mut room = self.screen.unwrap_or(usize::MAX);
        for ((cell, width), column) in cells.into_iter().zip(widths).zip(&self.columns) {
            // The message is the last one.
            let most = if self.screen.is_some() && *column != Message {
                (*width).min(room)
            } else {
                room
            };
            let cell = if *column == Message && most < LEAST_MESSAGE {
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

/// Columns of the terminal that standard output is; None if it is none.
pub(super) fn screen() -> Option<usize> {
    use std::io::IsTerminal as _;
    if !std::io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(terminal_size::Width(width), _)| usize::from(width))
}
