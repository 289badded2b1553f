//! The model of the demo's objects, and their keys in the store.

use crate::clock;
use aggregated_apiserver::Typed;
use aggregated_apiserver::store::{Collection, Key};
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use uuid::Uuid;

/// The model of the demo's objects: any Kubernetes object.
pub type DemoModel = Typed<DynamicObject>;

/// Returns the prefix of the keys of a kind, such as `Deployment.apps.v1/`.
pub(super) fn prefix(api_version: &str, kind: &str) -> String {
    format!("{kind}.{}/", api_version.replace('/', "."))
}

/// Returns the collection of a kind. The caller must call this function only at the start, because it
/// leaks memory.
pub fn collection(api_version: &str, kind: &str) -> Collection {
    Collection::new(prefix(api_version, kind).leak())
}

/// Returns the key of an object. Returns `None` if the object lacks its name, its kind or its
/// `apiVersion`.
pub fn key(object: &Value) -> Option<Key> {
    let prefix = prefix(object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Some(Key::new(
        [&*prefix, namespace].concat(),
        metadata["name"].as_str()?,
    ))
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
    Timestamp::from_second(clock::now().as_second()).unwrap_or_default()
}

/// Completes a rule set as a kube-apiserver does: the generation increases when the spec changes, and
/// a file does not change the status. `before` is the stored rule set, or null.
pub(super) fn complete_rule_set(rule_set: &mut Value, before: &Value) {
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
