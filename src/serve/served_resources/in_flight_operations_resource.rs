//! Describes the resource `inflightoperations`: its columns and selectable fields.

use super::SelectableField::{Nodes, Overdue, Stalled, Text};
use super::{
    Cell, Column, Resource, SharedShortNames, age_column, copy_literal, name_column, text,
    write_text,
};
use crate::index::{IndexReader, ObjectTexts, TextField};
use crate::serve::encoded_event_cache::LineCache;
use ifo_api::{LIVE_GROUP, VERSION, live};
use ifo_client::short_names::ShortNames;
use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

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
static LIVE_COLUMNS: &[Column] = &[
    Column {
        priority: 1,
        ..name_column()
    },
    text(
        "Kind",
        1,
        Cell::Text(TextField::SubjectKind),
        "Kind of the subject.",
    ),
    text(
        "Subject",
        0,
        Cell::KindAndSubject,
        "Kind and name of the subject. If the operation is about one item of the subject, such as \
         a disk, the item follows. A kind of several words is replaced by its short name, if \
         kubectl finds only this kind with the short name.",
    ),
    text(
        "Operation",
        0,
        Cell::Text(TextField::Operation),
        "Name of the operation.",
    ),
    text(
        "State",
        0,
        Cell::Function(state),
        "State of an active operation, or result of a completed one. The progress follows if it \
         is known. An operation that is suspected to be overdue or stalled has a marker.",
    ),
    text(
        "Progress",
        1,
        Cell::Function(progress),
        "Progress in percent, if it is known.",
    ),
    age_column("Time since the operation started."),
    text(
        "Message",
        0,
        Cell::Function(short_message),
        "Message for people, cut to 80 characters.",
    ),
    text(
        "Phase",
        1,
        Cell::Text(TextField::Phase),
        "Active or Completed.",
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
        "Reason for the state.",
    ),
    text(
        "Started",
        1,
        Cell::Text(TextField::Started),
        "When the operation started.",
    ),
    text(
        "Completed",
        1,
        Cell::Text(TextField::Completed),
        "When the operation ended.",
    ),
    text(
        "Full Message",
        1,
        Cell::Text(TextField::Message),
        "The whole message for people.",
    ),
];

/// Writes the name of the subject: the object that the operation is about. If a rule yields several
/// operations on one object (`forEach`), each operation has an item, and this function writes
/// `name/item`. Writes null if the subject has no name.
pub(super) fn subject(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let name = texts.literal(TextField::SubjectName);
    copy_literal(name, out);
    if let (Some(_), Some([_, item @ ..])) = (name, texts.literal(TextField::Item)) {
        out.pop(); // Removes the closing quote of the name.
        out.push(b'/');
        out.extend_from_slice(item);
    }
}

/// Returns the text of the cell [`Cell::KindAndSubject`], such as `vm/web` or `vm/web/item`. Returns
/// None if the subject has no name.
pub(in crate::serve) fn kind_and_subject(
    texts: &ObjectTexts<'_>,
    short_names: &ShortNames,
) -> Option<String> {
    let text = |field| texts.text(field).unwrap_or_default();
    let name = texts.text(TextField::SubjectName)?;
    let kind = text(TextField::SubjectKind);
    let kind = short_names.name(&text(TextField::SubjectApiVersion), &kind);
    Some(match texts.text(TextField::Item) {
        Some(item) => format!("{kind}/{name}/{item}"),
        None => format!("{kind}/{name}"),
    })
}

fn progress(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let progress = texts.facts.progress;
    write_text(progress.map(|it| format!("{it}%")).as_deref(), out);
}

/// Writes the cell State: the state, the progress, and a marker if the operation is overdue or
/// stalled.
fn state(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let Some([state @ .., b'"']) = texts.literal(TextField::State) else {
        return copy_literal(None, out);
    };
    out.extend_from_slice(state);
    if let Some(progress) = texts.facts.progress {
        write!(out, " {progress}%").expect("writing to a Vec cannot fail");
    }
    let marker: &[u8] = match (texts.facts.overdue, texts.facts.stalled) {
        (Some(true), Some(true)) => b" (overdue, stalled)",
        (Some(true), _) => b" (overdue)",
        (_, Some(true)) => b" (stalled)",
        _ => b"",
    };
    out.extend_from_slice(marker);
    out.push(b'"');
}

/// Writes the cell Message. A long message is cut.
fn short_message(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let literal = texts.literal(TextField::Message);
    // The JSON string has at least as many bytes as the message has characters. So a string within
    // the limit needs no cut.
    if literal.is_none_or(|literal| literal.len() <= MAX_MESSAGE) {
        return copy_literal(literal, out);
    }
    let message = texts.text(TextField::Message).unwrap_or_default();
    write_text(Some(&shortened(&message)), out);
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
        group: LIVE_GROUP,
        version: VERSION,
        plural: live::PLURAL,
        kind: live::KIND,
        list_kind: "InFlightOperationList",
        namespaced: true,
        contains_records: false,
        verbs: &["get", "list", "watch"],
        short_names: &["ifo", "ifos"],
        categories: &[],
        columns: LIVE_COLUMNS,
        fields: &[
            ("spec.operation", Text(TextField::Operation)),
            ("spec.component", Text(TextField::Component)),
            ("spec.ruleSet", Text(TextField::RuleSet)),
            ("spec.item", Text(TextField::Item)),
            (
                "spec.subject.apiVersion",
                Text(TextField::SubjectApiVersion),
            ),
            ("spec.subject.kind", Text(TextField::SubjectKind)),
            ("spec.subject.name", Text(TextField::SubjectName)),
            ("spec.subject.namespace", Text(TextField::SubjectNamespace)),
            ("spec.subject.uid", Text(TextField::SubjectUid)),
            ("status.phase", Text(TextField::Phase)),
            ("status.state", Text(TextField::State)),
            ("spec.work", Text(TextField::Work)),
            ("status.nodes", Nodes),
            ("status.conditions.Overdue", Overdue),
            ("status.conditions.Stalled", Stalled),
        ],
        schema: || schemars::schema_for!(live::InFlightOperation),
        reader,
        lines: Arc::new(LineCache::new()),
        short_names_of_kinds: SharedShortNames::default(),
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
