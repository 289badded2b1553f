//! A client that compares activities with operations. An activity tells whether a namespace, a node, a
//! component or the cluster is idle. At no resourceVersion may an activity be idle while one of its
//! operations is in flight.

use crate::compare_replicas::list;
use crate::harness::{ACTIVITY, OPERATION, eventually, is, items, ok_if, text};
use crate::list_clients::read;
use crate::load_balancer::Endpoints;
use crate::report::Report;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Name of the count of compared lists in the report.
pub const ACTIVITIES: &str = "lists of activities that were compared with operations";

/// Pause between two comparisons.
const PAUSE: Duration = Duration::from_millis(100);

fn is_in_flight(operation: &Value) -> bool {
    operation["status"]["phase"] == "Active" && operation["status"]["state"] != "Held"
}

/// Returns true if the activity counts the operation, which is in flight and not on hold.
fn counts(activity: &Value, operation: &Value) -> bool {
    let name = text(activity, "/metadata/name");
    let nodes = operation["status"]["nodes"].as_array();
    match name.split_once('.') {
        Some(("component", component)) => operation["spec"]["component"] == component,
        Some((_, node)) => nodes.into_iter().flatten().any(|it| it == node),
        None if name == "cluster" => true,
        None => operation["metadata"]["namespace"] == activity["metadata"]["namespace"],
    }
}

/// Returns the first activity that is idle although one of its operations is in flight.
fn contradiction(operations: &Value, activities: &Value) -> Option<String> {
    let in_flight = items(operations).iter().filter(|it| is_in_flight(it));
    let mut pairs = items(activities)
        .iter()
        .filter(|activity| is(activity, "Idle", "True"))
        .flat_map(|activity| {
            in_flight
                .clone()
                .map(move |operation| (activity, operation))
        });
    let (activity, operation) = pairs.find(|(activity, operation)| counts(activity, operation))?;
    Some(format!("{activity} is idle, but {operation} is in flight"))
}

/// Returns the resourceVersion of the operation that changed last. At this version, the batch of
/// changes to which it belongs is often incomplete.
fn last_change(operations: &Value) -> Option<u64> {
    let version = |it: &Value| text(it, "/metadata/resourceVersion").parse().ok();
    items(operations).iter().filter_map(version).max()
}

/// Lists operations at replicas, and the activities at the same resourceVersion.
pub async fn compare(endpoints: Endpoints, report: Arc<Report>) {
    loop {
        if let Some(chosen) = endpoints.any_undisturbed()
            && let Some(newest) = list(&chosen, &report, &OPERATION, None).await
            && let Some(at) = last_change(&newest.body)
            && let Some(operations) = list(&chosen, &report, &OPERATION, Some(at)).await
            && let Some(activities) = list(&chosen, &report, &ACTIVITY, Some(at)).await
        {
            report.count(ACTIVITIES);
            if let Some(contradiction) = contradiction(&operations.body, &activities.body) {
                report.violation(&format!("at {at}: {contradiction}"));
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the activity of the cluster has the number of operations in flight.
pub async fn wait_until_equal(endpoints: &Endpoints) {
    eventually("the activity has the number of operations", async || {
        let chosen = endpoints.any_undisturbed().ok_or("no replica")?;
        let caller = &chosen.endpoint.caller.0;
        let operations = read(caller, &OPERATION.path(None)).await?.body;
        let path = ACTIVITY.one(Some("ifo-system"), "cluster");
        let activity = read(caller, &path).await?.body;
        let counted = items(&operations)
            .iter()
            .filter(|it| is_in_flight(it))
            .count();
        let status = &activity["status"];
        ok_if(status["operations"] == counted, status)
    })
    .await;
}
