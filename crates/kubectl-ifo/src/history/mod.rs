//! `kubectl ifo history`: lists completed operations, one line for each piece of work (operations
//! that belong together).
//!
//! The operations come from the records of completed operations that `ifo-apiserver` keeps
//! (`operationrecords`). In persistence mode, `ifo-apiserver` also stores operations as custom
//! resources. Custom resources can reach further back than records, so the command adds them.

mod records;
mod table;

use super::colors::Colors;
use super::connect::Connect;
use super::discovered_kinds::Kinds;
use super::filter::Filters;
use super::filter_check;
use super::label_selector::ParsedLabelSelector;
use super::list::{WorkArgs, objects, print_incomplete};
use super::listed_operation::ListedOperation;
use super::operation_source::{OperationSource, Served};
use super::output::{ListFormat, TextStyle, complain, print, print_error_line};
use super::problem::Problem;
use super::state_filter::one_of;
use super::work_groups::PieceOfWork;
use super::{columns, work_groups};
use crate::clock;
use ifo_api::completeness::Incomplete;
use ifo_api::duration;
use ifo_api::live::State;
use jiff::{SignedDuration, Timestamp};
use records::RecordedHistory;
pub(super) use records::{resource_name as record_resource_name, selected_records};
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
    /// Output format; kubectl's -o works, too
    #[arg(
        short = 'O',
        long = "output",
        value_enum,
        value_name = "FORM",
        ignore_case = true,
        help_heading = "Output"
    )]
    format: Option<ListFormat>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

fn completed_states() -> Vec<State> {
    let all = State::ALL.into_iter();
    all.filter(|it| it.is_completed()).collect()
}

fn since(text: &str) -> Result<Duration, String> {
    duration::parse(text)
        .ok_or_else(|| format!("{text:?} is not a duration; examples are 12h and 2d"))
}

/// The limits of `--since`, `--failed` and `--state`. In a table, the limits apply to the line of each piece
/// of work. In other formats, the limits apply to each operation.
#[derive(Clone, Debug, Default)]
struct HistoryLimits {
    /// The earliest allowed end. None if operations of any age are allowed.
    earliest_end: Option<Timestamp>,
    /// The allowed states. If the list is empty, all states are allowed.
    states: Vec<State>,
}

impl HistoryLimits {
    fn allows(&self, operation: &ListedOperation) -> bool {
        let is_recent = |earliest| operation.completed.is_some_and(|it| it >= earliest);
        self.earliest_end.is_none_or(is_recent)
            && (self.states.is_empty() || self.states.iter().any(|it| it.name() == operation.state))
    }
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
    let format = args.format.or(from_filters).unwrap_or_default();
    let selector = filters.selector.clone().unwrap_or_default();
    let selector = ParsedLabelSelector::parse(&selector)
        .map_err(|why| Problem::Usage(format!("--selector: {why}")))?;
    let server = args.connect.open().await?;
    let kinds = Kinds::new(server.clone());
    filters.resolve(&kinds).await;
    // Reads all operations in flight in the namespace, even if the other filters exclude them. A
    // piece of work with a member in flight is not over, so the table leaves out the piece.
    let in_flight = Filters::default().with_namespace(namespace);
    let (source, in_flight) = OperationSource::open(server, in_flight, false).await?;
    let history = RecordedHistory::read(&source, format.data_format().is_some()).await?;
    for note in &history.notes {
        complain("note", note);
    }
    let oldest_end = history.oldest_end;
    let selected: Vec<ListedOperation> = history
        .operations
        .into_iter()
        .filter(|it| filters.matches(it) && selector.matches(&it.labels))
        .collect();
    filter_check::check_and_warn(&filters, &source, &selected).await?;
    // If no rule set is installed, `filter_check` cannot find a misspelt component or operation. So
    // if the result is also empty, the command prints that no rule set is installed.
    let is_unchecked =
        selected.is_empty() && matches!(source.incomplete(), Some(Incomplete::NoRuleSets));
    let earliest_end = args.since.map(|since| before(clock::now(), since));
    let limits = HistoryLimits {
        earliest_end,
        states: args
            .state
            .iter()
            .copied()
            .chain(args.failed.then_some(State::Failed))
            .collect(),
    };
    if format.is_table() {
        let (rows, unfinished) = rows(&selected, &in_flight, &limits, args.work.expand);
        let screen = columns::terminal_width().filter(|_| format == ListFormat::Table);
        let style = TextStyle {
            screen,
            wide: format == ListFormat::Wide,
            paint: args.colors.paint(),
            short_names: kinds.short_names(screen).await,
        };
        if rows.is_empty() {
            print_error_line("No completed operations that fit the filters.");
        } else {
            let columns = table::ShownColumns {
                has_namespace: namespace.is_none(),
                has_message: args.failed,
            };
            print(table::text(&rows, columns, &style))?;
        }
        if unfinished > 0 {
            let what = match unfinished {
                1 => "1 piece of work is still in flight, so it is not shown".to_owned(),
                number => {
                    format!("{number} pieces of work are still in flight, so they are not shown")
                }
            };
            complain("note", format!("{what}; see: kubectl ifo"));
        }
    } else {
        let mut operations = selected;
        operations.retain(|it| limits.allows(it));
        sort_newest_first(&mut operations);
        print(match format {
            ListFormat::Name => operations
                .iter()
                .map(|it| resource_name(it) + "\n")
                .collect(),
            _ => objects(&operations, format, false)?,
        })?;
    }
    if is_unchecked {
        print_incomplete(&source);
    }
    print_error_line(&reach_line(
        oldest_end,
        earliest_end,
        namespace,
        source.served,
    ));
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

/// Returns the rows of the table, and the number of pieces of work that have a completed member but
/// are still in flight. Such a piece has no row.
fn rows(
    completed: &[ListedOperation],
    in_flight: &[ListedOperation],
    limits: &HistoryLimits,
    is_expanded: bool,
) -> (Vec<ListedOperation>, usize) {
    let all: Vec<&ListedOperation> = completed.iter().chain(in_flight).collect();
    let mut unfinished = 0;
    let mut pieces = Vec::new();
    for numbers in work_groups::group_by_work(&all) {
        let is_completed = |number: &usize| *number < completed.len();
        if numbers.iter().all(is_completed) {
            let members: Vec<_> = numbers.iter().map(|it| all[*it]).collect();
            pieces.push(PieceOfWork::new(&members));
        } else if numbers.iter().any(is_completed) {
            unfinished += 1;
        }
    }
    pieces.retain(|it| limits.allows(&it.line));
    pieces.sort_by_cached_key(|it| newest_first(&it.line));
    let rows = pieces.into_iter().flat_map(|piece| {
        let members: Vec<ListedOperation> = if is_expanded {
            piece.member_rows().collect()
        } else {
            Vec::new()
        };
        std::iter::once(piece.line).chain(members)
    });
    (rows.collect(), unfinished)
}

/// A sort key of operations. With this key, the operation that ended last comes first.
type NewestFirst = (
    Reverse<Option<Timestamp>>,
    Reverse<Option<Timestamp>>,
    super::listed_operation::OperationKey,
);

fn newest_first(operation: &ListedOperation) -> NewestFirst {
    (
        Reverse(operation.completed),
        Reverse(operation.started),
        operation.key(),
    )
}

fn sort_newest_first(operations: &mut [ListedOperation]) {
    operations.sort_by_cached_key(newest_first);
}

/// Formats `kind.group/name`, as kubectl does with `-o name`. Records are namespaced, and custom
/// resources are cluster-scoped. So an operation with a namespace comes from a record.
fn resource_name(operation: &ListedOperation) -> String {
    match operation.namespace {
        Some(_) => records::resource_name(&operation.name),
        None => operation.resource_name(Served::Crs.group()),
    }
}

/// Formats how far back the history reaches, in one line, such as
/// `Records reach back to 2026-01-01T12:00:00Z.` If the history does not reach back to
/// `earliest_end`, the line contains the word `only`.
fn reach_line(
    oldest_end: Option<Timestamp>,
    earliest_end: Option<Timestamp>,
    namespace: Option<&String>,
    served: Served,
) -> String {
    let what = match served {
        Served::Live => "Records",
        Served::Crs => "Custom resources",
    };
    let within = namespace.map_or_else(String::new, |it| format!(" of namespace {it}"));
    let Some(oldest_end) = oldest_end else {
        return format!("{what}{within}: there are none yet.");
    };
    let only = match earliest_end {
        Some(earliest) if earliest < oldest_end => " only",
        _ => "",
    };
    format!("{what}{within} reach back{only} to {oldest_end:.0}.")
}

#[cfg(test)]
mod tests;
