//! Formats descriptions of operations as text, in the form of `kubectl describe`.

use super::OperationDescription;
use super::events;
use super::related_operations::Related;
use super::rule_details::DescribedRule;
use crate::colors::Paint;
use crate::columns::{self, EMPTY_CELL};
use crate::listed_operation::seconds_text;
use crate::output::{TerminalText, table};
use crate::plain_text::{ago, one_line, pad};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

/// Width of the column with the titles, in terminal columns. The longest titles, such as
/// `Last Detected:`, have 14 characters and are indented by 2.
const TITLE_WIDTH: usize = 17;

/// Largest number of rows in the sections `Related` and `Events`. If there are more, a line shows
/// how many rows are left out.
const MAX_RELATED: usize = 50;
const MAX_EVENTS: usize = 50;

/// Formats all descriptions, separated by two blank lines.
pub(super) fn text(
    descriptions: &[OperationDescription<'_>],
    now: Timestamp,
    paint: Paint,
) -> TerminalText {
    let mut text = TerminalText::default();
    for (number, description) in descriptions.iter().enumerate() {
        if number > 0 {
            text.push_str("\n\n");
        }
        text += DescriptionWriter::default().write(description, now, paint);
    }
    text
}

#[derive(Default)]
struct DescriptionWriter {
    text: TerminalText,
}

impl DescriptionWriter {
    fn write(
        mut self,
        description: &OperationDescription<'_>,
        now: Timestamp,
        paint: Paint,
    ) -> TerminalText {
        let OperationDescription {
            operation,
            object,
            rule,
            related,
            events,
        } = description;
        let field = |pointer: &str| match object.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => {
                let items = items.iter().filter_map(Value::as_str);
                items.collect::<Vec<_>>().join(", ")
            }
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let subject = &operation.subject;
        let optional = |text: &Option<String>| text.clone().unwrap_or_default();
        self.line(0, "Name", &operation.name);
        self.line(0, "Namespace", &optional(&operation.namespace));
        self.line(0, "UID", &field("/metadata/uid"));
        let labels = labels(description);
        self.lines(0, "Labels", labels.iter().map(String::as_str));
        self.line(0, "Operation", &operation.operation);
        self.line(0, "Item", &optional(&operation.item));
        self.line(0, "Component", &operation.component);
        self.line(0, "Rule Set", &operation.rule_set);
        self.line(0, "Work", &optional(&operation.work));
        self.line(0, "Detected By", &field("/status/detectedBy"));
        self.heading("Subject");
        self.line(2, "API Version", &subject.api_version);
        self.line(2, "Kind", &subject.kind);
        self.line(2, "Name", &subject.name);
        self.line(2, "Namespace", &optional(&subject.namespace));
        self.line(2, "UID", &optional(&subject.uid));
        self.line(2, "Generation", &field("/status/subjectGeneration"));
        self.line(2, "Owners", &owners(&subject.owner_references));
        self.heading("Status");
        self.line(2, "Phase", &field("/status/phase"));
        let state = one_line(&operation.marked_state());
        self.painted(2, "State", paint.state(operation.color_state(), &state));
        self.line(2, "State Since", &time(operation.state_since, now, ""));
        self.line(2, "Reason", &operation.reason);
        self.line(2, "Message", &operation.message);
        self.line(2, "Progress", &operation.percent(""));
        self.line(2, "Last Progress", &time(operation.last_progress, now, ""));
        self.line(2, "Nodes", &operation.nodes.join(", "));
        self.line(2, "Instance", &field("/status/instance"));
        let source = field("/status/startTimeSource");
        self.line(2, "Started", &time(operation.started, now, &source));
        let detected = field("/status/lastDetected").parse().ok();
        self.line(2, "Last Detected", &time(detected, now, ""));
        self.line(2, "Expected", &operation.usual_duration_and_source());
        if let Some(at) = operation.future_completion(now) {
            self.line(
                2,
                "Estimate",
                &format!("{at} ({})", operation.time_left(now)),
            );
        }
        self.line(2, "Completed", &time(operation.completed, now, ""));
        let seconds = operation.duration_seconds.map(seconds_text);
        self.line(2, "Duration", &optional(&seconds));
        self.conditions(description, now);
        self.rule(rule);
        self.related(related, now);
        if let Some(events) = events {
            self.events(events, now);
        }
        self.text
    }

    fn row(&mut self, row: &str) {
        self.text.push_str(row);
        self.text.push_str("\n");
    }

    /// Adds a line with a title and a text. An empty text adds no line.
    fn line(&mut self, indent: usize, title: &str, text: &str) {
        self.painted(indent, title, one_line(text));
    }

    fn painted(&mut self, indent: usize, title: &str, text: impl Into<TerminalText>) {
        let text = text.into();
        if !text.is_empty() {
            let title = pad(&format!("{title}:"), TITLE_WIDTH - indent);
            self.text.push_str(&format!("{:indent$}{title}", ""));
            self.text += text + "\n";
        }
    }

    fn heading(&mut self, title: &str) {
        self.row(&format!("{title}:"));
    }

    /// Adds a section that contains only the reason why it is empty.
    fn empty_section(&mut self, title: &str, why: &str) {
        let why = one_line(why);
        self.row(&format!("{}{why}", pad(&format!("{title}:"), TITLE_WIDTH)));
    }

    /// Adds a table with a line of dashes below its header, as in kubectl.
    fn rows<const N: usize>(&mut self, header: [&str; N], mut rows: Vec<[String; N]>) {
        rows.insert(0, header.map(|title| "-".repeat(title.len())));
        for line in table(header, &rows).lines() {
            self.row(&format!("  {line}"));
        }
    }

    /// Adds a line for each text. The first line begins with the title.
    fn lines<'t>(&mut self, indent: usize, title: &str, texts: impl IntoIterator<Item = &'t str>) {
        let mut title = format!("{title}:");
        for text in texts {
            let title = pad(&std::mem::take(&mut title), TITLE_WIDTH - indent);
            let line = format!("{:indent$}{title}{}", "", one_line(text));
            self.row(line.trim_end());
        }
    }

    fn conditions(&mut self, description: &OperationDescription<'_>, now: Timestamp) {
        let conditions = &description.operation.conditions;
        if conditions.is_empty() {
            self.empty_section("Conditions", "<none>");
            return;
        }
        self.heading("Conditions");
        let rows = conditions.iter().map(|it| {
            [
                it.kind.clone(),
                it.status.clone(),
                it.last_transition_time
                    .map_or_else(|| EMPTY_CELL.to_owned(), |time| ago(time, now)),
                it.reason.clone(),
                it.message.clone(),
            ]
        });
        self.rows(
            ["Type", "Status", "Since", "Reason", "Message"],
            rows.collect(),
        );
    }

    fn rule(&mut self, rule: &Result<DescribedRule, String>) {
        let rule = match rule {
            Ok(rule) => rule,
            Err(why) => return self.empty_section("Rule", &format!("<not shown: {why}>")),
        };
        self.heading("Rule");
        self.line(2, "Target", &rule.target);
        self.line(
            2,
            "Not Ready",
            rule.not_ready_reason.as_deref().unwrap_or_default(),
        );
        for (field, text) in &rule.fields {
            self.expression(2, field, text);
        }
        if !rule.variables.is_empty() {
            self.row("  Variables:");
        }
        for (name, text) in &rule.variables {
            self.expression(4, name, text);
        }
    }

    /// Adds the lines of a named expression. A name that is too long gets its own line.
    fn expression(&mut self, indent: usize, name: &str, text: &str) {
        if name.len() + 1 < TITLE_WIDTH - indent {
            self.lines(indent, name, text.lines());
        } else {
            self.row(&format!("{:indent$}{}:", "", one_line(name)));
            let blanks = " ".repeat(TITLE_WIDTH);
            for line in text.lines() {
                self.row(&format!("{blanks}{}", one_line(line)));
            }
        }
    }

    fn related(&mut self, related: &[Related<'_>], now: Timestamp) {
        if related.is_empty() {
            return self.empty_section("Related", "<none>");
        }
        self.heading("Related");
        let rows = related.iter().take(MAX_RELATED).map(|it| {
            let operation = it.operation;
            [
                it.how.to_owned(),
                operation.subject_name(),
                operation.operation.clone(),
                operation.marked_state(),
                columns::age(operation, now),
                operation.name.clone(),
            ]
        });
        self.rows(
            ["Relation", "Subject", "Operation", "State", "Age", "Name"],
            rows.collect(),
        );
        let more = related.len().saturating_sub(MAX_RELATED);
        if more > 0 {
            self.row(&format!("  … and {more} more; see: kubectl ifo tree"));
        }
    }

    fn events(&mut self, all: &Result<Vec<Event>, String>, now: Timestamp) {
        let all = match all {
            Ok(all) if all.is_empty() => return self.empty_section("Events", "<none>"),
            Ok(all) => all,
            Err(why) => return self.empty_section("Events", &format!("<not shown: {why}>")),
        };
        self.heading("Events");
        let earlier = all.len().saturating_sub(MAX_EVENTS);
        let rows = all.iter().skip(earlier).map(|it| {
            [
                it.type_.clone().unwrap_or_default(),
                it.reason.clone().unwrap_or_default(),
                events::age(it, now),
                events::reporter(it).to_owned(),
                it.message.as_deref().unwrap_or_default().trim().to_owned(),
            ]
        });
        self.rows(["Type", "Reason", "Age", "From", "Message"], rows.collect());
        if earlier > 0 {
            self.row(&format!("  … and {earlier} earlier ones"));
        }
    }
}

fn labels(description: &OperationDescription<'_>) -> Vec<String> {
    let labels = description.operation.labels.iter();
    labels
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

fn owners(references: &[OwnerReference]) -> String {
    let owners = references.iter().map(|it| {
        let controller = match it.controller {
            Some(true) => " (controller)",
            _ => "",
        };
        format!("{}/{}{controller}", it.kind, it.name)
    });
    owners.collect::<Vec<_>>().join(", ")
}

/// Formats a time with its age and with `note`. An empty `note` is left out.
fn time(time: Option<Timestamp>, now: Timestamp, note: &str) -> String {
    let Some(time) = time else {
        return String::new();
    };
    let ago = ago(time, now);
    match note {
        "" => format!("{time} ({ago} ago)"),
        _ => format!("{time} ({ago} ago; {note})"),
    }
}
