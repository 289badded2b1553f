//! `kubectl ifo history`: lists completed operations, one line for each piece of work (operations
//! that belong together).
//!
//! The operations come from the records of completed operations that `ifo-apiserver` keeps
//! (`operationrecords`). In persistence mode, `ifo-apiserver` also stores operations as custom
//! resources. Custom resources can reach further back than records, so the command adds them.

use super::list::{FormatArgs, WorkArgs, objects, print_incomplete};
use super::work_groups::{self, Row};
use crate::clock;
use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::filters::filter::{Filters, one_of};
use crate::filters::filter_check;
use crate::operations::operation::{InFlightOperation, OperationFacts};
use crate::operations::operation_source::{AnyOperation, OperationSource, Served, list_path};
use crate::output::colors::Colors;
use crate::output::columns::{OperationColumn, Table};
use crate::output::print::{complain, print, print_error_line};
use crate::output::sort::SortBy;
use OperationColumn::{
    Completed, Component, Duration, Expected, Initiator, Message, Name, Namespace, Nodes,
    Operation, Queued, Reason, RuleSet, Started, State, Subject,
};
use ifo_api::{LIVE_GROUP, Text, live, record};
use jiff::Timestamp;
use std::collections::HashSet;
use std::process::ExitCode;

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
    #[arg(long, value_parser = clock::duration, value_name = "TIME", help_heading = "Filters")]
    since: Option<std::time::Duration>,
    /// Only what failed, with the message that names the cause
    #[arg(long, help_heading = "Filters")]
    failed: bool,
    /// Only what ended in this state, such as Superseded; may be given several times
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    #[arg(ignore_case = true, help_heading = "Filters")]
    #[arg(value_parser = one_of(|it| it.is_completed()))]
    state: Vec<live::State>,
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

/// The columns of the table, from left to right.
const COLUMNS: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Completed, Duration, Expected, Message,
];

/// The columns of `-o wide`.
const WIDE: &[OperationColumn] = &[
    Namespace, Subject, Operation, State, Completed, Duration, Expected, Started, Queued,
    Initiator, Reason, Nodes, Component, RuleSet, Name, Message,
];

/// Prints the history.
pub(super) async fn run(args: &HistoryArgs) -> Result<ExitCode, Problem> {
    let mut filters = args.filters.in_any_phase(args.connect.namespace());
    let from_filters = filters.take_format()?;
    let format = args.format.format.or(from_filters).unwrap_or_default();
    let server = args.connect.open().await?;
    filters.resolve(&server).await;
    // Reads all operations in flight in the namespace, even if the other filters exclude them. The
    // table leaves out a piece of work with an operation in flight, because the piece is not over.
    let in_namespace = Filters::default().with_namespace(filters.namespace.as_ref());
    let (source, in_flight) = OperationSource::open(server, in_namespace.clone()).await?;
    let mut operations = completed_operations(&source).await?;
    // The custom resources of all namespaces are in one list.
    operations.retain(|it| in_namespace.matches(it));
    let ends = operations.iter().filter_map(OperationFacts::completed);
    let oldest_end = ends.min();
    let others = operations.extract_if(.., |it| !filters.matches(it));
    let others: Vec<InFlightOperation> = others.collect();
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    // If no rule set is installed, `filter_check` accepts any component and operation. The note
    // then explains why the result is empty.
    if operations.is_empty() {
        print_incomplete(source.incomplete().as_ref());
    }
    let age = |end: Timestamp| clock::now().duration_since(end).unsigned_abs();
    let is_recent = |end| args.since.is_some_and(|since| age(end) <= since);
    let failed = args.failed.then_some(live::State::Failed);
    let states: Vec<live::State> = args.state.iter().copied().chain(failed).collect();
    // In a table, these limits apply to the line of each piece of work.
    let allows = |it: &InFlightOperation| {
        let is_wanted = states.is_empty() || states.contains(&it.status.state);
        is_wanted && (args.since.is_none() || it.completed().is_some_and(is_recent))
    };
    if format.is_table() {
        // The other members of a piece can decide its state.
        let all = operations.iter().chain(&others).chain(&in_flight);
        let mut pieces = work_groups::pieces_of_work(all);
        pieces.retain(|it| {
            let single = it.members.is_empty().then_some(&it.line);
            let mut parts = single.into_iter().chain(&it.members);
            parts.any(|it| filters.matches(it)) && !it.line.is_active() && allows(&it.line)
        });
        // For completed operations, this order begins with the newest end.
        SortBy::NEED.sort(&mut pieces);
        let rows = pieces.into_iter().flat_map(|it| it.rows(args.work.expand));
        let rows: Vec<Row> = rows.collect();
        let paint = args.colors.paint();
        let mut style = source.server.table_style(format, paint).await;
        if rows.is_empty() {
            print_error_line("No completed operations match the filters.");
        } else {
            style.columns = if style.wide { WIDE } else { COLUMNS };
            print(Table::text(&rows, clock::now(), &style))?;
        }
    } else {
        operations.retain(allows);
        SortBy::NEED.sort(&mut operations);
        print(objects(&operations, format, false)?)?;
    }
    print_error_line(&match oldest_end {
        None => "There are no records yet.".to_owned(),
        Some(oldest) => {
            // The time of `--since` begins before the oldest record.
            let only = if is_recent(oldest) { " only" } else { "" };
            format!("Records reach back{only} to {oldest:.0}.")
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// Reads the records in the namespaces of `source`, and the custom resources of completed
/// operations. If the cluster serves records, custom resources are optional: persistence mode can
/// be off, or the user may not read them. If records cannot be read, completed custom resources are
/// enough. In files, live operations count like custom resources, because the files can lack
/// records.
async fn completed_operations(source: &OperationSource) -> Result<Vec<InFlightOperation>, Problem> {
    let records = records(source, "").await;
    let path = list_path(Served::Crs.group(), live::PLURAL, None);
    let mut stored: Vec<AnyOperation> = match source.server.all(&path, "").await {
        Ok(custom) => custom,
        Err(problem) if source.served == Served::Crs => return Err(problem),
        // Persistence mode is off, or the user may read only records.
        Err(Problem::NotFound(_) | Problem::Forbidden { .. }) => Vec::new(),
        Err(problem) => {
            let note = "custom resources may reach further back, but they cannot be read";
            complain("note", format!("{note}: {problem}"));
            Vec::new()
        }
    };
    if source.server.from_files.is_some() {
        let path = list_path(Served::Live.group(), live::PLURAL, None);
        stored.extend(source.server.all(&path, "").await.unwrap_or_default());
    }
    stored.retain(|it| it.0.completed().is_some());
    let mut all = match records {
        Err(problem) if !stored.is_empty() => {
            let shown = format!("showing the objects of {}", live::PLURAL);
            complain("note", format!("{problem}; {shown}"));
            Vec::new()
        }
        records => records?,
    };
    // A custom resource has the UID of the operation that it stores.
    let mut uids: HashSet<Text> = all.iter().map(|it| it.metadata.uid.clone()).collect();
    let mut is_new = |uid: &Text| uid.is_empty() || uids.insert(uid.clone());
    let stored = stored.into_iter().map(|AnyOperation(it)| it);
    all.extend(stored.filter(|it| is_new(&it.metadata.uid)));
    Ok(all)
}

/// Reads the records that a field selector selects. Empty if the operations come from the custom
/// resources of a cluster.
pub(super) async fn records(
    source: &OperationSource,
    field_selector: &str,
) -> Result<Vec<InFlightOperation>, Problem> {
    let mut records = Vec::new();
    let namespaces = source.requested_namespaces().into_iter();
    let has_records = source.served == Served::Live || source.server.from_files.is_some();
    for namespace in namespaces.filter(|_| has_records) {
        let path = list_path(LIVE_GROUP, record::PLURAL, namespace);
        let listed: Vec<AnyOperation> = source.server.all(&path, field_selector).await?;
        records.extend(listed.into_iter().map(|AnyOperation(it)| it));
    }
    Ok(records)
}
