//! Serves the Namespaces of the objects in a folder. kubectl reads a Namespace if it does not find an
//! object in it, and the plugin checks if a namespace exists.

use super::kinds;
use super::object_store::ServedObjects;
use super::object_store::active_namespace;
use crate::observe::Folder;
use aggregated_apiserver::serve::ResourceInfo;
use ifo_api::Gvr;
use serde_json::Value;

/// The Namespaces that a demo with the flag `--objects` serves: those of the objects in the folder,
/// and those that exist in every cluster with the server.
pub struct FolderNamespaces {
    /// The folder.
    pub folder: Folder,
    /// The namespace of the operations on cluster-scoped objects.
    pub own: String,
}

impl ServedObjects for FolderNamespaces {
    fn resources(&self) -> &'static [ResourceInfo] {
        kinds::NAMESPACES
    }

    fn list(&self, _: &Gvr, _: &str) -> (u64, Vec<Value>) {
        let mut namespaces = self.folder.namespaces();
        for name in ["default", &self.own] {
            namespaces.entry(name.to_owned()).or_default();
        }
        let namespaces = namespaces.into_iter().map(|(name, manifest)| {
            let manifest = manifest.and_then(|json| serde_json::from_slice(&json).ok());
            manifest.unwrap_or_else(|| active_namespace(&name))
        });
        // A folder has no versions. A client needs one only for a watch, which the demo does not
        // support.
        (1, namespaces.collect())
    }
}
