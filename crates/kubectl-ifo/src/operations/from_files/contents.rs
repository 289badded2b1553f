//! The objects in the files of `--from`: operations, records of completed operations, rule sets and
//! Events. Also the time at which these objects were read from the cluster.

use super::read_files::{self, FoundFile, base_name};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::bundle_index::{BundleIndex, INDEX_FILE};
use crate::operations::operation_source::AnyOperation;
use crate::output::print::complain;
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, live, record, ruleset};
use ifo_client::list::list_path;
use ifo_client::manifest::{self, MemoryBudget};
use ifo_client::offline_kinds::{self, plural};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr as _;
use std::sync::OnceLock;

/// The path of the list of all namespaces.
const NAMESPACES: &str = "/api/v1/namespaces";

/// The path of the list of all Events.
const EVENTS: &str = "/api/v1/events";

/// The folder with the objects of an API in a must-gather.
const GATHERED: &str = "cluster-scoped-resources/";

/// Objects by namespace and name.
type ObjectsByName = BTreeMap<(Option<String>, String), Value>;

/// Objects by the path of their list for all namespaces. If the files contain neither an object nor
/// an empty list of a resource, the path of the resource is missing.
type Resources = BTreeMap<String, ObjectsByName>;

/// The objects and the time that commands read from the files of `--from`.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// The path that the user has given.
    path: String,
    /// The time at which the objects were read from the cluster: the time of the support bundle, or
    /// else of the newest file. Ages in the output are relative to this time.
    pub(crate) time: Timestamp,
    /// The index of the support bundle. None if the files are no support bundle.
    pub(crate) index: Option<BundleIndex>,
    resources: Resources,
    /// False if the files do not show which operations were in flight. For example, they contain
    /// only records.
    pub(crate) shows_operations: bool,
    /// Whether operations may be missing. Only a support bundle can state that its list of
    /// operations is complete.
    pub(crate) completeness: Result<(), Incomplete>,
    /// The files with Events. They are parsed when a command first needs Events.
    event_files: Vec<FoundFile>,
    events: OnceLock<Vec<Value>>,
}

impl FileContents {
    /// Reads the files at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        let name = path.display().to_string();
        let failed = |why: String| Problem::Other(format!("{name}: {why}"));
        let found = read_files::read(path, is_relevant);
        let found = found.map_err(|error| failed(error.to_string()))?;
        if let Some((within, error)) = found.errors.first() {
            return Err(failed(format!("{within}: {error}")));
        }
        Self::of(&name, found.files).map_err(failed)
    }

    fn of(path: &str, found: Vec<FoundFile>) -> Result<Self, String> {
        let index = read_index(&found)?;
        let (event_files, mut files): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| is_events_file(&it.path));
        // Of two states of an object, the later one counts, so the newest file comes last.
        files.sort_by_key(|it| it.modified);
        let mut resources = Resources::new();
        let (mut budget, mut is_whole) = (MemoryBudget::default(), true);
        for file in files.iter().filter(|it| base_name(&it.path) != INDEX_FILE) {
            let (documents, read) = file.documents(&mut budget);
            if let Err(why) = add_objects(&mut resources, documents).and(read) {
                is_whole = false;
                complain("note", format!("{}: not read completely: {why}", file.path));
            }
        }
        if index.is_none() && resources.is_empty() {
            return Err(
                "neither operations nor rule sets nor an empty list were read; --from reads a support \
                 bundle, a must-gather folder, or the output of: kubectl get ifos -A -o yaml"
                    .to_owned(),
            );
        }
        add_namespaces(&mut resources, index.as_ref());
        // If a cluster has no operations, its must-gather has no file for operations.
        let is_gathered = Path::new(path).ends_with(GATHERED)
            || files.iter().any(|it| it.path.contains(GATHERED));
        let operations = [LIVE_GROUP, GROUP].map(|group| list_path(group, live::PLURAL, None));
        let is_listed = operations.iter().any(|it| resources.contains_key(it));
        if !is_listed {
            resources.insert(operations[0].clone(), ObjectsByName::new());
        }
        let newest_file = files.last().and_then(|it| it.modified);
        let time = index.as_ref().map(|it| it.created).or(newest_file);
        Ok(Self {
            path: path.to_owned(),
            time: time.unwrap_or_else(clock::now),
            shows_operations: is_listed || (is_whole && is_gathered),
            completeness: completeness(index.as_ref().filter(|_| is_whole), &resources),
            index,
            resources,
            event_files,
            events: OnceLock::new(),
        })
    }

    /// Returns the note that tells the user which files the output shows, and from which time.
    pub(crate) fn introduction(&self) -> String {
        let (path, time) = (&self.path, self.time);
        let mut text = format!(
            "showing the operations in {path} at {time:.0}; ages are relative to that time"
        );
        if self.index.as_ref().is_some_and(|it| it.redacted) {
            text += "; texts such as messages were left out";
        }
        if let Some(namespace) = self.recorded_namespace() {
            text.extend(["; only the operations in ", namespace, " were recorded"]);
        }
        text
    }

    /// Returns the only namespace whose operations the support bundle contains. None if it contains
    /// the operations of all namespaces, or if the files are no support bundle.
    pub(crate) fn recorded_namespace(&self) -> Option<&str> {
        self.index.as_ref()?.namespace.as_deref()
    }

    /// Returns the objects of the list at `path`. Returns an error in these cases:
    ///
    /// - `NotFound`: the files contain neither operations nor records of this API, nor a list of
    ///   them. After this error for the live API, commands read custom resources.
    /// - Another error: it is unknown whether such objects exist in the cluster.
    pub(crate) fn objects(&self, path: &str) -> Result<Vec<&Value>, Problem> {
        let within = path.split_once("/namespaces/");
        let within = within.and_then(|(root, rest)| Some((root, rest.split_once('/')?)));
        let (whole, namespace) = match within {
            Some((root, (namespace, plural))) => (format!("{root}/{plural}"), Some(namespace)),
            None => (path.to_owned(), None),
        };
        let is_in =
            |it: &&Value| namespace.is_none() || namespace == it["metadata"]["namespace"].as_str();
        let is_recorded = match (self.recorded_namespace(), namespace) {
            (Some(recorded), Some(namespace)) => recorded == namespace,
            _ => true,
        };
        let mut operations = [live::PLURAL, record::PLURAL].iter();
        match self.resources.get(&whole) {
            Some(objects) if is_recorded => Ok(objects.values().filter(is_in).collect()),
            None if whole == EVENTS => {
                // The files do not state whether the cluster had no Events, so an empty result is
                // an error.
                let found: Vec<&Value> = self.events().iter().filter(is_in).collect();
                let found = Some(found).filter(|it| !it.is_empty());
                found.ok_or_else(|| self.lacks(path))
            }
            None if operations.any(|it| whole.ends_with(it)) => {
                let plural = whole.rsplit('/').next().unwrap_or_default();
                Err(Problem::NotFound(format!(
                    "the files contain no {plural}; record them with: kubectl get {plural} -A -o yaml"
                )))
            }
            _ => Err(self.lacks(path)),
        }
    }

    /// Returns the object at `path`.
    pub(crate) fn object(&self, path: &str) -> Result<&Value, Problem> {
        let (list, name) = path.rsplit_once('/').unwrap_or_default();
        let mut all = self.objects(list)?.into_iter();
        let found = all.find(|it| it["metadata"]["name"] == name);
        found.ok_or_else(|| self.lacks(path))
    }

    /// Returns the version of `ifo-apiserver`.
    pub(crate) fn server_version(&self) -> Result<String, Problem> {
        let index = self.index.as_ref();
        let version = index.and_then(|it| it.server_version.clone());
        version.ok_or_else(|| self.lacks("the version of the server"))
    }

    /// Returns the error for objects that the files do not contain.
    pub(crate) fn lacks(&self, what: &str) -> Problem {
        Problem::Other(format!("{} does not contain {what}", self.path))
    }

    /// Returns the Events. The first call parses their files, and skips files that cannot be
    /// parsed.
    fn events(&self) -> &[Value] {
        self.events.get_or_init(|| {
            let mut objects = Vec::new();
            let mut budget = MemoryBudget::default();
            for file in &self.event_files {
                for document in file.documents(&mut budget).0 {
                    let _ = manifest::append_objects(document, &mut objects);
                }
            }
            let events = objects.into_iter().filter(|it| it.kind == "Event");
            events.map(|it| it.json).collect()
        })
    }
}

/// Adds the operations, records and rule sets in the documents of a file. If there are several
/// objects with a namespace and name, the one with the highest resourceVersion counts, or else the
/// last one. If an object is invalid, the objects before it are added.
fn add_objects(resources: &mut Resources, documents: Vec<Value>) -> Result<(), String> {
    let is_own = |group: &str| [GROUP, LIVE_GROUP].contains(&group);
    let version = |it: &Value| u64::from_str(it["metadata"]["resourceVersion"].as_str()?).ok();
    for document in documents {
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        let group = offline_kinds::group(text("apiVersion"));
        let empty_list = match text("kind").strip_suffix("List") {
            // For an empty result, `kubectl get -o yaml` prints an empty list of the kind `List`.
            Some("") if document["items"].as_array().is_some_and(Vec::is_empty) => {
                Some(list_path(LIVE_GROUP, live::PLURAL, None))
            }
            Some(kind) if is_own(group) => Some(list_path(group, &plural(kind), None)),
            _ => None,
        };
        empty_list.map(|it| resources.entry(it).or_default());
        let mut objects = Vec::new();
        let added = manifest::append_objects(document, &mut objects);
        for object in objects.into_iter().filter(|it| is_own(it.group())) {
            if [live::KIND, record::KIND].contains(&object.kind.as_str())
                && let Err(error) = AnyOperation::try_from(object.json.clone())
            {
                return Err(format!("{} {}: {error}", object.kind, object.name));
            }
            let path = list_path(object.group(), &plural(&object.kind), None);
            let known = resources.entry(path).or_default();
            let name = (object.namespace, object.name);
            if known.get(&name).map(version) <= Some(version(&object.json)) {
                known.insert(name, object.json);
            }
        }
        added?;
    }
    Ok(())
}

/// Adds a list of namespaces: the namespaces of the subjects, and the recorded namespace of a
/// support bundle.
fn add_namespaces(resources: &mut Resources, index: Option<&BundleIndex>) {
    let objects = resources.values().flat_map(BTreeMap::values);
    let subjects = objects.filter_map(|it| it["spec"]["subject"]["namespace"].as_str());
    let recorded = index.and_then(|it| it.namespace.as_deref());
    let namespaces = subjects.chain(recorded).map(|name| {
        let object = json!({"metadata": {"name": name}});
        ((None, name.to_owned()), object)
    });
    let namespaces = namespaces.collect();
    resources.insert(NAMESPACES.to_owned(), namespaces);
}

/// Returns true if commands need this file of a folder or an archive. Commands need the index of a
/// support bundle, files with Events, and files that contain the API group.
fn is_relevant(path: &str, bytes: &[u8]) -> bool {
    let name = base_name(path);
    // A file of this API that is not UTF-8 is also kept, so that a later note names the file.
    let has_group = || String::from_utf8_lossy(bytes).contains(GROUP);
    name == INDEX_FILE || is_events_file(path) || has_group()
}

/// Returns true if the path shows that the file contains Events. Examples are `core/events.yaml`
/// and `core/events/a.yaml`. The name `events` of a folder alone is not enough, because a namespace
/// can have this name.
fn is_events_file(path: &str) -> bool {
    let name = base_name(path);
    name.split('.').next() == Some("events") || format!("/{path}").contains("/core/events/")
}

/// Reads the index of a support bundle. None if the files are no support bundle. Returns an error
/// if there are several support bundles, or if the bundle contains no operations.
fn read_index(found: &[FoundFile]) -> Result<Option<BundleIndex>, String> {
    let mut indexes = found.iter().filter(|it| base_name(&it.path) == INDEX_FILE);
    let Some(file) = indexes.next() else {
        return Ok(None);
    };
    if let Some(FoundFile { path, .. }) = indexes.next() {
        let why = "there are several support bundles; name one of them, such as that of";
        return Err(format!("{why} {} or {path}", file.path));
    }
    let index: BundleIndex =
        serde_json::from_slice(&file.bytes).map_err(|error| format!("{}: {error}", file.path))?;
    match index.operations() {
        Ok(_) => Ok(Some(index)),
        Err(why) => Err(format!("the support bundle contains no operations: {why}")),
    }
}

/// Returns whether operations may be missing. Only a support bundle can state that its list is
/// complete.
fn completeness(index: Option<&BundleIndex>, resources: &Resources) -> Result<(), Incomplete> {
    let part = index.and_then(|it| it.operations().ok());
    if let Some(part) = part.filter(|it| it.path.contains(LIVE_GROUP)) {
        return part.incomplete.clone().map_or(Ok(()), Err);
    }
    let rule_sets = resources.get(&list_path(GROUP, ruleset::PLURAL, None));
    Err(match rule_sets {
        Some(rule_sets) if rule_sets.is_empty() => Incomplete::NoRuleSets,
        _ => Incomplete::NotRecorded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_utf_8_is_relevant() {
        assert!(is_relevant("a.yaml", b"\xff: ifo.kubevirt.io/v1alpha1"));
        assert!(!is_relevant("a.yaml", b"\xff: v1"));
    }

    #[test]
    fn the_folder_of_a_namespace_has_no_effect_on_the_contents_of_its_files() {
        let of_bundle = "b/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/events";
        for (path, expected) in [
            ("core/events.yaml", true),
            ("core/events/a.yaml", true),
            ("m/namespaces/events/core/events/a.yaml", true),
            ("b/api/v1/namespaces/events/events.json", true),
            (&format!("{of_bundle}/inflightoperations.json"), false),
            ("m/namespaces/events/ifo.kubevirt.io/a.yaml", false),
        ] {
            assert_eq!(is_events_file(path), expected, "{path}");
        }
    }
}
