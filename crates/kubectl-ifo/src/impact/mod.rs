//! `kubectl ifo impact NODE`: shows whether a drain of a node is safe, the operations in flight on
//! the node, the Pods that a drain would interrupt, and those whose eviction is refused.
//!
//! If a part of the answer cannot be read, the command names this part as missing, and shows the
//! other parts.

mod evictions;
mod verdict;

use super::colors::Colors;
use super::columns::Table;
use super::connect::{Connect, needs_cluster};
use super::discovered_kinds::Kinds;
use super::filter::{Filters, node_name};
use super::filter_check::{self, FilterWarning};
use super::list::WorkArgs;
use super::operation::{AGE, InFlightOperation, PrintedField, PrintedFields, SUBJECT};
use super::operation_source::OperationSource;
use super::output::{
    Format, TerminalText, TextStyle, complain, formats, print, print_error_line, print_value, table,
};
use super::plain_text::cut;
use super::problem::Problem;
use super::sort::SortBy;
use super::work_groups::{self, Row};
use crate::clock;
use evictions::{AffectedPod, DrainEffect, affected_pods};
use serde::Serialize;
use std::process::ExitCode;
use verdict::DrainVerdict;

/// The arguments of `impact`.
#[derive(Debug, clap::Args)]
// `--from` is hidden, because files do not show the present state of the cluster. If the user gives
// this flag, the command fails with this explanation.
#[command(mut_arg("from", |it| it.hide(true)))]
#[command(after_help = "\
Nothing is changed: the command requests the eviction of each Pod as a dry run. A drain does not
interrupt DaemonSet Pods and mirror Pods, so the command does not list them as interrupted.

Exit codes:
  0  a drain is safe
  1  a drain is not safe
  2  an error, for example because the node does not exist
  3  unknown: a part of the answer is missing, and the other parts show no reason against a drain

Examples:
  # Drain a node only if this is safe
  kubectl ifo impact node/worker-3 && kubectl drain worker-3

  # The names of the Pods that block a drain
  kubectl ifo impact worker-3 -o json | jq -r '.blockers[].name'")]
pub(super) struct ImpactArgs {
    /// The node, such as node/worker-3 or worker-3
    #[arg(value_name = "NODE", value_parser = node_name)]
    node: String,
    /// Output format
    #[arg(
        short = 'O',
        short_alias = 'o',
        long = "output",
        value_parser = formats(["table", "json", "yaml"]),
        ignore_case = true,
        default_value = "table",
        value_name = "FORM",
        help_heading = "Output"
    )]
    format: Format,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// A part of the answer that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MissingPart {
    /// Name of the part, such as `Pods`.
    part: &'static str,
    reason: String,
}

impl MissingPart {
    /// Returns the part with the reason why it is missing. If the problem affects all parts,
    /// returns the problem as an error, because the command has no answer.
    fn of(part: &'static str, problem: Problem) -> Result<Self, Problem> {
        let reason = match problem {
            Problem::Unauthorized
            | Problem::Unreachable { .. }
            | Problem::Config(_)
            | Problem::Usage(_)
            | Problem::Closed => return Err(problem),
            problem => problem.to_string(),
        };
        Ok(Self { part, reason })
    }
}

/// The answer, in the form of the JSON and YAML output.
#[derive(Debug, Serialize)]
struct NodeImpact<'a> {
    node: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    verdict: &'a DrainVerdict,
    /// The operations in flight that touch the node.
    operations: Vec<PrintedFields<'a>>,
    interrupted: &'a [AffectedPod],
    /// The Pods in `interrupted` whose eviction is refused.
    blockers: Vec<&'a AffectedPod>,
    missing: &'a [MissingPart],
}

/// The fields of an operation in JSON and YAML, in order.
const FIELDS: &[PrintedField] = &[
    ("name", "/metadata/name"),
    ("namespace", "/spec/subject/namespace"),
    SUBJECT,
    ("operation", "/spec/operation"),
    ("component", "/spec/component"),
    ("state", "/status/state"),
    ("progress", "/status/progress"),
    ("started", "/metadata/creationTimestamp"),
    AGE,
    ("message", "/status/message"),
];

/// Runs the command, and returns its exit code.
pub(super) async fn run(args: &ImpactArgs) -> Result<ExitCode, Problem> {
    let namespace = args.connect.namespace();
    // The files of `--from` contain no Pods, and no kube-apiserver that could answer an eviction.
    if args.connect.reads_files() {
        return Err(needs_cluster("impact"));
    }
    let server = args.connect.open().await?;
    let mut missing = Vec::new();
    let filters = Filters {
        node: vec![args.node.clone()],
        ..Filters::default().with_namespace(namespace)
    };
    let source = OperationSource::open(server.clone(), filters.clone()).await;
    let operations = match source {
        Ok((source, listed)) => {
            check_operations(&filters, &source, &listed, &mut missing).await?;
            listed
        }
        Err(problem) => {
            missing.push(MissingPart::of("operations", problem)?);
            Vec::new()
        }
    };
    let namespace = namespace.map(String::as_str);
    if let Some(namespace) = namespace {
        missing.push(MissingPart {
            part: "other namespaces",
            reason: format!("only namespace {namespace} was read"),
        });
    }
    let pods = affected_pods(&server, &args.node, namespace, &operations, &mut missing).await?;
    let verdict = DrainVerdict::of(&args.node, &operations, &pods, &missing);
    if args.format == Format::Table {
        let rows = work_groups::rows(&operations, args.work.expand, |it| SortBy::NEED.sort(it));
        let kinds = Kinds::new(server.clone());
        let style = kinds.style(Format::Table, args.colors.paint()).await;
        print(verdict.text(&args.node) + "\n")?;
        print(text(&rows, &pods, &style))?;
        for MissingPart { part, reason } in &missing {
            print_error_line(&format!("missing: {part}: {reason}"));
        }
    } else {
        let now = clock::now();
        let fields = |operation| PrintedFields {
            operation,
            fields: FIELDS,
            now,
        };
        let stays = |it: &&AffectedPod| it.effect == DrainEffect::Stays;
        let value = NodeImpact {
            node: &args.node,
            namespace,
            verdict: &verdict,
            operations: operations.iter().map(fields).collect(),
            interrupted: &pods,
            blockers: pods.iter().filter(stays).collect(),
            missing: &missing,
        };
        print_value(&value, args.format)?;
    }
    Ok(verdict.exit_code())
}

/// Formats the operations in flight and the affected Pods. An empty section is left out.
fn text(rows: &[Row], pods: &[AffectedPod], style: &TextStyle) -> TerminalText {
    let mut text = TerminalText::default();
    if !rows.is_empty() {
        text = text + "\n" + style.paint.heading("In flight on the node:") + "\n";
        text += Table::text(rows, clock::now(), style);
    }
    if !pods.is_empty() {
        text = text + "\n" + style.paint.heading("A drain affects:") + "\n";
        let pods = pods.iter();
        let pods: Vec<_> = pods
            .map(|it| [it.namespace.clone(), it.name.clone(), it.text()])
            .collect();
        let width = style.width().unwrap_or(usize::MAX);
        for line in table(["NAMESPACE", "POD", "EFFECT"], &pods).lines() {
            text += cut(line, width) + "\n";
        }
    }
    text
}

/// Returns an error if the node does not exist. If operations on the node may be missing from the
/// list, adds the reason to `missing`.
async fn check_operations(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
    missing: &mut Vec<MissingPart>,
) -> Result<(), Problem> {
    for warning in filter_check::check(filters, source, listed).await? {
        match warning {
            FilterWarning::NoRuleSet(reason) => missing.push(MissingPart {
                part: "operations",
                reason,
            }),
            FilterWarning::Unchecked(text) => complain("note", text),
        }
    }
    if let Some(incomplete) = source.incomplete() {
        missing.push(MissingPart {
            part: "operations",
            reason: incomplete.to_string(),
        });
    } else if source.namespaces.is_some() && filters.namespace.is_none() {
        missing.push(MissingPart {
            part: "operations",
            reason: "you may not list operations in all namespaces".to_owned(),
        });
    }
    Ok(())
}
