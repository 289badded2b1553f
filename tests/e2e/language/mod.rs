//! Tests of each field of a rule, through its effect on operations.

mod deckhouse;
mod details;
mod forklift;
mod items;
mod life;
mod refused;
mod selection;

use crate::harness::{text, without_gaps};
use serde_json::Value;

/// Formats one event as a line: `TYPE Phase State Reason progress: message`, with `-` for no
/// progress. The progress of a completed operation is left out.
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

/// The events on the operations of one subject, for one element or for the whole, in order, without
/// events about watch gaps.
fn life(events: &[Value], subject: &str, operation: &str, item: Option<&str>) -> Vec<String> {
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
