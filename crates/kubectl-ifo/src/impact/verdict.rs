//! Decides whether a drain of a node is safe. This module does no I/O.

use super::MissingPart;
use super::evictions::{DrainBlocker, DrainImpact};
use crate::columns;
use crate::listed_operation::ListedOperation;
use crate::plain_text::one_line;
use jiff::Timestamp;
use serde::Serialize;
use std::process::ExitCode;

/// The answer to the question whether a drain is safe. The names are those of the status of a
/// condition in Kubernetes, and the numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum IsSafe {
    True = 0,
    False = 1,
    Unknown = 3,
}

/// The node, and the namespace whose objects were read. None for all namespaces.
#[derive(Clone, Copy)]
pub(super) struct DrainedNode<'a> {
    pub(super) node: &'a str,
    pub(super) namespace: Option<&'a str>,
}

/// The answer with its reasons.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DrainVerdict {
    safe: IsSafe,
    /// The reasons for `False` or `Unknown`. Empty for `True`.
    reasons: Vec<String>,
}

impl DrainVerdict {
    /// Decides whether a drain of the node is safe:
    ///
    /// - `False` if an operation on the node is not `Progressing`, or if an eviction is refused.
    /// - Otherwise `Unknown` if a part of the answer is missing, or if only one namespace was read.
    /// - Otherwise `True`.
    pub(super) fn of(
        drained: DrainedNode<'_>,
        operations: &[ListedOperation],
        impact: &DrainImpact,
        missing: &[MissingPart],
        now: Timestamp,
    ) -> Self {
        let against = operations
            .iter()
            .filter(|it| it.active && counts_against_a_drain(it, drained.node));
        let against = operations_reason(&against.collect::<Vec<_>>(), now);
        let blockers = blockers_reason(&impact.blockers);
        let reasons: Vec<String> = against.into_iter().chain(blockers).collect();
        if !reasons.is_empty() {
            return Self {
                safe: IsSafe::False,
                reasons,
            };
        }
        let missing = missing.iter();
        let missing = missing.map(|it| format!("A part is missing: {}: {}", it.part, it.reason));
        let only = drained.namespace;
        let only = only.map(|it| format!("Only namespace {it} was read"));
        let reasons: Vec<String> = only.into_iter().chain(missing).collect();
        let safe = if reasons.is_empty() {
            IsSafe::True
        } else {
            IsSafe::Unknown
        };
        Self { safe, reasons }
    }

    /// Formats the verdict in one line.
    pub(super) fn text(&self, node: &str) -> String {
        let (answer, reasons) = match self.safe {
            IsSafe::True => (
                "yes",
                "No operation on the node is in trouble, and no Pod blocks a drain".to_owned(),
            ),
            IsSafe::False => ("no", self.reasons.join("; ")),
            IsSafe::Unknown => ("unknown", self.reasons.join("; ")),
        };
        one_line(&format!("Safe to drain {node}: {answer}. {reasons}"))
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.safe as u8)
    }
}

/// Returns true if the operation is a reason against a drain of the node. This is true for each
/// operation that is not `Progressing`, with one exception: a node that a person has cordoned is
/// `Held`. To cordon a node is the first step of a drain.
fn counts_against_a_drain(operation: &ListedOperation, node: &str) -> bool {
    let subject = &operation.subject;
    let is_own_hold = operation.state == "Held"
        && subject.kind == "Node"
        && subject.namespace.is_none()
        && subject.name == node;
    operation.state != "Progressing" && !is_own_hold
}

/// Formats the number of the operations and the oldest of them. None if there are none.
fn operations_reason(operations: &[&ListedOperation], now: Timestamp) -> Option<String> {
    let oldest = operations
        .iter()
        .min_by_key(|it| (it.started.is_none(), it.started))?;
    let about = format!(
        "{} of {} ({}) {}",
        oldest.operation,
        oldest.place_name(),
        oldest.marked_state(),
        columns::age(oldest, now)
    );
    Some(match operations.len() {
        1 => format!("1 operation on the node is not Progressing: {about}"),
        number => {
            format!("{number} operations on the node are not Progressing, the oldest is {about}")
        }
    })
}

/// Formats the number of the Pods and the first of them. None if there are none.
fn blockers_reason(blockers: &[DrainBlocker]) -> Option<String> {
    let first = blockers.first()?;
    let about = format!("{} in {}", first.name, first.namespace);
    Some(match blockers.len() {
        1 => format!("1 Pod blocks a drain: {about}"),
        number => format!("{number} Pods block a drain, such as {about}"),
    })
}
