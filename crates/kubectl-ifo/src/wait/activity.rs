//! Answers from an `Activity`, for the goal `idle`: an activity states whether anything is in flight
//! in a namespace, on a node, in a component or in the cluster. While it states that nothing is in
//! flight, the command need not list operations.

use super::args::WaitArgs;
use super::wait_state::WaitGoal;
use crate::api_client::ApiClient;
use crate::filter::{FilterValue, Filters};
use crate::operation_source::{escape, query};
use ifo_api::activity::{Activity, PLURAL};
use ifo_api::metadata::Condition;
use ifo_api::{LIVE_GROUP, VERSION, labels};
use ifo_client::list::ListItems;

/// Reads the condition `Idle` of the activity that is about exactly the operations that the flags
/// select. Returns None if there is no such activity, or if it cannot be read.
pub(super) async fn idle_condition(
    server: &ApiClient,
    args: &WaitArgs,
    filters: &Filters,
) -> Option<Condition> {
    let settings = args.settings;
    let ignores = settings.ignore_failing || settings.ignore_blocked || !args.ignored.is_empty();
    if settings.goal != WaitGoal::Idle || ignores || !filters.selector.text.is_empty() {
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
    let answer = server.answer(&uri).await.ok()?;
    let list = ListItems::<Activity>::read(answer.text.as_bytes()).ok()?;
    match list.items.as_slice() {
        [activity] => activity.idle().cloned(),
        _ => None,
    }
}
