//! Formats descriptions of operations as text. A description begins with the facts that a person
//! asks for first: the state, the message and the start. Then all fields of the object follow, as
//! in the output of `kubectl describe` for custom resources. The rule, related operations, Events,
//! labels and the UID follow.

use super::{DescribedFacts, events, not_shown};
use crate::operations::operation::{InFlightOperation, OperationFacts as _, seconds_text};
use crate::operations::operation_source::encode;
use crate::output::colors::Paint;
use crate::output::columns::OperationColumn::{self, Age, Name, Operation, State, Subject};
use crate::output::columns::Table;
use crate::output::plain_text::{ago, one_line, pad};
use crate::output::print::{Format, TerminalText, TextStyle, encode as encode_document};
use crate::output::sort::SortBy;
use crate::work_groups::Row;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// Width of the column with the titles, in terminal columns. Longer titles are not cut.
const TITLE_WIDTH: usize = 22;

/// The columns of related operations.
const RELATED_COLUMNS: &[OperationColumn] = &[Subject, Operation, State, Age, Name];

/// Largest number of rows of a table. If there are more, a line shows how many rows are left out.
const MAX_ROWS: usize = 50;

/// Describes an operation. `all` are the operations in which related operations are searched.
pub(crate) fn describe<'a>(
    operation: &'a InFlightOperation,
    facts: &DescribedFacts,
    all: impl IntoIterator<Item = &'a InFlightOperation>,
    now: Timestamp,
    paint: Paint,
) -> TerminalText {
    let (object, status) = (encode(operation), &operation.status);
    let metadata = &object["metadata"];
    let state = one_line(&operation.marked_state());
    let state = paint.state(operation.color_state(), &state);
    let mut described = TerminalText::from(pad("State:", TITLE_WIDTH)) + state + "\n";
    let text = &mut described;
    let optional = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
    let time = |at: Timestamp| format!("{at:.0} ({} ago)", ago(at, now));
    let in_state = status.state_since.map(|it| time(it.0));
    for (name, value) in [
        ("Message", status.message.to_string()),
        ("Since", time(operation.started())),
        ("In State Since", in_state.unwrap_or_default()),
        ("Expected", operation.usual_duration_and_source()),
        ("Time Left", operation.time_left(now)),
        ("Initiator", optional(&operation.spec.initiator)),
        (
            "Queued",
            operation.in_queue().map_or_else(String::new, seconds_text),
        ),
        ("To Stop It", optional(&status.cancel)),
    ] {
        line(text, name, &value);
    }
    for (name, value) in [
        ("Name", &metadata["name"]),
        ("Namespace", &metadata["namespace"]),
        ("Spec", &object["spec"]),
        ("Status", &object["status"]),
        ("Rule", &facts.rule),
    ] {
        fields(text, name, value);
    }
    let style = TextStyle {
        columns: RELATED_COLUMNS,
        paint,
        ..TextStyle::default()
    };
    let related = related(operation, all);
    let table = Table::text(&related, now, &style);
    section(text, "Related", Ok(table));
    let events = facts.events.as_ref().map_err(String::as_str);
    let events = events.map(|it| events::table(it, now));
    section(text, "Events", events);
    fields(text, "Labels", &metadata["labels"]);
    fields(text, "UID", &metadata["uid"]);
    described
}

/// Adds the fields of an object as YAML below a title. A string is on the line of the title.
fn fields(text: &mut TerminalText, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(value) => line(text, name, value),
        value => {
            let mut all = Map::new();
            all.insert(name.to_owned(), value.clone());
            // JSON values can always be encoded as YAML, so there is no error to report.
            *text += encode_document(&all, Format::Yaml).unwrap_or_default();
        }
    }
}

/// Adds a line with a title and a value. An empty value adds no line. If the value has several
/// lines, the further lines are aligned with the first one.
fn line(text: &mut TerminalText, name: &str, value: &str) {
    let mut title = pad(&format!("{name}:"), TITLE_WIDTH - 1);
    for part in value.lines() {
        let row = format!("{title} {}", one_line(part));
        *text += row.trim_end().to_owned() + "\n";
        title = pad("", TITLE_WIDTH - 1);
    }
}

/// Adds a section with a table below a title. If `table` is an error, the section shows why there
/// is no table.
fn section(text: &mut TerminalText, name: &str, table: Result<TerminalText, &str>) {
    let lines = match table {
        Ok(table) => table.split_lines(),
        Err(why) => return line(text, name, &not_shown(why)),
    };
    if lines.len() <= 1 {
        return line(text, name, "<none>");
    }
    line(text, name, "\n");
    for row in lines.iter().take(MAX_ROWS + 1) {
        *text += TerminalText::from("  ") + row.clone() + "\n";
    }
    if lines.len() > MAX_ROWS + 1 {
        let more = lines.len() - MAX_ROWS - 1;
        *text += format!("  … and {more} more\n");
    }
}

/// Returns the operations that are related to `operation`, the worst first. A related operation
/// belongs to the same piece of work, or its subject is one of these:
///
/// - the subject of `operation`
/// - an owner of this subject
/// - an object that this subject owns
pub(super) fn related<'a>(
    operation: &InFlightOperation,
    all: impl IntoIterator<Item = &'a InFlightOperation>,
) -> Vec<Row> {
    let owns = |owner: &SubjectReference, owned: &SubjectReference| {
        let mut references = owned.owner_references.iter();
        references.any(|it| owner.uid.as_deref() == Some(&*it.uid))
    };
    let own = &operation.spec.subject;
    let is_related = |it: &&InFlightOperation| {
        let it = *it;
        let subject = &it.spec.subject;
        let is_same = (&own.kind, &own.namespace, &own.name)
            == (&subject.kind, &subject.namespace, &subject.name);
        let work = operation.work_key();
        let is_same_work = work.is_some() && it.work_key() == work;
        let is_related = is_same || is_same_work || owns(subject, own) || owns(own, subject);
        is_related && it.key() != operation.key()
    };
    let mut related: Vec<&InFlightOperation> = all.into_iter().filter(is_related).collect();
    SortBy::NEED.sort(&mut related);
    related.into_iter().map(Row::from).collect()
}
