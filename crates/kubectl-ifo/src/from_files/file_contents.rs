//! Reads the files of `--from`. Finds the objects that commands need: operations, records of
//! completed operations, rule sets and Events. Also finds the time at which these objects were read
//! from the cluster.

use super::read_files::{self, FoundFile, base_name, is_events_file};
use crate::bundle_index::{BundleIndex, INDEX_FILE, PartResult};
use crate::clock;
use crate::output::complain;
use crate::plain_text::first_names;
use crate::problem::Problem;
use ifo_api::completeness::{Incomplete, Named, NotWorking};
use ifo_api::ruleset::{self, GROUP_NOT_SERVED, NOT_INSTALLED};
use ifo_api::{GROUP, LIVE_GROUP, live, record};
use ifo_client::manifest::{self, MemoryBudget, Object};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// Name of the file in which `oc adm must-gather` records when it started and ended.
pub(super) const TIMESTAMP_FILE: &str = "timestamp";

/// Largest number of namespaces that a message names. The message only counts further namespaces.
const MAX_NAMED: usize = 5;

/// Where the recording time comes from. The recording time is the time at which the objects were
/// read from the cluster. Ages in the output are relative to the recording time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeOrigin {
    /// The support bundle or the must-gather contains the recording time.
    Recorded,
    /// The recording time is the last change of the newest file.
    FileChange,
    /// No time of change is known, for example for standard input. The recording time is the
    /// current time.
    CurrentTime,
}

/// The objects and the time that commands read from the files of `--from`.
#[derive(Debug)]
pub(crate) struct FileContents {
    /// The path that the user has given.
    pub(crate) path: String,
    /// The recording time (see [`TimeOrigin`]). If an operation contains a newer time, this is
    /// the newer time.
    pub(crate) time: Timestamp,
    time_origin: TimeOrigin,
    /// True if the support bundle has only the fields that may leave without `--include-text`.
    is_redacted: bool,
    /// The operations that `ifo-apiserver` served (the live API). None if the files contain
    /// operations only as custom resources.
    pub(super) live: Option<Vec<Value>>,
    /// The operations that are stored as custom resources. None if the files contain neither such
    /// objects nor a list of them.
    pub(super) custom: Option<Vec<Value>>,
    /// The records of completed operations. None if the files contain neither records nor a list of
    /// records.
    pub(super) records: Option<Vec<Value>>,
    /// The rule sets of the cluster. None if the files contain neither rule sets nor a list of rule
    /// sets.
    pub(super) rule_sets: Option<Vec<Value>>,
    /// The namespaces whose operations the support bundle contains. None if it contains the
    /// operations of all namespaces, or if the files are no support bundle.
    pub(crate) namespaces: Option<Vec<String>>,
    /// The reason why operations may be missing. None if the support bundle states that its list of
    /// operations is complete.
    pub(crate) incomplete: Option<Incomplete>,
    /// The version of `ifo-apiserver` in the support bundle. None if the files do not contain it.
    pub(super) server_version: Option<String>,
    /// The files with Events. The method `events` parses these files at its first call.
    event_files: Vec<FoundFile>,
    events: OnceLock<Vec<Value>>,
}

/// The objects of one resource in the files, by namespace and name.
#[derive(Debug, Default)]
struct ResourceObjects {
    objects: BTreeMap<(Option<String>, String), Value>,
    /// True if the files contain an object or a list of the resource.
    is_listed: bool,
}

impl ResourceObjects {
    /// Adds an object. Does nothing if there already is an object with this namespace and name.
    fn add(&mut self, object: Object) {
        self.is_listed = true;
        let key = (object.namespace, object.name);
        self.objects.entry(key).or_insert(object.json);
    }

    /// Returns the objects. None if the files contain neither an object nor a list of the resource.
    fn into_list(self) -> Option<Vec<Value>> {
        self.is_listed.then(|| self.objects.into_values().collect())
    }
}

/// The objects in all files, grouped by resource. Objects of other resources are left out.
#[derive(Debug, Default)]
struct ObjectsByResource {
    live: ResourceObjects,
    custom: ResourceObjects,
    records: ResourceObjects,
    rule_sets: ResourceObjects,
    /// True if the files contain a `List` without items. `kubectl get -o yaml` prints such a list
    /// for an empty result. The list does not name its resource.
    has_empty_list: bool,
}

impl FileContents {
    /// Reads the files at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        Self::of(path.display().to_string(), read_files::read(path)?)
    }

    fn of(path: String, found: Vec<FoundFile>) -> Result<Self, Problem> {
        let index = read_index(&path, &found)?;
        let mut by_resource = ObjectsByResource::default();
        let mut budget = MemoryBudget::default();
        let mut newest_file = None;
        let mut gathered = None;
        let mut event_files = Vec::new();
        let is_single = found.len() == 1;
        for file in found {
            match base_name(&file.path) {
                INDEX_FILE => continue,
                TIMESTAMP_FILE => {
                    gathered = gathered.max(must_gather_time(&file.bytes));
                    continue;
                }
                _ => {}
            }
            // A support bundle also has files that no command needs, such as logs. These files are
            // skipped.
            if index.is_some() && !is_read_from_bundle(&file.path) {
                continue;
            }
            if is_events_file(&file.path) {
                event_files.push(file);
                continue;
            }
            newest_file = newest_file.max(file.modified);
            if let Err(why) = by_resource.add(&file, &mut budget) {
                // This file is the only input of the command, so the command fails.
                if is_single {
                    return Err(Problem::Other(format!("{path}: {why}")));
                }
                complain("note", format!("{}: not read: {why}", file.path));
            }
        }
        let recorded = index.as_ref().map(|it| it.created).or(gathered);
        let (time, time_origin) = match (recorded, newest_file) {
            (Some(time), _) => (time, TimeOrigin::Recorded),
            (None, Some(time)) => (time, TimeOrigin::FileChange),
            (None, None) => (clock::now(), TimeOrigin::CurrentTime),
        };
        let ObjectsByResource {
            live,
            custom,
            records,
            rule_sets,
            has_empty_list,
        } = by_resource;
        let (mut live, custom, records, rule_sets) = (
            live.into_list(),
            custom.into_list(),
            records.into_list(),
            rule_sets.into_list(),
        );
        if let Some(index) = &index {
            check_operations_part(&path, index)?;
        }
        if live.is_none() && custom.is_none() {
            // If a cluster has no operations, its must-gather has no file for operations. So files
            // without operations are accepted if they contain rule sets, records, an empty list or
            // the index of a support bundle.
            let is_accepted =
                rule_sets.is_some() || records.is_some() || has_empty_list || index.is_some();
            if !is_accepted {
                return Err(Problem::Other(format!(
                    "{path}: there are no operations, no rule sets and no empty list; --from \
                     reads a support bundle, a must-gather folder, or the output of: kubectl get \
                     ifos -A -o yaml"
                )));
            }
            live = Some(Vec::new());
        }
        let incomplete = match &index {
            Some(index) if index.operations.is_complete => None,
            Some(index) => Some(
                (index.operations.warning.as_deref())
                    .and_then(|it| it.parse().ok())
                    .unwrap_or_else(|| incomplete_without_statement(rule_sets.as_deref())),
            ),
            None => Some(incomplete_without_statement(rule_sets.as_deref())),
        };
        let newest = live
            .iter()
            .chain(&custom)
            .chain(&records)
            .flatten()
            .filter_map(newest_time)
            .max();
        Ok(Self {
            path,
            // The recording time comes from a clock that can be behind the clock of the cluster.
            // The newest operation must not have a negative age.
            time: newest.map_or(time, |newest| time.max(newest)),
            time_origin,
            is_redacted: index.as_ref().is_some_and(|it| it.redacted),
            live,
            custom,
            records,
            rule_sets,
            namespaces: index
                .as_ref()
                .and_then(|it| it.operations.namespaces.clone()),
            incomplete,
            server_version: index.and_then(|it| it.server_version),
            event_files,
            events: OnceLock::new(),
        })
    }

    /// Returns the note that tells the user which files the output shows, and from which time.
    pub(crate) fn introduction(&self) -> String {
        let origin = match self.time_origin {
            TimeOrigin::Recorded => "",
            TimeOrigin::FileChange => " (the last change of the file)",
            TimeOrigin::CurrentTime => " (now)",
        };
        let mut text = format!(
            "showing the operations in {} at {:.0}{origin}; ages are relative to that time",
            self.path, self.time
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

    /// Returns the Events in the files that [`is_events_file`] recognizes. The first call parses
    /// these files, and skips files that cannot be parsed.
    pub(super) fn events(&self) -> &[Value] {
        self.events.get_or_init(|| {
            let mut events = Vec::new();
            let mut budget = MemoryBudget::default();
            for file in &self.event_files {
                let mut objects = Vec::new();
                for document in documents(file, &mut budget).unwrap_or_default() {
                    let _ = manifest::append_objects(document, &mut objects);
                }
                let own = objects.into_iter().filter(|it| it.kind == "Event");
                events.extend(own.map(|it| it.json));
            }
            events
        })
    }
}

fn documents(file: &FoundFile, budget: &mut MemoryBudget) -> Result<Vec<Value>, String> {
    let text = str::from_utf8(&file.bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
    manifest::json_or_yaml_documents(text, budget)
}

impl ObjectsByResource {
    fn add(&mut self, file: &FoundFile, budget: &mut MemoryBudget) -> Result<(), String> {
        for document in documents(file, budget)? {
            self.note_list(&document);
            let mut objects = Vec::new();
            // If an object is invalid, this loop still adds the objects before it.
            let added = manifest::append_objects(document, &mut objects);
            for object in objects {
                match (object.group(), object.kind.as_str()) {
                    (LIVE_GROUP, live::KIND) => self.live.add(object),
                    (GROUP, live::KIND) => self.custom.add(object),
                    (LIVE_GROUP, record::KIND) => self.records.add(object),
                    (GROUP, ruleset::KIND) => self.rule_sets.add(object),
                    _ => {}
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
        let kind = text("kind").strip_suffix("List");
        match (group, kind) {
            (LIVE_GROUP, Some(live::KIND)) => self.live.is_listed = true,
            (GROUP, Some(live::KIND)) => self.custom.is_listed = true,
            (LIVE_GROUP, Some(record::KIND)) => self.records.is_listed = true,
            (GROUP, Some(ruleset::KIND)) => self.rule_sets.is_listed = true,
            (_, Some("")) if document["items"].as_array().is_some_and(Vec::is_empty) => {
                self.has_empty_list = true;
            }
            _ => {}
        }
    }
}

/// Returns true if a file of a support bundle contains operations, records, rule sets or Events,
/// according to its path.
fn is_read_from_bundle(path: &str) -> bool {
    path.contains("operations/")
        || base_name(path) == "operationrulesets.json"
        || is_events_file(path)
}

/// Reads the index of a support bundle. None if the files are no support bundle. Returns an error
/// if there are several support bundles.
fn read_index(path: &str, found: &[FoundFile]) -> Result<Option<BundleIndex>, Problem> {
    let mut indexes = found.iter().filter(|it| base_name(&it.path) == INDEX_FILE);
    let Some(file) = indexes.next() else {
        return Ok(None);
    };
    if indexes.next().is_some() {
        return Err(Problem::Other(format!(
            "{path}: there are several support bundles; name one of them"
        )));
    }
    let index: BundleIndex = serde_json::from_slice(&file.bytes)
        .map_err(|error| Problem::Other(format!("{path}: {}: {error}", file.path)))?;
    Ok(Some(index))
}

/// Returns an error if the bundle contains no operations because the operations could not be read.
fn check_operations_part(path: &str, index: &BundleIndex) -> Result<(), Problem> {
    match index.operations.result {
        PartResult::Read | PartResult::Truncated => Ok(()),
        result => Err(Problem::Other(format!(
            "{path}: the support bundle contains no operations: {}",
            result.reason()
        ))),
    }
}

/// Returns the reason why operations may be missing from a list that does not state whether it is
/// complete.
fn incomplete_without_statement(rule_sets: Option<&[Value]>) -> Incomplete {
    let Some(rule_sets) = rule_sets else {
        return Incomplete::NotRecorded;
    };
    if rule_sets.is_empty() {
        return Incomplete::NoRuleSets;
    }
    let named: Vec<Named> = rule_sets.iter().filter_map(not_working).collect();
    if named.is_empty() {
        return Incomplete::NotRecorded;
    }
    Incomplete::NotWorking(NotWorking {
        count: named.len(),
        total: rule_sets.len(),
        named,
    })
}

fn not_working(rule_set: &Value) -> Option<Named> {
    let conditions = rule_set
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let condition = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|it| it["type"] == kind)
    };
    let unusable = [NOT_INSTALLED, "InvalidTarget"].map(condition);
    let mut unusable = unusable.into_iter().flatten();
    let is_group_missing = unusable.any(|it| it["reason"] == GROUP_NOT_SERVED);
    let ready = condition("Ready");
    if is_group_missing || ready.is_some_and(|it| it["status"] == "True") {
        return None;
    }
    let reason = ready.and_then(|it| it["reason"].as_str());
    Some(Named {
        name: rule_set["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        reason: reason.unwrap_or("no status").to_owned(),
    })
}

/// Reads the file in which a must-gather records its times: `2026-03-01 12:00:00.1 +0000 UTC
/// m=+0.1` at the start and again at the end. Returns the last time.
fn must_gather_time(bytes: &[u8]) -> Option<Timestamp> {
    let text = String::from_utf8_lossy(bytes);
    let mut times = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (date, time, offset) = (words.next()?, words.next()?, words.next()?);
        let (hours, minutes) = offset.split_at_checked(3)?;
        format!("{date}T{time}{hours}:{minutes}").parse().ok()
    });
    times.next_back()
}

/// Returns the newest time in an operation.
fn newest_time(operation: &Value) -> Option<Timestamp> {
    let conditions = operation
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let transitions = conditions
        .into_iter()
        .flatten()
        .map(|it| &it["lastTransitionTime"]);
    let fields = [
        "/metadata/creationTimestamp",
        "/status/started",
        "/status/completed",
    ];
    let fields = fields.iter().filter_map(|it| operation.pointer(it));
    let texts = fields.chain(transitions).filter_map(Value::as_str);
    texts.filter_map(|it| it.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> FoundFile {
        FoundFile {
            path: path.to_owned(),
            bytes: text.as_bytes().to_vec(),
            modified: Some(Timestamp::from_second(1_000_000_000).expect("in range")),
        }
    }

    #[test]
    fn a_rule_set_without_its_api_group_misses_no_operations() {
        let rule_set = |condition: &str, reason: &str| {
            serde_json::json!({
                "metadata": {"name": "a"},
                "status": {"conditions": [
                    {"type": "Ready", "status": "False", "reason": condition},
                    {"type": condition, "status": "True", "reason": reason},
                ]},
            })
        };
        for (condition, reason, misses) in [
            ("NotInstalled", "GroupNotServed", false),
            ("InvalidTarget", "GroupNotServed", false),
            ("InvalidTarget", "NotServed", true),
            ("InvalidRule", "InvalidRule", true),
        ] {
            let found = not_working(&rule_set(condition, reason));
            assert_eq!(found.is_some(), misses, "{condition} {reason}");
        }
    }

    #[test]
    fn the_time_of_a_must_gather_is_its_end() {
        let text =
            b"2026-03-01 12:00:00.402374637 +0000 UTC m=+0.1\n2026-03-01 14:05:00 +0200 CEST\n";
        let time = must_gather_time(text).expect("the text has times");
        assert_eq!(time.to_string(), "2026-03-01T12:05:00Z");
        assert_eq!(must_gather_time(b"nothing"), None);
    }

    #[test]
    fn the_time_is_not_before_the_newest_operation() {
        let operation = "{apiVersion: live.ifo.kubevirt.io/v1alpha1, kind: InFlightOperation, \
                         metadata: {name: a, creationTimestamp: '2026-01-01T00:00:00Z'}}";
        let contents = FileContents::of("x".to_owned(), vec![file("x", operation)]);
        let contents = contents.expect("the file has an operation");
        assert_eq!(contents.time.to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_list_without_a_statement_is_never_complete() {
        let rule_set = |status: &str| {
            format!(
                "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\nmetadata: {{name: vm}}\n\
                 status: {{conditions: [{{type: Ready, status: '{status}', reason: InvalidRule}}]}}\n"
            )
        };
        let incomplete = |text: &str| {
            let contents = FileContents::of("x".to_owned(), vec![file("x", text)]);
            contents.map(|it| it.incomplete.map(|it| it.to_string()))
        };
        let unknown = Some(Incomplete::NotRecorded.to_string());
        let empty = "{apiVersion: v1, kind: List, items: []}";
        assert_eq!(incomplete(empty), Ok(unknown.clone()));
        assert_eq!(incomplete(&rule_set("True")), Ok(unknown));
        let broken = incomplete(&rule_set("False"));
        let broken = broken
            .expect("the file has a rule set")
            .expect("it is incomplete");
        assert!(broken.contains("vm (InvalidRule)"), "{broken}");
        let no_rule_sets =
            "{apiVersion: ifo.kubevirt.io/v1alpha1, kind: OperationRuleSetList, items: []}";
        assert_eq!(
            incomplete(no_rule_sets),
            Ok(Some(Incomplete::NoRuleSets.to_string()))
        );
        let other = incomplete("{apiVersion: v1, kind: Pod, metadata: {name: a}}");
        assert!(other.is_err(), "{other:?}");
    }
}
