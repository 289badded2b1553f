//! Describes the resources that this server serves: names, table columns, selectable fields, and
//! the index of the objects. The other modules of the API work with any resource that has a
//! description of the type [`Resource`]. There are three resources:
//!
//! - `inflightoperations`: operations.
//! - `operationrecords`: records of completed operations.
//! - `operationrulesets`: rule sets, only in a server without a cluster (the demo).

mod in_flight_operations_resource;
mod operation_records_resource;

pub use self::in_flight_operations_resource::inflight_operations;
pub(super) use self::in_flight_operations_resource::kind_and_subject;
pub use self::operation_records_resource::operation_records;

use super::encoded_event_cache::LineCache;
use super::error_status::ErrorStatus;
use crate::index::{IndexReader, Key, ObjectTexts, TextField};
use arc_swap::ArcSwap;
use ifo_api::{GROUP, VERSION, ruleset};
use ifo_client::short_names::ShortNames;
use serde::Deserialize;
use std::sync::Arc;

/// A resource that this server serves for get, list and watch.
#[derive(Clone)]
pub struct Resource {
    /// The API group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name, which paths contain.
    pub plural: &'static str,
    /// The kind of one object.
    pub kind: &'static str,
    /// The kind of a list.
    pub list_kind: &'static str,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// True if the objects are the records of completed operations. Records are in the index of the
    /// operations, under separate keys.
    pub contains_records: bool,
    /// The verbs that clients may use.
    pub verbs: &'static [&'static str],
    /// The short names of the resource in kubectl.
    pub short_names: &'static [&'static str],
    /// The categories of the resource in kubectl, such as `all`.
    pub categories: &'static [&'static str],
    /// The columns of a `Table` of these objects, from left to right.
    pub columns: &'static [Column],
    /// The fields that field selectors support, in addition to `metadata.name` and
    /// `metadata.namespace`.
    pub fields: &'static [(&'static str, SelectableField)],
    /// Returns the JSON schema of the kind, for `OpenAPI`. The schemas of the types inside the kind
    /// are under `$defs`.
    pub schema: fn() -> schemars::Schema,
    /// The reader of the index that contains the objects.
    pub reader: IndexReader,
    /// The cache of encoded watch events.
    pub lines: Arc<LineCache>,
    /// The short names of kinds, for the cells [`Cell::KindAndSubject`].
    pub short_names_of_kinds: SharedShortNames,
}

/// The short names of kinds that discovery serves. A task of the server replaces them when they
/// change.
pub type SharedShortNames = Arc<ArcSwap<ShortNames>>;

impl Resource {
    /// Returns `group/version`.
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Returns the key of an object in the index.
    pub(super) fn key(&self, namespace: &str, name: &str) -> Key {
        if self.contains_records {
            Key::of_record(namespace, name)
        } else {
            Key::new(namespace, name)
        }
    }

    /// Returns the error 404 for an object that does not exist.
    pub(super) fn no_object(&self, name: &str) -> ErrorStatus {
        ErrorStatus::no_object(self.group, self.plural, name)
    }

    /// Returns the name of the resource for messages: `plural.group`.
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// The source of a field's value for field selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectableField {
    /// A text of the object.
    Text(TextField),
    /// The nodes of an operation. An operation on the nodes `n1` and `n2` fulfils
    /// `status.nodes=n1`. An operation without nodes fulfils `status.nodes=`.
    Nodes,
    /// The status of the condition `Overdue`: `True` or `False`, or empty if the condition is
    /// absent.
    Overdue,
    /// The status of the condition `Stalled`: `True` or `False`, or empty if the condition is
    /// absent.
    Stalled,
}

/// A column of a table: its `TableColumnDefinition`, and the source of its cells.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The header of the column.
    pub name: &'static str,
    /// The `OpenAPI` type of the cells: `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// The `OpenAPI` format of the cells, such as `name`. It may be empty.
    pub format: &'static str,
    /// The description of the column for users.
    pub description: &'static str,
    /// The priority: 0 if kubectl always shows the column, 1 if only `-o wide` shows it.
    pub priority: i32,
    /// The source of the cells.
    pub cell: Cell,
}

/// The source of the cells of a column.
#[derive(Clone, Copy, Debug)]
pub enum Cell {
    /// A text of the object. The cell is null if the text is absent.
    Text(TextField),
    /// The time since `metadata.creationTimestamp`, in kubectl's format. The cell is `<unknown>` if
    /// the object has no `creationTimestamp`.
    Age,
    /// The value at a JSON pointer. The cell is null if the value is absent. For this cell, the
    /// server decodes the whole object.
    Pointer(&'static str),
    /// A function that writes the cell as one JSON value.
    Function(fn(&ObjectTexts<'_>, &mut Vec<u8>)),
    /// The short name of the subject's kind, and the name of the subject, such as `vm/web`.
    KindAndSubject,
}

/// Creates a column of strings.
const fn text(name: &'static str, priority: i32, cell: Cell, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority,
        cell,
    }
}

/// Creates the column Name.
const fn name_column() -> Column {
    Column {
        format: "name",
        ..text(
            "Name",
            0,
            Cell::Text(TextField::Name),
            "Name must be unique within a namespace. The name contains the subject's name, \
             the operation, and a hash of the operation's identity and start.",
        )
    }
}

/// Creates the column Age.
const fn age_column(description: &'static str) -> Column {
    Column {
        kind: "date",
        ..text("Age", 0, Cell::Age, description)
    }
}

/// Writes a JSON string that was copied from an object. Writes null if `literal` is None.
pub(super) fn copy_literal(literal: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(literal.unwrap_or(b"null"));
}

/// Writes a text as a JSON string. Writes null if `text` is None.
pub(super) fn write_text(text: Option<&str>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &text).expect("writing to a Vec cannot fail");
}

/// The columns of rule sets: the name, and then the printer columns of the CRD in the same order.
static RULE_SET_COLUMNS: &[Column] = &[
    Column {
        description: "Name must be unique.",
        ..name_column()
    },
    text(
        "Component",
        0,
        Cell::Pointer("/spec/component"),
        "The component that owns these rules.",
    ),
    // The cell contains only the plural name of the target, without the API group, because a
    // printer column of a CRD has only one JSONPath.
    text(
        "Target",
        0,
        Cell::Pointer("/spec/target/resource"),
        "The resource that is watched.",
    ),
    text(
        "Ready",
        0,
        Cell::Pointer("/status/ready"),
        "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target.",
    ),
    text(
        "Reason",
        0,
        Cell::Function(reason),
        "Reason of the condition Ready.",
    ),
    age_column("Time since the rule set was created."),
    text(
        "Group",
        1,
        Cell::Pointer("/spec/target/group"),
        "API group of the resource that is watched; empty is the core group.",
    ),
    Column {
        kind: "boolean",
        ..text(
            "Watch Active",
            1,
            Cell::Pointer("/status/watchActive"),
            "Whether the target is being watched for this rule set.",
        )
    },
];

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: Option<String>,
}

/// Writes the reason of the condition `Ready`, or null if the condition is absent or has no reason.
fn reason(texts: &ObjectTexts<'_>, out: &mut Vec<u8>) {
    let object: serde_json::Value = serde_json::from_slice(&texts.whole_json()).unwrap_or_default();
    let conditions = object.pointer("/status/conditions");
    let reason = conditions
        .and_then(|all| Vec::<Condition>::deserialize(all).ok())
        .and_then(|all| all.into_iter().find(|condition| condition.kind == "Ready"))
        .and_then(|condition| condition.reason);
    write_text(reason.as_deref(), out);
}

/// Returns the description of `operationrulesets`, for a server without a cluster (the demo). In a
/// cluster, rule sets are custom resources, and the kube-apiserver serves them.
pub fn operation_rule_sets(reader: IndexReader) -> Resource {
    Resource {
        group: GROUP,
        version: VERSION,
        plural: "operationrulesets",
        kind: "OperationRuleSet",
        list_kind: "OperationRuleSetList",
        namespaced: false,
        contains_records: false,
        verbs: &["get", "list", "watch"],
        short_names: &["ors"],
        categories: &[],
        columns: RULE_SET_COLUMNS,
        fields: &[],
        schema: || schemars::schema_for!(ruleset::OperationRuleSet),
        reader,
        lines: Arc::new(LineCache::new()),
        short_names_of_kinds: SharedShortNames::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt as _;
    use serde_json::{Value, json};

    #[test]
    fn rule_sets_have_the_same_columns_as_the_crd() {
        let crd = serde_json::to_value(ruleset::OperationRuleSet::crd()).unwrap();
        let printed = crd["spec"]["versions"][0]["additionalPrinterColumns"].clone();
        let printed = printed.as_array().unwrap();
        let (name, columns) = RULE_SET_COLUMNS.split_first().unwrap();
        assert_eq!(name.name, "Name");
        assert_eq!(columns.len(), printed.len());
        for (column, printed) in columns.iter().zip(printed) {
            let path = match column.cell {
                Cell::Pointer(pointer) => json!(pointer.replace('/', ".")),
                // The source of these cells is not a path, so the test does not compare it.
                Cell::Text(_) | Cell::Age | Cell::Function(_) | Cell::KindAndSubject => {
                    printed["jsonPath"].clone()
                }
            };
            let mut expected = json!({
                "name": column.name, "type": column.kind, "description": column.description,
                "jsonPath": path,
            });
            if column.priority != 0 {
                expected["priority"] = Value::from(column.priority);
            }
            assert_eq!(*printed, expected);
        }
    }
}
