//! `kubectl ifo list` and `get`: print operations once, or with `--watch` each time they change.

mod list_watch;

use super::work_groups::{self, Row};
use crate::clock;
use crate::cluster::connect::{Connect, needs_cluster};
use crate::cluster::problem::{INSTALL_HINT, Problem};
use crate::filters::filter::{Filters, StateArgs};
use crate::filters::filter_check;
use crate::operations::operation::{InFlightOperation, OperationFacts, operation_name_in};
use crate::operations::operation_source::{OperationSource, encode as encode_operation};
use crate::output::colors::Colors;
use crate::output::columns::Table;
use crate::output::print::{
    Format, TerminalText, TextStyle, complain, encode, print, print_error_line,
};
use crate::output::sort::SortBy;
use ifo_api::completeness::Incomplete;
use serde_json::json;
use std::process::ExitCode;

/// The flags of `list`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  # All operations in flight
  kubectl ifo

  # Operations on virtual machines in one namespace, updated when they change
  kubectl ifo list -n shop -k VirtualMachine -w

  # Operations that touch a node, with the members of each piece of work
  kubectl ifo --node worker-3 --expand

  # Failing operations, updated when they change
  kubectl ifo --failing -w

  # As JSON, including completed operations, the longest running first
  kubectl ifo list -A --sort-by age -o json")]
pub(super) struct ListArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    work: WorkArgs,
}

/// The flag for pieces of work.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct WorkArgs {
    /// Show each operation of a piece of work; without this flag, one line is shown for the piece
    #[arg(long)]
    pub(super) expand: bool,
}

/// The arguments of `get`.
#[derive(Debug, Clone, clap::Args)]
// `get` shows operations in any phase, so `--all-phases` has no effect. The flags for states are
// hidden, because a name selects an operation in any state.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(mut_arg("state", |it| it.hide(true)))]
#[command(mut_arg("failing", |it| it.hide(true)))]
#[command(after_help = "\
Examples:
  kubectl ifo get frontend-migrating-3f9c2a1b5e6d7f80
  kubectl ifo get frontend-migrating-3f9c2a1b5e6d7f80 -o yaml")]
pub(super) struct GetArgs {
    /// Names of operations
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    common: CommonArgs,
}

/// The flags of the commands that print operations: filters, output and connection.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CommonArgs {
    #[command(flatten)]
    pub(super) filters: Filters,
    #[command(flatten)]
    pub(super) states: StateArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) connect: Connect,
}

impl CommonArgs {
    /// Returns the filters and the output format. The format is the value of `-O`, or of `-o` as in
    /// kubectl. If `--watch` is combined with `--from`, returns an error.
    pub(super) fn chosen(&self) -> Result<(Filters, Format), Problem> {
        let mut filters = self.filters.with_namespace(self.connect.namespace());
        self.states.add_to(&mut filters);
        let from_filters = filters.take_format()?;
        if self.output.watch && self.connect.reads_files() {
            return Err(needs_cluster("--watch"));
        }
        let format = self.output.format.format.or(from_filters);
        Ok((filters, format.unwrap_or_default()))
    }

    /// Lists the operations, and checks the values of the filters. Also returns the style for a
    /// table.
    pub(super) async fn open(
        &self,
        filters: &mut Filters,
        format: Format,
    ) -> Result<(OperationSource, Vec<InFlightOperation>, TextStyle), Problem> {
        let server = self.connect.open().await?;
        server.check_files()?;
        filters.resolve(&server).await;
        let (source, operations) = OperationSource::open(server, filters.clone()).await?;
        filter_check::check_and_warn(filters, &source, &operations).await?;
        let paint = self.output.colors.paint();
        let style = source.server.table_style(format, paint).await;
        Ok((source, operations, style))
    }
}

/// The flag for the output format.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct FormatArgs {
    /// Output format; kubectl's -o works, too
    #[arg(short = 'O', long = "output", value_name = "FORM")]
    #[arg(value_enum, ignore_case = true)]
    pub(super) format: Option<Format>,
}

/// The flags that determine the form of the output.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    #[command(flatten)]
    format: FormatArgs,
    /// Print changes until interrupted; json and yaml print a document for each change
    #[arg(short, long)]
    pub(super) watch: bool,
    /// Order: a column such as age, state or progress, or a JSONPath such as .status.progress; the
    /// default of tables is the worst first
    #[arg(long, value_parser = SortBy::read, value_name = "COLUMN|PATH")]
    pub(super) sort_by: Option<SortBy>,
    #[command(flatten)]
    pub(super) colors: Colors,
}

/// Lists the operations.
pub(super) async fn run(args: &ListArgs) -> Result<ExitCode, Problem> {
    show(&args.common, Some(args.work), &[]).await
}

/// Shows the named operations in any phase.
pub(super) async fn get(args: &GetArgs) -> Result<ExitCode, Problem> {
    show(&args.common, None, &args.names).await
}

/// Prints the operations with these names. If `names` is empty, prints all operations that the
/// filters select. With `work`, a table has a row for each piece of work.
async fn show(
    common: &CommonArgs,
    work: Option<WorkArgs>,
    names: &[String],
) -> Result<ExitCode, Problem> {
    let (mut filters, format) = common.chosen()?;
    filters.all_phases |= work.is_none();
    let names = names.iter().map(|it| operation_name_in(it).unwrap_or(it));
    filters.names = names.map(str::to_owned).collect();
    let output = &common.output;
    let sort = output.sort_by.clone().unwrap_or(if format.is_table() {
        SortBy::NEED
    } else {
        SortBy::default()
    });
    let (source, mut operations, style) = common.open(&mut filters, format).await?;
    let is_listed = |name: &str| operations.iter().any(|it| it.metadata.name == *name);
    let missing = filters.names.iter().filter(|it| !is_listed(it));
    let missing = missing.map(|name| {
        let hint = format!("if it has completed, see: kubectl ifo describe {name}");
        Problem::NotFound(format!("operation {name:?} not found; {hint}"))
    });
    let mut missing: Vec<Problem> = missing.collect();
    if operations.is_empty() {
        report_missing(std::mem::take(&mut missing))?;
    }
    sort.sort(&mut operations);
    if output.watch {
        report_missing(missing)?;
        return list_watch::watch(format, &style, &source, operations, &filters).await;
    }
    sort.check(&operations)?;
    if !format.is_table() {
        print(objects(&operations, format, filters.names.len() == 1)?)?;
    } else if operations.is_empty() {
        print_error_line(filters.empty_result_message());
    } else {
        let rows: Vec<Row> = match work {
            Some(WorkArgs { expand }) => {
                work_groups::rows(&operations, expand, |pieces| sort.sort(pieces))
            }
            None => operations.iter().map(Row::from).collect(),
        };
        print(Table::text(&rows, clock::now(), &style))?;
    }
    print_incomplete(source.incomplete().as_ref());
    report_missing(missing)?;
    Ok(ExitCode::SUCCESS)
}

/// Reports missing operations: prints all errors except the first one, and returns the first one.
/// As in kubectl, callers do this after they have printed the operations that were found.
pub(super) fn report_missing(problems: Vec<Problem>) -> Result<(), Problem> {
    let mut problems = problems.into_iter();
    let first = problems.next();
    problems.for_each(|it| complain("error", it));
    first.map_or(Ok(()), Err)
}

/// Prints a line to standard error if operations may be missing.
pub(super) fn print_incomplete(incomplete: Option<&Incomplete>) {
    if let Some(incomplete) = incomplete {
        print_error_line(&incomplete_line(incomplete));
    }
}

/// Formats the reason why operations may be missing, in one line.
pub(super) fn incomplete_line(incomplete: &Incomplete) -> String {
    let hint = match incomplete {
        Incomplete::NoRuleSets => INSTALL_HINT,
        Incomplete::NotWorking(sets) if !sets.named.is_empty() => "; kubectl get ors",
        _ => "",
    };
    format!("note: {incomplete}{hint}")
}

/// Formats `kind.group/name` of each operation in a line, as kubectl does with `-o name`.
pub(super) fn names<'a>(
    operations: impl IntoIterator<Item = &'a InFlightOperation>,
) -> TerminalText {
    let names = operations.into_iter();
    names.map(|it| it.resource_name() + "\n").collect()
}

/// Formats `operations` as JSON, as YAML or as names. If `single` is true and there is one
/// operation, the JSON or YAML output is the object of the operation instead of a list.
pub(super) fn objects(
    operations: &[InFlightOperation],
    format: Format,
    single: bool,
) -> Result<TerminalText, Problem> {
    match operations {
        operations if format == Format::Name => Ok(names(operations)),
        [operation] if single => encode(&encode_operation(operation), format),
        // This is the form in which kubectl prints a list.
        _ => encode(
            &json!({
                "apiVersion": "v1",
                "items": operations.iter().map(encode_operation).collect::<Vec<_>>(),
                "kind": "List",
                "metadata": {"resourceVersion": ""},
            }),
            format,
        ),
    }
}

#[cfg(test)]
mod tests;
