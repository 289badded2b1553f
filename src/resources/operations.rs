//! Describes the resource `inflightoperations`: its columns and selectable fields.

use super::cells::{
    CellContext, Column, age, check_label, columns, common_fields_and, component, field, initiator,
    kind, message, name_cell, operation, rule_set_name, state_name, status_reason, subject,
    time_text,
};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::{LIVE_GROUP, VERSION, live};
use schemars::JsonSchema as _;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum number of characters of the cell Message. With this limit, more tables fit into the 120
/// columns of a terminal.
const MAX_MESSAGE: usize = 80;

/// The columns. The default table (without `-o wide`) should fit into 120 characters. For a live
/// migration, it fits if the name of the virtual machine has at most 30 characters, and the message
/// at most 40. Two choices save width:
///
/// - Only the wide table shows `metadata.name`, as kubectl does for Events. The column Operation
///   shows what the operation does, such as `Migrating`.
/// - The cell Subject contains the kind, and the cell State contains the progress.
pub static LIVE_COLUMNS: &[Column] = columns! {
    "Name" name 1 "Name must be unique within a namespace. The name contains the subject's name, the operation, and a hash of the operation's identity and start."
        name_cell;
    "Kind" string 1 "Kind of the subject." |it, _| kind(it).into();
    "Subject" string 0 "Kind and name of the subject. If the operation is about one item of the subject, such as a disk, the item follows. A kind of several words is replaced by its short name, if kubectl finds only this kind with the short name."
        kind_and_subject;
    "Operation" string 0 "Name of the operation." |it, _| operation(it).into();
    "State" string 0 "State of an active operation, or result of a completed one. The progress follows if it is known. An operation that is suspected to be overdue or stalled has a marker."
        state;
    "Progress" string 1 "Progress in percent, if it is known."
        |it, _| progress(it).map(|it| format!("{it}%")).into();
    "Age" date 0 "Time since the operation started." age;
    "Message" string 0 "Message for people, cut to 80 characters."
        |it, _| message(it).map_or(CellValue::Null, |it| CellValue::Text(shortened(it)));
    "Phase" string 1 "Active or Completed." |it, _| phase(it).into();
    "Component" string 1 "Component that the rule set belongs to." |it, _| component(it).into();
    "RuleSet" string 1 "Rule set that detected the operation first." |it, _| rule_set_name(it).into();
    "Initiator" string 1 "Who or what started the operation." |it, _| initiator(it).into();
    "Reason" string 1 "Reason for the state." |it, _| status_reason(it).into();
    "Started" string 1 "When the operation started." |it, _| time_text(Some(it.created()));
    "Completed" string 1 "When the operation ended." |it, _| time_text(it.completed());
    "Full Message" string 1 "The whole message for people." |it, _| message(it).into();
};

/// Returns the short name of the subject's kind and the name of the subject, such as `vm/web` or
/// `vm/web/item`.
fn kind_and_subject<'a>(object: &'a Object, context: &CellContext<'_>) -> CellValue<'a> {
    let short_names = context.of_resource.load();
    let text = object.spec().zip(subject(object)).map(|(spec, name)| {
        let kind = &spec.subject.kind;
        let kind = short_names.name(&spec.subject.api_version, kind);
        format!("{kind}/{name}")
    });
    text.into()
}

fn phase(object: &Object) -> Option<&str> {
    object.operation().map(|it| it.status.phase.name())
}

fn progress(object: &Object) -> Option<u8> {
    object.operation()?.status.progress
}

/// Returns the state, the progress, and a marker if the operation is overdue or stalled.
fn state<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let Some(operation) = object.operation() else {
        return CellValue::Null;
    };
    let status = &operation.status;
    let mut text = status.state.name().to_owned();
    if let Some(progress) = status.progress {
        write!(text, " {progress}%").expect("writing to a String cannot fail");
    }
    text.push_str(
        match (status.is_true("Overdue"), status.is_true("Stalled")) {
            (true, true) => " (overdue, stalled)",
            (true, false) => " (overdue)",
            (false, true) => " (stalled)",
            (false, false) => "",
        },
    );
    CellValue::Text(text.into())
}

/// Returns the status of a condition.
fn condition<'a>(object: &'a Object, type_: &str) -> Option<&'a str> {
    let condition = object.operation()?.status.condition(type_)?;
    Some(&condition.status)
}

/// Returns at most [`MAX_MESSAGE`] characters of the message, including the `…` after a cut.
fn shortened(message: &str) -> Cow<'_, str> {
    match message.char_indices().nth(MAX_MESSAGE - 1) {
        Some((end, last)) if end + last.len_utf8() < message.len() => {
            let kept = message[..end].trim_end();
            format!("{kept}…").into()
        }
        _ => message.into(),
    }
}

/// Returns the description of `inflightoperations` in the group `live.ifo.kubevirt.io`. The result
/// has no short names of kinds. If the caller does not add them, tables show whole kinds.
pub fn inflight_operations(reader: IndexReader) -> Resource {
    let info = ResourceInfo {
        short_names: &["ifo", "ifos"],
        ..ResourceInfo::namespaced((LIVE_GROUP, VERSION), live::PLURAL, live::KIND)
    };
    Resource {
        check_label,
        collection: collection::OPERATIONS,
        columns: LIVE_COLUMNS,
        fields: common_fields_and([
            field("status.phase", phase),
            field("status.state", state_name),
            field("status.conditions.Overdue", |it| condition(it, "Overdue")),
            field("status.conditions.Stalled", |it| condition(it, "Stalled")),
        ]),
        ..Resource::new(info, live::InFlightOperation::json_schema, reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let exact = "é".repeat(80);
        assert_eq!(shortened(&exact), exact);
        let long = "é".repeat(81);
        let cut = format!("{}…", "é".repeat(79));
        assert_eq!(shortened(&long), cut);
    }
}
