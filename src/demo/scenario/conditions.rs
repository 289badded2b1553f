//! `status.conditions` as controllers keep them: one item for each type, in the order
//! in which they first appeared, and a transition time that moves with the status
//! only.

use serde_json::{Value, json};

/// Sets a condition, given as an object with `type` and `status` and what else it
/// has. `lastTransitionTime` is filled in, unless the condition brings its own (some
/// controllers write null). `touched` names a second time field that moves with every
/// write: `lastHeartbeatTime`, `lastUpdateTime` or `lastProbeTime`.
pub(super) fn set(object: &mut Value, now: &str, touched: Option<&str>, mut condition: Value) {
    let items = &mut object["status"]["conditions"];
    if !items.is_array() {
        *items = json!([]);
    }
    let items = items.as_array_mut().expect("made an array just above");
    let last = items
        .iter_mut()
        .find(|item| item["type"] == condition["type"]);
    if condition.get("lastTransitionTime").is_none() {
        condition["lastTransitionTime"] = match &last {
            Some(last) if last["status"] == condition["status"] => {
                last["lastTransitionTime"].clone()
            }
            _ => json!(now),
        };
    }
    if let Some(field) = touched {
        condition[field] = json!(now);
    }
    match last {
        Some(last) => *last = condition,
        None => items.push(condition),
    }
}

/// Removes a condition, as controllers do that never write False.
pub(super) fn remove(object: &mut Value, kind: &str) {
    if let Some(items) = object["status"]["conditions"].as_array_mut() {
        items.retain(|item| item["type"] != kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut object = json!({});
        set(
            &mut object,
            "1",
            None,
            json!({"type": "Ready", "status": "False"}),
        );
        set(
            &mut object,
            "2",
            Some("lastUpdateTime"),
            json!({"type": "Ready", "status": "False", "reason": "Why"}),
        );
        let only = &object["status"]["conditions"][0];
        assert_eq!(only["lastTransitionTime"], "1");
        assert_eq!(only["lastUpdateTime"], "2");
        set(
            &mut object,
            "3",
            None,
            json!({"type": "Ready", "status": "True"}),
        );
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "3");
        assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 1);
        remove(&mut object, "Ready");
        assert_eq!(object["status"]["conditions"], json!([]));
    }
}
