//! `kubectl ifo impact NODE`: shows whether a drain of a node is safe. Also shows the operations in
//! flight on the node, the Pods that a drain would interrupt, and the Pods that would block a
//! drain.
//!
//! If the operations or the Pods cannot be read, the command reports them as missing, and shows the
//! other part.

mod evictions;

use super::list::{FormatArgs, WorkArgs};
use super::work_groups::{self, Row};
use crate::clock;
use crate::cluster::connect::{Connect, needs_cluster};
use crate::cluster::problem::Problem;
use crate::filters::filter::{Filters, node_name};
use crate::filters::filter_check::{self, find_object};
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::operations::operation_source::{OperationSource, encode};
use crate::output::colors::Colors;
use crate::output::columns::Table;
use crate::output::plain_text::{first_names, one_line};
use crate::output::print::{
    Format, TerminalText, TextStyle, formats, print, print_error_line, print_value, table,
};
use crate::output::sort::SortBy;
use evictions::{AffectedPod, DrainEffect, affected_pods};
use ifo_api::live::State;
use serde_json::json;
use std::process::ExitCode;

/// Largest number of reasons in the verdict. The others are only counted.
const MAX_REASONS: usize = 3;

/// The arguments of `impact`.
#[derive(Debug, clap::Args)]
// `--from` is hidden, because files do not show the present state of the cluster. If the user gives
// this flag, the command fails with this explanation.
#[command(mut_arg("from", |it| it.hide(true)))]
#[command(mut_arg("format", |it| it.short_alias('o').value_parser(formats(["table", "json", "yaml"]))))]
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
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// Runs the command, and returns its exit code.
pub(super) async fn run(args: &ImpactArgs) -> Result<ExitCode, Problem> {
    let namespace = args.connect.namespace();
    // The files of `--from` contain no Pods, and no kube-apiserver that could answer an eviction.
    if args.connect.reads_files() {
        return Err(needs_cluster("impact"));
    }
    let server = args.connect.open().await?;
    let all = Filters::default().with_namespace(namespace);
    let filters = Filters {
        node: vec![args.node.clone()],
        ..all.clone()
    };
    // The parts of the answer that are missing, with their reasons: `Pods: REASON`.
    let mut missing: Vec<String> = Vec::new();
    // A migration to the node may not name the node yet, so the operations on all nodes are listed.
    let listed = match OperationSource::open(server.clone(), all).await {
        Ok((source, listed)) => {
            let reason = check_operations(&filters, &source, &listed).await?;
            missing.extend(reason.map(|it| format!("operations: {it}")));
            Ok(listed)
        }
        Err(_) if find_object(&server, "nodes", &args.node).await == Ok(false) => {
            return Err(Problem::Usage(format!("there is no node {:?}", args.node)));
        }
        Err(problem) => Err(problem),
    };
    let namespace = namespace.map(String::as_str);
    if let Some(namespace) = namespace {
        missing.push(format!(
            "other namespaces: only namespace {namespace} was read"
        ));
    }
    let known = listed.as_deref().unwrap_or_default();
    let pods = affected_pods(&server, &args.node, namespace, known).await;
    if let (Err(problem), Err(_)) = (&listed, &pods) {
        // Neither the operations nor the Pods could be read.
        return Err(problem.clone());
    }
    missing.extend(listed.as_ref().err().map(|it| format!("operations: {it}")));
    missing.extend(pods.as_ref().err().map(|it| format!("Pods: {it}")));
    let (mut operations, pods) = (listed.unwrap_or_default(), pods.unwrap_or_default());
    operations.retain(|it| filters.matches(it));
    let failed = pods.iter().find(|it| it.effect == DrainEffect::Unknown);
    missing.extend(failed.map(|it| format!("evictions: {}", it.message)));
    let reasons = reasons(&args.node, &operations, &pods);
    let (answer, safe, exit_code) = match (reasons.as_slice(), missing.as_slice()) {
        ([], []) => ("yes", "True", 0),
        ([], _) => ("unknown", "Unknown", 3),
        _ => ("no: ", "False", 1),
    };
    let format = args.format.format.unwrap_or_default();
    if format == Format::Table {
        let rows = work_groups::rows(&operations, args.work.expand, |it| SortBy::NEED.sort(it));
        let style = server.table_style(Format::Table, args.colors.paint()).await;
        let named = first_names(reasons.iter().map(String::as_str), MAX_REASONS);
        let verdict = format!("Safe to drain {}: {answer}{named}", args.node);
        print(one_line(&verdict) + "\n")?;
        print(text(&rows, &pods, &style))?;
        for part in &missing {
            print_error_line(&format!("missing: {part}"));
        }
    } else {
        let stays = |it: &&AffectedPod| it.effect == DrainEffect::Stays;
        let value = json!({
            "node": args.node,
            "namespace": namespace,
            "verdict": {"safe": safe, "reasons": reasons},
            "operations": operations.iter().map(encode).collect::<Vec<_>>(),
            "interrupted": pods,
            "blockers": pods.iter().filter(stays).collect::<Vec<_>>(),
            "missing": missing,
        });
        print_value(&value, format)?;
    }
    Ok(ExitCode::from(exit_code))
}

/// Returns the reasons why a drain is not safe: operations that do not progress, evictions that are
/// refused, and migrations that would fail.
fn reasons(node: &str, operations: &[InFlightOperation], pods: &[AffectedPod]) -> Vec<String> {
    let against = operations.iter();
    let against = against.filter(|it| counts_against_a_drain(it, node));
    let against = against.map(|it| {
        let (operation, state) = (&it.spec.operation, it.marked_state());
        format!("{operation} of {} is {state}", it.place_name())
    });
    let pods = pods.iter().filter_map(|it| {
        let why = match it.effect {
            DrainEffect::Stays => "blocks a drain",
            DrainEffect::MigrationFails => "is the target of a running migration",
            _ => return None,
        };
        Some(format!("Pod {} in {} {why}", it.name, it.namespace))
    });
    against.chain(pods).collect()
}

/// Returns true if the operation is a reason against a drain of the node. Each operation that is
/// not `Progressing` is such a reason, except a `Held` operation on the node itself. A cordoned
/// node has such an operation, and a drain begins with cordoning the node.
fn counts_against_a_drain(operation: &InFlightOperation, node: &str) -> bool {
    let (subject, state) = (&operation.spec.subject, operation.status.state);
    let is_own_hold = state == State::Held
        && *subject.kind == *"Node"
        && subject.namespace.is_none()
        && *subject.name == *node;
    state != State::Progressing && !is_own_hold
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
        let cells = |it: &AffectedPod| [it.namespace.clone(), it.name.clone(), it.text()];
        let pods: Vec<_> = pods.iter().map(cells).collect();
        let width = style.screen.unwrap_or(usize::MAX);
        let pods = table(["NAMESPACE", "POD", "EFFECT"], &pods).split_lines();
        let lines = pods.iter().map(|it| it.cut(width) + "\n");
        text += lines.collect::<TerminalText>();
    }
    text
}

/// Returns an error if the node does not exist. If operations on the node may be missing from the
/// list, returns the reason.
async fn check_operations(
    filters: &Filters,
    source: &OperationSource,
    listed: &[InFlightOperation],
) -> Result<Option<String>, Problem> {
    let is_partial = source.namespaces.is_some() && filters.namespace.is_none();
    let partial = is_partial.then_some("you may not list operations in all namespaces");
    // Unlike in other commands, operations that are hidden from the user count as missing, because
    // one of them can be on the node.
    let reason = source.completeness.as_ref().err().map(ToString::to_string);
    let reason = reason.or(partial.map(str::to_owned));
    let doubts = filter_check::check(filters, source, listed).await?;
    doubts.print_unchecked();
    Ok(doubts.undetectable.or(reason))
}
