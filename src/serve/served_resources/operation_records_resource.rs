//! Describes the resource `operationrecords`: its columns and selectable fields. Records are in the
//! index of the operations, under separate keys.

use super::SelectableField::{Nodes, Text};
use super::in_flight_operations_resource::subject;
use super::{Cell, Column, Resource, SharedShortNames, name_column, text, write_text};
use crate::index::{IndexReader, ObjectTexts, TextField};
use crate::serve::encoded_event_cache::LineCache;
use ifo_api::live::{Expected, ExpectedSource};
use ifo_api::{LIVE_GROUP, VERSION, duration, record};
use serde::Deserialize;
use std::sync::Arc;

static RECORD_COLUMNS: &[Column] = &[
    Column {
        // The name is long and has no meaning for people, so only the wide table shows it.
        priority: 1,
        description: "Name of the operation.",
        ..name_column()
    },
    text(
        "Kind",
        0,
        Cell::Text(TextField::SubjectKind),
        "Kind of the subject.",
    ),
    text(
        "Subject",
        0,
        Cell::Function(subject),
        "Name of the subject. If the operation is about one item of the subject, such as a disk, \
         the item follows.",
    ),
    text(
        "Operation",
        0,
        Cell::Text(TextField::Operation),
        "Name of the operation.",
    ),
    text(
        "Outcome",
        0,
        Cell::Text(TextField::State),
        "Result of the operation.",
    ),
    text(
        "Started",
        0,
        Cell::Text(TextField::Started),
        "When the operation started.",
    ),
    text(
        "Duration",
        0,
        Cell::Function(duration_cell),
        "Time from the start to the last detection.",
    ),
    text(
        "Usual",
        0,
        Cell::Function(usual),
        "Usual duration of the operation, as it was known at the end. If too few earlier runs were \
         known, the cell is the limit of the rule, such as `limit 10m`.",
    ),
    text(
        "Component",
        1,
        Cell::Text(TextField::Component),
        "Component that the rule set belongs to.",
    ),
    text(
        "RuleSet",
        1,
        Cell::Text(TextField::RuleSet),
        "Rule set that detected the operation first.",
    ),
    text(
        "Reason",
        1,
        Cell::Text(TextField::Reason),
        "Reason for the result.",
    ),
    text(
        "Completed",
        1,
        Cell::Text(TextField::Completed),
        "When the operation ended.",
    ),
    text(
        "Message",
        1,
        Cell::Text(TextField::Message),
        "Message for people.",
    ),
];

/// Writes the cell Duration.
fn duration_cell(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let times = texts.facts.started.zip(texts.facts.completed);
    let text = times.map(|(start, end)| duration::human(end.as_second() - start.as_second()));
    write_text(text.as_deref(), out);
}

/// Writes the cell Usual. The cell is null if neither a usual duration nor a limit was known.
fn usual(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    #[derive(Deserialize)]
    struct Record {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        expected: Option<Expected>,
    }
    let record: Option<Record> = serde_json::from_slice(&texts.whole_json()).ok();
    let expected = record.and_then(|record| record.status.expected);
    write_text(expected.map(usual_text).as_deref(), out);
}

/// Formats the usual duration, such as `2m5s`, or the limit of the rule, such as `limit 10m`.
fn usual_text(expected: Expected) -> String {
    let seconds = i64::try_from(expected.typical_seconds).unwrap_or(i64::MAX);
    let typical = duration::human(seconds);
    match expected.source {
        ExpectedSource::Rule => format!("limit {typical}"),
        ExpectedSource::History => typical,
    }
}

/// Returns the description of `operationrecords` in the group `live.ifo.kubevirt.io`. `reader` is
/// the reader of the index of the operations.
pub fn operation_records(reader: IndexReader) -> Resource {
    Resource {
        group: LIVE_GROUP,
        version: VERSION,
        plural: record::PLURAL,
        kind: record::KIND,
        list_kind: "OperationRecordList",
        namespaced: true,
        contains_records: true,
        verbs: &["get", "list"],
        short_names: &["opr"],
        categories: &[],
        columns: RECORD_COLUMNS,
        fields: &[
            ("spec.operation", Text(TextField::Operation)),
            ("spec.component", Text(TextField::Component)),
            ("spec.ruleSet", Text(TextField::RuleSet)),
            ("spec.item", Text(TextField::Item)),
            ("spec.work", Text(TextField::Work)),
            (
                "spec.subject.apiVersion",
                Text(TextField::SubjectApiVersion),
            ),
            ("spec.subject.kind", Text(TextField::SubjectKind)),
            ("spec.subject.name", Text(TextField::SubjectName)),
            ("spec.subject.namespace", Text(TextField::SubjectNamespace)),
            ("spec.subject.uid", Text(TextField::SubjectUid)),
            ("status.outcome", Text(TextField::State)),
            ("status.reason", Text(TextField::Reason)),
            ("status.nodes", Nodes),
        ],
        schema: || schemars::schema_for!(record::OperationRecord),
        reader,
        lines: Arc::new(LineCache::new()),
        short_names_of_kinds: SharedShortNames::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_rule_is_distinguished_from_the_usual_duration() {
        let text = |source| {
            usual_text(Expected {
                typical_seconds: 125,
                p95_seconds: None,
                runs: None,
                source,
            })
        };
        assert_eq!(text(ExpectedSource::History), "2m5s");
        assert_eq!(text(ExpectedSource::Rule), "limit 2m5s");
    }
}
