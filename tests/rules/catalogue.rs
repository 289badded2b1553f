//! Reads `rules/`. Input: the folder. Output: each rule set with its position.

use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The text in the first comment of a rule set that its kustomization does not list.
const OPT_IN: &str = "not installed by default";

/// Files of a component's folder that contain no rule set.
const BESIDE: [&str; 2] = ["kustomization.yaml", "clusterrole.yaml"];

/// A shipped rule set.
pub struct Shipped {
    /// Its file below `rules/`, such as `kubevirt/virtualmachines.yaml`.
    pub file: String,
    /// metadata.name.
    pub name: String,
    pub spec: OperationRuleSetSpec,
    /// True if its first comment says that it is not installed by default.
    pub opt_in: bool,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file, as text with their comments.
pub fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" {
            documents.push(String::new());
        } else {
            let last = documents.last_mut().expect("it begins with one");
            last.push_str(line);
            last.push('\n');
        }
    }
    documents.retain(|document| {
        document
            .lines()
            .any(|line| !line.is_empty() && !line.starts_with('#'))
    });
    documents
}

/// The names in a folder, in order.
fn entries(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let entry = entry.expect("it can be read");
            entry.file_name().to_string_lossy().into_owned()
        })
        .collect()
}

/// The folders of `rules/`: one for each component.
pub fn components() -> BTreeSet<String> {
    let mut components = entries(&root());
    components.retain(|name| root().join(name).is_dir());
    components
}

/// The resources of a kustomization.
pub fn kustomization(folder: &Path) -> BTreeSet<String> {
    let file = folder.join("kustomization.yaml");
    let kustomization: Value = serde_saphyr::from_str(&read(&file))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let resources = kustomization["resources"].as_array().expect("resources");
    resources
        .iter()
        .map(|name| name.as_str().expect("a name").trim_end_matches('/').into())
        .collect()
}

impl Shipped {
    /// Returns all rule sets, in the order of their files.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for component in components() {
            for name in entries(&root().join(&component)) {
                if !BESIDE.contains(&name.as_str()) {
                    all.push(Self::read(format!("{component}/{name}")));
                }
            }
        }
        all
    }

    fn read(file: String) -> Self {
        let text = read(&root().join(&file));
        let first = &documents(&text)[0];
        let rule_set: OperationRuleSet =
            serde_saphyr::from_str(first).unwrap_or_else(|error| panic!("{file}: {error}"));
        let comment: String = text
            .lines()
            .take_while(|line| line.starts_with('#'))
            .map(|line| line.trim_start_matches(['#', ' ']).to_lowercase() + " ")
            .collect();
        Self {
            file,
            name: rule_set.metadata.name.expect("a name"),
            spec: rule_set.spec,
            opt_in: comment.contains(OPT_IN),
        }
    }
}

#[test]
fn rule_set_names_are_unique() {
    let mut names = BTreeSet::new();
    for shipped in Shipped::all() {
        let (file, name) = (shipped.file, shipped.name);
        assert!(
            names.insert(name.clone()),
            "{file}: {name} is declared twice"
        );
    }
}

#[test]
fn kustomizations_list_all_but_what_is_not_installed_by_default() {
    for component in components() {
        let folder = root().join(&component);
        let mut listed = kustomization(&folder);
        let has_role = folder.join("clusterrole.yaml").exists();
        assert_eq!(
            listed.remove("clusterrole.yaml"),
            has_role,
            "{component}/clusterrole.yaml"
        );
        let expected: BTreeSet<String> = Shipped::all()
            .iter()
            .filter(|shipped| !shipped.opt_in)
            .filter_map(|shipped| {
                let name = shipped.file.strip_prefix(&component)?.strip_prefix('/')?;
                Some(name.to_owned())
            })
            .collect();
        assert_eq!(listed, expected, "{component}");
    }
    assert_eq!(kustomization(&root()), components());
}
