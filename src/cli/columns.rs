//! Operations as a table. Enters: operations, and how wide the terminal is. Leaves:
//! aligned lines; what does not fit is cut, the message first.

use super::operation::Operation;
use super::output::GAP;
use super::paint::Paint;
use crate::api::duration;
use jiff::Timestamp;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
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

use Column::{
    Age, Completed, Component, Message, Name, Namespace, Progress, Reason, RuleSet, Started, State,
    Subject,
};

/// The usual columns.
const USUAL: &[Column] = &[
    Namespace,
    Subject,
    Column::Operation,
    State,
    Progress,
    Age,
    Message,
];

/// All columns.
const WIDE: &[Column] = &[
    Namespace,
    Subject,
    Column::Operation,
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

/// What is cut first, and how much of it stays in any case.
const CUT: [(Column, usize); 4] = [
    (Message, LEAST_MESSAGE),
    (Subject, 24),
    (Namespace, 12),
    (Name, 24),
];

/// A message shorter than this says nothing, and is left out.
const LEAST_MESSAGE: usize = 10;

/// What stands for nothing.
pub(super) const NONE: &str = "-";

impl Column {
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

    fn cell(self, operation: &Operation, now: Timestamp) -> String {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        let text = match self {
            Namespace => operation.subject.namespace.clone().unwrap_or_default(),
            Subject => operation.subject_name(),
            Self::Operation => operation.operation.clone(),
            State => operation.state.clone(),
            Progress => operation
                .progress
                .map(|it| format!("{it}%"))
                .unwrap_or_default(),
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
pub(super) fn age(operation: &Operation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}

/// Text without what would break a row or reach the terminal as a command.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// The longest beginning of `text` that is at most `width` columns wide, with `…` where
/// something is left out.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > width {
            break;
        }
        out.push(c);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// `text` with blanks up to `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(text.width());
    format!("{text}{:blanks$}", "")
}

/// A table that grows: the widths are those of the rows that it began with.
pub(super) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
    paint: Paint,
    screen: Option<usize>,
}

impl Table {
    /// A table as wide as these operations need, and at most as the screen is.
    pub(super) fn new(
        operations: &[Operation],
        wide: bool,
        now: Timestamp,
        screen: Option<usize>,
        paint: Paint,
    ) -> Self {
        let columns = if wide { WIDE } else { USUAL };
        let mut widths: Vec<usize> = columns.iter().map(|it| it.header().width()).collect();
        for operation in operations {
            for (width, column) in widths.iter_mut().zip(columns) {
                *width = (*width).max(column.cell(operation, now).width());
            }
        }
        if let Some(screen) = screen {
            shrink(columns, &mut widths, screen);
        }
        Self {
            columns,
            widths,
            paint,
            screen,
        }
    }

    /// The line above all others.
    pub(super) fn header(&self) -> String {
        let cells = self.columns.iter().map(|it| it.header().to_owned());
        self.line(cells.collect(), |_, cell| self.paint.heading(cell))
    }

    /// The line of one operation.
    pub(super) fn row(&self, operation: &Operation, now: Timestamp) -> String {
        let cells = self.columns.iter().map(|it| it.cell(operation, now));
        self.line(cells.collect(), |column, cell| match column {
            State => self.paint.state(&operation.state, cell),
            _ => cell.to_owned(),
        })
    }

    fn line(&self, cells: Vec<String>, paint: impl Fn(Column, &str) -> String) -> String {
        let mut line = String::new();
        // Blanks are held back until something follows them.
        let mut blanks = 0;
        let mut room = self.screen.unwrap_or(usize::MAX);
        for ((cell, width), column) in cells.into_iter().zip(&self.widths).zip(self.columns) {
            let most = if self.screen.is_some() {
                *width
            } else {
                usize::MAX
            };
            let most = most.min(room);
            let cell = if *column == Message && most < LEAST_MESSAGE {
                String::new()
            } else {
                cut(&cell, most)
            };
            if !cell.is_empty() {
                line.extend(std::iter::repeat_n(' ', std::mem::take(&mut blanks)));
                line.push_str(&paint(*column, &cell));
            }
            let taken = (*width).max(cell.width()) + GAP;
            blanks += taken - cell.width();
            room = room.saturating_sub(taken);
        }
        line.push('\n');
        line
    }
}

/// Makes columns narrower until all fit, as far as that goes.
fn shrink(columns: &[Column], widths: &mut [usize], screen: usize) {
    for (column, least) in CUT {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let excess = total.saturating_sub(screen);
        if let Some(place) = columns.iter().position(|it| *it == column) {
            let most = widths[place].saturating_sub(least);
            widths[place] -= excess.min(most);
        }
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
