//! Tests of the rule language: the fields of rules and rule sets. Each test creates a rule set, and
//! checks which operations the server detects.

mod displayed_fields;
mod label_selectors;

use crate::harness::{text, without_gaps};
use serde_json::Value;

/// Formats an event as `TYPE Phase State Reason progress: message`, for example
/// `MODIFIED Active Blocked PreCopy 45: to node-1`. If the operation has no progress or has
/// completed, `progress` is `-`.
fn line(event: &Value) -> String {
    let status = &event["object"]["status"];
    let progress = match (&status["progress"], text(status, "/phase")) {
        (Value::Number(progress), "Active") => progress.to_string(),
        _ => "-".to_owned(),
    };
    format!(
        "{} {} {} {} {progress}: {}",
        text(event, "/type"),
        text(status, "/phase"),
        text(status, "/state"),
        text(status, "/reason"),
        text(status, "/message")
    )
}

/// Returns the events about an operation on the object `subject`, formatted by [`line`]. Leaves out
/// events that only report an interruption of the server's own watch.
///
/// A rule with `forEach` detects one operation for each item of a list. `item` selects the
/// operation of one item. If the rule has no `forEach`, `item` is None.
fn event_lines(
    events: &[Value],
    subject: &str,
    operation: &str,
    item: Option<&str>,
) -> Vec<String> {
    without_gaps(events)
        .into_iter()
        .filter(|event| {
            let spec = &event["object"]["spec"];
            text(spec, "/subject/name") == subject
                && text(spec, "/operation") == operation
                && spec["item"].as_str() == item
        })
        .map(line)
        .collect()
}
