//! Describes the resource `operationrecords`: its columns and selectable fields. Records are in the
//! index of the operations, under separate keys.

use super::operations::{message, subject};
use super::{
    COMPLETED, COMPONENT, CellContext, Column, RULE_SET, SelectableField, SharedShortNames,
    check_label, common_fields, name_column, spec_text, text, time_text,
};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::live::{Expected, ExpectedSource, State};
use ifo_api::{LIVE_GROUP, VERSION, duration, record};

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
        |it, _| spec_text(it, |spec| &spec.subject.kind),
        "Kind of the subject.",
    ),
    text(
        "Subject",
        0,
        |it, _| subject(it).into(),
        "Name of the subject. If the operation is about one item of the subject, such as a disk, \
         the item follows.",
    ),
    text(
        "Operation",
        0,
        |it, _| spec_text(it, |spec| &spec.operation),
        "Name of the operation.",
    ),
    text(
        "Outcome",
        0,
        |it, _| it.state().map(State::name).into(),
        "Result of the operation.",
    ),
    text(
        "Started",
        0,
        |it, _| time_text(it.created()),
        "When the operation started.",
    ),
    text(
        "Duration",
        0,
        duration_cell,
        "Time from the start to the last detection.",
    ),
    text(
        "Usual",
        0,
        usual,
        "Usual duration of the operation, as it was known at the end. If too few earlier runs were \
         known, the cell is the limit of the rule, such as `limit 10m`.",
    ),
    COMPONENT,
    RULE_SET,
    text(
        "Reason",
        1,
        |it, _| it.reason_and_message().map(|(reason, _)| &**reason).into(),
        "Reason for the result.",
    ),
    COMPLETED,
    text(
        "Message",
        1,
        |it, _| message(it).into(),
        "Message for people.",
    ),
];

/// Returns the time from the start to the last detection.
fn duration_cell<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let times = object.created().zip(object.completed());
    let seconds = times.map(|(start, end)| end.as_second() - start.as_second());
    seconds.map(duration::human).into()
}

/// Returns the usual duration. The cell is null if neither a usual duration nor a limit was known.
fn usual<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let expected = object.record().and_then(|record| record.status.expected);
    expected.map(usual_text).into()
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
        info: ResourceInfo {
            group: LIVE_GROUP,
            version: VERSION,
            plural: record::PLURAL,
            kind: record::KIND,
            list_kind: "OperationRecordList",
            namespaced: true,
            verbs: &["get", "list"],
            short_names: &["opr"],
            categories: &[],
            schema: || schemars::schema_for!(record::OperationRecord),
            check_label,
        },
        collection: collection::RECORDS,
        columns: RECORD_COLUMNS,
        fields: {
            let mut fields = common_fields();
            fields.extend([
                (
                    "status.outcome",
                    SelectableField::Text(|it| it.state().map(State::name)),
                ),
                (
                    "status.reason",
                    SelectableField::Text(|it| Some(it.reason_and_message()?.0)),
                ),
            ]);
            fields
        },
        reader,
        context: SharedShortNames::default(),
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
