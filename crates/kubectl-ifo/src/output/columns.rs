//! Defines the columns in which operations are shown. Several commands share these columns, such as
//! `list` and `top`. `--sort-by` accepts the headers of [`ALL_COLUMNS`].
//!
//! For each column, this module defines the header, the text of a cell, and the order in which the
//! column sorts operations.

mod table;

pub(crate) use table::{Table, terminal_width};

use crate::operations::operation::{InFlightOperation, OperationFacts as _, seconds_text};
use crate::output::plain_text::one_line;
use ifo_api::Text;
use ifo_api::metadata::Time;
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};

/// A column of a table of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationColumn {
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

/// The columns of `-O wide`, from left to right. Operations can be sorted by all of them.
pub(crate) const ALL_COLUMNS: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Progress, Age, Expected, Estimate, Nodes, Name,
    Component, RuleSet, Initiator, Reason, Started, Completed, Message,
];

impl OperationColumn {
    /// Returns the header: the name of the column in capital letters.
    pub(crate) fn header(self) -> String {
        format!("{self:?}").to_uppercase()
    }

    /// Returns the text of the cell for an operation. Empty if the operation has no value for the
    /// column.
    pub(crate) fn text(self, operation: &InFlightOperation, now: Timestamp) -> String {
        let (spec, status) = (&operation.spec, &operation.status);
        let time = |time: Time| format!("{:.0}", time.0);
        let text = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
        one_line(&match self {
            Namespace => text(&spec.subject.namespace),
            Subject => operation.subject_name(),
            Operation => spec.operation.to_string(),
            State => operation.marked_state(),
            Progress => operation.percent(""),
            Age => operation.age(now),
            Expected => operation.usual_duration(),
            Estimate => operation.time_left(now),
            Nodes => status.nodes.join(","),
            Name => operation.metadata.name.to_string(),
            Component => spec.component.to_string(),
            RuleSet => spec.rule_set.to_string(),
            Initiator => text(&spec.initiator),
            Reason => status.reason.to_string(),
            Started => time(operation.metadata.creation_timestamp),
            Completed => status.completed.map(time).unwrap_or_default(),
            Queued => operation.in_queue().map(seconds_text).unwrap_or_default(),
            Duration => operation.duration().map(seconds_text).unwrap_or_default(),
            Message => status.message.to_string(),
        })
    }

    /// Compares two operations by this column. Earlier times, higher progress and shorter usual
    /// durations come first. The states are in the order of the need for attention: failing,
    /// blocked, stalled, overdue, other operations in flight, completed ones. Texts are in
    /// alphabetical order.
    ///
    /// In the columns namespace and subject, all operations compare as equal. Callers sort equal
    /// operations with `sort::by_subject`, which compares namespaces and subjects.
    pub(crate) fn compare(self, a: &InFlightOperation, b: &InFlightOperation) -> Ordering {
        let typical =
            |it: &InFlightOperation| it.status.expected.as_ref().map(|it| it.typical_seconds);
        // Of the operations in flight, the oldest come first. Of the completed operations, the
        // newest end comes first.
        let need = |it: &InFlightOperation| {
            let end = it.completed().filter(|_| !it.is_active());
            (it.attention(), Reverse(end), it.started())
        };
        let (one, two) = (&a.status, &b.status);
        match self {
            Namespace | Subject => Ordering::Equal,
            Age | Started => a.started().cmp(&b.started()),
            Completed => one.completed.cmp(&two.completed),
            Progress => two.progress.cmp(&one.progress),
            State => need(a).cmp(&need(b)),
            Expected => typical(a).cmp(&typical(b)),
            Estimate => one.estimated_completion.cmp(&two.estimated_completion),
            column => {
                let [a, b] = [a, b].map(|it| column.text(it, it.started()));
                a.cmp(&b)
            }
        }
    }
}
