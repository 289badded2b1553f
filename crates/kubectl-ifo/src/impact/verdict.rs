//! Decides whether a drain of a node is safe. This module does no I/O.

use super::MissingPart;
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
    /// The reasons for `False` or `Unknown`. Empty for `True`.
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
        missing: &[MissingPart],
    ) -> Self {
        let against = operations.iter();
        let against = against.filter(|it| it.is_active() && counts_against_a_drain(it, node));
        let against: Vec<String> = against
            .map(|it| {
                format!(
                    "{} of {} is {}",
                    it.spec.operation,
                    it.place_name(),
                    it.marked_state()
                )
            })
            .collect();
        let with_effect = |effect| {
            let pods = pods.iter().filter(move |it| it.effect == effect);
            pods.map(|it| format!("{} in {}", it.name, it.namespace))
                .collect::<Vec<String>>()
        };
        let named = |all: &[String]| first_names(all.iter().map(String::as_str), MAX_NAMED);
        let mut reasons = Vec::new();
        if !against.is_empty() {
            reasons.push(format!("Operations do not progress: {}", named(&against)));
        }
        for (title, pods) in [
            ("Pods block a drain", with_effect(DrainEffect::Stays)),
            (
                "Pods are targets of running migrations, which would fail",
                with_effect(DrainEffect::MigrationFails),
            ),
        ] {
            if !pods.is_empty() {
                reasons.push(format!("{title}: {}", named(&pods)));
            }
        }
        let safe = match (reasons.is_empty(), missing) {
            (false, _) => IsSafe::False,
            (true, []) => IsSafe::True,
            (true, missing) => {
                let missing = missing.iter();
                reasons.extend(missing.map(|it| format!("Missing: {}: {}", it.part, it.reason)));
                IsSafe::Unknown
            }
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
