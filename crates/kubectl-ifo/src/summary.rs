//! `kubectl ifo summary`: counts the operations, and lists the active operations that are blocked,
//! failing, overdue or stalled.
//!
//! Operations whose rules yield the same key (`spec.work`) are one piece of work. The text counts
//! pieces of work. JSON, YAML and the text with `--expand` count operations.

use super::columns::Table;
use super::discovered_kinds::Kinds;
use super::filter::Filters;
use super::filter_check;
use super::list::{CommonArgs, WorkArgs, print_incomplete};
use super::operation::{
    AGE, InFlightOperation, OperationFacts, PrintedField, PrintedFields, SUBJECT,
};
use super::operation_source::{IncompleteJson, OperationSource};
use super::output::{Format, TerminalText, TextStyle, encode, formats, print, table};
use super::plain_text::one_line;
use super::problem::Problem;
use super::reprint::{self, WatchOutputInputs, WatchOutputText};
use super::sort::SortBy;
use super::work_groups::{self, Row};
use ifo_api::live::State;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The flags of `summary`.
#[derive(Debug, clap::Args)]
// `--all-phases` has no effect, because completed operations are always counted.
#[command(mut_arg("all_phases", |it| it.hide(true)))]
#[command(mut_arg("format", |it| it.value_parser(formats(["table", "wide", "json", "yaml"]))))]
#[command(after_help = "\
Examples:
  kubectl ifo summary
  kubectl ifo summary -c kubevirt -o json")]
pub(super) struct SummaryArgs {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    work: WorkArgs,
}

/// Prints the counts once, or with `--watch` again after each change.
pub(super) async fn run(args: &SummaryArgs) -> Result<ExitCode, Problem> {
    let (mut filters, format) = args.common.chosen()?;
    filters.all_phases = true;
    let sort = args.common.output.sort_by.clone().unwrap_or(SortBy::NEED);
    if format == Format::Name {
        return Err(Problem::Usage(
            "a summary has no names; use -O json".to_owned(),
        ));
    }
    let server = args.common.connect.open().await?;
    let kinds = Kinds::new(server.clone());
    filters.resolve(&kinds).await;
    let paint = args.common.output.colors.paint();
    let style = kinds.style(Format::Table, paint).await;
    let (source, operations) = OperationSource::open(server, filters.clone()).await?;
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    let mut view = SummaryView {
        format,
        style,
        filters,
        sort,
        is_expanded: args.work.expand,
    };
    if args.common.output.watch {
        return reprint::run(&source, operations, format, view).await;
    }
    view.sort.check(&operations)?;
    print(
        view.text(operations, &WatchOutputInputs::now(source.incomplete()))
            .await?,
    )?;
    print_incomplete(source.incomplete().as_ref());
    Ok(ExitCode::SUCCESS)
}

/// The form of the output.
struct SummaryView {
    format: Format,
    style: TextStyle,
    filters: Filters,
    /// The order of the listed operations.
    sort: SortBy,
    /// True if the text counts operations instead of pieces of work.
    is_expanded: bool,
}

impl WatchOutputText for SummaryView {
    fn wants(&self, operation: &InFlightOperation) -> bool {
        self.filters.shows(operation)
    }

    async fn text(
        &mut self,
        mut operations: Vec<InFlightOperation>,
        shown: &WatchOutputInputs,
    ) -> Result<TerminalText, Problem> {
        if self.format.is_table() && !self.is_expanded {
            let pieces = work_groups::pieces_of_work(&operations);
            operations = pieces.into_iter().map(|it| it.line).collect();
        }
        self.sort.sort(&mut operations);
        let now = shown.now;
        let mut summary = Summary::of(&operations, now);
        summary.incomplete = shown.incomplete.as_ref().map(IncompleteJson::of);
        if self.format.is_data() {
            return encode(&summary, self.format);
        }
        Ok(summary.text(&operations, now, &self.style))
    }
}

/// The number of operations in a group, by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct PhaseCounts {
    active: usize,
    completed: usize,
}

/// Counts the operations of each group. `name` returns the group of an operation.
fn counts(
    operations: &[InFlightOperation],
    name: impl Fn(&InFlightOperation) -> &str,
) -> BTreeMap<&str, PhaseCounts> {
    let mut counts: BTreeMap<&str, PhaseCounts> = BTreeMap::new();
    for it in operations {
        let of_group = counts.entry(name(it)).or_default();
        of_group.active += usize::from(it.is_active());
        of_group.completed += usize::from(!it.is_active());
    }
    counts
}

/// The fields of an operation in JSON and YAML, in order.
const FIELDS: &[PrintedField] = &[
    ("name", "/metadata/name"),
    ("namespace", "/spec/subject/namespace"),
    SUBJECT,
    ("operation", "/spec/operation"),
    ("state", "/status/state"),
    ("started", "/metadata/creationTimestamp"),
    AGE,
    ("message", "/status/message"),
];

/// All counts and lists, in the form of the JSON and YAML output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    total: PhaseCounts,
    by_component: BTreeMap<&'a str, PhaseCounts>,
    by_kind: BTreeMap<&'a str, PhaseCounts>,
    by_operation: BTreeMap<&'a str, PhaseCounts>,
    #[serde(serialize_with = "sums")]
    by_state: BTreeMap<&'a str, PhaseCounts>,
    /// The active operation with the earliest start. Held operations do not count. None if there is
    /// no other active operation.
    oldest: Option<PrintedFields<'a>>,
    failing: Vec<PrintedFields<'a>>,
    blocked: Vec<PrintedFields<'a>>,
    /// The operations in flight that take longer than usual.
    overdue: Vec<PrintedFields<'a>>,
    /// The operations in flight whose progress has not risen for too long.
    stalled: Vec<PrintedFields<'a>>,
    /// The reason why operations may be missing. None if no reason is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<IncompleteJson>,
}

impl<'a> Summary<'a> {
    fn of(operations: &'a [InFlightOperation], now: Timestamp) -> Self {
        let urgent = urgent(operations);
        let fields = |operation| PrintedFields {
            operation,
            fields: FIELDS,
            now,
        };
        let list = |is_in: fn(&InFlightOperation) -> bool| {
            let in_list = urgent.iter().filter(|it| is_in(it));
            in_list.copied().map(fields).collect()
        };
        let total = counts(operations, |_| "").into_values().next();
        Self {
            total: total.unwrap_or_default(),
            by_component: counts(operations, |it| &it.spec.component),
            by_kind: counts(operations, |it| &it.spec.subject.kind),
            by_operation: counts(operations, |it| &it.spec.operation),
            by_state: counts(operations, |it| it.status.state.name()),
            oldest: oldest(operations).map(fields),
            failing: list(OperationFacts::is_failing_or_failed),
            blocked: list(|it| it.status.state == State::Blocked),
            overdue: list(OperationFacts::is_overdue),
            stalled: list(OperationFacts::is_stalled),
            incomplete: None,
        }
    }

    fn text(
        &self,
        operations: &[InFlightOperation],
        now: Timestamp,
        style: &TextStyle,
    ) -> TerminalText {
        let PhaseCounts { active, completed } = self.total;
        let held = self.by_state.get(State::Held.name());
        let held = held.map_or_else(String::new, |it| format!(" ({} held)", it.active));
        let mut text =
            TerminalText::from(format!("{active} active{held}, {completed} completed\n"));
        if let Some(oldest) = oldest(operations) {
            let (place, operation) = (oldest.place_name(), &oldest.spec.operation);
            let age = oldest.age(now);
            text += one_line(&format!("Oldest: {place} {operation} for {age}")) + "\n";
        }
        for (title, counts) in [
            ("COMPONENT", &self.by_component),
            ("KIND", &self.by_kind),
            ("OPERATION", &self.by_operation),
            ("STATE", &self.by_state),
        ] {
            let rows = counts.iter().map(|(name, it)| {
                let [active, completed] = [it.active, it.completed].map(|it| it.to_string());
                [(*name).to_owned(), active, completed]
            });
            let rows: Vec<_> = rows.collect();
            if !rows.is_empty() {
                text = text + "\n" + table([title, "ACTIVE", "COMPLETED"], &rows);
            }
        }
        let urgent: Vec<Row> = urgent(operations).into_iter().map(Row::from).collect();
        if !urgent.is_empty() {
            let heading = "Blocked, failing, overdue or stalled:";
            text = text + "\n" + style.paint.heading(heading) + "\n";
            text += Table::text(&urgent, now, style);
        }
        text
    }
}

/// Encodes the number of operations of each group, in any phase.
fn sums<S: Serializer>(
    counts: &BTreeMap<&str, PhaseCounts>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let sums = counts
        .iter()
        .map(|(name, it)| (name, it.active + it.completed));
    serializer.collect_map(sums)
}

fn oldest(operations: &[InFlightOperation]) -> Option<&InFlightOperation> {
    let active = operations
        .iter()
        .filter(|it| it.is_active() && it.status.state != State::Held);
    active.min_by_key(|it| it.started())
}

/// Returns the active operations that are blocked, failing, overdue or stalled, in the order of
/// `operations`.
fn urgent(operations: &[InFlightOperation]) -> Vec<&InFlightOperation> {
    // The ranks below 4 are those of operations that need attention.
    operations.iter().filter(|it| it.attention() < 4).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_fixtures::{mixed, now, short_names, snapshot};
    use super::*;
    use crate::colors::Paint;

    #[test]
    fn summary_output_equals_the_snapshot() {
        let mut operations = mixed();
        SortBy::NEED.sort(&mut operations);
        let summary = Summary::of(&operations, now());
        snapshot(
            "summary",
            &summary.text(&operations, now(), &TextStyle::default()),
        );
        let narrow = TextStyle {
            screen: Some(80),
            paint: Paint { on: true },
            short_names: short_names(),
            ..TextStyle::default()
        };
        snapshot("summary-80", &summary.text(&operations, now(), &narrow));
        let json =
            serde_json::to_string_pretty(&summary).expect("a map with string keys can be encoded");
        snapshot("summary-json", &json);
        let empty = Summary::of(&[], now());
        snapshot(
            "summary-empty",
            &empty.text(&[], now(), &TextStyle::default()),
        );
    }
}
