//! The objects in the files of `--from`: operations, records of completed operations, rule sets and
//! Events. Also the time at which these objects were read from the cluster.

use super::read_files::{
    self, FoundFile, TIMESTAMP_FILE, base_name, is_events_file, must_gather_time,
};
use crate::bundle_index::{BundleIndex, INDEX_FILE, PartResult};
use crate::clock;
use crate::label_selector::ParsedLabelSelector;
use crate::output::complain;
use crate::plain_text::first_names;
use crate::problem::Problem;
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, activity, live, ruleset};
use ifo_client::manifest::{self, MemoryBudget};
use ifo_client::offline_kinds;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

/// Largest number of namespaces that a message names. The message only counts further namespaces.
const MAX_NAMED: usize = 5;

/// Objects by namespace and name.
type ObjectsByName = BTreeMap<(Option<String>, String), Value>;

/// Objects by resource (`plural.group`). A resource is missing if the files contain neither such
/// objects nor a list of them.
type Resources = BTreeMap<String, ObjectsByName>;

/// The objects and the time that commands read from the files of `--from`.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// The path that the user has given.
    pub(crate) path: String,
    /// The time at which the objects were read from the cluster. Ages in the output are relative to
    /// this time. If an operation contains a newer time, this is the newer time.
    pub(crate) time: Timestamp,
    /// Where the time comes from, in words. Empty if the files contain the time.
    time_origin: &'static str,
    /// True if the support bundle has only the fields that may leave without `--include-text`.
    is_redacted: bool,
    resources: Resources,
    /// The namespaces whose operations the support bundle contains. None if it contains the
    /// operations of all namespaces, or if the files are no support bundle.
    pub(crate) namespaces: Option<Vec<String>>,
    /// The reason why operations may be missing. None if the support bundle states that its list of
    /// operations is complete.
    pub(crate) incomplete: Option<Incomplete>,
    /// The version of `ifo-apiserver` in the support bundle. None if the files do not contain it.
    server_version: Option<String>,
    /// The files with Events. They are parsed when the Events are needed.
    event_files: Vec<FoundFile>,
    events: OnceLock<Vec<Value>>,
}

impl FileContents {
    /// Reads the files at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        Self::of(path.display().to_string(), read_files::read(path)?)
    }

    fn of(path: String, found: Vec<FoundFile>) -> Result<Self, Problem> {
        let index = read_index(&path, &found)?;
        let is_single = found.len() == 1;
        let (event_files, files): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| is_events_file(&it.path));
        let mut resources = Resources::new();
        let mut budget = MemoryBudget::default();
        let (mut newest_file, mut gathered) = (None, None);
        for file in &files {
            match base_name(&file.path) {
                INDEX_FILE => {}
                TIMESTAMP_FILE => gathered = gathered.max(must_gather_time(&file.bytes)),
                _ => {
                    newest_file = newest_file.max(file.modified);
                    let documents = documents(file, &mut budget);
                    if let Err(why) = documents.and_then(|it| add_objects(&mut resources, it)) {
                        // This file is the only input of the command, so the command fails.
                        if is_single {
                            return Err(Problem::Other(format!("{path}: {why}")));
                        }
                        complain("note", format!("{}: not read: {why}", file.path));
                    }
                }
            }
        }
        if index.is_none() && resources.is_empty() {
            return Err(Problem::Other(format!(
                "{path}: there are no operations, no rule sets and no empty list; --from \
                 reads a support bundle, a must-gather folder, or the output of: kubectl get \
                 ifos -A -o yaml"
            )));
        }
        // If a cluster has no operations, its must-gather has no file for operations.
        let operations = [LIVE_GROUP, GROUP].map(|group| format!("{}.{group}", live::PLURAL));
        if !operations.iter().any(|it| resources.contains_key(it)) {
            resources.insert(operations[0].clone(), ObjectsByName::new());
        }
        let recorded = index.as_ref().map(|it| it.created).or(gathered);
        let (time, time_origin) = match (recorded, newest_file) {
            (Some(time), _) => (time, ""),
            (None, Some(time)) => (time, " (the last change of the file)"),
            (None, None) => (clock::now(), " (now)"),
        };
        let newest = resources.values().flat_map(BTreeMap::values);
        let newest = newest.filter_map(newest_time).max();
        Ok(Self {
            path,
            // The time comes from a clock that can be behind the clock of the cluster. The newest
            // operation must not have a negative age.
            time: newest.map_or(time, |newest| time.max(newest)),
            time_origin,
            is_redacted: index.as_ref().is_some_and(|it| it.redacted),
            incomplete: incomplete(index.as_ref(), &resources),
            resources,
            namespaces: index
                .as_ref()
                .and_then(|it| it.operations.namespaces.clone()),
            server_version: index.and_then(|it| it.server_version),
            event_files,
            events: OnceLock::new(),
        })
    }

    /// Returns the note that tells the user which files the output shows, and from which time.
    pub(crate) fn introduction(&self) -> String {
        let (path, time, origin) = (&self.path, self.time, self.time_origin);
        let mut text = format!(
            "showing the operations in {path} at {time:.0}{origin}; ages are relative to that time"
        );
        if self.is_redacted {
            text += "; texts such as messages were left out";
        }
        if let Some(namespaces) = &self.namespaces {
            let named = first_names(namespaces.iter().map(String::as_str), MAX_NAMED);
            text.extend(["; only the operations in ", &named, " were recorded"]);
        }
        text
    }

    /// Returns the objects of the list at `path` whose labels match the label selector. Returns an error
    /// in these cases:
    ///
    /// - `NotFound`: the files contain neither operations nor records of this API, nor a list of
    ///   them. After this error for the live API, commands read custom resources.
    /// - Another error: it is unknown whether such objects exist in the cluster.
    pub(crate) fn objects(&self, path: &str, label_selector: &str) -> Result<Vec<&Value>, Problem> {
        let ObjectPath {
            resource,
            namespace,
            ..
        } = ObjectPath::parse(path);
        let is_in =
            |it: &&Value| namespace.is_none() || namespace == it["metadata"]["namespace"].as_str();
        if resource == "events" {
            let found: Vec<&Value> = self.events().iter().filter(is_in).collect();
            // The files do not state whether there were Events.
            let lacks = || self.lacks(&format!("the Events of {}", namespace.unwrap_or_default()));
            return Some(found).filter(|it| !it.is_empty()).ok_or_else(lacks);
        }
        let Some(objects) = self.resources.get(&resource) else {
            let is_operation = resource.starts_with("inflight") || resource.contains("records.");
            return Err(if is_operation {
                Problem::NotFound(format!("the files contain no {resource}"))
            } else {
                self.lacks(&resource)
            });
        };
        if let (Some(listed), Some(namespace)) = (&self.namespaces, namespace)
            && !listed.iter().any(|it| it == namespace)
        {
            return Err(self.lacks(&format!("the operations in namespace {namespace}")));
        }
        let labels = ParsedLabelSelector::parse(label_selector).map_err(Problem::Invalid)?;
        let is_selected = |it: &&Value| is_in(it) && labels.matches(labels_of(it));
        Ok(objects.values().filter(is_selected).collect())
    }

    /// Returns the object at `path`.
    pub(crate) fn object(&self, path: &str) -> Result<&Value, Problem> {
        let name = ObjectPath::parse(path).name.unwrap_or_default();
        let all = self.objects(path, "")?.into_iter();
        let mut found = all.filter(|it| it["metadata"]["name"] == name);
        found.next().ok_or_else(|| self.lacks(path))
    }

    /// Returns the namespaces of the subjects, and those whose operations were recorded.
    pub(crate) fn known_namespaces(&self) -> BTreeSet<String> {
        let objects = self.resources.values().flat_map(BTreeMap::values);
        let subjects = objects.filter_map(|it| it.pointer("/spec/subject/namespace")?.as_str());
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

    /// Returns the Events. The first call parses their files, and skips files that cannot be parsed.
    fn events(&self) -> &[Value] {
        self.events.get_or_init(|| {
            let mut objects = Vec::new();
            let mut budget = MemoryBudget::default();
            for file in &self.event_files {
                for document in documents(file, &mut budget).unwrap_or_default() {
                    let _ = manifest::append_objects(document, &mut objects);
                }
            }
            let events = objects.into_iter().filter(|it| it.kind == "Event");
            events.map(|it| it.json).collect()
        })
    }
}

/// The parts of the path of a list or of an object.
struct ObjectPath<'a> {
    /// The resource as `plural.group`, or as the plural in the core group.
    resource: String,
    namespace: Option<&'a str>,
    /// None for a list.
    name: Option<&'a str>,
}

impl<'a> ObjectPath<'a> {
    fn parse(path: &'a str) -> Self {
        let mut parts = path.split(['/', '?']).skip(1);
        let group = parts.next().filter(|it| *it == "apis");
        let group = group.and_then(|_| parts.next());
        let parts: Vec<&str> = parts.skip(1).collect();
        let (namespace, rest) = match parts.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let plural = rest.first().copied().unwrap_or_default();
        Self {
            resource: group.map_or_else(|| plural.to_owned(), |it| format!("{plural}.{it}")),
            namespace,
            name: rest.get(1).copied(),
        }
    }
}

/// Adds the operations, records and rule sets in the documents of a file. If there are several
/// objects with a namespace and name, the first one counts. If an object is invalid, the objects
/// before it are added.
fn add_objects(resources: &mut Resources, documents: Vec<Value>) -> Result<(), String> {
    let resource = |group: &str, kind: &str| {
        let is_own = [GROUP, LIVE_GROUP].contains(&group);
        let plural = match kind {
            activity::KIND => activity::PLURAL.to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        is_own.then(|| format!("{plural}.{group}"))
    };
    for document in documents {
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        let group = offline_kinds::group(text("apiVersion"));
        let empty_list = match text("kind").strip_suffix("List") {
            // `kubectl get -o yaml` prints such a list for an empty result.
            Some("") if document["items"].as_array().is_some_and(Vec::is_empty) => {
                resource(LIVE_GROUP, live::KIND)
            }
            Some(kind) => resource(group, kind),
            None => None,
        };
        empty_list.map(|it| resources.entry(it).or_default());
        let mut objects = Vec::new();
        let added = manifest::append_objects(document, &mut objects);
        for object in objects {
            if let Some(resource) = resource(object.group(), &object.kind) {
                let known = resources.entry(resource).or_default();
                let name = (object.namespace, object.name);
                known.entry(name).or_insert(object.json);
            }
        }
        added?;
    }
    Ok(())
}

fn documents(file: &FoundFile, budget: &mut MemoryBudget) -> Result<Vec<Value>, String> {
    let text = str::from_utf8(&file.bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
    manifest::documents(text, budget)
}

/// Reads the index of a support bundle. None if the files are no support bundle. Returns an error if
/// there are several support bundles, or if the bundle contains no operations.
fn read_index(path: &str, found: &[FoundFile]) -> Result<Option<BundleIndex>, Problem> {
    let mut indexes = found.iter().filter(|it| base_name(&it.path) == INDEX_FILE);
    let Some(file) = indexes.next() else {
        return Ok(None);
    };
    let failed = |why: String| Err(Problem::Other(format!("{path}: {why}")));
    if indexes.next().is_some() {
        return failed("there are several support bundles; name one of them".to_owned());
    }
    let index: BundleIndex = match serde_json::from_slice(&file.bytes) {
        Ok(index) => index,
        Err(error) => return failed(format!("{}: {error}", file.path)),
    };
    match index.operations.result {
        PartResult::Read | PartResult::Truncated => Ok(Some(index)),
        result => failed(format!(
            "the support bundle contains no operations: {result}"
        )),
    }
}

/// Returns the reason why operations may be missing. Only a support bundle can state that its list is
/// complete.
fn incomplete(index: Option<&BundleIndex>, resources: &Resources) -> Option<Incomplete> {
    let rule_sets = resources.get(&format!("{}.{GROUP}", ruleset::PLURAL));
    let unknown = match rule_sets {
        Some(rule_sets) if rule_sets.is_empty() => Incomplete::NoRuleSets,
        _ => Incomplete::NotRecorded,
    };
    match index.map(|it| &it.operations) {
        Some(operations) if operations.is_complete => None,
        Some(operations) => {
            let stated = operations.warning.as_deref();
            stated.and_then(|it| it.parse().ok()).or(Some(unknown))
        }
        None => Some(unknown),
    }
}

/// Returns the newest time in an object.
fn newest_time(object: &Value) -> Option<Timestamp> {
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.into_iter().flatten();
    let times = conditions.map(|it| &it["lastTransitionTime"]).chain([
        &object["metadata"]["creationTimestamp"],
        &object["status"]["started"],
        &object["status"]["completed"],
    ]);
    times.filter_map(|it| it.as_str()?.parse().ok()).max()
}

fn labels_of(object: &Value) -> impl Iterator<Item = (&String, &str)> {
    let labels = object["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key, value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(text: &str) -> Result<FileContents, Problem> {
        let file = FoundFile {
            path: "x".to_owned(),
            bytes: text.as_bytes().to_vec(),
            modified: Some(Timestamp::from_second(1_000_000_000).expect("in range")),
        };
        FileContents::of("x".to_owned(), vec![file])
    }

    #[test]
    fn the_time_is_not_before_the_newest_operation() {
        let operation = "{apiVersion: live.ifo.kubevirt.io/v1alpha1, kind: InFlightOperation, \
                         metadata: {name: a, creationTimestamp: '2026-01-01T00:00:00Z'}}";
        let contents = contents(operation).expect("the file has an operation");
        assert_eq!(contents.time.to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_list_without_a_statement_is_never_complete() {
        let none = "{apiVersion: ifo.kubevirt.io/v1alpha1, kind: OperationRuleSetList, items: []}";
        for (text, reason) in [
            (
                "{apiVersion: v1, kind: List, items: []}",
                Incomplete::NotRecorded,
            ),
            (none, Incomplete::NoRuleSets),
        ] {
            let contents = contents(text).expect("the file has a list");
            assert_eq!(contents.incomplete, Some(reason));
        }
        let other = contents("{apiVersion: v1, kind: Pod, metadata: {name: a}}");
        assert!(other.is_err(), "{other:?}");
    }
}
