//! Formats the impact of a drain as text.

use super::MissingPart;
use super::evictions::{AffectedPod, DrainEffect, DrainImpact};
use super::verdict::DrainVerdict;
use crate::clock;
use crate::columns::Table;
use crate::listed_operation::ListedOperation;
use crate::output::{TerminalText, TextStyle, table};
use crate::plain_text::cut;

/// Formats the verdict, and then these sections: operations in flight, interrupted Pods, and Pods
/// that block a drain. `rows` are the rows of the table of operations.
pub(super) fn text(
    node: &str,
    verdict: &DrainVerdict,
    rows: &[ListedOperation],
    impact: &DrainImpact,
    missing: &[MissingPart],
    style: &TextStyle,
) -> TerminalText {
    // If a part is missing, an empty section must not look as if nothing were affected.
    let nothing = |parts: &[&str]| -> TerminalText {
        if missing.iter().any(|it| parts.contains(&it.part)) {
            "unknown, because a part could not be read\n".into()
        } else {
            "nothing\n".into()
        }
    };
    let mut text = TerminalText::from(verdict.text(node)) + "\n";
    let mut section = |title: &str, body: TerminalText| {
        text.extend(["\n".into(), style.paint.heading(title), "\n".into(), body]);
    };
    section(
        "In flight on the node:",
        if rows.is_empty() {
            nothing(&["operations"])
        } else {
            Table::text(rows, clock::now(), style)
        },
    );
    let affected = impact.interrupted.iter();
    let affected: Vec<_> = affected
        .map(|it| row(&it.namespace, &it.name, effect(it)))
        .collect();
    section(
        "A drain affects:",
        if affected.is_empty() {
            nothing(&["Pods"])
        } else {
            fitted(&table(["NAMESPACE", "POD", "EFFECT"], &affected), style)
        },
    );
    let blockers = impact.blockers.iter();
    let blockers: Vec<_> = blockers
        .map(|it| row(&it.namespace, &it.name, it.message.clone()))
        .collect();
    section(
        "The eviction of these Pods is refused:",
        if blockers.is_empty() {
            nothing(&["Pods", "evictions"])
        } else {
            fitted(&table(["NAMESPACE", "POD", "REASON"], &blockers), style)
        },
    );
    text
}

fn row(namespace: &str, name: &str, text: String) -> [String; 3] {
    [namespace.to_owned(), name.to_owned(), text]
}

/// Cuts lines to the width of the terminal.
fn fitted(lines: &str, style: &TextStyle) -> TerminalText {
    match style.width() {
        Some(width) => lines.lines().map(|line| cut(line, width) + "\n").collect(),
        None => lines.into(),
    }
}

fn effect(pod: &AffectedPod) -> String {
    let controller = pod.controller.as_deref().unwrap_or_default();
    match pod.effect {
        DrainEffect::Migrated => format!("{controller} is moved to another node"),
        DrainEffect::ShutDown => format!("{controller} is shut down"),
        DrainEffect::Evicted => format!("evicted and created again by {controller}"),
        DrainEffect::Deleted => {
            "deleted and not created again, because it has no controller".to_owned()
        }
        DrainEffect::Stays => "stays and blocks the drain".to_owned(),
        DrainEffect::Unknown => "unknown, because the eviction could not be requested".to_owned(),
    }
}
