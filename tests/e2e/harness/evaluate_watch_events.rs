//! Evaluates the events of a watch of operations. [`StateAfterEvents`] computes the operations that
//! a client knows after the events. [`without_gaps`] leaves out the events that only report a watch
//! gap. A watch gap is a time in which the server's own watch of a resource is interrupted.

use super::{condition, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the types of the events about the object of this name, in order, without events that
/// only report a watch gap.
pub fn event_types<'a>(events: &'a [Value], name: &str) -> Vec<&'a str> {
    without_gaps(events)
        .into_iter()
        .filter(|event| event["object"]["metadata"]["name"] == name)
        .filter_map(|event| event["type"].as_str())
        .collect()
}

/// Returns the events without those that only report the beginning or the end of a watch gap. On a
/// busy machine, a watch gap can occur at any time, so tests must not depend on these events.
///
/// During a gap, the condition `Detected` of an operation is Unknown. An event only reports a gap
/// if all of these are true:
///
/// - The event is MODIFIED.
/// - The condition `Detected` is Unknown before or after the event.
/// - The event changes only the fields that [`same_but_for_gaps`] ignores.
pub fn without_gaps(events: &[Value]) -> Vec<&Value> {
    let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut others = Vec::new();
    for event in events {
        let object = &event["object"];
        let before = last.insert(text(object, "/metadata/uid"), object);
        let only_reports_gap = before.is_some_and(|before| {
            event["type"] == "MODIFIED"
                && (is_in_gap(before) || is_in_gap(object))
                && same_but_for_gaps(before, object)
        });
        if !only_reports_gap {
            others.push(event);
        }
    }
    others
}

/// Returns true if the condition `Detected` of an operation is Unknown.
pub fn is_in_gap(operation: &Value) -> bool {
    condition(operation, "Detected")["status"] == "Unknown"
}

/// Returns true if the two states of an operation are equal, apart from the fields that every watch
/// gap changes: the resourceVersion, `lastDetected` and the condition `Detected`.
pub fn same_but_for_gaps(one: &Value, other: &Value) -> bool {
    let without = |operation: &Value| {
        let mut operation = operation.clone();
        operation["metadata"]["resourceVersion"].take();
        operation["status"]["lastDetected"].take();
        let conditions = operation["status"]["conditions"].as_array_mut();
        for condition in conditions.into_iter().flatten() {
            if condition["type"] == "Detected" {
                condition.take();
            }
        }
        operation
    };
    without(one) == without(other)
}

/// The operations that a client knows after the events of a watch.
///
/// If the watch has a field selector, the fields in the selector must not change. If such a field
/// changes, the watch can deliver DELETED and then ADDED for the same object. [`Self::add`] panics
/// at this ADDED event.
#[derive(Debug, Default)]
pub struct StateAfterEvents {
    /// The objects that exist, by UID.
    pub objects: BTreeMap<String, Value>,
    /// The UIDs of deleted objects.
    deleted: BTreeSet<String>,
    /// The resourceVersion of the last event.
    newest: u64,
}

impl StateAfterEvents {
    /// Returns the state after all of these events.
    #[track_caller]
    pub fn of(events: &[Value]) -> Self {
        let mut state = Self::default();
        for event in events {
            state.add(event);
        }
        state
    }

    /// Applies one more event. Panics if the event contradicts the earlier events in one of these
    /// ways:
    ///
    /// - The resourceVersion does not increase.
    /// - An object is added twice, or is added again after its deletion.
    /// - An object that does not exist is changed or deleted.
    /// - A MODIFIED event changes only the resourceVersion.
    #[track_caller]
    pub fn add(&mut self, event: &Value) {
        let object = &event["object"];
        let uid = text(object, "/metadata/uid");
        let version = version(object);
        assert!(
            version > self.newest,
            "{event} came after version {}",
            self.newest
        );
        self.newest = version;
        let kind = text(event, "/type");
        let before = if kind == "DELETED" {
            self.deleted.insert(uid.to_owned());
            self.objects.remove(uid)
        } else {
            self.objects.insert(uid.to_owned(), object.clone())
        };
        match (kind, before) {
            ("ADDED", None) => {
                assert!(
                    !self.deleted.contains(uid),
                    "{event} although it was deleted"
                );
            }
            ("DELETED", Some(_)) => {}
            ("MODIFIED", Some(before)) => assert!(
                !differ_in_version_alone(&before, object),
                "{event} changes nothing"
            ),
            (_, before) => panic!("{event} came after {before:?}"),
        }
    }
}

/// Returns the resourceVersion of an object.
#[track_caller]
fn version(object: &Value) -> u64 {
    let version = text(object, "/metadata/resourceVersion");
    version.parse().expect("a resourceVersion must be a number")
}

/// Returns true if two objects differ only in their resourceVersion.
fn differ_in_version_alone(one: &Value, other: &Value) -> bool {
    let same = |one: &Value, other: &Value, but: &str| match (one.as_object(), other.as_object()) {
        (Some(one), Some(other)) => {
            let keys = one.keys().chain(other.keys());
            let mut keys = keys.filter(|key| *key != but);
            keys.all(|key| one.get(key) == other.get(key))
        }
        _ => one == other,
    };
    same(one, other, "metadata") && same(&one["metadata"], &other["metadata"], "resourceVersion")
}

/// Returns an event about an operation. `detected` is the status of its condition `Detected`.
fn event(kind: &str, version: u64, state: &str, detected: &str) -> Value {
    json!({"type": kind, "object": {
        "metadata": {"uid": "1", "name": "a", "resourceVersion": version.to_string()},
        "status": {
            "state": state, "lastDetected": version,
            "conditions": [{"type": "Detected", "status": detected}],
        },
    }})
}

#[test]
fn events_of_watch_gaps_are_left_out_and_contradictions_are_found() {
    let events = [
        event("ADDED", 1, "Progressing", "True"),
        // The events 2 to 4, 6 and 8 only report the beginning or the end of a gap.
        event("MODIFIED", 2, "Progressing", "Unknown"),
        event("MODIFIED", 3, "Progressing", "True"),
        event("MODIFIED", 4, "Progressing", "Unknown"),
        event("MODIFIED", 5, "Settling", "False"),
        event("MODIFIED", 6, "Settling", "Unknown"),
        event("MODIFIED", 7, "Progressing", "Unknown"),
        event("MODIFIED", 8, "Progressing", "True"),
        event("DELETED", 9, "Progressing", "True"),
    ];
    let left = without_gaps(&events).into_iter();
    let left: Vec<u64> = left.map(|event| version(&event["object"])).collect();
    assert_eq!(left, [1, 5, 7, 9]);
    assert!(StateAfterEvents::of(&events).objects.is_empty());
    let (added, deleted) = (&events[0], &events[8]);
    for bad in [
        vec![&events[4]],
        vec![deleted],
        vec![added, &events[0]],
        vec![added, deleted, deleted],
    ] {
        let bad: Vec<Value> = bad.into_iter().cloned().collect();
        let found = std::panic::catch_unwind(|| StateAfterEvents::of(&bad));
        assert!(found.is_err(), "{bad:?}");
    }
}
