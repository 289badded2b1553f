//! Reads the fixtures of a shipped rule set (a file in `rules/`) from `tests/fixtures/catalogue/`.
//! A fixture is an object of the resource that the rule set watches. Annotations of the object
//! contain the results that the test expects:
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

use crate::read_shipped_rule_sets::{Shipped, documents, read};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/catalogue")
}

/// Returns the fixtures of a rule set. For example, the fixtures of `rules/olm/installplans.yaml`
/// are in `tests/fixtures/catalogue/olm/installplans.yaml`. If there is no such file, returns an
/// empty list.
pub fn of_rule_set(shipped: &Shipped) -> Vec<Fixture> {
    let path = folder().join(&shipped.file);
    if !path.exists() {
        return Vec::new();
    }
    let documents = documents(&read(&path));
    let numbered = documents.iter().enumerate();
    numbered
        .map(|(index, text)| Fixture::read(format!("{}[{index}]", shipped.file), text))
        .collect()
}

impl Fixture {
    fn read(place: String, text: &str) -> Self {
        let mut object: Value =
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"));
        let annotation = |name: &str| {
            object["metadata"]["annotations"][format!("ifo.kubevirt.io/{name}")]
                .as_str()
                .map(str::to_owned)
        };
        let expected = annotation("expect");
        let expected =
            expected.unwrap_or_else(|| panic!("{place}: the annotation expect is missing"));
        let names = |list: String| {
            let names = list.split(',').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let operations = names(expected);
        let continued = annotation("expect-continued").map_or_else(BTreeSet::new, names);
        let comment = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ");
        let status = parse(&place, annotation("expect-status"));
        let outcomes = parse(&place, annotation("expect-outcome"));
        remove_expectations(&mut object);
        Self {
            place,
            comment,
            object,
            operations,
            continued,
            status,
            outcomes,
        }
    }
}

/// Removes the annotations with the expected results, so that the object is as its controller wrote
/// it. If the object has no other annotations, also removes the empty field `annotations`.
fn remove_expectations(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !key.starts_with("ifo.kubevirt.io/expect"));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn parse<T: Default + serde::de::DeserializeOwned>(place: &str, text: Option<String>) -> T {
    text.map_or_else(T::default, |text| {
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{place}: {error}: {text}"))
    })
}

/// Returns the paths of all files with fixtures, such as `kubevirt/virtualmachines.yaml`.
pub fn files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for component in std::fs::read_dir(folder()).expect("the folder exists") {
        let component = component.expect("the folder is readable").path();
        for file in std::fs::read_dir(&component).expect("each entry is a readable folder") {
            let file = file.expect("the folder is readable").path();
            let name = file
                .strip_prefix(folder())
                .expect("the file is in the folder");
            files.insert(name.to_string_lossy().into_owned());
        }
    }
    files
}
