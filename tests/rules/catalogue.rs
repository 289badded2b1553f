//! Reads the catalogue (the rule sets in the folder `rules/`) and its fixtures in
//! `tests/fixtures/catalogue/`, and evaluates the rules on objects.
//!
//! A fixture is an object of the resource that the rule set watches. Its annotations have the results
//! that the test expects:
//!
//! - `ifo.kubevirt.io/expect`: the operations that the rules must detect, separated by commas. For
//!   a rule with `forEach`, the form is `Operation/itemKey`. If no operation is expected, the value
//!   is empty.
//! - `ifo.kubevirt.io/expect-continued`: the operations that the rules must keep in flight, but
//!   must not start, separated by commas. For such an operation, `continueWhile` of the rule is
//!   true, and `expression` is false. If no operation is expected, the annotation is absent.
//! - `ifo.kubevirt.io/expect-status`: YAML with expected details by operation, such as
//!   `Pending: {state: Progressing, nodes: []}`. The test compares only the details in the YAML.
//!   Null means that the rule yields no value for the detail.
//! - `ifo.kubevirt.io/expect-outcome`: YAML with the expected outcome of operations that the rules
//!   neither detect nor continue, such as `Syncing: Succeeded`. An empty text means that the rule
//!   yields no outcome. The test compares only the operations in the YAML. If the YAML names an
//!   operation that the rules detect or continue, the test fails.

use ifo_api::Gvr;
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use ifo_cel::Doc;
use ifo_engine::detect::{Evaluation, evaluate};
use ifo_engine::rules::{RuleBook, compile};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Text in the first comment of a rule set that is not installed by default. The comparison ignores
/// case.
const OPT_IN: &str = "not installed by default";

/// Files in a component's folder that contain no rule set.
const WITHOUT_RULE_SET: [&str; 2] = ["kustomization.yaml", "clusterrole.yaml"];

/// A shipped rule set.
pub struct Shipped {
    /// Path of the rule set's file below `rules/`, such as `kubevirt/virtualmachines.yaml`.
    pub file: String,
    /// The text of the file.
    pub text: String,
    /// The `metadata.name` of the rule set.
    pub name: String,
    pub spec: OperationRuleSetSpec,
}

/// An object and its expected results.
pub struct Fixture {
    /// The file, and the index of the fixture in this file. For example,
    /// `kubevirt/virtualmachines.yaml[3]` is the fourth fixture.
    pub place: String,
    /// The comment in front of the object. It names the source of the object, such as a recording.
    pub comment: String,
    /// The object, without the annotations that contain the expected results.
    pub object: Value,
    pub operations: BTreeSet<String>,
    pub continued: BTreeSet<String>,
    pub status: BTreeMap<String, Map<String, Value>>,
    pub outcomes: BTreeMap<String, String>,
}

/// Returns the path of a file or folder of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parses a YAML file in `tests/rules`.
pub fn table<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let text = read(&repository("tests/rules").join(name));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Splits a YAML file into the texts of its documents. Leaves out documents that contain only
/// comments.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let documents = text.strip_prefix("---\n").unwrap_or(text).split("\n---\n");
    documents.filter(|it| it.lines().any(|it| !it.is_empty() && !it.starts_with('#')))
}

/// Returns the comment lines at the beginning of a text as one line.
fn comment(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Returns the paths of the files in the folders of a folder, such as `kubevirt/virtualmachines.yaml`.
pub fn files(folder: &str) -> BTreeSet<String> {
    let root = repository(folder);
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("the folder must be readable");
        entries.map(|entry| entry.expect("the entry must be readable").path())
    };
    let folders = entries(&root).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| entries(&folder));
    let relative = files.map(|path| path.strip_prefix(&root).expect("it is below").to_owned());
    relative
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

impl Shipped {
    /// Returns all shipped rule sets, sorted by component and file name.
    pub fn all() -> Vec<Self> {
        let files = files("rules").into_iter();
        let files = files.filter(|file| !WITHOUT_RULE_SET.iter().any(|it| file.ends_with(it)));
        files.map(Self::read).collect()
    }

    fn read(file: String) -> Self {
        let text = read(&repository("rules").join(&file));
        let first = documents(&text).next().expect("the file has a document");
        let rule_set: OperationRuleSet =
            serde_saphyr::from_str(first).unwrap_or_else(|error| panic!("{file}: {error}"));
        Self {
            name: rule_set.metadata.name.expect("a rule set has a name"),
            spec: rule_set.spec,
            file,
            text,
        }
    }

    /// Returns the fixtures of the rule set. For example, the fixtures of `rules/olm/installplans.yaml`
    /// are in `tests/fixtures/catalogue/olm/installplans.yaml`.
    pub fn fixtures(&self) -> Vec<Fixture> {
        let text = read(&repository("tests/fixtures/catalogue").join(&self.file));
        let numbered = documents(&text).enumerate();
        numbered
            .map(|(index, text)| Fixture::read(format!("{}[{index}]", self.file), text))
            .collect()
    }

    /// Returns a rule book (all compiled rule sets for one resource) with only this rule set.
    pub fn book(&self) -> RuleBook {
        book(&self.name, &self.spec).unwrap_or_else(|error| panic!("{}: {error}", self.file))
    }

    /// Returns the target, such as `kubevirt.io/v1/virtualmachines` or, in the core group, `v1/nodes`.
    pub fn target(&self) -> String {
        let target = &self.spec.target;
        let parts = [&*target.group, &*target.version, &*target.resource];
        parts.join("/").trim_start_matches('/').to_owned()
    }
}

/// Compiles a rule set to a rule book. If the rule set does not compile, returns the errors.
pub fn book(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleBook, String> {
    let rule_set = compile(name, spec).map_err(|invalid| {
        let invalid: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        invalid.join("; ")
    })?;
    let target = Gvr {
        group: spec.target.group.as_str().into(),
        version: spec.target.version.as_str().into(),
        resource: spec.target.resource.as_str().into(),
    };
    let sets = vec![Arc::new(rule_set)];
    Ok(RuleBook::new(1, target, "Any".into(), true, sets))
}

/// Evaluates the rules on an object.
pub fn evaluation(book: &RuleBook, object: &Value) -> Evaluation {
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    evaluate(book, &doc, now, &()).expect("the object has a name")
}

impl Fixture {
    fn read(place: String, text: &str) -> Self {
        let mut object: Value =
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"));
        // The annotations are removed, so that the object is as its controller wrote it.
        let metadata = object["metadata"]
            .as_object_mut()
            .expect("an object has metadata");
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            _ => Map::new(),
        };
        let mut expected = |name: &str| {
            let value = annotations.remove(&format!("ifo.kubevirt.io/{name}"))?;
            Some(value.as_str().expect("an annotation is a text").to_owned())
        };
        let names = |list: String| {
            let names = list.split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let operations = expected("expect").map(names);
        let fixture = Self {
            operations: operations.unwrap_or_else(|| panic!("{place}: there is no expectation")),
            continued: expected("expect-continued").map_or_else(BTreeSet::new, names),
            status: parse(&place, expected("expect-status")),
            outcomes: parse(&place, expected("expect-outcome")),
            comment: comment(text.trim_start()),
            place,
            object: Value::Null,
        };
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), annotations.into());
        }
        Self { object, ..fixture }
    }
}

fn parse<T: Default + serde::de::DeserializeOwned>(place: &str, text: Option<String>) -> T {
    text.map_or_else(T::default, |text| {
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"))
    })
}

/// Returns the list `resources` of the kustomization in a folder of `rules/`: names of files or folders.
fn kustomization(folder: &str) -> BTreeSet<String> {
    let text = read(&repository("rules").join(folder).join("kustomization.yaml"));
    let kustomization: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let resources = kustomization["resources"].as_array().into_iter().flatten();
    let names = resources.map(|name| name.as_str().expect("a resource is a name"));
    names
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect()
}

#[test]
fn kustomizations_list_every_rule_set_that_is_installed_by_default() {
    let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Shipped { file, text, .. } in Shipped::all() {
        let (component, name) = file.split_once('/').expect("a rule set is in a folder");
        let listed = expected.entry(component.to_owned()).or_default();
        if !comment(&text).to_lowercase().contains(OPT_IN) {
            listed.insert(name.to_owned());
        }
    }
    assert_eq!(kustomization(""), expected.keys().cloned().collect());
    for (component, mut expected) in expected {
        if repository("rules")
            .join(&component)
            .join("clusterrole.yaml")
            .exists()
        {
            expected.insert("clusterrole.yaml".to_owned());
        }
        assert_eq!(kustomization(&component), expected, "{component}");
    }
}

#[test]
fn every_file_of_fixtures_belongs_to_a_rule_set() {
    let shipped = Shipped::all().into_iter().map(|set| set.file).collect();
    assert_eq!(files("tests/fixtures/catalogue"), shipped);
}
