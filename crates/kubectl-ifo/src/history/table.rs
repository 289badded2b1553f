//! Formats the history (the completed operations) as a table. On a terminal that is too narrow,
//! kinds are replaced by their short names, less important columns are left out, and names are cut.

use crate::columns::{EMPTY_CELL, with_member_prefix};
use crate::listed_operation::{ListedOperation, seconds_text};
use crate::output::{COLUMN_GAP, MESSAGE_INDENT, MIN_MESSAGE_WIDTH, TerminalText, TextStyle};
use crate::plain_text::{cut, one_line};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// A column of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryColumn {
    Namespace,
    Started,
    Ended,
    Kind,
    Subject,
    Operation,
    Outcome,
    Duration,
    Usual,
    Reason,
    Nodes,
    Component,
    RuleSet,
    Name,
    Message,
}

use HistoryColumn::{
    Component, Duration, Ended, Kind, Message, Name, Namespace, Nodes, Operation, Outcome, Reason,
    RuleSet, Started, Subject, Usual,
};

/// The columns of normal output, from left to right. The namespace, if it is shown, precedes these
/// columns.
const NORMAL: [HistoryColumn; 8] = [
    Started, Ended, Kind, Subject, Operation, Outcome, Duration, Usual,
];

/// The further columns of wide output.
const WIDE: [HistoryColumn; 6] = [Reason, Nodes, Component, RuleSet, Name, Message];

/// The columns that are left out on a narrow terminal, in this order, until a line fits. `Started`
/// is the first, because a reader can compute the start from the end and the duration.
const DROP_ORDER: [HistoryColumn; 3] = [Started, Usual, Namespace];

/// The columns that are cut on a narrow terminal, in this order, each with its smallest width in
/// terminal columns.
const CUT_ORDER: [(HistoryColumn, usize); 3] = [(Subject, 12), (Operation, 12), (Kind, 8)];

impl HistoryColumn {
    fn header(self) -> &'static str {
        match self {
            Namespace => "NAMESPACE",
            Started => "STARTED",
            Ended => "ENDED",
            Kind => "KIND",
            Subject => "SUBJECT",
            Operation => "OPERATION",
            Outcome => "OUTCOME",
            Duration => "DURATION",
            Usual => "USUAL",
            Reason => "REASON",
            Nodes => "NODES",
            Component => "COMPONENT",
            RuleSet => "RULESET",
            Name => "NAME",
            Message => "MESSAGE",
        }
    }

    fn text(self, operation: &ListedOperation) -> String {
        let time = |time: Option<Timestamp>| time.map(|it| format!("{it:.0}"));
        let text = match self {
            Namespace => operation.subject.namespace.clone().unwrap_or_default(),
            Started => time(operation.started).unwrap_or_default(),
            Ended => time(operation.completed).unwrap_or_default(),
            Kind => with_member_prefix(operation, operation.subject.kind.clone()),
            Subject => match &operation.item {
                Some(item) => format!("{}/{item}", operation.subject.name),
                None => operation.subject.name.clone(),
            },
            Operation => operation.operation.clone(),
            Outcome => operation.state.clone(),
            Duration => operation.duration().map(seconds_text).unwrap_or_default(),
            Usual => operation.usual_duration(),
            Reason => operation.reason.clone(),
            Nodes => operation.nodes.join(","),
            Component => operation.component.clone(),
            RuleSet => operation.rule_set.clone(),
            Name => operation.name.clone(),
            Message => operation.message.clone(),
        };
        match one_line(&text) {
            text if text.is_empty() && self != Message => EMPTY_CELL.to_owned(),
            text => text,
        }
    }
}

/// A column with its cells.
struct HistoryCells {
    column: HistoryColumn,
    width: usize,
    cells: Vec<String>,
}

impl HistoryCells {
    fn new(column: HistoryColumn, rows: &[ListedOperation]) -> Self {
        let cells = rows.iter().map(|it| column.text(it)).collect();
        let mut cells = Self {
            column,
            width: 0,
            cells,
        };
        cells.measure();
        cells
    }

    fn measure(&mut self) {
        let header = self.column.header().width();
        let widths = self.cells.iter().map(|it| it.width());
        self.width = widths.fold(header, usize::max);
    }
}

/// The columns that are shown only for some command lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownColumns {
    /// True if the first column is the namespace.
    pub(super) has_namespace: bool,
    /// True if the message is shown even in normal output. If the message does not fit on the line,
    /// it follows on the next line.
    pub(super) has_message: bool,
}

/// Formats the rows below a header.
pub(super) fn text(
    rows: &[ListedOperation],
    shown: ShownColumns,
    style: &TextStyle,
) -> TerminalText {
    let first = shown.has_namespace.then_some(Namespace).into_iter();
    let wide = WIDE.into_iter().filter(|_| style.wide);
    let mut columns: Vec<HistoryCells> = first
        .chain(NORMAL)
        .chain(wide)
        .map(|column| HistoryCells::new(column, rows))
        .collect();
    let gap = match style.width() {
        Some(screen) => fit(&mut columns, rows, screen, &style.short_names),
        None => COLUMN_GAP,
    };
    let mut below = None;
    if shown.has_message && !style.wide {
        let mut messages = HistoryCells::new(Message, rows);
        let used: usize = columns.iter().map(|it| it.width + gap).sum();
        let room = style.width().map(|screen| screen.saturating_sub(used));
        if room.is_none_or(|room| room >= messages.width.min(MIN_MESSAGE_WIDTH)) {
            messages.width = messages.width.min(room.unwrap_or(usize::MAX));
            columns.push(messages);
        } else {
            below = Some(messages.cells);
        }
    }
    let mut text = TerminalText::default();
    for row in std::iter::once(None).chain((0..rows.len()).map(Some)) {
        let mut blanks = 0;
        for it in &columns {
            let cell = row.map_or(it.column.header(), |row| &it.cells[row]);
            let cell = cut(cell, it.width);
            // Only a message can be empty, and the message is the last column. So no cell follows
            // an empty cell.
            if cell.is_empty() {
                continue;
            }
            text.push_str(&" ".repeat(blanks));
            blanks = it.width - cell.width() + gap;
            text += match row {
                None => style.paint.heading(&cell),
                Some(row) if it.column == Outcome => style.paint.state(&rows[row].state, &cell),
                Some(_) => cell.into(),
            };
        }
        text.push_str("\n");
        let message = row.and_then(|row| below.as_ref().map(|all| all[row].as_str()));
        if let Some(message) = message.filter(|it| !it.is_empty()) {
            let room = style.width().unwrap_or(usize::MAX);
            text.push_str(&cut(&format!("{MESSAGE_INDENT}{message}"), room));
            text.push_str("\n");
        }
    }
    text
}

/// Narrows the columns until a line fits on the terminal. Returns the number of blanks between two
/// columns. On a very narrow terminal, a line can still be longer than the terminal is wide.
fn fit(
    columns: &mut Vec<HistoryCells>,
    rows: &[ListedOperation],
    screen: usize,
    short_names: &ShortNames,
) -> usize {
    let excess = |columns: &[HistoryCells], gap: usize| {
        let widths: usize = columns.iter().map(|it| it.width + gap).sum();
        widths.saturating_sub(gap + screen)
    };
    if excess(columns, COLUMN_GAP) == 0 {
        return COLUMN_GAP;
    }
    let gap = COLUMN_GAP - 1;
    for it in columns.iter_mut().filter(|it| it.column == Kind) {
        it.cells = rows.iter().map(|it| short_kind(it, short_names)).collect();
        it.measure();
    }
    for dropped in DROP_ORDER {
        if excess(columns, gap) == 0 {
            break;
        }
        columns.retain(|it| it.column != dropped);
    }
    for (narrowed, least) in CUT_ORDER {
        let left = excess(columns, gap);
        for it in columns.iter_mut().filter(|it| it.column == narrowed) {
            it.width -= left.min(it.width.saturating_sub(least));
        }
    }
    gap
}

/// Returns the cell of the column `Kind` for a narrow terminal, with the short name of the kind.
fn short_kind(operation: &ListedOperation, short_names: &ShortNames) -> String {
    let kind = operation.subject.short_kind(short_names);
    with_member_prefix(operation, one_line(kind))
}
