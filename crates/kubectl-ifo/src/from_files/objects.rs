//! Selects objects in the files of `--from`, as a list request selects them in a cluster.

use super::file_contents::FileContents;
use super::resources::FileResource;
use crate::label_selector::ParsedLabelSelector;
use crate::problem::Problem;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

impl FileContents {
    /// Returns the objects of `resource` (`plural.group`) in `namespace` whose labels match the
    /// label selector. None for all namespaces. Returns an error in these cases:
    ///
    /// - `NotFound`: the files contain neither operations nor records of this API, nor a list of
    ///   them. After this error for the live API, commands read custom resources.
    /// - Another error: it is unknown whether such objects exist in the cluster.
    pub(crate) fn objects(
        &self,
        resource: &str,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Vec<&Value>, Problem> {
        if resource == "events" {
            return self.events_in(namespace);
        }
        let found = FileResource::named(resource).ok_or_else(|| self.lacks(resource))?;
        let operations = match found {
            FileResource::RuleSets => return self.rule_sets(),
            found => self.resources.get(found),
        };
        let Some(operations) = operations else {
            return Err(Problem::NotFound(format!(
                "the files contain neither {resource} nor a list of them"
            )));
        };
        if let (Some(listed), Some(namespace)) = (&self.namespaces, namespace)
            && !listed.iter().any(|it| it == namespace)
        {
            return Err(self.lacks(&format!("the operations in namespace {namespace}")));
        }
        let labels = ParsedLabelSelector::parse(label_selector).map_err(Problem::Invalid)?;
        let is_selected = |it: &&Value| {
            (namespace.is_none() || namespace == it["metadata"]["namespace"].as_str())
                && labels.matches(&labels_of(it))
        };
        Ok(operations.filter(is_selected).collect())
    }

    /// Returns the rule set with this name.
    pub(crate) fn rule_set(&self, name: &str) -> Result<Value, Problem> {
        let mut all = self.rule_sets()?.into_iter();
        let found = all.find(|it| it["metadata"]["name"] == name);
        found
            .cloned()
            .ok_or_else(|| Problem::NotFound("the rule set is not in the files".to_owned()))
    }

    fn rule_sets(&self) -> Result<Vec<&Value>, Problem> {
        let rule_sets = self.resources.rule_sets();
        rule_sets.ok_or_else(|| self.lacks("the rule sets"))
    }

    /// Returns the Events of a namespace. If the files contain no Event of this namespace, it is
    /// unknown whether there were Events, so the result is an error.
    fn events_in(&self, namespace: Option<&str>) -> Result<Vec<&Value>, Problem> {
        let all = self.events().iter();
        let found: Vec<&Value> = all
            .filter(|it| it["metadata"]["namespace"].as_str() == namespace)
            .collect();
        if found.is_empty() {
            let namespace = namespace.unwrap_or_default();
            return Err(self.lacks(&format!("the Events of namespace {namespace}")));
        }
        Ok(found)
    }

    /// Returns the namespaces of the subjects, and those whose operations were recorded.
    pub(crate) fn known_namespaces(&self) -> BTreeSet<String> {
        let operations = self.resources.operations();
        let subjects = operations.filter_map(|it| it.pointer("/spec/subject/namespace")?.as_str());
        let recorded = self.namespaces.iter().flatten().map(String::as_str);
        subjects.chain(recorded).map(str::to_owned).collect()
    }

    /// Returns the version of `ifo-apiserver`.
    pub(crate) fn server_version(&self) -> Result<String, Problem> {
        let version = self.server_version.clone();
        version.ok_or_else(|| self.lacks("the version of the server"))
    }

    /// Returns the error for objects that the files do not contain.
    pub(crate) fn lacks(&self, what: &str) -> Problem {
        Problem::Other(format!("{} does not contain {what}", self.path))
    }
}

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}
