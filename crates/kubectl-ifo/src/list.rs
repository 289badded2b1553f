//! `kubectl ifo list` and `get`: print operations once, or as they change.

use super::colors::{Colors, Paint};
use super::columns::{Table, screen};
use super::connect::Connect;
use super::filter::Filters;
use super::filter_check;
use super::kinds::Kinds;
use super::operation::{ListedOperation, operation_name_in};
use super::output::{Format, OutputShape, TextStyle, complain, print, print_error_line, text_of};
use super::problem::{HOME, Problem};
use super::sort::SortBy;
use super::source::{OperationChange, OperationSource, Served};
use crate::clock;
use ifo_api::completeness::Incomplete;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::process::ExitCode;

/// The flags of `list`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  # All operations in flight
  kubectl ifo

  # Operations on virtual machines in one namespace, updated when they change
  kubectl ifo list -n shop -k VirtualMachine -w

  # As JSON, including completed operations, the longest running first
  kubectl ifo list -A --sort-by age -o json")]
pub(super) struct ListArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// The arguments of `get`.
#[derive(Debug, Clone, clap::Args)]
// Operations that are named are shown in any phase.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(after_help = "\
Examples:
  kubectl ifo get frontend-migrating-3f9c2a1b
  kubectl ifo get frontend-migrating-3f9c2a1b -o yaml")]
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
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) connect: Connect,
}

impl CommonArgs {
    /// Returns the filters and the output format, which can be a value of `-o`.
    pub(super) fn chosen(&self) -> Result<(Filters, OutputShape), Problem> {
        let mut filters = self.filters.with_namespace(self.connect.namespace());
        let asked = filters.take_format()?;
        Ok((filters, self.output.shape.or(asked).unwrap_or_default()))
    }
}

/// The flags about the output.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Output format; kubectl's -o works, too
    #[arg(
        short = 'O',
        long = "output",
        value_enum,
        value_name = "FORM",
        ignore_case = true
    )]
    pub(super) shape: Option<OutputShape>,
    /// Print changes until interrupted; json and yaml print a document for each
    #[arg(short, long)]
    pub(super) watch: bool,
    /// Order: a column such as age, state or progress, or a JSONPath such as .status.progress
    #[arg(long, value_parser = SortBy::read, value_name = "COLUMN|PATH")]
    pub(super) sort_by: Option<SortBy>,
    #[command(flatten)]
    pub(super) colors: Colors,
}

/// Lists the operations.
pub(super) async fn run(args: &ListArgs) -> Result<ExitCode, Problem> {
    show(&args.common, false, &[]).await
}

/// Shows the named operations in any phase.
pub(super) async fn get(args: &GetArgs) -> Result<ExitCode, Problem> {
    show(&args.common, true, &args.names).await
}

async fn show(
    common: &CommonArgs,
    all_phases: bool,
    names: &[String],
) -> Result<ExitCode, Problem> {
    let (mut filters, shape) = common.chosen()?;
    filters.all_phases |= all_phases;
    let output = &common.output;
    let sort = output.sort_by.clone().unwrap_or_default();
    let keep_raw = shape.data().is_some() || sort.needs_raw();
    let nothing = filters.nothing();
    let server = common.connect.open().await?;
    filters.resolve(&Kinds::new(server.clone())).await;
    let (source, mut operations) = OperationSource::open(server, filters.clone(), keep_raw).await?;
    if names.is_empty() {
        filter_check::check_and_warn(&filters, &source, &operations).await?;
    }
    let names: Vec<&str> = names
        .iter()
        .map(|it| operation_name_in(it).unwrap_or(it))
        .collect();
    let named =
        |operation: &ListedOperation| names.is_empty() || names.contains(&operation.name.as_str());
    operations.retain(named);
    let is_there = |name: &&str| operations.iter().any(|it| it.name == **name);
    let missing: Vec<&str> = names.iter().copied().filter(|it| !is_there(it)).collect();
    if missing.len() == names.len()
        && let Some(first) = missing.first()
    {
        return Err(not_found(&source, &filters, first).await);
    }
    if !output.watch {
        sort.check(&operations)?;
    }
    sort.sort(&mut operations);
    let view = ListView {
        shape,
        served: source.served,
        paint: output.colors.paint(),
        screen: screen(),
    };
    if !output.watch {
        print(&view.all(&operations, clock::now(), names.len() == 1)?)?;
        if operations.is_empty() && shape.is_table() {
            print_error_line(nothing);
        }
        tell_incomplete(&source);
    }
    // The error follows the found operations, as in kubectl.
    if let [first, others @ ..] = missing.as_slice() {
        for name in others {
            complain("error", not_found(&source, &filters, name).await);
        }
        return Err(not_found(&source, &filters, first).await);
    }
    if !output.watch {
        return Ok(ExitCode::SUCCESS);
    }
    watch(&view, &source, operations, &named).await
}

/// Prints each change of the `named` operations: a row of the table, or a document.
async fn watch(
    view: &ListView,
    source: &OperationSource,
    operations: Vec<ListedOperation>,
    named: &dyn Fn(&ListedOperation) -> bool,
) -> Result<ExitCode, Problem> {
    let mut table = Table::open(&operations, clock::now(), view.style());
    if view.shape.is_table() {
        print(&table.header())?;
    }
    for operation in &operations {
        print(&view.one(&mut table, operation, clock::now())?)?;
    }
    tell_incomplete(source);
    let mut lost = false;
    let mut follower = source.follow(Some(operations))?;
    loop {
        let news = match follower.next().await? {
            OperationChange::Applied(operation) => *operation,
            // The end of the operation was not observed.
            OperationChange::Deleted {
                operation,
                was_active: true,
            } => ended(*operation),
            OperationChange::Deleted { .. } => continue,
            OperationChange::Synced => {
                if std::mem::take(&mut lost) {
                    complain("note", "up to date again");
                }
                continue;
            }
            OperationChange::Lost(problem) => {
                if !std::mem::replace(&mut lost, true) {
                    complain("note", format!("not up to date: {problem}"));
                }
                continue;
            }
        };
        if named(&news) {
            print(&view.one(&mut table, &news, clock::now())?)?;
        }
    }
}

/// Returns the last known state of a deleted operation with the state `Ended`, because its outcome
/// is unknown.
fn ended(mut operation: ListedOperation) -> ListedOperation {
    if operation.active {
        operation.active = false;
        "Ended".clone_into(&mut operation.state);
        operation.raw = operation.raw.as_deref().and_then(ended_object);
    }
    operation
}

fn ended_object(raw: &RawValue) -> Option<Box<RawValue>> {
    let mut object: Value = serde_json::from_str(raw.get()).ok()?;
    let status = object.get_mut("status")?.as_object_mut()?;
    status.insert("phase".to_owned(), json!("Completed"));
    status.insert("state".to_owned(), json!("Ended"));
    to_raw_value(&object).ok()
}

/// Prints one line at the end if operations may be missing.
pub(super) fn tell_incomplete(source: &OperationSource) {
    if let Some(incomplete) = source.incomplete() {
        print_error_line(&incomplete_line(&incomplete));
    }
}

/// Formats one line about rule sets that do not work.
pub(super) fn incomplete_line(incomplete: &Incomplete) -> String {
    match incomplete {
        Incomplete::NoRuleSets => {
            let what = "no OperationRuleSet is installed, so no operation can be detected; to install all shipped ones";
            format!("note: {what}: kubectl apply -k {HOME}/rules")
        }
        Incomplete::NotRead | Incomplete::NotCurrent => format!("note: {incomplete}"),
        Incomplete::NotWorking(sets) => {
            let hint = if sets.named.is_empty() {
                ""
            } else {
                "; kubectl get ors"
            };
            format!("{}{}{hint}", sets.summary(), sets.names())
        }
    }
}

/// Returns the message for a name that no matching operation has.
async fn not_found(source: &OperationSource, filters: &Filters, name: &str) -> Problem {
    let all = source.unfiltered().list().await.unwrap_or_default();
    if let Some(found) = all.iter().find(|it| it.name == name) {
        return Problem::NotFound(format!(
            "operation {name:?} exists, but the filters exclude it: its subject is {}",
            found.place_name()
        ));
    }
    // If a filter cannot match anything, that is the better explanation.
    match filter_check::check(filters, source, &all).await {
        Err(problem) => problem,
        Ok(_) => Problem::NotFound(format!(
            "there is no operation {name:?}; see: kubectl ifo list -A -O name"
        )),
    }
}

/// The form in which operations are printed.
struct ListView {
    shape: OutputShape,
    served: Served,
    paint: Paint,
    screen: Option<usize>,
}

/// A list in the form of kubectl.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    api_version: &'static str,
    items: Vec<FormattedObject<'a>>,
    kind: &'static str,
    metadata: PrintedListMeta,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PrintedListMeta {
    resource_version: &'static str,
}

/// An object that is formatted when it is printed. A list of parsed objects would need several
/// times the memory of their text.
struct FormattedObject<'a>(&'a RawValue);

impl Serialize for FormattedObject<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: Value = serde_json::from_str(self.0.get()).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

impl ListView {
    fn style(&self) -> TextStyle {
        TextStyle {
            screen: self.screen,
            wide: self.shape == OutputShape::Wide,
            paint: self.paint,
        }
    }

    /// Prints all operations together. A single object that was requested by name is not printed as
    /// a list.
    fn all(
        &self,
        operations: &[ListedOperation],
        now: Timestamp,
        single: bool,
    ) -> Result<String, Problem> {
        match self.shape {
            OutputShape::Table | OutputShape::Wide => {
                if operations.is_empty() {
                    return Ok(String::new());
                }
                Ok(Table::text(operations, now, self.style()))
            }
            OutputShape::Name => Ok(operations.iter().map(|it| self.name(it)).collect()),
            OutputShape::Json | OutputShape::Yaml => objects(operations, self.shape, single),
        }
    }

    /// Prints one of several operations.
    fn one(
        &self,
        table: &mut Table,
        operation: &ListedOperation,
        now: Timestamp,
    ) -> Result<String, Problem> {
        match (self.shape, &operation.raw) {
            (OutputShape::Table | OutputShape::Wide, _) => Ok(table.grow(operation, now)),
            (OutputShape::Name, _) => Ok(self.name(operation)),
            (OutputShape::Yaml, Some(raw)) => Ok(format!(
                "---\n{}",
                document(&FormattedObject(raw), self.shape)?
            )),
            (OutputShape::Json, Some(raw)) => document(&FormattedObject(raw), self.shape),
            (OutputShape::Json | OutputShape::Yaml, None) => Ok(String::new()),
        }
    }

    fn name(&self, operation: &ListedOperation) -> String {
        operation.resource_name(self.served.group()) + "\n"
    }
}

/// Encodes the objects as JSON or YAML. A single object that was requested by name is not a list.
pub(super) fn objects(
    operations: &[ListedOperation],
    shape: OutputShape,
    single: bool,
) -> Result<String, Problem> {
    let raw = operations.iter().filter_map(|it| it.raw.as_deref());
    let items: Vec<FormattedObject<'_>> = raw.map(FormattedObject).collect();
    match items.as_slice() {
        [item] if single => document(item, shape),
        _ => document(
            &List {
                api_version: "v1",
                items,
                kind: "List",
                metadata: PrintedListMeta {
                    resource_version: "",
                },
            },
            shape,
        ),
    }
}

fn document(value: &impl Serialize, shape: OutputShape) -> Result<String, Problem> {
    let format = shape.data().unwrap_or(Format::Json);
    text_of(value, format)
}

#[cfg(test)]
mod tests {
    use super::super::snapshots::{mixed, now, operation, snapshot};
    use super::*;
    use serde_json::{Value, json};
    use unicode_width::UnicodeWidthStr as _;

    fn view(shape: OutputShape, screen: Option<usize>, color: bool) -> ListView {
        ListView {
            shape,
            served: Served::Live,
            paint: Paint { on: color },
            screen,
        }
    }

    fn printed(shape: OutputShape, screen: Option<usize>, color: bool) -> String {
        let text = view(shape, screen, color).all(&mixed(), now(), false);
        text.expect("they can be printed")
    }

    #[test]
    fn list_output_equals_the_snapshot() {
        for (name, shape, screen, color) in [
            ("list-pipe", OutputShape::Table, None, false),
            ("list-80", OutputShape::Table, Some(80), false),
            ("list-120", OutputShape::Table, Some(120), false),
            ("list-color", OutputShape::Table, None, true),
            ("list-wide", OutputShape::Wide, Some(80), false),
            ("list-json", OutputShape::Json, None, false),
            ("list-yaml", OutputShape::Yaml, None, false),
            ("list-name", OutputShape::Name, None, false),
        ] {
            snapshot(name, &printed(shape, screen, color));
        }
    }

    #[test]
    fn no_line_exceeds_the_terminal_width() {
        for width in [20, 40, 60, 80, 100, 200] {
            let text = printed(OutputShape::Table, Some(width), false);
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
        }
    }

    /// Operations with long kinds and names, as clusters have them.
    fn long() -> Vec<ListedOperation> {
        let migration = "VirtualMachineInstanceMigration/kubevirt-migrate-vm-x7k2p";
        let blocked = json!({"status": {"progress": 45, "state": "Blocked", "message": "no node"}});
        let importing = json!({"status": {"message": "importing"}});
        vec![
            operation("team-b", migration, "Migrating", 65, blocked),
            operation(
                "team-b",
                "DataVolume/disk-0",
                "ImportInProgress",
                600,
                importing,
            ),
            operation(
                "",
                "Node/worker-12.example.com",
                "Draining",
                7_500,
                json!({}),
            ),
        ]
    }

    #[test]
    fn on_a_narrow_terminal_names_and_ages_stay() {
        let text = |operations: &[ListedOperation], width| {
            view(OutputShape::Table, Some(width), false)
                .all(operations, now(), false)
                .expect("they can be printed")
        };
        for width in [80, 90, 100] {
            let all = text(&long(), width);
            snapshot(&format!("list-long-{width}"), &all);
            for part in ["AGE", "65s", "10m", "125m", "VMIM/kubevirt-migr", "STATE"] {
                assert!(all.contains(part), "{width}: {part}\n{all}");
            }
        }
        // All texts are short, so the table fits.
        let few = text(&long()[1..2], 80);
        assert!(few.contains("disk-0") && few.contains("10m"), "{few}");
        for width in [20, 30, 40, 60] {
            let all = text(&long(), width);
            assert!(
                all.contains("AGE") && all.contains("125m"),
                "{width}:\n{all}"
            );
        }
    }

    #[test]
    fn columns_of_300_operations_line_up() {
        let operations: Vec<ListedOperation> = (0..300)
            .map(|number| {
                let subject = format!("VirtualMachine/{}", "v".repeat(number % 40 + 1));
                operation("shop", &subject, "Migrating", 60, json!({}))
            })
            .collect();
        let text = view(OutputShape::Table, Some(100), false)
            .all(&operations, now(), false)
            .expect("they can be printed");
        let columns: Vec<Option<usize>> = text
            .lines()
            .map(|line| {
                let at = line.find("Migrating").or_else(|| line.find("OPERATION"))?;
                Some(line[..at].width())
            })
            .collect();
        assert_eq!(columns.len(), 301);
        assert!(columns.iter().all(|it| *it == columns[0] && it.is_some()));
    }

    #[test]
    fn a_single_object_is_not_printed_as_a_list() {
        let one = &mixed()[..1];
        let text = view(OutputShape::Json, None, false).all(one, now(), true);
        let value: Value = serde_json::from_str(&text.expect("an object")).expect("JSON");
        assert_eq!(value["kind"], "InFlightOperation");
    }

    #[test]
    fn an_empty_result_is_an_empty_list_or_no_table() {
        assert_eq!(
            view(OutputShape::Table, None, false).all(&[], now(), false),
            Ok(String::new())
        );
        let text = view(OutputShape::Json, None, false).all(&[], now(), false);
        let value: Value = serde_json::from_str(&text.expect("a list")).expect("JSON");
        assert_eq!(value["items"], json!([]));
    }

    #[test]
    fn later_rows_keep_the_column_widths() {
        let view = view(OutputShape::Table, None, false);
        let mut table = Table::open(&mixed(), now(), view.style());
        let late = operation("shop", "VirtualMachine/x", "Migrating", 5, json!({}));
        let row = view.one(&mut table, &late, now()).expect("a row");
        let header = table.header();
        assert_eq!(
            row.find("Migrating"),
            header.find("OPERATION"),
            "{header}{row}"
        );
    }

    #[test]
    fn a_deleted_operation_is_printed_as_completed() {
        let end = ended(mixed().remove(1));
        assert!(!end.active);
        let raw: Value = serde_json::from_str(end.raw.expect("it was kept").get()).expect("JSON");
        assert_eq!(raw["status"]["phase"], "Completed");
        assert_eq!(raw["status"]["state"], "Ended");
    }
}
