//! Objects from manifests, as a kube-apiserver would serve them: with UIDs, and with the Namespaces
//! that they are in.

use super::kinds::Kinds;
use super::model::{active_namespace, key};
use aggregated_apiserver::store::Key;
use ifo_client::manifest::Object;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tracing::warn;
use uuid::Uuid;

/// Returns the objects of files, and the kinds of these objects. The result also contains the
/// Namespaces of the objects, and the Namespaces `namespaces`. If several files contain the same
/// object, the last file counts.
pub(super) fn served<'a>(
    files: impl Iterator<Item = (&'a Path, &'a Object)> + Clone,
    namespaces: &[String],
) -> (BTreeMap<Key, Value>, Kinds) {
    let kinds = Kinds::of(files.clone().map(|(_, object)| object));
    let mut objects = BTreeMap::new();
    let mut namespaces: BTreeSet<String> = namespaces.iter().cloned().collect();
    for (path, object) in files {
        let object_as_served = as_served(object, kinds.is_namespaced(object));
        let Some(key) = key(&object_as_served) else {
            continue;
        };
        namespaces.insert(key.object_namespace().to_owned());
        if objects.insert(key, object_as_served).is_some() {
            warn!(file = %path.display(), kind = object.kind, name = object.name, "the folder contains the object twice; the later one is used");
        }
    }
    namespaces.remove("");
    for namespace in namespaces.iter().map(|name| active_namespace(name)) {
        if let Some(key) = key(&namespace) {
            objects.entry(key).or_insert(namespace);
        }
    }
    (objects, kinds)
}

/// Returns the object as an API server would: with a UID, and with a namespace if its kind is
/// namespaced.
fn as_served(object: &Object, namespaced: bool) -> Value {
    let mut json = object.json.clone();
    let metadata = &mut json["metadata"];
    if namespaced && object.namespace.is_none() {
        // kubectl uses this namespace, too, if the kubeconfig names no other namespace.
        metadata["namespace"] = "default".into();
    }
    if object.uid().is_none() {
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        metadata["uid"] = derived_uid(object, namespace).into();
    }
    json
}

/// Derives a UID from `apiVersion`, kind, namespace and name. So the object has the same UID after
/// each scan and after a restart.
fn derived_uid(object: &Object, namespace: &str) -> String {
    let space = Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"manifests.ifo.kubevirt.io");
    let name = [&object.api_version, &object.kind, namespace, &object.name].join("/");
    Uuid::new_v5(&space, name.as_bytes()).to_string()
}
