//! Reads the events of a recorded watch, sorted by time. There are two formats:
//!
//! - One line with a JSON object for each event, such as `{"t": 3.5, "resource":
//!   "apps/v1/deployments", "type": "ADDED", "object": {…}}`. `t` is the time in seconds.
//! - The output of `kubectl get … -w --output-watch-events -o json`. Each event has several lines,
//!   and contains neither `t` nor `resource`.
//!
//! The time of an event without `t` is one second after the previous event, or 0 for the first
//! event. So for such events, only the order has a meaning.

#[cfg(test)]
mod tests;

use crate::manifest::{MemoryBudget, Object, text};
use crate::offline_kinds::{KnownKinds, group_and_version};
use ifo_api::Gvr;
use serde::Deserialize;
use serde_json::Value;

/// The type of a recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedChange {
    /// The object was added or modified.
    Applied,
    /// The object was deleted.
    Deleted,
}

/// One event of a recorded watch.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    /// Time of the event, in seconds. Each recording can count from another time, for example from
    /// its first event.
    pub t: f64,
    /// Resource that the object belongs to.
    pub resource: Gvr,
    /// Type of the event.
    pub change: RecordedChange,
    /// Object in the event. Its `api_version` comes from `resource`. Its `kind` is empty if the
    /// recording does not contain the kind.
    pub object: Object,
}

#[derive(Deserialize)]
struct RecordedLine {
    t: Option<f64>,
    resource: Option<String>,
    #[serde(rename = "type")]
    event_type: String,
    object: Value,
}

/// Maximum absolute value of `t`, in seconds (about a century). With a larger `t`, calculations
/// with the time could overflow. So [`read`] returns an error in place of such an event.
const MAX_SECONDS: f64 = 3e9;

/// Returns the events in `text`, and an error for each part of `text` that is not a valid event.
/// The function sorts the events by time, because `text` can consist of several recordings. If an
/// event does not name its resource, the function finds the resource in `kinds`.
pub fn read(text: &str, kinds: &KnownKinds) -> (Vec<RecordedEvent>, Vec<String>) {
    let mut events: Vec<RecordedEvent> = Vec::new();
    let mut faults = Vec::new();
    if let Err(why) = MemoryBudget::default().take_json(text) {
        return (events, vec![why]);
    }
    // The time of the next event without `t`.
    let mut next = 0.0;
    for (number, value) in (1..).zip(values(text)) {
        let event = value.and_then(|value| {
            let line = serde_json::from_value::<RecordedLine>(value);
            let line = line.map_err(|error| error.to_string())?;
            let t = line.t.unwrap_or(next);
            if !(-MAX_SECONDS..=MAX_SECONDS).contains(&t) {
                return Err(format!(
                    "t is not between -{MAX_SECONDS:e} and {MAX_SECONDS:e} seconds"
                ));
            }
            next = t + 1.0;
            event(line, t, kinds)
        });
        match event {
            Ok(event) => events.extend(event),
            Err(why) => faults.push(format!("event {number}: {why}")),
        }
    }
    events.sort_by(|a, b| a.t.total_cmp(&b.t));
    (events, faults)
}

/// Splits a text into JSON values. A value can be invalid, for example incomplete because the
/// recording was interrupted. After such a value, the function continues at the next line that
/// begins with `{`.
fn values(text: &str) -> Vec<Result<Value, String>> {
    let mut values = Vec::new();
    let mut rest = text;
    loop {
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let (mut begins, mut broken) = (0, false);
        loop {
            let end = stream.byte_offset();
            let Some(value) = stream.next() else { break };
            begins = end;
            broken = value.is_err();
            // The error text contains a line number. This number counts from the beginning of
            // `rest`, not from the beginning of the whole text.
            values.push(value.map_err(|error| error.to_string()));
        }
        // The white space before the invalid value can end with a line break. With this line break,
        // the search below would find the same value again.
        let value = rest.get(begins..).unwrap_or_default().trim_start();
        match value.find("\n{") {
            Some(next) if broken => rest = &value[next + 1..],
            _ => return values,
        }
    }
}

/// Converts one event. Returns None for a bookmark, which is not about an object. If the event does not
/// name its resource, `kinds` finds the resource from the object's `apiVersion` and `kind`.
fn event(line: RecordedLine, t: f64, kinds: &KnownKinds) -> Result<Option<RecordedEvent>, String> {
    let change = match line.event_type.as_str() {
        "ADDED" | "MODIFIED" => RecordedChange::Applied,
        "DELETED" => RecordedChange::Deleted,
        "BOOKMARK" => return Ok(None),
        "ERROR" => {
            let message = text(&line.object, "/message");
            let message = message
                .as_deref()
                .unwrap_or("the watch ended with an error");
            return Err(format!("ERROR: {message}"));
        }
        other => return Err(format!("unknown type {other:?}")),
    };
    let json = line.object;
    let kind = text(&json, "/kind");
    let own_version = || text(&json, "/apiVersion").ok_or("the object has no apiVersion");
    let resource = match line.resource.as_deref() {
        None => {
            let kind = kind.as_deref().ok_or("the object has no kind")?;
            kinds.resource(&own_version()?, kind)
        }
        Some(resource) => {
            let (api_version, plural) = match resource.rsplit_once('/') {
                Some((api_version, plural)) => (api_version.to_owned(), plural),
                // The text is `plural` or `plural.group`. Group and version come from the object.
                None => (
                    own_version()?,
                    resource.split('.').next().unwrap_or_default(),
                ),
            };
            let (group, version) = group_and_version(&api_version);
            if version.contains('/') {
                let forms = "group/version/plural, version/plural or plural";
                return Err(format!("resource must be {forms}"));
            }
            Gvr {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: plural.to_owned(),
            }
        }
    };
    let object = Object {
        api_version: resource.api_version(),
        kind: kind.unwrap_or_default(),
        namespace: text(&json, "/metadata/namespace"),
        name: text(&json, "/metadata/name").ok_or("the object has no metadata.name")?,
        json,
    };
    Ok(Some(RecordedEvent {
        t,
        resource,
        change,
        object,
    }))
}
