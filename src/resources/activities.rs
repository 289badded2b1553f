//! Describes the resource `activities`: its columns and selectable fields. An activity tells whether
//! a namespace, a node, a component or the cluster is idle. Activities are in the index of the
//! operations, under separate keys.

use super::{Cell, CellContext, Column, SelectableField, SharedShortNames, name_column, text};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo, any_label};
use ifo_api::activity::{self, ActivityStatus};
use ifo_api::metadata::Condition;
use ifo_api::{LIVE_GROUP, VERSION, duration};

static ACTIVITY_COLUMNS: &[Column] = &[
    Column {
        description: "`namespace`, `cluster`, `component.NAME` or `node.NAME`.",
        ..name_column()
    },
    text(
        "Idle",
        0,
        |it, _| condition(it).map(|it| &*it.status).into(),
        "True: nothing is in flight. False: operations are in flight. Unknown: operations may be \
         missing.",
    ),
    text(
        "Since",
        0,
        since,
        "Time since which the value of Idle has been the same.",
    ),
    number_column(
        "Operations",
        0,
        |it, _| number(it, |status| status.operations),
        "Number of operations in flight.",
    ),
    number_column(
        "Blocked",
        0,
        |it, _| number(it, |status| status.blocked),
        "Number of operations that are blocked.",
    ),
    number_column(
        "Failing",
        0,
        |it, _| number(it, |status| status.failing),
        "Number of operations that are failing.",
    ),
    text(
        "Message",
        0,
        |it, _| condition(it).map(|it| &*it.message).into(),
        "Message for people.",
    ),
    number_column(
        "Overdue",
        1,
        |it, _| number(it, |status| status.overdue),
        "Number of operations that are overdue.",
    ),
    text(
        "Reason",
        1,
        |it, _| condition(it).map(|it| &*it.reason).into(),
        "Reason for the value of Idle.",
    ),
];

const fn number_column(
    name: &'static str,
    priority: i32,
    cell: Cell,
    description: &'static str,
) -> Column {
    Column {
        kind: "integer",
        ..text(name, priority, cell, description)
    }
}

/// Returns a cell with a number of the status.
fn number(object: &Object, number: fn(&ActivityStatus) -> u32) -> CellValue<'_> {
    let status = object.activity().map(|activity| &activity.status);
    status.map_or(CellValue::Null, |status| CellValue::Number(number(status)))
}

/// Returns the time since which the status of `Idle` has been the same.
fn since<'a>(object: &'a Object, context: &CellContext<'_>) -> CellValue<'a> {
    let since = condition(object).map(|it| it.last_transition_time.0.as_second());
    let age = since.map(|since| duration::human(context.now.as_second() - since));
    age.into()
}

/// Returns the condition `Idle`.
fn condition(object: &Object) -> Option<&Condition> {
    object.activity()?.idle()
}

/// Returns the description of `activities` in the group `live.ifo.kubevirt.io`. `reader` is the
/// reader of the index of the operations.
pub fn activities(reader: IndexReader) -> Resource {
    Resource {
        info: ResourceInfo {
            group: LIVE_GROUP,
            version: VERSION,
            plural: activity::PLURAL,
            kind: activity::KIND,
            list_kind: "ActivityList",
            namespaced: true,
            verbs: &["get", "list", "watch"],
            short_names: &["act"],
            categories: &[],
            schema: || schemars::schema_for!(activity::Activity),
            check_label: any_label,
        },
        collection: collection::ACTIVITIES,
        columns: ACTIVITY_COLUMNS,
        fields: vec![(
            "status.idle",
            SelectableField::Text(|it| Some(&condition(it)?.status)),
        )],
        reader,
        context: SharedShortNames::default(),
    }
}
