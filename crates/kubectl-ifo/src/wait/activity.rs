//! Answers from an `Activity`, for the goal `idle`: an activity states whether anything is in flight
//! in a namespace, on a node, in a component or in the cluster. While it states that nothing is in
//! flight, the command need not list operations.

use super::args::WaitArgs;
use super::wait_state::WaitGoal;
use crate::api_client::ApiClient;
use crate::filter::{FilterValue, Filters};
use crate::operation_source::{escape, query};
use ifo_api::activity::{ActivityStatus, IDLE, PLURAL};
use ifo_api::{LIVE_GROUP, VERSION, labels};
use jiff::Timestamp;
use serde_json::Value;

/// What an activity states about the selected operations.
pub(super) enum ActivityAnswer {
    /// Nothing has been in flight since this time.
    IdleSince(Timestamp),
    InFlight,
}

/// Reads the activity that is about exactly the operations that the flags select. Returns None if
/// there is no such activity, if it cannot be read, or if it is unknown whether anything is in
/// flight.
pub(super) async fn read(
    server: &ApiClient,
    args: &WaitArgs,
    filters: &Filters,
) -> Option<ActivityAnswer> {
    let settings = args.settings;
    let ignores = settings.ignore_failing || settings.ignore_blocked || !args.ignored.is_empty();
    if settings.goal != WaitGoal::Idle || ignores || filters.selector.is_some() {
        return None;
    }
    let fields = match filters.values().as_slice() {
        [] => "metadata.name=cluster".to_owned(),
        [FilterValue::Node(node)] => format!("metadata.name=node.{node}"),
        [FilterValue::Component(name)] if labels::is_value(name) => {
            format!("metadata.name=component.{name}")
        }
        // The namespace of the activity `cluster` also has the operations on cluster-scoped objects,
        // which `-n` does not select. Without a selector, the answer there has several activities.
        [FilterValue::Namespace(_)] => String::new(),
        _ => return None,
    };
    // The namespace of the other activities is a setting of the server.
    let within = filters.namespace.as_deref();
    let within = within.map_or_else(String::new, |it| format!("/namespaces/{}", escape(it)));
    let query = query(&[("fieldSelector", &fields), ("limit", "2")]);
    let uri = format!("/apis/{LIVE_GROUP}/{VERSION}{within}/{PLURAL}?{query}");
    let list: Value = server.get(&uri, PLURAL, None).await.ok()?;
    let [activity] = list["items"].as_array()?.as_slice() else {
        return None;
    };
    let status: ActivityStatus = serde_json::from_value(activity["status"].clone()).ok()?;
    let idle = status.conditions.iter().find(|it| *it.type_ == *IDLE)?;
    match &*idle.status {
        "True" => Some(ActivityAnswer::IdleSince(idle.last_transition_time.0)),
        "False" => Some(ActivityAnswer::InFlight),
        _ => None,
    }
}
