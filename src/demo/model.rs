//! The model of the demo's objects, and their keys in the store.

use crate::clock;
use aggregated_apiserver::store::{Collection, Key, Rv};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// The model of the demo's objects: the JSON of any Kubernetes object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemoModel;

impl aggregated_apiserver::Model for DemoModel {
    type Object = Arc<Value>;
    type Context = ();
    type Group = ();

    fn group(_: &Key, _: &Arc<Value>) -> Option<()> {
        None
    }

    fn append_json(object: &Arc<Value>, version: Rv, out: &mut Vec<u8>) {
        let mut object = Value::clone(object);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        out.extend(object.to_string().bytes());
    }

    fn append_metadata(object: &Arc<Value>, version: Rv, out: &mut Vec<u8>) {
        let mut metadata = object["metadata"].clone();
        metadata["resourceVersion"] = version.to_string().into();
        out.extend(metadata.to_string().bytes());
    }

    fn label<'a>(object: &'a Arc<Value>, key: &str) -> Option<&'a str> {
        object["metadata"]["labels"][key].as_str()
    }

    fn bytes(object: &Arc<Value>) -> usize {
        object.to_string().len()
    }
}

/// Returns the prefix of the keys of a kind, such as `Deployment.apps.v1/`.
pub(super) fn prefix(api_version: &str, kind: &str) -> String {
    format!("{kind}.{}/", api_version.replace('/', "."))
}

/// Returns the collection of a kind. The caller must call this function only at the start, because it
/// leaks memory.
pub fn collection(api_version: &str, kind: &str) -> Collection {
    Collection::new(prefix(api_version, kind).leak())
}

/// Returns the key of an object. As in the path of a request, a Namespace object is in its own
/// namespace. Returns `None` if the object lacks its name, its kind or its `apiVersion`.
pub fn key(object: &Value) -> Option<Key> {
    let prefix = prefix(object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str()?;
    let namespace = match &*prefix {
        "Namespace.v1/" => name,
        _ => metadata["namespace"].as_str().unwrap_or_default(),
    };
    Some(Key::new([&*prefix, namespace].concat(), name))
}

/// Returns an active Namespace without a creation time.
pub fn active_namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())},
        "status": {"phase": "Active"},
    })
}

/// Returns the current time in whole seconds, as Kubernetes writes it. The result is not in the future.
pub(super) fn now_in_seconds() -> Timestamp {
    let floor = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Floor);
    let now = clock::now();
    now.round(floor).unwrap_or(now)
}

/// Completes a rule set as a kube-apiserver does: the generation increases when the spec changes, and
/// a file does not change the status. `before` is the stored rule set.
pub(super) fn complete_rule_set(rule_set: &mut Value, before: Option<&Value>) {
    let before = before.unwrap_or(&Value::Null);
    let generation = before["metadata"]["generation"].as_i64().unwrap_or(0);
    let is_changed = before["spec"] != rule_set["spec"];
    let created = match &before["metadata"]["creationTimestamp"] {
        Value::Null => json!(now_in_seconds()),
        created => created.clone(),
    };
    rule_set["metadata"]["generation"] = json!(generation + i64::from(is_changed));
    rule_set["metadata"]["creationTimestamp"] = created;
    rule_set["status"] = before["status"].clone();
}
