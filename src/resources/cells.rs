//! Columns, selectable fields and accessors that several resources use.

use crate::index::{Model, Object};
use aggregated_apiserver::serve::{self, CellValue};
use arc_swap::ArcSwap;
use ifo_api::live::State;
use ifo_api::metadata::Time;
use ifo_api::{duration, labels};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use std::sync::Arc;

pub(super) type Column = serve::Column<Model>;
pub(super) type CellContext<'a> = serve::CellContext<'a, ArcSwap<ShortNames>>;
pub(super) type SelectableField = serve::SelectableField<Model>;
pub(super) type Field = (&'static str, SelectableField);
pub(super) type FieldText = for<'a> fn(&'a Object) -> Option<&'a str>;

/// The short names of kinds that discovery serves. A task of the server replaces them when they
/// change.
pub type SharedShortNames = Arc<ArcSwap<ShortNames>>;

/// Returns a message if no operation can have a label with the key, such as `ifo.kubevirt.io/node`.
pub(super) fn check_label(key: &str) -> Result<(), String> {
    match key.strip_prefix(labels::PREFIX) {
        Some(suffix)
            if !labels::SERVER_SUFFIXES.contains(&suffix)
                && !labels::AUTHOR_SUFFIXES.contains(&suffix) =>
        {
            Err(format!(
                "label not supported: {key}. To select operations by node, use the field selector \
                 status.nodes=NAME"
            ))
        }
        _ => Ok(()),
    }
}

/// Returns true if the operation touches the node. The field selector `status.nodes=` (without a
/// name) selects operations without nodes.
pub(super) fn has_node(object: &Object, name: &str) -> bool {
    let nodes = object.nodes();
    nodes.is_empty() && name.is_empty() || nodes.iter().any(|node| **node == *name)
}

/// Returns the selectable fields that operations and records have in common, and `more`.
pub(super) fn common_fields_and<const N: usize>(more: [Field; N]) -> Vec<Field> {
    let common = [
        field("spec.operation", operation),
        field("spec.component", component),
        field("spec.ruleSet", rule_set_name),
        field("spec.item", |it| it.spec()?.item.as_deref()),
        field("spec.work", |it| it.spec()?.work.as_deref()),
        field("spec.initiator", initiator),
        field("spec.subject.apiVersion", |it| {
            Some(&it.spec()?.subject.api_version)
        }),
        field("spec.subject.kind", kind),
        field("spec.subject.name", |it| Some(&it.spec()?.subject.name)),
        field("spec.subject.namespace", |it| {
            it.spec()?.subject.namespace.as_deref()
        }),
        field("spec.subject.uid", |it| it.spec()?.subject.uid.as_deref()),
        ("status.nodes", SelectableField::Test(has_node)),
    ];
    common.into_iter().chain(more).collect()
}

/// Creates a selectable field with one text as its value.
pub(super) fn field(path: &'static str, text: FieldText) -> Field {
    (path, SelectableField::Text(text))
}

/// Creates the columns of a resource. A row has the name of a column, the type of its cells, the
/// priority, the description for users, and the function that returns the cells. The priority is 0
/// if kubectl always shows the column, and 1 if only `-o wide` shows it. The type `name` is a
/// string with the format `name`.
macro_rules! columns {
    ($($name:literal $type:ident $priority:literal $description:literal $cell:expr;)*) => {
        &[$(Column {
            name: $name,
            kind: columns!(@kind $type),
            format: columns!(@format $type),
            description: $description,
            priority: $priority,
            cell: $cell,
        }),*]
    };
    (@kind name) => { "string" };
    (@kind $type:ident) => { stringify!($type) };
    (@format name) => { "name" };
    (@format $type:ident) => { "" };
}
pub(crate) use columns;

// The accessors of fields that several resources show or select.

pub(super) fn component(object: &Object) -> Option<&str> {
    Some(&object.spec()?.component)
}

pub(super) fn initiator(object: &Object) -> Option<&str> {
    object.spec()?.initiator.as_deref()
}

pub(super) fn rule_set_name(object: &Object) -> Option<&str> {
    Some(&object.spec()?.rule_set)
}

pub(super) fn kind(object: &Object) -> Option<&str> {
    Some(&object.spec()?.subject.kind)
}

pub(super) fn operation(object: &Object) -> Option<&str> {
    Some(&object.spec()?.operation)
}

pub(super) fn status_reason(object: &Object) -> Option<&str> {
    Some(object.reason_and_message()?.0)
}

pub(super) fn state_name(object: &Object) -> Option<&str> {
    object.state().map(State::name)
}

/// Returns the message. Returns None if the message is empty, because the JSON of the object then
/// has no field `message`.
pub(super) fn message(object: &Object) -> Option<&str> {
    let (_, message) = object.reason_and_message()?;
    Some(&**message).filter(|message| !message.is_empty())
}

/// Returns the name of the subject: the object that the operation is about. If a rule yields several
/// operations on one object (`forEach`), each operation has an item, and this function returns
/// `name/item`.
pub(super) fn subject(object: &Object) -> Option<String> {
    let spec = object.spec()?;
    let item = spec.item.iter().flat_map(|item| ["/", item]);
    Some([&*spec.subject.name].into_iter().chain(item).collect())
}

pub(super) fn name_cell<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    CellValue::Text(object.name().into())
}

/// Returns the time since `metadata.creationTimestamp`, in kubectl's format.
pub(super) fn age<'a>(object: &'a Object, context: &CellContext<'_>) -> CellValue<'a> {
    let seconds = context.now.as_second() - object.created().as_second();
    CellValue::Text(duration::human(seconds).into())
}

/// Returns a cell with a time, as in the JSON of the object.
pub(super) fn time_text<'a>(time: Option<Timestamp>) -> CellValue<'a> {
    let json = time.and_then(|time| serde_json::to_value(Time(time)).ok());
    json.and_then(|json| json.as_str().map(str::to_owned))
        .into()
}
