//! Formats the impact of a drain as text.

use super::MissingPart;
use super::cluster_objects::NodeObjectsReader;
use super::drain::{AffectedObject, DrainBlocker, DrainEffect, DrainImpact};
use super::verdict::DrainVerdict;
use crate::clock;
use crate::columns::{EMPTY_CELL, Table};
use crate::listed_operation::ListedOperation;
use crate::output::{TerminalText, TextStyle, table};
use crate::plain_text::{cut, first_names, one_line};

/// Largest number of Pods that the row of a blocker names. The row only counts further Pods. JSON
/// and YAML contain all Pods.
const MAX_NAMED: usize = 3;

/// Formats the verdict, and then these sections: operations in flight, interrupted objects, objects that block a drain,
/// and flags that a drain needs. The last section is left out if no flag is needed. `rows` are the
/// rows of the table of operations.
pub(super) fn text(
    reader: &NodeObjectsReader<'_>,
    verdict: &DrainVerdict,
    rows: &[ListedOperation],
    impact: &DrainImpact,
    missing: &[MissingPart],
    style: &TextStyle,
) -> TerminalText {
    let is_missing = |parts: &[&str]| missing.iter().any(|it| parts.contains(&it.part));
    // If a part is missing, an empty section must not look as if nothing were affected.
    let nothing = |parts: &[&str]| -> TerminalText {
        if is_missing(parts) {
            "unknown, because a part could not be read\n".into()
        } else {
            "nothing\n".into()
        }
    };
    let pods_and_machines = ["Pods", "VirtualMachineInstances"];
    let all = ["Pods", "PodDisruptionBudgets", "VirtualMachineInstances"];
    let mut text = TerminalText::from(verdict.text(reader.node)) + "\n";
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
    section(
        "A drain affects:",
        match affected_objects(&impact.interrupted) {
            lines if lines.is_empty() => nothing(&pods_and_machines),
            lines => fitted(&lines, style),
        },
    );
    let (blockers_with_flag, blockers): (Vec<&DrainBlocker>, Vec<&DrainBlocker>) =
        impact.blockers.iter().partition(|it| it.flag.is_some());
    section(
        "These objects block a drain:",
        if blockers.is_empty() {
            nothing(&all)
        } else {
            fitted(&blocking(&blockers), style)
        },
    );
    if !blockers_with_flag.is_empty() {
        section(
            "kubectl drain refuses to start without these flags:",
            fitted(&needed_flags(&blockers_with_flag), style),
        );
    }
    text
}

/// Cuts lines to the width of the terminal.
fn fitted(lines: &str, style: &TextStyle) -> TerminalText {
    match style.width() {
        Some(width) => lines.lines().map(|line| cut(line, width) + "\n").collect(),
        None => lines.into(),
    }
}

/// Formats the interrupted objects as a table. Empty if there are none.
fn affected_objects(objects: &[AffectedObject]) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 3]> = objects
        .iter()
        .map(|it| {
            [
                it.namespace.clone(),
                format!("{}/{}", it.kind, it.name),
                effect(it),
            ]
        })
        .collect();
    table(["NAMESPACE", "OBJECT", "EFFECT"], &rows)
}

fn effect(object: &AffectedObject) -> String {
    let strategy = object.eviction_strategy.as_deref();
    let strategy = strategy.map(|it| format!("evictionStrategy {it}"));
    let reason = match (object.effect, object.live_migratable) {
        (DrainEffect::ShutDown | DrainEffect::Stays, Some(false)) => {
            let parts = strategy.into_iter().chain(["not migratable".to_owned()]);
            Some(parts.collect::<Vec<_>>().join(", "))
        }
        (DrainEffect::Unknown, _) if object.kind == "Pod" => {
            let machine = object.controller.as_deref().unwrap_or_default();
            Some(format!("{machine} cannot be read"))
        }
        (DrainEffect::Unknown, _) => Some("the default evictionStrategy is unknown".to_owned()),
        (DrainEffect::Evicted, _) => object.controller.clone().map(|it| format!("by {it}")),
        _ => strategy,
    };
    let effect = match object.effect {
        DrainEffect::Migrated => "migrated to another node",
        DrainEffect::ShutDown => "shut down",
        DrainEffect::Evicted => "evicted and created again",
        DrainEffect::Deleted => "deleted and not created again, because it has no controller",
        DrainEffect::Stays => "stays and blocks the drain",
        DrainEffect::Unknown => "unknown",
    };
    match (object.effect, reason) {
        (DrainEffect::Evicted, Some(by)) => format!("{effect} {by}"),
        (_, Some(reason)) => format!("{effect} ({reason})"),
        (_, None) => effect.to_owned(),
    }
}

fn blocking(blockers: &[&DrainBlocker]) -> String {
    let rows: Vec<[String; 3]> = blockers
        .iter()
        .map(|it| {
            let pods = named_pods(it);
            let pods = match pods.as_str() {
                "" => String::new(),
                pods => format!("; selects {pods}"),
            };
            [
                it.namespace
                    .clone()
                    .unwrap_or_else(|| EMPTY_CELL.to_owned()),
                format!(
                    "{}/{}",
                    it.kind.unwrap_or_default(),
                    it.name.as_deref().unwrap_or_default()
                ),
                format!("{}{pods}", it.message),
            ]
        })
        .collect();
    table(["NAMESPACE", "OBJECT", "REASON"], &rows)
}

fn needed_flags(blockers_with_flag: &[&DrainBlocker]) -> String {
    let rows: Vec<[String; 3]> = blockers_with_flag
        .iter()
        .map(|it| {
            [
                it.flag.unwrap_or_default().to_owned(),
                named_pods(it),
                it.message.clone(),
            ]
        })
        .collect();
    table(["FLAG", "PODS", "REASON"], &rows)
}

fn named_pods(blocker: &DrainBlocker) -> String {
    let pods = blocker.pods.iter().map(String::as_str);
    one_line(&first_names(pods, MAX_NAMED))
}
