//! Formats descriptions of operations as text. A description begins with what a person asks first:
//! the state, the message, and since when. As `kubectl describe` does with custom resources, the text
//! has all fields of the object. The rule, related operations, Events, labels and the UID follow.

use super::{DescribedFacts, events};
use crate::colors::Paint;
use crate::operation::{InFlightOperation, OperationFacts as _, seconds_text};
use crate::operation_source::encode;
use crate::output::{TerminalText, table};
use crate::plain_text::{ago, one_line, pad};
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Width of the column with the titles, in terminal columns. Longer titles are not cut.
const TITLE_WIDTH: usize = 22;

/// Largest number of rows of a table. If there are more, a line shows how many rows are left out.
const MAX_ROWS: usize = 50;

/// Describes an operation. `all` are the operations that can be related.
pub(crate) fn describe<'a>(
    operation: &'a InFlightOperation,
    facts: &DescribedFacts,
    all: impl IntoIterator<Item = &'a InFlightOperation>,
    now: Timestamp,
    paint: Paint,
) -> TerminalText {
    let mut described = TerminalText::default();
    let text = &mut described;
    let object = encode(operation);
    let (metadata, status) = (&object["metadata"], &operation.status);
    let optional = |text: &Option<Text>| text.clone().unwrap_or_default();
    let state = paint.state(
        operation.color_state(),
        &one_line(&operation.marked_state()),
    );
    *text += TerminalText::from(pad("State:", TITLE_WIDTH)) + state + "\n";
    line(text, 0, "Message", &status.message);
    let since = json!(operation.metadata.creation_timestamp);
    field(text, 0, "Since", &since, now);
    line(text, 0, "Expected", &operation.usual_duration_and_source());
    line(text, 0, "Time Left", &operation.time_left(now));
    line(text, 0, "Initiator", &optional(&operation.spec.initiator));
    let in_queue = operation.in_queue().map(seconds_text);
    line(text, 0, "Queued", &in_queue.unwrap_or_default());
    line(text, 0, "To Stop It", &optional(&status.cancel));
    line(text, 0, "Name", &operation.metadata.name);
    field(text, 0, "Namespace", &metadata["namespace"], now);
    field(text, 0, "Spec", &object["spec"], now);
    field(text, 0, "Status", &object["status"], now);
    let rows = status.conditions.iter().map(|it| {
        let since = ago(it.last_transition_time.0, now);
        let texts: [&str; 5] = [&it.type_, &it.status, &since, &it.reason, &it.message];
        texts.map(str::to_owned)
    });
    let header = ["Type", "Status", "Since", "Reason", "Message"];
    rows_of(text, "Conditions", header, Ok(rows.collect()));
    match &facts.rule {
        Ok(rule) => field(text, 0, "Rule", rule, now),
        Err(why) => line(text, 0, "Rule", &format!("<not shown: {why}>")),
    }
    let rows = related(operation, all);
    let rows = rows.iter().map(|(how, other)| {
        [
            (*how).to_owned(),
            other.subject_name(),
            other.spec.operation.to_string(),
            other.marked_state(),
            other.age(now),
            other.metadata.name.to_string(),
        ]
    });
    let header = ["Relation", "Subject", "Operation", "State", "Age", "Name"];
    rows_of(text, "Related", header, Ok(rows.collect()));
    let rows = facts.events.as_ref().map_err(String::as_str);
    let rows = rows.map(|all| all.iter().map(|it| events::row(it, now)).collect());
    let header = ["Type", "Reason", "Age", "From", "Message"];
    rows_of(text, "Events", header, rows);
    field(text, 0, "Labels", &metadata["labels"], now);
    field(text, 0, "UID", &metadata["uid"], now);
    described
}

/// Adds a field of an object. Conditions are in a table of their own.
fn field(text: &mut TerminalText, indent: usize, name: &str, value: &Value, now: Timestamp) {
    match value {
        Value::Null => {}
        Value::String(value) => match value.parse::<Timestamp>() {
            Ok(time) => {
                let distance = if time.as_second() > now.as_second() + 1 {
                    format!("in {}", ago(now, time))
                } else {
                    format!("{} ago", ago(time, now))
                };
                line(text, indent, name, &format!("{value} ({distance})"));
            }
            Err(_) => line(text, indent, name, value),
        },
        Value::Object(fields) => {
            line(text, indent, name, "\n");
            children(text, indent + 2, fields, now);
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            line(text, indent, name, "\n");
            for fields in items.iter().filter_map(Value::as_object) {
                children(text, indent + 2, fields, now);
            }
        }
        Value::Array(items) => {
            let items = items.iter().map(|it| it.as_str().unwrap_or_default());
            line(text, indent, name, &items.collect::<Vec<_>>().join(", "));
        }
        value => line(text, indent, name, &value.to_string()),
    }
}

fn children(text: &mut TerminalText, indent: usize, fields: &Map<String, Value>, now: Timestamp) {
    for (name, value) in fields.iter().filter(|(name, _)| *name != "conditions") {
        field(text, indent, name, value, now);
    }
}

/// Adds a line with a title and a value. An empty value adds no line. If the value has several lines,
/// the further lines are aligned with the first one.
fn line(text: &mut TerminalText, indent: usize, name: &str, value: &str) {
    let width = TITLE_WIDTH.saturating_sub(indent + 1);
    let mut title = pad(&format!("{}:", one_line(name)), width);
    for part in value.lines() {
        let row = format!("{:indent$}{title} {}", "", one_line(part));
        text.push_str(row.trim_end());
        text.push_str("\n");
        title = pad("", width);
    }
}

/// Adds a section with a table, which has a line of dashes below its header, as in kubectl. If the
/// rows are an error, the section has its reason.
fn rows_of<const N: usize>(
    text: &mut TerminalText,
    name: &str,
    header: [&str; N],
    rows: Result<Vec<[String; N]>, &str>,
) {
    let mut rows = match rows {
        Ok(rows) if rows.is_empty() => return line(text, 0, name, "<none>"),
        Ok(rows) => rows,
        Err(why) => return line(text, 0, name, &format!("<not shown: {why}>")),
    };
    line(text, 0, name, "\n");
    let more = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    rows.insert(0, header.map(|title| "-".repeat(title.len())));
    for row in table(header, &rows).lines() {
        text.push_str(&format!("  {row}\n"));
    }
    if more > 0 {
        text.push_str(&format!("  … and {more} more\n"));
    }
}

/// Returns all operations that are related to `operation` with their relation, active ones first.
pub(super) fn related<'a>(
    operation: &InFlightOperation,
    all: impl IntoIterator<Item = &'a InFlightOperation>,
) -> Vec<(&'static str, &'a InFlightOperation)> {
    let others = all.into_iter().filter(|it| it.key() != operation.key());
    let related = others.filter_map(|other| Some((relation(operation, other)?, other)));
    let mut related: Vec<_> = related.collect();
    related.sort_by_key(|it| !it.1.is_active());
    related
}

/// Returns the relation of `other` to `operation`. None if they are not related.
fn relation(operation: &InFlightOperation, other: &InFlightOperation) -> Option<&'static str> {
    let (own, subject) = (&operation.spec.subject, &other.spec.subject);
    let owns = |owner: &SubjectReference, owned: &SubjectReference| {
        let mut references = owned.owner_references.iter();
        references.any(|it| owner.uid.as_ref() == Some(&it.uid))
    };
    if (&own.kind, &own.namespace, &own.name) == (&subject.kind, &subject.namespace, &subject.name)
    {
        Some("Same subject")
    } else if owns(subject, own) {
        Some("Owner")
    } else if owns(own, subject) {
        Some("Owned")
    } else {
        let is_same_work = operation.work_key() == other.work_key();
        (is_same_work && operation.work_key().is_some()).then_some("Same work")
    }
}
