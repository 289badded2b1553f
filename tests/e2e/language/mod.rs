//! The rule language as clients see it: what each field of a rule does to operations.

mod deckhouse;
mod details;
mod forklift;
mod items;
mod life;
mod refused;
mod selection;

use crate::harness::{text, without_gaps};
use serde_json::Value;

/// One event in a line: `TYPE Phase State Reason progress: message`, with `-` for no
/// progress. What a completed operation had for progress is left out.
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

/// The events on one subject's operation, of one element or of the whole, in order,
/// without those of watch gaps.
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
