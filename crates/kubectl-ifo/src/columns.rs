//! Defines the columns in which operations are shown. Several commands share these columns, such as
//! `list` and `top`. `--sort-by` accepts the headers of all columns except `COMPLETED`.
//!
//! For each column, this module defines the header, the text of a cell, and the order in which the
//! column sorts operations.

mod table;

pub(super) use table::{Table, terminal_width};

use super::listed_operation::{ListedOperation, attention, seconds_text};
use super::plain_text::one_line;
use super::work_groups::rank;
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
    Expected,
    Estimate,
    Nodes,
    Name,
    Component,
    RuleSet,
    Initiator,
    Reason,
    Started,
    Completed,
    Queued,
    Duration,
    Message,
}

use OperationColumn::{
    Age, Completed, Component, Duration, Estimate, Expected, Initiator, Message, Name, Namespace,
    Nodes, Operation, Progress, Queued, Reason, RuleSet, Started, State, Subject,
};

/// The columns of normal output, from left to right.
const DEFAULT_COLUMNS: &[OperationColumn] =
    &[Namespace, Subject, Operation, State, Progress, Age, Message];

/// The columns of `-O wide`, from left to right.
const ALL_COLUMNS: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Progress, Age, Expected, Estimate, Nodes, Name,
    Component, RuleSet, Initiator, Reason, Started, Completed, Message,
];

/// The prefix of the subject in the row of a member of a piece of work. A piece of work is a group
/// of operations with one common row. With `--expand`, the rows of the members follow below this
/// row.
const MEMBER_PREFIX: &str = "└ ";

/// The text of a cell without a value.
pub(super) const EMPTY_CELL: &str = "-";

impl OperationColumn {
    /// Returns the columns by which operations can be sorted. The column with the completion time is
    /// missing, because operations in flight have no completion time.
    pub(super) fn sortable() -> impl Iterator<Item = Self> {
        let all = ALL_COLUMNS.iter().copied();
        all.filter(|it| *it != Completed)
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
            Expected => "EXPECTED",
            Estimate => "ESTIMATE",
            Nodes => "NODES",
            Name => "NAME",
            Component => "COMPONENT",
            RuleSet => "RULESET",
            Initiator => "INITIATOR",
            Reason => "REASON",
            Started => "STARTED",
            Completed => "COMPLETED",
            Queued => "QUEUED",
            Duration => "DURATION",
            Message => "MESSAGE",
        }
    }

    /// Returns the text of the cell for an operation. Empty if the operation has no value for the
    /// column.
    pub(super) fn text(self, operation: &ListedOperation, now: Timestamp) -> String {
        let time =
            |time: Option<Timestamp>| time.map(|time| format!("{time:.0}")).unwrap_or_default();
        one_line(&match self {
            Namespace => operation
                .subject
                .namespace
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
            Subject => with_member_prefix(operation, operation.subject_name()),
            State => operation.marked_state(),
            Progress => operation.percent(""),
            Age => age(operation, now),
            Expected => operation.usual_duration(),
            Estimate => operation.time_left(now),
            Nodes => operation.nodes.join(","),
            Started => time(operation.started),
            Completed => time(operation.completed),
            Queued => operation.in_queue.map(seconds_text).unwrap_or_default(),
            Duration => operation.duration().map(seconds_text).unwrap_or_default(),
            Operation | Name | Component | RuleSet | Initiator | Reason | Message => {
                return one_line(self.field(operation));
            }
        })
    }

    /// Returns the text field of the operation that the column shows. Empty for a column that shows
    /// a value of another type, such as a time.
    fn field(self, operation: &ListedOperation) -> &str {
        match self {
            Operation => &operation.operation,
            Name => &operation.name,
            Component => &operation.component,
            RuleSet => &operation.rule_set,
            Initiator => &operation.initiator,
            Reason => &operation.reason,
            Message => &operation.message,
            Namespace | Subject | State | Progress | Age | Expected | Estimate | Nodes
            | Started | Completed | Queued | Duration => "",
        }
    }

    /// Compares two operations by this column. Earlier times, higher progress, worse states
    /// and shorter usual durations come first. Texts are in alphabetical order.
    ///
    /// In the columns namespace and subject, all operations compare as equal. Callers sort equal
    /// operations with `sort::by_subject`, which compares namespaces and subjects.
    pub(super) fn compare(self, a: &ListedOperation, b: &ListedOperation) -> Ordering {
        match self {
            Age | Started => a.started.cmp(&b.started),
            Completed => a.completed.cmp(&b.completed),
            Queued => a.in_queue.cmp(&b.in_queue),
            Duration => a.duration().cmp(&b.duration()),
            Progress => b.progress.cmp(&a.progress),
            State => (attention(a), rank(a)).cmp(&(attention(b), rank(b))),
            Expected => typical(a).cmp(&typical(b)),
            Estimate => a.estimated_completion.cmp(&b.estimated_completion),
            Nodes => a.nodes.cmp(&b.nodes),
            Namespace | Subject | Operation | Name | Component | RuleSet | Initiator | Reason
            | Message => self.field(a).cmp(self.field(b)),
        }
    }
}

fn typical(operation: &ListedOperation) -> Option<u64> {
    operation.expected.as_ref().map(|it| it.typical_seconds)
}

/// Adds [`MEMBER_PREFIX`] to the subject, if the row shows a member of a piece of work.
pub(super) fn with_member_prefix(operation: &ListedOperation, subject: String) -> String {
    if operation.is_member_row {
        format!("{MEMBER_PREFIX}{subject}")
    } else {
        subject
    }
}

/// Formats the time since the start of an operation, as kubectl formats ages.
pub(super) fn age(operation: &ListedOperation, now: Timestamp) -> String {
    operation
        .age(now)
        .map_or_else(|| "<unknown>".to_owned(), duration::human)
}
