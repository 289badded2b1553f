//! Writes the manifests that are generated: `make manifests` runs it,
//! `tests/manifests.rs` fails when the files differ from what it would write.
//!
//! From Rust types: the CRD. From the rule sets of the catalogue: the `ClusterRole` of each
//! of its folders, and that of each rule set which is not in the folder's kustomization,
//! as a second document beside it.

use anyhow::Context as _;
use ifo::api::ruleset::OperationRuleSet;
use ifo::api::schema;
use ifo::cli::roles;
use std::fs;
use std::path::{Path, PathBuf};

/// Above each generated role.
const NOTE: &str =
    "# Generated from the rule sets by `make manifests`: what the server must read for them.\n";

/// The generated files, each with its path below the repository and its content.
///
/// # Errors
///
/// Of the YAML encoder, and of files of the catalogue that cannot be read.
pub fn manifests() -> anyhow::Result<Vec<(String, String)>> {
    let crd = serde_saphyr::to_string(&schema::operation_rule_sets())?;
    let mut manifests = vec![(
        "deploy/crd/operationrulesets.yaml".to_owned(),
        format!("# Generated from src/api/ruleset.rs by `make manifests`.\n{crd}"),
    )];
    let folders = sorted(&repository().join("rules"))?;
    for folder in folders.iter().filter(|path| path.is_dir()) {
        manifests.extend(part(folder)?);
    }
    Ok(manifests)
}

/// The roles of one folder of the catalogue, if it has a kustomization.
fn part(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let kustomization = folder.join("kustomization.yaml");
    if !kustomization.is_file() {
        return Ok(Vec::new());
    }
    let kustomization: serde_json::Value = parse(&kustomization, &read(&kustomization)?)?;
    let listed = |name: &str| {
        let resources = kustomization["resources"].as_array();
        resources.is_some_and(|resources| resources.iter().any(|resource| resource == name))
    };
    let component = file_name(folder);
    let component_role = roles::role_name(&component);
    let mut manifests = Vec::new();
    let mut targets = Vec::new();
    for path in sorted(folder)? {
        let name = file_name(&path);
        let Some(stem) = name.strip_suffix(".yaml") else {
            continue;
        };
        if ["kustomization", "clusterrole"].contains(&stem) {
            continue;
        }
        let text = read(&path)?;
        let own = text.split("\n---\n").next().unwrap_or_default().trim_end();
        let rule_set: OperationRuleSet = parse(&path, own)?;
        if listed(&name) {
            targets.push(rule_set.spec.target);
        } else {
            let role_name = format!("{component_role}-{stem}");
            let role = roles::cluster_role(&role_name, [&rule_set.spec.target]);
            let role = roles::to_yaml(&role)?;
            let path = format!("rules/{component}/{name}");
            manifests.push((path, format!("{own}\n---\n{NOTE}{role}")));
        }
    }
    let role = roles::to_yaml(&roles::cluster_role(&component_role, &targets))?;
    let path = format!("rules/{component}/clusterrole.yaml");
    manifests.push((path, format!("{NOTE}{role}")));
    Ok(manifests)
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sorted(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| folder.display().to_string())
        .map(|paths: Vec<PathBuf>| paths)?;
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> anyhow::Result<T> {
    serde_saphyr::from_str(text).with_context(|| path.display().to_string())
}

fn main() -> anyhow::Result<()> {
    for (path, content) in manifests()? {
        let path = repository().join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)?;
    }
    Ok(())
}
