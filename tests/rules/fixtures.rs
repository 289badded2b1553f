//! Reads `tests/fixtures/catalogue/`. Input: a rule set. Output: objects of its target, each with
//! the expected results in its annotations:
//!
//! - `ifo.kubevirt.io/expect`: the operations, separated by commas. For a rule with `forEach`,
//!   `Operation/itemKey`. Empty for no operation.
//! - `ifo.kubevirt.io/expect-continued`: the operations that the object does not start but that
//!   continue if they are in flight (`continueWhile`), separated by commas. Absent for none.
//! - `ifo.kubevirt.io/expect-status`: YAML with the values that the rule yields for each operation.
//!   Only the named fields are compared. Null means that the rule yields no value.
//! - `ifo.kubevirt.io/expect-outcome`: YAML with the outcome of each operation that is not in
//!   flight. Empty if it is unknown.

use crate::catalogue::{Shipped, documents, read};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// An object and its expected results.
pub struct Fixture {
    /// File and position, such as `kubevirt/virtualmachines.yaml[3]`.
    pub place: String,
    /// The comment above it, which names the source of this state.
    pub comment: String,
    /// The object as JSON.
    pub object: Value,
    pub operations: BTreeSet<String>,
    pub continued: BTreeSet<String>,
    pub status: BTreeMap<String, Map<String, Value>>,
    pub outcomes: BTreeMap<String, String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/catalogue")
}

/// The fixtures of a rule set, from the file of the same name.
pub fn of(shipped: &Shipped) -> Vec<Fixture> {
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
        let expected = expected.unwrap_or_else(|| panic!("{place}: what is expected of it?"));
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
        forget_expectations(&mut object);
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

/// Restores the object as its controller writes it. Most objects have no annotations.
fn forget_expectations(object: &mut Value) {
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

/// The files of the fixtures, which have the names of the rule sets' files.
pub fn files() -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for component in std::fs::read_dir(folder()).expect("there are fixtures") {
        let component = component.expect("it can be read").path();
        for file in std::fs::read_dir(&component).expect("a folder for each component") {
            let file = file.expect("it can be read").path();
            let name = file.strip_prefix(folder()).expect("it is inside");
            files.insert(name.to_string_lossy().into_owned());
        }
    }
    files
}
