//! The operations, records and rule sets in the files of `--from`, by resource.

use ifo_api::{GROUP, LIVE_GROUP, live, record, ruleset};
use ifo_client::manifest;
use serde_json::Value;
use std::collections::BTreeMap;

/// A resource whose objects commands need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileResource {
    /// The operations that `ifo-apiserver` served (the live API).
    Operations,
    /// The operations that are stored as custom resources.
    CustomResources,
    /// The records of completed operations.
    Records,
    RuleSets,
}

impl FileResource {
    fn of_kind(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            (LIVE_GROUP, live::KIND) => Some(Self::Operations),
            (GROUP, live::KIND) => Some(Self::CustomResources),
            (LIVE_GROUP, record::KIND) => Some(Self::Records),
            (GROUP, ruleset::KIND) => Some(Self::RuleSets),
            _ => None,
        }
    }

    /// Finds a resource by its name `plural.group`.
    pub(super) fn named(resource: &str) -> Option<Self> {
        match resource.split_once('.')? {
            (live::PLURAL, LIVE_GROUP) => Some(Self::Operations),
            (live::PLURAL, GROUP) => Some(Self::CustomResources),
            (record::PLURAL, LIVE_GROUP) => Some(Self::Records),
            (ruleset::PLURAL, GROUP) => Some(Self::RuleSets),
            _ => None,
        }
    }
}

/// The objects of a resource, by namespace and name.
type ObjectsByName = BTreeMap<(Option<String>, String), Value>;

/// The objects in all files. Objects of other resources are left out.
#[derive(Debug, Default)]
pub(super) struct FileResources {
    /// A resource is missing if the files contain neither such objects nor a list of them.
    objects: BTreeMap<FileResource, ObjectsByName>,
    /// True if the files contain a `List` without items. `kubectl get -o yaml` prints such a list
    /// for an empty result. The list does not name its resource.
    has_empty_list: bool,
}

impl FileResources {
    /// Adds the objects in the documents of a file. If there are several objects with a namespace
    /// and name, the first one counts.
    pub(super) fn add(&mut self, documents: Vec<Value>) -> Result<(), String> {
        for document in documents {
            self.note_list(&document);
            let mut objects = Vec::new();
            // If an object is invalid, this loop still adds the objects before it.
            let added = manifest::append_objects(document, &mut objects);
            for object in objects {
                if let Some(resource) = FileResource::of_kind(object.group(), &object.kind) {
                    let known = self.objects.entry(resource).or_default();
                    let name = (object.namespace, object.name);
                    known.entry(name).or_insert(object.json);
                }
            }
            added?;
        }
        Ok(())
    }

    /// If a document is the list of a resource, notes that the files contain such a list. Without
    /// this note, an empty list would look as if the files did not contain the resource.
    fn note_list(&mut self, document: &Value) {
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        let group = ifo_client::offline_kinds::group(text("apiVersion"));
        let Some(kind) = text("kind").strip_suffix("List") else {
            return;
        };
        if let Some(resource) = FileResource::of_kind(group, kind) {
            self.objects.entry(resource).or_default();
        }
        let is_empty = document["items"].as_array().is_some_and(Vec::is_empty);
        self.has_empty_list |= kind.is_empty() && is_empty;
    }

    /// Returns true if the files contain no object and no list of a resource, and no empty list.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && !self.has_empty_list
    }

    /// If the files contain operations in no form, states that they contain an empty list of them.
    pub(super) fn list_operations(&mut self) {
        if !self.objects.contains_key(&FileResource::CustomResources) {
            self.objects.entry(FileResource::Operations).or_default();
        }
    }

    /// Returns the objects of a resource. None if the files contain neither such objects nor a list
    /// of them.
    pub(super) fn get(&self, resource: FileResource) -> Option<impl Iterator<Item = &Value>> {
        self.objects.get(&resource).map(BTreeMap::values)
    }

    /// Returns the operations and records.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Value> {
        let operations = self.objects.iter();
        operations
            .filter(|(resource, _)| **resource != FileResource::RuleSets)
            .flat_map(|(_, objects)| objects.values())
    }

    /// Returns the rule sets. None if the files contain neither rule sets nor a list of them.
    pub(super) fn rule_sets(&self) -> Option<Vec<&Value>> {
        self.get(FileResource::RuleSets).map(Iterator::collect)
    }
}
