//! The columns of operations. `list`, `summary`, `wait` and `top` have the same columns, and
//! `--sort-by` takes their headers.
//!
//! Input: an operation. Output: the header and text of each column, and the order of two
//! operations.

mod table;

pub(super) use table::{Table, screen};

use super::operation::ListedOperation;
use super::plain_text::one_line;
use super::sort::urgency;
use ifo_api::duration;
use jiff::Timestamp;
use std::cmp::Ordering;

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationColumn {
    Namespace,
    Subject,
    Operation,
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
}

use OperationColumn::{
    Age, Completed, Component, Message, Name, Namespace, Operation, Progress, Reason, RuleSet,
    Started, State, Subject,
};

/// The default columns.
const DEFAULT_COLUMNS: &[OperationColumn] =
    &[Namespace, Subject, Operation, State, Progress, Age, Message];

/// All columns.
const ALL_COLUMNS: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Progress, Age, Name, Component, RuleSet, Reason, Started,
    Completed, Message,
];

/// Text for an empty cell.
pub(super) const EMPTY_CELL: &str = "-";

impl OperationColumn {
    /// Finds the column with this header, in any case.
    pub(super) fn named(header: &str) -> Option<Self> {
        let mut all = ALL_COLUMNS.iter().copied();
        all.find(|it| it.header().eq_ignore_ascii_case(header))
    }

    /// Returns the header.
    pub(super) fn header(self) -> &'static str {
        match self {
            Namespace => "NAMESPACE",
            Subject => "SUBJECT",
            Operation => "OPERATION",
            State => "STATE",
            Progress => "PROGRESS",
            Age => "AGE",
            Name => "NAME",
            Component => "COMPONENT",
            RuleSet => "RULESET",
            Reason => "REASON",
            Started => "STARTED",
            Completed => "COMPLETED",
            Message => "MESSAGE",
        }
    }

    /// Returns the header for a column with this width.
    pub(super) fn header_within(self, width: usize) -> &'static str {
        match self {
            header if header.header().len() <= width => header.header(),
            Namespace => "NS",
            Operation => "OPER",
            State => "STAT",
            Progress => "%",
            header => header.header(),
        }
    }

    /// Returns the text of an operation. Empty if it has none.
    pub(super) fn text(self, operation: &ListedOperation, now: Timestamp) -> String {
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        one_line(&match self {
            Namespace => operation.subject.namespace.clone().unwrap_or_default(),
            Subject => operation.subject_name(),
            Progress => operation.percent(""),
            Age => age(operation, now),
            Started => time(operation.started),
            Completed => time(operation.completed),
            _ => return one_line(self.field(operation)),
        })
    }

    /// Returns the text field that the column shows. Empty for a column that shows no text field.
    fn field(self, operation: &ListedOperation) -> &str {
        match self {
            Operation => &operation.operation,
            State => &operation.state,
            Name => &operation.name,
            Component => &operation.component,
            RuleSet => &operation.rule_set,
            Reason => &operation.reason,
            Message => &operation.message,
            Namespace | Subject | Progress | Age | Started | Completed => "",
        }
    }

    /// Compares two operations by this column. The order begins with the oldest, the highest
    /// progress, the most urgent state, or the first text in alphabetical order. Namespace and
    /// subject are compared elsewhere, because they decide between equal operations in any case.
    pub(super) fn compare(self, a: &ListedOperation, b: &ListedOperation) -> Ordering {
        match self {
            Age | Started => a.started.cmp(&b.started),
            Completed => a.completed.cmp(&b.completed),
            Progress => b.progress.cmp(&a.progress),
            State => urgency(a).cmp(&urgency(b)),
            _ => self.field(a).cmp(self.field(b)),
        }
    }
}

/// Formats the age, as kubectl does.
pub(super) fn age(operation: &ListedOperation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}
