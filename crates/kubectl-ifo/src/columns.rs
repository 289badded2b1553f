//! Defines the columns in which operations are shown. `list`, `summary`, `wait` and `top` have the
//! same columns, and `--sort-by` accepts their headers.
//!
//! Each column has a header, a text for each operation, and an order of operations.

mod table;

pub(super) use table::{Table, terminal_width};

use super::operation::ListedOperation;
use super::plain_text::one_line;
use super::sort::urgency;
use ifo_api::duration;
use jiff::Timestamp;
use std::cmp::Ordering;

/// A column of a table of operations.
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

/// The columns of normal output, from left to right.
const DEFAULT_COLUMNS: &[OperationColumn] =
    &[Namespace, Subject, Operation, State, Progress, Age, Message];

/// The columns of `-O wide`, from left to right.
const ALL_COLUMNS: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Progress, Age, Name, Component, RuleSet, Reason, Started,
    Completed, Message,
];

/// The text of a cell without a value.
pub(super) const EMPTY_CELL: &str = "-";

impl OperationColumn {
    /// Returns the column with this header, in upper or lower case.
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

    /// Returns the header, or an abbreviation if the header is wider than `width`.
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

    /// Returns the text of the cell for an operation. Empty if the operation has no value for the
    /// column.
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

    /// Returns the text field of the operation that the column shows. Empty for a column that shows
    /// a value of another type, such as a time.
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

    /// Compares two operations by this column. An operation comes first if it started earlier, has
    /// more progress, or has a more urgent state. Texts are in alphabetical order.
    ///
    /// All operations are equal in the columns namespace and subject, because callers sort equal
    /// operations with `sort::by_subject`.
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

/// Formats the time since the start of an operation, as kubectl formats ages.
pub(super) fn age(operation: &ListedOperation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}
