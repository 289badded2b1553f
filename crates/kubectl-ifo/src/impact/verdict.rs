//! Decides whether a drain of a node is safe. This module does no I/O.

use super::evictions::{AffectedPod, DrainEffect};
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::plain_text::{first_names, one_line};
use ifo_api::live::State;
use serde::Serialize;
use std::process::ExitCode;

/// Largest number of operations and of Pods that a reason names. The others are only counted.
const MAX_NAMED: usize = 3;

/// The answer to the question whether a drain is safe. The names are those of the status of a
/// condition in Kubernetes, and the numbers are the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum IsSafe {
    True = 0,
    False = 1,
    Unknown = 3,
}

/// The answer with its reasons.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DrainVerdict {
    safe: IsSafe,
    /// The reasons for `False`.
    reasons: Vec<String>,
}

impl DrainVerdict {
    /// Decides whether a drain of the node is safe:
    ///
    /// - `False` if an operation on the node is not `Progressing`, if an eviction is refused, or if a
    ///   running migration would fail.
    /// - Otherwise `Unknown` if a part of the answer is missing. A part is also missing if only one
    ///   namespace was read.
    /// - Otherwise `True`.
    pub(super) fn of(
        node: &str,
        operations: &[InFlightOperation],
        pods: &[AffectedPod],
        missing: &[String],
    ) -> Self {
        let against = operations.iter();
        let against = against.filter(|it| counts_against_a_drain(it, node));
        let against: Vec<String> = against
            .map(|it| {
                let (operation, state) = (&it.spec.operation, it.marked_state());
                format!("{operation} of {} is {state}", it.place_name())
            })
            .collect();
        let with_effect = |effect| {
            let pods = pods.iter().filter(move |it| it.effect == effect);
            let names = pods.map(|it| format!("{} in {}", it.name, it.namespace));
            names.collect::<Vec<String>>()
        };
        let fail = "Pods are targets of running migrations, which would fail";
        let reasons = [
            ("Operations do not progress", against),
            ("Pods block a drain", with_effect(DrainEffect::Stays)),
            (fail, with_effect(DrainEffect::MigrationFails)),
        ];
        let reasons = reasons.iter().filter(|(_, all)| !all.is_empty());
        let reasons: Vec<String> = reasons
            .map(|(title, all)| {
                let names = first_names(all.iter().map(String::as_str), MAX_NAMED);
                format!("{title}: {names}")
            })
            .collect();
        let safe = match (reasons.as_slice(), missing) {
            ([], []) => IsSafe::True,
            ([], _) => IsSafe::Unknown,
            _ => IsSafe::False,
        };
        Self { safe, reasons }
    }

    /// Formats the verdict in one line.
    pub(super) fn text(&self, node: &str) -> String {
        let answer = match self.safe {
            IsSafe::True => "yes",
            IsSafe::False => "no",
            IsSafe::Unknown => "unknown",
        };
        let reasons = self.reasons.iter().map(|it| format!(". {it}"));
        one_line(&format!(
            "Safe to drain {node}: {answer}{}",
            reasons.collect::<String>()
        ))
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.safe as u8)
    }
}

/// Returns true if the operation is a reason against a drain of the node. This is true for each
/// operation that is not `Progressing`, with one exception: a node that a person has cordoned is
/// `Held`. To cordon a node is the first step of a drain.
fn counts_against_a_drain(operation: &InFlightOperation, node: &str) -> bool {
    let (subject, state) = (&operation.spec.subject, operation.status.state);
    let is_own_hold = state == State::Held
        && *subject.kind == *"Node"
        && subject.namespace.is_none()
        && *subject.name == *node;
    state != State::Progressing && !is_own_hold
}
