//! Describes the resource `inflightoperations`: its columns and selectable fields.

use super::{
    COMPLETED, COMPONENT, CellContext, Column, RULE_SET, SelectableField, SharedShortNames,
    age_column, check_label, common_fields, name_column, spec_text, text, time_text,
};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::{LIVE_GROUP, VERSION, live};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Maximum number of characters of the cell Message. With this limit, more tables fit into the 120
/// columns of a terminal.
const MAX_MESSAGE: usize = 80;

/// The columns. The default table (without `-o wide`) of a live migration is at most 120 characters
/// wide, if the name of the virtual machine has 30 characters and the message has 40. Two choices
/// save width:
///
/// - Only the wide table shows `metadata.name`, as kubectl does for Events. The column Operation
///   shows what the operation does, such as `Migrating`.
/// - The cell Subject contains the kind, and the cell State contains the progress.
pub static LIVE_COLUMNS: &[Column] = &[
    Column {
        priority: 1,
        ..name_column()
    },
    text(
        "Kind",
        1,
        |it, _| spec_text(it, |spec| &spec.subject.kind),
        "Kind of the subject.",
    ),
    text(
        "Subject",
        0,
        kind_and_subject,
        "Kind and name of the subject. If the operation is about one item of the subject, such as \
         a disk, the item follows. A kind of several words is replaced by its short name, if \
         kubectl finds only this kind with the short name.",
    ),
    text(
        "Operation",
        0,
        |it, _| spec_text(it, |spec| &spec.operation),
        "Name of the operation.",
    ),
    text(
        "State",
        0,
        state,
        "State of an active operation, or result of a completed one. The progress follows if it \
         is known. An operation that is suspected to be overdue or stalled has a marker.",
    ),
    text(
        "Progress",
        1,
        progress,
        "Progress in percent, if it is known.",
    ),
    age_column("Time since the operation started."),
    text(
        "Message",
        0,
        short_message,
        "Message for people, cut to 80 characters.",
    ),
    text("Phase", 1, |it, _| phase(it).into(), "Active or Completed."),
    COMPONENT,
    RULE_SET,
    text(
        "Reason",
        1,
        |it, _| it.reason_and_message().map(|(reason, _)| &**reason).into(),
        "Reason for the state.",
    ),
    text(
        "Started",
        1,
        |it, _| time_text(it.created()),
        "When the operation started.",
    ),
    COMPLETED,
    text(
        "Full Message",
        1,
        |it, _| message(it).into(),
        "The whole message for people.",
    ),
];

/// Returns the name of the subject: the object that the operation is about. If a rule yields several
/// operations on one object (`forEach`), each operation has an item, and this function returns
/// `name/item`.
pub(super) fn subject(object: &Object) -> Option<String> {
    let spec = object.spec()?;
    let item = spec.item.iter().flat_map(|item| ["/", item]);
    Some([&*spec.subject.name].into_iter().chain(item).collect())
}

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

fn progress<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let progress = object.operation().and_then(|it| it.status.progress);
    progress.map(|it| format!("{it}%")).into()
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

/// Returns the message. An operation without a message has an absent message in JSON.
pub(super) fn message(object: &Object) -> Option<&str> {
    let (_, message) = object.reason_and_message()?;
    Some(&**message).filter(|message| !message.is_empty())
}

/// Returns the message. A long message is cut.
fn short_message<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    message(object).map_or(CellValue::Null, |message| {
        CellValue::Text(shortened(message))
    })
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

/// Returns the description of `inflightoperations` in the group `live.ifo.kubevirt.io`. While
/// the caller sets no short names, tables show whole kinds.
pub fn inflight_operations(reader: IndexReader) -> Resource {
    Resource {
        info: ResourceInfo {
            group: LIVE_GROUP,
            version: VERSION,
            plural: live::PLURAL,
            kind: live::KIND,
            list_kind: "InFlightOperationList",
            namespaced: true,
            verbs: &["get", "list", "watch"],
            short_names: &["ifo", "ifos"],
            categories: &[],
            schema: || schemars::schema_for!(live::InFlightOperation),
            check_label,
        },
        collection: collection::OPERATIONS,
        columns: LIVE_COLUMNS,
        fields: {
            let mut fields = common_fields();
            fields.extend([
                ("status.phase", SelectableField::Text(phase)),
                (
                    "status.state",
                    SelectableField::Text(|it| it.state().map(live::State::name)),
                ),
                (
                    "status.conditions.Overdue",
                    SelectableField::Text(|it| condition(it, "Overdue")),
                ),
                (
                    "status.conditions.Stalled",
                    SelectableField::Text(|it| condition(it, "Stalled")),
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
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let exact = "é".repeat(MAX_MESSAGE);
        assert_eq!(shortened(&exact), exact);
        let long = "é".repeat(MAX_MESSAGE + 1);
        let cut = format!("{}…", "é".repeat(MAX_MESSAGE - 1));
        assert_eq!(shortened(&long), cut);
        assert_eq!(cut.chars().count(), MAX_MESSAGE);
    }
}
