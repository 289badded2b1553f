//! Reads the files of `--from`. Finds the objects that commands need: operations, records of
//! completed operations, rule sets and Events. Also finds the time at which these objects were read
//! from the cluster.

use super::read_files::{
    self, FoundFile, TIMESTAMP_FILE, base_name, is_events_file, must_gather_time,
};
use super::resources::FileResources;
use crate::bundle_index::{BundleIndex, INDEX_FILE, PartResult};
use crate::clock;
use crate::output::complain;
use crate::plain_text::first_names;
use crate::problem::Problem;
use ifo_api::completeness::{Incomplete, Named, NotWorking};
use ifo_api::ruleset::{GROUP_NOT_SERVED, NOT_INSTALLED};
use ifo_client::manifest::{self, MemoryBudget};
use jiff::Timestamp;
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;

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
    /// The operations, records and rule sets.
    pub(super) resources: FileResources,
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

/// The relevant files of `--from`, and the times that they contain.
#[derive(Default)]
struct SortedFiles {
    objects: Vec<FoundFile>,
    events: Vec<FoundFile>,
    /// The end of the must-gather. None if the files are no must-gather.
    gathered: Option<Timestamp>,
}

impl SortedFiles {
    fn of(found: Vec<FoundFile>, is_bundle: bool) -> Self {
        let mut sorted = Self::default();
        for file in found {
            match base_name(&file.path) {
                INDEX_FILE => {}
                TIMESTAMP_FILE => {
                    sorted.gathered = sorted.gathered.max(must_gather_time(&file.bytes));
                }
                // A support bundle also has files that no command needs, such as logs.
                _ if is_bundle && !is_read_from_bundle(&file.path) => {}
                _ if is_events_file(&file.path) => sorted.events.push(file),
                _ => sorted.objects.push(file),
            }
        }
        sorted
    }
}

impl FileContents {
    /// Reads the files at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Problem> {
        Self::of(path.display().to_string(), read_files::read(path)?)
    }

    fn of(path: String, found: Vec<FoundFile>) -> Result<Self, Problem> {
        let index = read_index(&path, &found)?;
        let is_single = found.len() == 1;
        let files = SortedFiles::of(found, index.is_some());
        let mut resources = FileResources::default();
        let mut budget = MemoryBudget::default();
        let mut newest_file = None;
        for file in &files.objects {
            newest_file = newest_file.max(file.modified);
            let documents = documents(file, &mut budget);
            if let Err(why) = documents.and_then(|it| resources.add(it)) {
                // This file is the only input of the command, so the command fails.
                if is_single {
                    return Err(Problem::Other(format!("{path}: {why}")));
                }
                complain("note", format!("{}: not read: {why}", file.path));
            }
        }
        let recorded = index.as_ref().map(|it| it.created).or(files.gathered);
        let (time, time_origin) = match (recorded, newest_file) {
            (Some(time), _) => (time, TimeOrigin::Recorded),
            (None, Some(time)) => (time, TimeOrigin::FileChange),
            (None, None) => (clock::now(), TimeOrigin::CurrentTime),
        };
        match &index {
            Some(index) => check_operations_part(&path, index)?,
            None if resources.is_empty() => {
                return Err(Problem::Other(format!(
                    "{path}: there are no operations, no rule sets and no empty list; --from \
                     reads a support bundle, a must-gather folder, or the output of: kubectl get \
                     ifos -A -o yaml"
                )));
            }
            None => {}
        }
        // If a cluster has no operations, its must-gather has no file for operations.
        resources.list_operations();
        let rule_sets = resources.rule_sets();
        let incomplete = match &index {
            Some(index) if index.operations.is_complete => None,
            Some(index) => Some(
                (index.operations.warning.as_deref())
                    .and_then(|it| it.parse().ok())
                    .unwrap_or_else(|| incomplete_without_statement(rule_sets.as_deref())),
            ),
            None => Some(incomplete_without_statement(rule_sets.as_deref())),
        };
        let newest = resources.operations().filter_map(newest_time).max();
        Ok(Self {
            path,
            // The recording time comes from a clock that can be behind the clock of the cluster.
            // The newest operation must not have a negative age.
            time: newest.map_or(time, |newest| time.max(newest)),
            time_origin,
            is_redacted: index.as_ref().is_some_and(|it| it.redacted),
            resources,
            namespaces: index
                .as_ref()
                .and_then(|it| it.operations.namespaces.clone()),
            incomplete,
            server_version: index.and_then(|it| it.server_version),
            event_files: files.events,
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
fn incomplete_without_statement(rule_sets: Option<&[&Value]>) -> Incomplete {
    let Some(rule_sets) = rule_sets else {
        return Incomplete::NotRecorded;
    };
    if rule_sets.is_empty() {
        return Incomplete::NoRuleSets;
    }
    let named: Vec<Named> = rule_sets.iter().filter_map(|it| not_working(it)).collect();
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
