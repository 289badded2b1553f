//! Describes the resources that this server serves: names, table columns, selectable fields, and
//! the index of the objects. The other modules of the API work with any resource that has a
//! description of the type [`Resource`]. There are four resources:
//!
//! - `inflightoperations`: operations.
//! - `activities`: whether a part of the cluster is idle.
//! - `operationrecords`: records of completed operations.
//! - `operationrulesets`: rule sets, only in a server without a cluster (the demo).

mod activities;
mod operations;
mod records;

pub use self::activities::activities;
pub use self::operations::{LIVE_COLUMNS, inflight_operations};
pub use self::records::operation_records;

use super::error_status::ErrorStatus;
use crate::index::{IndexReader, Key, Object};
use arc_swap::ArcSwap;
use ifo_api::live::Spec;
use ifo_api::metadata::Time;
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{Collection, GROUP, Text, VERSION, duration, ruleset};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use serde::Serialize;
use std::borrow::Cow;
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
    /// The collection of the index that contains the objects.
    pub collection: Collection,
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
    pub fields: Vec<(&'static str, SelectableField)>,
    /// Returns the JSON schema of the kind, for `OpenAPI`. The schemas of the types inside the kind
    /// are under `$defs`.
    pub schema: fn() -> schemars::Schema,
    /// The reader of the index that contains the objects.
    pub reader: IndexReader,
    /// The short names of kinds, for the column Subject.
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
        self.collection.key(namespace, name)
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
#[derive(Clone, Copy, Debug)]
pub enum SelectableField {
    /// A text of the object. None counts as empty.
    Text(fn(&Object) -> Option<&str>),
    /// The nodes of an operation. An operation on the nodes `n1` and `n2` fulfils
    /// `status.nodes=n1`. An operation without nodes fulfils `status.nodes=`.
    Nodes,
}

impl SelectableField {
    /// Returns true if the field of the object has the value. For a list of nodes, one node with
    /// this value is enough.
    pub fn has_value(self, object: &Object, value: &str) -> bool {
        match self {
            Self::Text(text) => text(object).unwrap_or_default() == value,
            Self::Nodes => {
                let nodes = object.nodes();
                nodes.is_empty() && value.is_empty() || nodes.iter().any(|node| **node == *value)
            }
        }
    }
}

/// Returns the selectable fields that operations and records have in common.
fn common_fields() -> Vec<(&'static str, SelectableField)> {
    use SelectableField::{Nodes, Text};
    vec![
        ("spec.operation", Text(|it| Some(&it.spec()?.operation))),
        ("spec.component", Text(|it| Some(&it.spec()?.component))),
        ("spec.ruleSet", Text(|it| Some(&it.spec()?.rule_set))),
        ("spec.item", Text(|it| it.spec()?.item.as_deref())),
        ("spec.work", Text(|it| it.spec()?.work.as_deref())),
        (
            "spec.subject.apiVersion",
            Text(|it| Some(&it.spec()?.subject.api_version)),
        ),
        (
            "spec.subject.kind",
            Text(|it| Some(&it.spec()?.subject.kind)),
        ),
        (
            "spec.subject.name",
            Text(|it| Some(&it.spec()?.subject.name)),
        ),
        (
            "spec.subject.namespace",
            Text(|it| it.spec()?.subject.namespace.as_deref()),
        ),
        (
            "spec.subject.uid",
            Text(|it| it.spec()?.subject.uid.as_deref()),
        ),
        ("status.nodes", Nodes),
    ]
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

/// Returns the cell of an object.
pub type Cell = for<'a> fn(&'a Object, &CellContext<'_>) -> CellValue<'a>;

/// The values on which cells depend, apart from the object.
#[derive(Clone, Copy, Debug)]
pub struct CellContext<'a> {
    /// The current time, from which ages are computed.
    pub now: Timestamp,
    /// The short names of kinds.
    pub short_names: &'a ShortNames,
}

/// A cell of a table, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CellValue<'a> {
    /// The value is absent.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(u32),
    /// A text.
    Text(Cow<'a, str>),
}

impl<'a> From<Option<&'a Text>> for CellValue<'a> {
    fn from(text: Option<&'a Text>) -> Self {
        text.map(|text| &**text).into()
    }
}

impl<'a> From<Option<&'a str>> for CellValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }
}

impl From<Option<String>> for CellValue<'_> {
    fn from(text: Option<String>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }
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
            |it, _| CellValue::Text(it.name().into()),
            "Name must be unique within a namespace. The name contains the subject's name, \
             the operation, and a hash of the operation's identity and start.",
        )
    }
}

/// Creates the column Age: the time since `metadata.creationTimestamp`, in kubectl's format.
const fn age_column(description: &'static str) -> Column {
    Column {
        kind: "date",
        ..text("Age", 0, age, description)
    }
}

fn age<'a>(object: &'a Object, context: &CellContext<'_>) -> CellValue<'a> {
    let seconds = |then: Timestamp| context.now.as_second() - then.as_second();
    let age = object.created().map(|then| duration::human(seconds(then)));
    CellValue::Text(age.map_or("<unknown>".into(), Cow::Owned))
}

// Operations and records have these columns.
const COMPONENT: Column = text(
    "Component",
    1,
    |it, _| spec_text(it, |spec| &spec.component),
    "Component that the rule set belongs to.",
);
const RULE_SET: Column = text(
    "RuleSet",
    1,
    |it, _| spec_text(it, |spec| &spec.rule_set),
    "Rule set that detected the operation first.",
);
const COMPLETED: Column = text(
    "Completed",
    1,
    |it, _| time_text(it.completed()),
    "When the operation ended.",
);

/// Returns a cell with a text of the spec of an operation or of a record.
fn spec_text(object: &Object, text: fn(&Spec) -> &Text) -> CellValue<'_> {
    object.spec().map(text).into()
}

/// Returns a cell with a time, as in the JSON of the object.
fn time_text<'a>(time: Option<Timestamp>) -> CellValue<'a> {
    let json = time.and_then(|time| serde_json::to_value(Time(time)).ok());
    json.and_then(|json| json.as_str().map(str::to_owned))
        .into()
}

/// Returns the rule set. Returns None for an operation or a record.
fn rule_set(object: &Object) -> Option<&OperationRuleSet> {
    match object {
        Object::RuleSet(rule_set) => Some(rule_set),
        _ => None,
    }
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
        |it, _| rule_set(it).map(|it| it.spec.component.as_str()).into(),
        "The component that owns these rules.",
    ),
    // The cell contains only the plural name of the target, without the API group, because a
    // printer column of a CRD has only one JSONPath.
    text(
        "Target",
        0,
        |it, _| {
            rule_set(it)
                .map(|it| it.spec.target.resource.as_str())
                .into()
        },
        "The resource that is watched.",
    ),
    text(
        "Ready",
        0,
        ready,
        "True if operations are detected on every object of the target. NotInstalled if the cluster does not serve the API group of the target.",
    ),
    text("Reason", 0, reason, "Reason of the condition Ready."),
    age_column("Time since the rule set was created."),
    text(
        "Group",
        1,
        |it, _| rule_set(it).map(|it| it.spec.target.group.as_str()).into(),
        "API group of the resource that is watched; empty is the core group.",
    ),
    Column {
        kind: "boolean",
        ..text(
            "Watch Active",
            1,
            watch_active,
            "Whether the target is being watched for this rule set.",
        )
    },
];

fn ready<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let status = rule_set(object).and_then(|it| it.status.as_ref());
    status.map(|status| status.ready.as_str()).into()
}

/// Returns the reason of the condition `Ready`.
fn reason<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let status = rule_set(object).and_then(|it| it.status.as_ref());
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.reason.as_str()).into()
}

fn watch_active<'a>(object: &'a Object, _: &CellContext<'_>) -> CellValue<'a> {
    let status = rule_set(object).and_then(|it| it.status.as_ref());
    status.map_or(CellValue::Null, |status| {
        CellValue::Bool(status.watch_active)
    })
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
        collection: Collection::Operations,
        verbs: &["get", "list", "watch"],
        short_names: &["ors"],
        categories: &[],
        columns: RULE_SET_COLUMNS,
        fields: Vec::new(),
        schema: || schemars::schema_for!(ruleset::OperationRuleSet),
        reader,
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
            let mut expected = json!({
                "name": column.name, "type": column.kind, "description": column.description,
                "jsonPath": printed["jsonPath"],
            });
            if column.priority != 0 {
                expected["priority"] = Value::from(column.priority);
            }
            assert_eq!(*printed, expected);
        }
    }
}
