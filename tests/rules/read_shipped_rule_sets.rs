//! Reads the catalogue: the rule sets that this repository ships in the folder `rules/`. Checks
//! that the kustomizations in this folder list all rule sets that are installed by default.

use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Text in the first comment of a rule set that is not installed by default. The comparison ignores
/// case.
const OPT_IN: &str = "not installed by default";

/// Files in a component's folder that contain no rule set.
const WITHOUT_RULE_SET: [&str; 2] = ["kustomization.yaml", "clusterrole.yaml"];

/// A shipped rule set.
pub struct Shipped {
    /// Path of the rule set's file below `rules/`, such as `kubevirt/virtualmachines.yaml`.
    pub file: String,
    /// The `metadata.name` of the rule set.
    pub name: String,
    pub spec: OperationRuleSetSpec,
    /// True if the first comment of the file contains [`OPT_IN`]: the rule set is not installed by
    /// default.
    pub opt_in: bool,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Splits a YAML file into its documents. Returns the text of each document, with its comments.
/// Leaves out documents that contain only comments.
pub fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" {
            documents.push(String::new());
        } else {
            let last = documents
                .last_mut()
                .expect("the list begins with one document");
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

/// Returns the names of the files and folders in a folder, sorted.
fn entries(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let entry = entry.expect("the folder must be readable");
            entry.file_name().to_string_lossy().into_owned()
        })
        .collect()
}

/// Returns the names of the folders in `rules/`. Each component, such as KubeVirt, has one folder.
pub fn component_folders() -> BTreeSet<String> {
    let mut components = entries(&root());
    components.retain(|name| root().join(name).is_dir());
    components
}

/// Returns the list `resources` of the kustomization in a folder: names of files or folders,
/// without a `/` at the end.
pub fn kustomization(folder: &Path) -> BTreeSet<String> {
    let file = folder.join("kustomization.yaml");
    let kustomization: Value = serde_saphyr::from_str(&read(&file))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let resources = kustomization["resources"]
        .as_array()
        .expect("the kustomization must have resources");
    resources
        .iter()
        .map(|name| {
            let name = name.as_str().expect("each resource must be a name");
            name.trim_end_matches('/').into()
        })
        .collect()
}

impl Shipped {
    /// Returns all shipped rule sets, sorted by component and file name.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for component in component_folders() {
            for name in entries(&root().join(&component)) {
                if !WITHOUT_RULE_SET.contains(&name.as_str()) {
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
            name: rule_set.metadata.name.expect("a rule set has a name"),
            spec: rule_set.spec,
            opt_in: comment.contains(OPT_IN),
        }
    }
}

#[test]
fn kustomizations_list_every_rule_set_that_is_installed_by_default() {
    for component in component_folders() {
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
        assert_eq!(
            listed, expected,
            "{component}: the kustomization must list the rule sets that are installed by default"
        );
    }
    assert_eq!(kustomization(&root()), component_folders());
}
