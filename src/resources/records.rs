//! Describes the resource `operationrecords`: its columns and selectable fields. Records are in the
//! index of the operations, under separate keys.

use super::cells::{
    CellContext, Column, check_label, columns, common_fields_and, component, field, initiator,
    kind, message, name_cell, operation, rule_set_name, state_name, status_reason, subject,
    time_text,
};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::live::{Expected, ExpectedSource};
use ifo_api::{LIVE_GROUP, VERSION, duration, record};
use schemars::JsonSchema as _;

/// The columns. The name is long and has no meaning for people, so only the wide table shows it.
static RECORD_COLUMNS: &[Column] = columns! {
    "Name" name 1 "Name of the operation." name_cell;
    "Kind" string 0 "Kind of the subject." |it, _| kind(it).into();
    "Subject" string 0 "Name of the subject. If the operation is about one item of the subject, such as a disk, the item follows."
        |it, _| subject(it).into();
    "Operation" string 0 "Name of the operation." |it, _| operation(it).into();
    "Outcome" string 0 "Result of the operation." |it, _| state_name(it).into();
    "Started" string 0 "When the operation started." |it, _| time_text(Some(it.created()));
    "Duration" string 0 "Time from the start to the last detection." duration_cell;
    "Usual" string 0 "Usual duration of the operation, as it was known at the end. If too few earlier runs were known, the cell is the limit of the rule, such as `limit 10m`."
        usual;
    "Component" string 1 "Component that the rule set belongs to." |it, _| component(it).into();
    "RuleSet" string 1 "Rule set that detected the operation first." |it, _| rule_set_name(it).into();
    "Initiator" string 1 "Who or what started the operation." |it, _| initiator(it).into();
    "Reason" string 1 "Reason for the result." |it, _| status_reason(it).into();
    "Completed" string 1 "When the operation ended." |it, _| time_text(it.completed());
    "Message" string 1 "Message for people." |it, _| message(it).into();
};

/// Returns the time from the start to the last detection.
fn duration_cell<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let seconds = |end: jiff::Timestamp| end.as_second() - object.created().as_second();
    let completed = object.completed();
    completed.map(|end| duration::human(seconds(end))).into()
}

/// Returns the usual duration. The cell is null if neither a usual duration nor a limit was known.
fn usual<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let expected = object
        .record()
        .and_then(|record| record.status.expected.as_ref());
    expected.map(usual_text).into()
}

/// Formats the usual duration, such as `2m5s`, or the limit of the rule, such as `limit 10m`.
fn usual_text(expected: &Expected) -> String {
    let seconds = i64::try_from(expected.typical_seconds).unwrap_or(i64::MAX);
    let typical = duration::human(seconds);
    match expected.source {
        ExpectedSource::Rule => format!("limit {typical}"),
        ExpectedSource::History | ExpectedSource::Unknown(_) => typical,
    }
}

/// Returns the description of `operationrecords` in the group `live.ifo.kubevirt.io`. `reader` is
/// the reader of the index of the operations.
pub fn operation_records(reader: IndexReader) -> Resource {
    let info = ResourceInfo {
        verbs: &["get", "list"],
        short_names: &["opr"],
        ..ResourceInfo::namespaced((LIVE_GROUP, VERSION), record::PLURAL, record::KIND)
    };
    Resource {
        check_label,
        collection: collection::RECORDS,
        columns: RECORD_COLUMNS,
        fields: common_fields_and([
            field("status.outcome", state_name),
            field("status.reason", status_reason),
        ]),
        ..Resource::new(info, record::OperationRecord::json_schema, reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_api::metadata::UnknownFields;

    #[test]
    fn a_limit_of_the_rule_is_distinguished_from_the_usual_duration() {
        let text = |source| {
            usual_text(&Expected {
                typical_seconds: 125,
                p95_seconds: None,
                runs: None,
                source,
                unknown: UnknownFields::new(),
            })
        };
        assert_eq!(text(ExpectedSource::History), "2m5s");
        assert_eq!(text(ExpectedSource::Rule), "limit 2m5s");
    }
}
