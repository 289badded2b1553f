//! Objects from manifests, as a kube-apiserver would serve them: with UIDs, and with the Namespaces
//! that they are in.

use super::kinds::Kinds;
use super::model::{active_namespace, key};
use aggregated_apiserver::store::Key;
use ifo_client::manifest::Object;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use tracing::warn;
use uuid::Uuid;

/// Some objects, and their kinds.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) kinds: Kinds,
}

impl World {
    /// Returns the objects of files. If several files contain an object, the last one counts.
    pub(super) fn of<'a>(files: impl Iterator<Item = (&'a Path, &'a Object)> + Clone) -> Self {
        let kinds = Kinds::of(files.clone().map(|(_, object)| object));
        let mut objects: BTreeMap<Key, Value> = BTreeMap::new();
        for (path, object) in files {
            let object_as_served = as_served(object, kinds.is_namespaced(object));
            if let Some(key) = key(&object_as_served)
                && objects.insert(key, object_as_served).is_some()
            {
                warn!(file = %path.display(), kind = object.kind, name = object.name, "the folder contains the object twice; the later one is used");
            }
        }
        Self { objects, kinds }
    }

    /// Adds the Namespaces of the objects, and `more`, unless the world contains them.
    pub(super) fn add_namespaces(&mut self, more: &[String]) {
        let own = self.objects.keys().map(Key::object_namespace);
        let own = own.filter(|name| !name.is_empty()).map(str::to_owned);
        let names: Vec<String> = own.chain(more.iter().cloned()).collect();
        for namespace in names.iter().map(|name| active_namespace(name)) {
            if let Some(key) = key(&namespace) {
                self.objects.entry(key).or_insert(namespace);
            }
        }
    }
}

/// Returns the object as an API server would: with a UID, and with a namespace if its kind is
/// namespaced.
fn as_served(object: &Object, namespaced: bool) -> Value {
    let mut json = object.json.clone();
    let metadata = &mut json["metadata"];
    if namespaced && object.namespace.is_none() {
        // kubectl also uses the namespace `default` if the kubeconfig names no other namespace.
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
