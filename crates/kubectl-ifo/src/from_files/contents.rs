//! The objects in the files of `--from`: operations, records of completed operations, rule sets and
//! Events. Also the time at which these objects were read from the cluster.

use super::read_files::{self, FoundFile, base_name};
use crate::bundle_index::{BundleIndex, INDEX_FILE, PartResult};
use crate::clock;
use crate::output::complain;
use crate::plain_text::first_names;
use crate::problem::Problem;
use ifo_api::completeness::Incomplete;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, activity, live, record, ruleset};
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

/// Objects by the path of their list in all namespaces. A path is missing if the files contain
/// neither such objects nor a list of them.
type Resources = BTreeMap<String, ObjectsByName>;

/// The objects and the time that commands read from the files of `--from`.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// The path that the user has given.
    pub(crate) path: String,
    /// The time at which the objects were read from the cluster. Ages in the output are relative to
    /// this time.
    pub(crate) time: Timestamp,
    /// Where the time comes from, in words. Empty if the files contain the time.
    time_origin: &'static str,
    /// The index of the support bundle. None if the files are no support bundle.
    index: Option<BundleIndex>,
    resources: Resources,
    /// The reason why operations may be missing. None if the support bundle states that its list of
    /// operations is complete.
    pub(crate) incomplete: Option<Incomplete>,
    /// The files with Events. They are parsed when the Events are needed.
    event_files: Vec<FoundFile>,
    events: OnceLock<Vec<Value>>,
}

impl FileContents {
    /// Reads the files at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        let name = path.display().to_string();
        let found = read_files::read(path, is_relevant);
        let found = found.map_err(|error| Problem::Other(format!("{name}: {error}")))?;
        if let Some((within, error)) = found.errors.first() {
            let unreadable = path.join(within);
            let message = format!("{}: {error}", unreadable.display());
            return Err(Problem::Other(message));
        }
        Self::of(name, found.files)
    }

    fn of(path: String, found: Vec<FoundFile>) -> Result<Self, Problem> {
        let index = read_index(&path, &found)?;
        let is_single = found.len() == 1;
        let (event_files, files): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| is_events_file(&it.path));
        let mut resources = Resources::new();
        let mut budget = MemoryBudget::default();
        let manifests = files.iter().filter(|it| base_name(&it.path) != INDEX_FILE);
        for file in manifests.clone() {
            let documents = file.documents(&mut budget);
            if let Err(why) = documents.and_then(|it| add_objects(&mut resources, it)) {
                // This file is the only input of the command, so the command fails.
                if is_single {
                    return Err(Problem::Other(format!("{path}: {why}")));
                }
                complain("note", format!("{}: not read: {why}", file.path));
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
        let operations = [LIVE_GROUP, GROUP].map(|group| list_path(group, live::PLURAL));
        if !operations.iter().any(|it| resources.contains_key(it)) {
            resources.insert(operations[0].clone(), ObjectsByName::new());
        }
        let newest_file = manifests.filter_map(|it| it.modified).max();
        let (time, time_origin) = match (&index, newest_file) {
            (Some(index), _) => (index.created, ""),
            (None, Some(time)) => (time, " (the last change of a file)"),
            (None, None) => (clock::now(), " (now)"),
        };
        Ok(Self {
            path,
            time,
            time_origin,
            incomplete: incomplete(index.as_ref(), &resources),
            index,
            resources,
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
        if self.index.as_ref().is_some_and(|it| it.redacted) {
            text += "; texts such as messages were left out";
        }
        if let Some(namespaces) = self.namespaces() {
            let named = first_names(namespaces.iter().map(String::as_str), MAX_NAMED);
            text.extend(["; only the operations in ", &named, " were recorded"]);
        }
        text
    }

    /// Returns the namespaces whose operations the support bundle contains. None if it contains the
    /// operations of all namespaces, or if the files are no support bundle.
    pub(crate) fn namespaces(&self) -> Option<&Vec<String>> {
        self.index.as_ref()?.operations.namespaces.as_ref()
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
        if whole == "/api/v1/events" {
            let found: Vec<&Value> = self.events().iter().filter(is_in).collect();
            // The files do not state whether there were Events.
            let lacks = || self.lacks(&format!("the Events of {}", namespace.unwrap_or_default()));
            return Some(found).filter(|it| !it.is_empty()).ok_or_else(lacks);
        }
        let Some(objects) = self.resources.get(&whole) else {
            let mut operations = [live::PLURAL, record::PLURAL].iter();
            return Err(if operations.any(|it| whole.ends_with(it)) {
                Problem::NotFound(format!("the files contain no {whole}"))
            } else {
                self.lacks(&whole)
            });
        };
        if let (Some(listed), Some(namespace)) = (self.namespaces(), namespace)
            && !listed.iter().any(|it| it == namespace)
        {
            return Err(self.lacks(&format!("the operations in namespace {namespace}")));
        }
        Ok(objects.values().filter(is_in).collect())
    }

    /// Returns the object at `path`.
    pub(crate) fn object(&self, path: &str) -> Result<&Value, Problem> {
        let (list, name) = path.rsplit_once('/').unwrap_or_default();
        let all = self.objects(list)?.into_iter();
        let mut found = all.filter(|it| it["metadata"]["name"] == name);
        found.next().ok_or_else(|| self.lacks(path))
    }

    /// Returns the namespaces of the subjects, and those whose operations were recorded.
    pub(crate) fn known_namespaces(&self) -> BTreeSet<String> {
        let objects = self.resources.values().flat_map(BTreeMap::values);
        let subjects = objects.filter_map(|it| it.pointer("/spec/subject/namespace")?.as_str());
        let recorded = self.namespaces().into_iter().flatten().map(String::as_str);
        subjects.chain(recorded).map(str::to_owned).collect()
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
                for document in file.documents(&mut budget).unwrap_or_default() {
                    let _ = manifest::append_objects(document, &mut objects);
                }
            }
            let events = objects.into_iter().filter(|it| it.kind == "Event");
            events.map(|it| it.json).collect()
        })
    }
}

/// Returns the path of the list of a resource in all namespaces.
fn list_path(group: &str, plural: &str) -> String {
    format!("/apis/{group}/{VERSION}/{plural}")
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
        is_own.then(|| list_path(group, &plural))
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

/// Returns true if commands need a file of a folder or an archive: the index of a support bundle,
/// Events, and files that contain the API group.
fn is_relevant(path: &str, bytes: &[u8]) -> bool {
    let name = base_name(path);
    name == INDEX_FILE || is_events_file(path) || contains(bytes, ifo_api::GROUP.as_bytes())
}

/// Returns true if the path shows that the file contains Events. Examples are `core/events.yaml`
/// and `core/events/a.yaml`.
fn is_events_file(path: &str) -> bool {
    let name = base_name(path);
    name.split('.').next() == Some("events") || path.contains("/events/")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Reads the index of a support bundle. None if the files are no support bundle. Returns an error
/// if there are several support bundles, or if the bundle contains no operations.
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
            "the support bundle contains no operations: {result:?}"
        )),
    }
}

/// Returns the reason why operations may be missing. Only a support bundle can state that its list
/// is complete.
fn incomplete(index: Option<&BundleIndex>, resources: &Resources) -> Option<Incomplete> {
    let rule_sets = resources.get(&list_path(GROUP, ruleset::PLURAL));
    let unknown = match rule_sets {
        Some(rule_sets) if rule_sets.is_empty() => Incomplete::NoRuleSets,
        _ => Incomplete::NotRecorded,
    };
    match index.map(|it| &it.operations) {
        Some(operations) if operations.is_complete => None,
        Some(operations) => operations.incomplete.clone().or(Some(unknown)),
        None => Some(unknown),
    }
}
