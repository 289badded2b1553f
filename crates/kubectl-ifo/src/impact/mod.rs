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
use super::operation::InFlightOperation;
use super::operation_source::{OperationSource, encode};
use super::output::{
    Format, TerminalText, TextStyle, complain, formats, print, print_error_line, print_value, table,
};
use super::plain_text::cut;
use super::problem::Problem;
use super::sort::SortBy;
use super::work_groups::{self, Row};
use crate::clock;
use evictions::{AffectedPod, DrainEffect, affected_pods};
use serde_json::json;
use std::fmt::Display;
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

/// The parts of the answer that are missing, with their reasons: `Pods: REASON`.
#[derive(Debug, Default)]
struct MissingParts(Vec<String>);

impl MissingParts {
    fn add(&mut self, part: &str, reason: impl Display) {
        self.0.push(format!("{part}: {reason}"));
    }

    /// Adds a part that could not be read. Of several evictions that failed, only the first is added.
    /// If the problem affects all parts, returns it as an error, because the command has no answer.
    fn add_problem(&mut self, part: &str, problem: Problem) -> Result<(), Problem> {
        match problem {
            Problem::Unauthorized
            | Problem::Unreachable { .. }
            | Problem::Config(_)
            | Problem::Usage(_)
            | Problem::Closed => Err(problem),
            problem => {
                let begin = format!("{part}: ");
                if !self.0.iter().any(|it| it.starts_with(&begin)) {
                    self.add(part, problem);
                }
                Ok(())
            }
        }
    }
}

/// Runs the command, and returns its exit code.
pub(super) async fn run(args: &ImpactArgs) -> Result<ExitCode, Problem> {
    let namespace = args.connect.namespace();
    // The files of `--from` contain no Pods, and no kube-apiserver that could answer an eviction.
    if args.connect.reads_files() {
        return Err(needs_cluster("impact"));
    }
    let server = args.connect.open().await?;
    let mut missing = MissingParts::default();
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
            missing.add_problem("operations", problem)?;
            Vec::new()
        }
    };
    let namespace = namespace.map(String::as_str);
    if let Some(namespace) = namespace {
        let reason = format!("only namespace {namespace} was read");
        missing.add("other namespaces", reason);
    }
    let pods = affected_pods(&server, &args.node, namespace, &operations, &mut missing).await?;
    let verdict = DrainVerdict::of(&args.node, &operations, &pods, &missing.0);
    if args.format == Format::Table {
        let rows = work_groups::rows(&operations, args.work.expand, |it| SortBy::NEED.sort(it));
        let kinds = Kinds::new(server.clone());
        let style = kinds.style(Format::Table, args.colors.paint()).await;
        print(verdict.text(&args.node) + "\n")?;
        print(text(&rows, &pods, &style))?;
        for part in &missing.0 {
            print_error_line(&format!("missing: {part}"));
        }
    } else {
        let stays = |it: &&AffectedPod| it.effect == DrainEffect::Stays;
        let value = json!({
            "node": args.node,
            "namespace": namespace,
            "verdict": verdict,
            "operations": operations.iter().map(encode).collect::<Vec<_>>(),
            "interrupted": pods,
            "blockers": pods.iter().filter(stays).collect::<Vec<_>>(),
            "missing": missing.0,
        });
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
    missing: &mut MissingParts,
) -> Result<(), Problem> {
    for warning in filter_check::check(filters, source, listed).await? {
        match warning {
            FilterWarning::NoRuleSet(reason) => missing.add("operations", reason),
            FilterWarning::Unchecked(text) => complain("note", text),
        }
    }
    if let Some(incomplete) = source.incomplete() {
        missing.add("operations", incomplete);
    } else if source.namespaces.is_some() && filters.namespace.is_none() {
        let reason = "you may not list operations in all namespaces";
        missing.add("operations", reason);
    }
    Ok(())
}
