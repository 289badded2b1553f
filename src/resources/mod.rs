//! Describes the resources that this server serves: names, table columns, selectable fields, and
//! the index of the objects. The other modules of the API work with any resource that has a
//! description of the type [`Resource`]. There are four resources:
//!
//! - `inflightoperations`: operations.
//! - `activities`: whether a part of the cluster is idle.
//! - `operationrecords`: records of completed operations.
//! - `operationrulesets`: rule sets, only in a server without a cluster (the demo).

mod activities;
mod completeness;
pub mod gate_webhook;
mod hooks;
mod operations;
mod records;
#[cfg(test)]
pub(crate) mod tests;

pub use self::activities::activities;
pub use self::hooks::OperationHooks;
pub use self::operations::{LIVE_COLUMNS, inflight_operations};
pub use self::records::operation_records;

use crate::index::{IndexReader, Model, Object, Resource, collection};
use aggregated_apiserver::serve::{self, CellValue, ResourceInfo};
use arc_swap::ArcSwap;
use ifo_api::live::Spec;
use ifo_api::metadata::Time;
use ifo_api::ruleset::OperationRuleSet;
use ifo_api::{GROUP, Text, VERSION, duration, labels, ruleset};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use std::borrow::Cow;
use std::sync::Arc;

type Column = serve::Column<Model>;
type Cell = serve::Cell<Model>;
type CellContext<'a> = serve::CellContext<'a, ArcSwap<ShortNames>>;
type SelectableField = serve::SelectableField<Model>;

/// The short names of kinds that discovery serves. A task of the server replaces them when they
/// change.
pub type SharedShortNames = Arc<ArcSwap<ShortNames>>;

/// Returns a message if no operation can have a label with the key, such as `ifo.kubevirt.io/node`.
fn check_label(key: &str) -> Result<(), String> {
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

/// Returns true if the operation touches the node. An operation without nodes fulfils
/// `status.nodes=`.
fn has_node(object: &Object, name: &str) -> bool {
    let nodes = object.nodes();
    nodes.is_empty() && name.is_empty() || nodes.iter().any(|node| **node == *name)
}

/// Returns the selectable fields that operations and records have in common.
fn common_fields() -> Vec<(&'static str, SelectableField)> {
    vec![
        (
            "spec.operation",
            SelectableField::Text(|it| Some(&it.spec()?.operation)),
        ),
        (
            "spec.component",
            SelectableField::Text(|it| Some(&it.spec()?.component)),
        ),
        (
            "spec.ruleSet",
            SelectableField::Text(|it| Some(&it.spec()?.rule_set)),
        ),
        (
            "spec.item",
            SelectableField::Text(|it| it.spec()?.item.as_deref()),
        ),
        (
            "spec.work",
            SelectableField::Text(|it| it.spec()?.work.as_deref()),
        ),
        (
            "spec.subject.apiVersion",
            SelectableField::Text(|it| Some(&it.spec()?.subject.api_version)),
        ),
        (
            "spec.subject.kind",
            SelectableField::Text(|it| Some(&it.spec()?.subject.kind)),
        ),
        (
            "spec.subject.name",
            SelectableField::Text(|it| Some(&it.spec()?.subject.name)),
        ),
        (
            "spec.subject.namespace",
            SelectableField::Text(|it| it.spec()?.subject.namespace.as_deref()),
        ),
        (
            "spec.subject.uid",
            SelectableField::Text(|it| it.spec()?.subject.uid.as_deref()),
        ),
        ("status.nodes", SelectableField::Test(has_node)),
    ]
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
    object.spec().map(|spec| &**text(spec)).into()
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
        info: ResourceInfo {
            group: GROUP,
            version: VERSION,
            plural: "operationrulesets",
            kind: "OperationRuleSet",
            list_kind: "OperationRuleSetList",
            namespaced: false,
            verbs: &["get", "list", "watch"],
            short_names: &["ors"],
            categories: &[],
            schema: || schemars::schema_for!(ruleset::OperationRuleSet),
            check_label,
        },
        collection: collection::OPERATIONS,
        columns: RULE_SET_COLUMNS,
        fields: Vec::new(),
        reader,
        context: SharedShortNames::default(),
    }
}

#[cfg(test)]
mod column_tests {
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
