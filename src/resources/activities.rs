//! Describes the resource `activities`: its columns and selectable fields. An activity tells whether
//! a namespace, a node, a component or the cluster is idle. Activities are in the index of the
//! operations, under separate keys.

use super::cells::{CellContext, Column, columns, field, name_cell};
use crate::index::{IndexReader, Object, Resource, collection};
use aggregated_apiserver::serve::{CellValue, ResourceInfo};
use ifo_api::activity::{self, ActivityStatus};
use ifo_api::metadata::Condition;
use ifo_api::{LIVE_GROUP, VERSION, duration};
use schemars::JsonSchema as _;

static ACTIVITY_COLUMNS: &[Column] = columns! {
    "Name" name 0 "`namespace`, `cluster`, `component.NAME` or `node.NAME`." name_cell;
    "Idle" string 0 "True: nothing is in flight. False: operations are in flight. Unknown: operations may be missing."
        |it, _| idle(it).map(|it| &*it.status).into();
    "Since" string 0 "Time since which the value of Idle has been the same." since;
    "Operations" integer 0 "Number of operations in flight." |it, _| number(it, |it| it.operations);
    "Blocked" integer 0 "Number of operations that are blocked." |it, _| number(it, |it| it.blocked);
    "Failing" integer 0 "Number of operations that are failing." |it, _| number(it, |it| it.failing);
    "Message" string 0 "Message for people." |it, _| idle(it).map(|it| &*it.message).into();
    "Overdue" integer 1 "Number of operations that are overdue." |it, _| number(it, |it| it.overdue);
    "Reason" string 1 "Reason for the value of Idle." |it, _| idle(it).map(|it| &*it.reason).into();
};

/// Returns a cell with a number of the status.
fn number(object: &Object, number: fn(&ActivityStatus) -> u32) -> CellValue<'_> {
    let status = object.activity().map(|activity| &activity.status);
    status.map_or(CellValue::Null, |status| CellValue::Number(number(status)))
}

/// Returns the time since which the status of `Idle` has been the same.
fn since<'a>(object: &'a Object, context: &CellContext<'_>) -> CellValue<'a> {
    let since = idle(object).map(|it| it.last_transition_time.0.as_second());
    let age = since.map(|since| duration::human(context.now.as_second() - since));
    age.into()
}

/// Returns the condition `Idle`.
fn idle(object: &Object) -> Option<&Condition> {
    object.activity()?.idle()
}

/// Returns the description of `activities` in the group `live.ifo.kubevirt.io`. `reader` is the
/// reader of the index of the operations.
pub fn activities(reader: IndexReader) -> Resource {
    let info = ResourceInfo {
        short_names: &["act"],
        ..ResourceInfo::namespaced((LIVE_GROUP, VERSION), activity::PLURAL, activity::KIND)
    };
    Resource {
        collection: collection::ACTIVITIES,
        columns: ACTIVITY_COLUMNS,
        fields: vec![field("status.idle", |it| Some(&idle(it)?.status))],
        ..Resource::new(info, activity::Activity::json_schema, reader)
    }
}
