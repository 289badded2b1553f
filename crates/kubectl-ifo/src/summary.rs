//! `kubectl ifo summary`: counts the operations, and lists the active operations that are blocked,
//! failing, overdue or stalled.
//!
//! Operations whose rules yield the same key (`spec.work`) are one piece of work. The text counts
//! pieces of work. JSON, YAML and the text with `--expand` count operations.

use super::list::{CommonArgs, WorkArgs};
use super::work_groups::{self, Row};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::operation::{InFlightOperation, OperationFacts};
use crate::operations::operation_source::encode as encode_operation;
use crate::output::columns::Table;
use crate::output::plain_text::one_line;
use crate::output::print::{Format, TerminalText, TextStyle, encode, formats, table};
use crate::output::reprint;
use crate::output::sort::SortBy;
use ifo_api::completeness::Incomplete;
use ifo_api::live::State;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
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
    let output = &args.common.output;
    let sort = output.sort_by.clone().unwrap_or(SortBy::NEED);
    if format == Format::Name {
        let why = "a summary has no names; use -O json";
        return Err(Problem::Usage(why.to_owned()));
    }
    let (source, operations, style) = args.common.open(&mut filters, Format::Table).await?;
    let is_wanted = |it: &InFlightOperation| filters.shows(it);
    let view = async |mut operations: Vec<InFlightOperation>, incomplete: Option<&Incomplete>| {
        if format.is_table() && !args.work.expand {
            let pieces = work_groups::pieces_of_work(&operations);
            operations = pieces.into_iter().map(|it| it.line).collect();
        }
        sort.sort(&mut operations);
        let groups = groups(&operations);
        if !format.is_table() {
            return encode(&data(&operations, &groups, incomplete), format);
        }
        Ok(text(&operations, &groups, clock::now(), &style))
    };
    reprint::run(&source, operations, format, output, "", is_wanted, view).await
}

/// The number of operations in a group, by phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct PhaseCounts {
    active: usize,
    completed: usize,
}

/// The name of a field in JSON and YAML, and the number of operations in each group.
type Groups<'a> = (&'static str, BTreeMap<&'a str, PhaseCounts>);

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

fn groups(operations: &[InFlightOperation]) -> [Groups<'_>; 4] {
    [
        ("byComponent", counts(operations, |it| &it.spec.component)),
        ("byKind", counts(operations, |it| &it.spec.subject.kind)),
        ("byOperation", counts(operations, |it| &it.spec.operation)),
        ("byState", counts(operations, |it| it.status.state.name())),
    ]
}

/// Returns all counts and lists for JSON and YAML. The field `incomplete` is the reason why
/// operations may be missing, if one is known.
fn data(
    operations: &[InFlightOperation],
    groups: &[Groups<'_>],
    incomplete: Option<&Incomplete>,
) -> Value {
    let list = |is_in: fn(&InFlightOperation) -> bool| -> Vec<Value> {
        let urgent = urgent(operations).into_iter().filter(|it| is_in(it));
        urgent.map(encode_operation).collect()
    };
    let active = operations.iter().filter(|it| it.is_active()).count();
    let mut data = json!({
        "total": {"active": active, "completed": operations.len() - active},
        "oldest": oldest(operations).map(encode_operation),
        "failing": list(|it| it.status.state == State::Failing),
        "blocked": list(|it| it.status.state == State::Blocked),
        "overdue": list(OperationFacts::is_overdue),
        "stalled": list(OperationFacts::is_stalled),
    });
    for (name, counts) in groups {
        data[name] = json!(counts);
    }
    if let Some(incomplete) = incomplete {
        data["incomplete"] = json!(incomplete.to_string());
    }
    data
}

fn text(
    operations: &[InFlightOperation],
    groups: &[Groups<'_>],
    now: Timestamp,
    style: &TextStyle,
) -> TerminalText {
    let active = operations.iter().filter(|it| it.is_active()).count();
    let completed = operations.len() - active;
    let held = operations.iter();
    let held = held.filter(|it| it.status.state == State::Held);
    let held = match held.count() {
        0 => String::new(),
        held => format!(" ({held} held)"),
    };
    let mut text = TerminalText::from(format!("{active} active{held}, {completed} completed\n"));
    if let Some(oldest) = oldest(operations) {
        let (place, operation) = (oldest.place_name(), &oldest.spec.operation);
        let age = oldest.age(now);
        text += one_line(&format!("Oldest: {place} {operation} for {age}")) + "\n";
    }
    for (name, counts) in groups.iter().filter(|(_, counts)| !counts.is_empty()) {
        let rows = counts.iter().map(|(name, it)| {
            let [active, completed] = [it.active, it.completed].map(|it| it.to_string());
            [(*name).to_owned(), active, completed]
        });
        let title = name.trim_start_matches("by").to_uppercase();
        let header = [title.as_str(), "ACTIVE", "COMPLETED"];
        text = text + "\n" + table(header, &rows.collect::<Vec<_>>());
    }
    let urgent: Vec<Row> = urgent(operations).into_iter().map(Row::from).collect();
    if !urgent.is_empty() {
        let heading = "Blocked, failing, overdue or stalled:";
        text = text + "\n" + style.paint.heading(heading) + "\n";
        text += Table::text(&urgent, now, style);
    }
    text
}

/// Returns the active operation with the earliest start. Held operations do not count.
fn oldest(operations: &[InFlightOperation]) -> Option<&InFlightOperation> {
    let is_work = |it: &&InFlightOperation| it.is_active() && it.status.state != State::Held;
    let work = operations.iter().filter(is_work);
    work.min_by_key(|it| it.started())
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
    use crate::output::colors::Paint;

    #[test]
    fn summary_output_equals_the_snapshot() {
        let mut operations = mixed();
        SortBy::NEED.sort(&mut operations);
        let groups = groups(&operations);
        let on = |style| text(&operations, &groups, now(), &style);
        snapshot("summary", &on(TextStyle::default()));
        let narrow = TextStyle {
            screen: Some(80),
            paint: Paint { on: true },
            short_names: short_names(),
            ..TextStyle::default()
        };
        snapshot("summary-80", &on(narrow));
        let data = data(&operations, &groups, Some(&Incomplete::NotRead));
        snapshot("summary-json", &format!("{data:#}"));
        let empty = text(&[], &super::groups(&[]), now(), &TextStyle::default());
        snapshot("summary-empty", &empty);
    }
}
