//! `kubectl ifo history`: lists completed operations, one line for each piece of work (operations
//! that belong together).
//!
//! The operations come from the records of completed operations that `ifo-apiserver` keeps
//! (`operationrecords`). In persistence mode, `ifo-apiserver` also stores operations as custom
//! resources. Custom resources can reach further back than records, so the command adds them.

mod records;

use super::colors::Colors;
use super::columns::{OperationColumn, Table};
use super::connect::Connect;
use super::discovered_kinds::Kinds;
use super::filter::{Filters, one_of};
use super::filter_check;
use super::list::{FormatArgs, WorkArgs, objects, print_incomplete};
use super::operation::{InFlightOperation, OperationFacts, OperationKey};
use super::operation_source::OperationSource;
use super::output::{print, print_error_line};
use super::problem::Problem;
use super::work_groups::{self, PieceOfWork, Row};
use crate::clock;
use OperationColumn::{
    Completed, Component, Expected, Initiator, Message, Name, Namespace, Nodes, Operation, Queued,
    Reason, RuleSet, Started, Subject,
};
use ifo_api::completeness::Incomplete;
use ifo_api::duration;
use ifo_api::live::State;
use jiff::{SignedDuration, Timestamp};
pub(super) use records::records;
use std::cmp::Reverse;
use std::process::ExitCode;
use std::time::Duration;

/// The flags of `history`.
#[derive(Debug, clap::Args)]
// `history` shows only completed operations, so the help does not list `--all-phases` (`-A`). The
// command accepts `-A` as the flag for all namespaces, as in kubectl.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(after_help = "\
The last line, on standard error, says how far back the history reaches. The server keeps a limited
number of records, and custom resources reach further back if persistence mode is on.

Examples:
  # What happened last night in all namespaces
  kubectl ifo history --since 12h

  # Failed operations that touched a node
  kubectl ifo history --node worker-3 --failed

  # Operations of one namespace, with reason and message
  kubectl ifo history -n shop -o wide")]
pub(super) struct HistoryArgs {
    /// Only what ended within this time, such as 12h or 2d
    #[arg(long, value_parser = since, value_name = "TIME", help_heading = "Filters")]
    since: Option<Duration>,
    /// Only what failed, with the message that names the cause
    #[arg(long, help_heading = "Filters")]
    failed: bool,
    /// Only what ended in this state, such as Superseded; may be given several times
    #[arg(
        long,
        value_name = "STATE",
        value_delimiter = ',',
        ignore_case = true,
        value_parser = one_of(completed_states()),
        help_heading = "Filters"
    )]
    state: Vec<State>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// The columns of the table, from left to right. The last column is the message.
const COLUMNS: [OperationColumn; 7] = [
    Namespace,
    Subject,
    Operation,
    OperationColumn::State,
    Completed,
    OperationColumn::Duration,
    Expected,
];

/// The further columns of `-o wide`, before the message.
const WIDE: [OperationColumn; 8] = [
    Started, Queued, Initiator, Reason, Nodes, Component, RuleSet, Name,
];

fn completed_states() -> Vec<State> {
    let all = State::ALL.into_iter();
    all.filter(|it| it.is_completed()).collect()
}

fn since(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration; examples are 12h and 2d"))
}

/// Prints the history.
pub(super) async fn run(args: &HistoryArgs) -> Result<ExitCode, Problem> {
    // As in kubectl, `-A` selects all namespaces.
    let namespace = args
        .connect
        .namespace()
        .filter(|_| !args.filters.all_phases);
    let mut filters = Filters {
        all_phases: true,
        ..args.filters.with_namespace(namespace)
    };
    let from_filters = filters.take_format()?;
    let format = args.format.format.or(from_filters).unwrap_or_default();
    let server = args.connect.open().await?;
    let kinds = Kinds::new(server.clone());
    filters.resolve(&kinds).await;
    // Reads all operations in flight in the namespace, even if the other filters exclude them. A
    // piece of work with a member in flight is not over, so the table leaves out the piece.
    let in_flight = Filters::default().with_namespace(namespace);
    let (source, in_flight) = OperationSource::open(server, in_flight).await?;
    let mut operations = records::completed_operations(&source).await?;
    let oldest_end = operations
        .iter()
        .filter_map(OperationFacts::completed)
        .min();
    operations.retain(|it| filters.matches(it));
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    // If no rule set is installed, `filter_check` cannot find a misspelt component or operation. So
    // if the result is also empty, the command prints that no rule set is installed.
    if operations.is_empty() && matches!(source.incomplete(), Some(Incomplete::NoRuleSets)) {
        print_incomplete(source.incomplete().as_ref());
    }
    let earliest_end = args.since.map(|since| before(clock::now(), since));
    let failed = args.failed.then_some(State::Failed);
    let states: Vec<State> = args.state.iter().copied().chain(failed).collect();
    // In a table, these limits apply to the line of each piece of work.
    let allows = |it: &InFlightOperation| {
        let is_recent = |earliest| it.completed().is_some_and(|end| end >= earliest);
        let is_wanted = states.is_empty() || states.contains(&it.status.state);
        is_wanted && earliest_end.is_none_or(is_recent)
    };
    if format.is_table() {
        let mut pieces = ended_pieces(&operations, &in_flight);
        pieces.retain(|it| allows(&it.line));
        pieces.sort_by_cached_key(|it| newest_first(&it.line));
        let rows = pieces.into_iter().flat_map(|it| it.rows(args.work.expand));
        let rows: Vec<Row> = rows.collect();
        let style = kinds.style(format, args.colors.paint()).await;
        if rows.is_empty() {
            print_error_line("No completed operations match the filters.");
        } else {
            let wide = WIDE.into_iter().filter(|_| style.wide);
            let message = [Message];
            let columns: Vec<_> = COLUMNS.into_iter().chain(wide).chain(message).collect();
            print(Table::of_columns(&columns, &rows, clock::now(), &style))?;
        }
    } else {
        operations.retain(allows);
        operations.sort_by_cached_key(newest_first);
        print(objects(&operations, format, false)?)?;
    }
    print_error_line(&reach_line(oldest_end, earliest_end));
    Ok(ExitCode::SUCCESS)
}

/// Returns the time that is `duration` before `now`. If this time cannot be represented, returns
/// the earliest possible time.
fn before(now: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration)
        .ok()
        .and_then(|it| now.checked_sub(it).ok())
        .unwrap_or(Timestamp::MIN)
}

/// Returns the pieces of work without a member in flight.
fn ended_pieces(
    completed: &[InFlightOperation],
    in_flight: &[InFlightOperation],
) -> Vec<PieceOfWork> {
    let pieces = work_groups::group_by_work(completed.iter().chain(in_flight)).into_iter();
    let ended = pieces.filter(|members| !members.iter().any(|it| it.is_active()));
    ended.map(|members| PieceOfWork::new(&members)).collect()
}

/// Returns a sort key, with which the operation that ended last comes first.
fn newest_first(
    operation: &InFlightOperation,
) -> (Reverse<(Option<Timestamp>, Timestamp)>, OperationKey) {
    let times = (operation.completed(), operation.started());
    (Reverse(times), operation.key())
}

/// Formats how far back the history reaches, in one line. If the history does not reach back to
/// `earliest_end`, the line contains the word `only`.
fn reach_line(oldest_end: Option<Timestamp>, earliest_end: Option<Timestamp>) -> String {
    let Some(oldest_end) = oldest_end else {
        return "There are no records yet.".to_owned();
    };
    let only = match earliest_end {
        Some(earliest) if earliest < oldest_end => " only",
        _ => "",
    };
    format!("Records reach back{only} to {oldest_end:.0}.")
}
