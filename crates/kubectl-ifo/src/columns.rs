//! The columns of an operation. Enters: an operation. Leaves: the header and the text of
//! each column, and which of two operations comes first by it. `list`, `summary`, `wait` and
//! `top` have the same columns, and `--sort-by` takes their headers.

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

/// The usual columns.
const USUAL: &[OperationColumn] = &[Namespace, Subject, Operation, State, Progress, Age, Message];

/// All columns.
const WIDE: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Progress, Age, Name, Component, RuleSet, Reason, Started,
    Completed, Message,
];

/// What stands for nothing.
pub(super) const NONE: &str = "-";

impl OperationColumn {
    /// The column with this header, in upper or lower case.
    pub(super) fn named(header: &str) -> Option<Self> {
        let mut all = WIDE.iter().copied();
        all.find(|it| it.header().eq_ignore_ascii_case(header))
    }

    /// What stands above it.
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

    /// The header where only so many columns of the screen are left for it.
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

    /// The text of an operation; empty if there is none.
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

    /// The field that the column shows as it is; empty for a column that shows no text field.
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

    /// Which of two operations comes first by this column alone: the oldest, the one that has
    /// made the most progress, the one whose state needs attention, the first in alphabetical
    /// order. Namespace and subject are what equal operations are sorted by in any case.
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

/// How long ago it began, as kubectl prints it.
pub(super) fn age(operation: &ListedOperation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}
