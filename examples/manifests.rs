//! Generates manifests. `make manifests` runs this program. If a file in the repository differs
//! from the output of this program, `tests/manifests.rs` fails. The program generates:
//!
//! - the CRDs, from Rust types
//! - a `ClusterRole` for each folder of shipped rule sets, from the rule sets that the folder's
//!   kustomization lists
//! - a `ClusterRole` for each other rule set, as the second document in the file of the rule set
//! - the table in `docs/rules-catalogue.md`, from all rule sets
//! - the OLM bundle, from the manifests in `deploy`
//! - the ConfigMap with the Grafana dashboard, from the JSON of the dashboard
//! - the Helm charts, from the kustomizations

#[path = "manifests/crds.rs"]
mod crds;
#[path = "manifests/dashboard.rs"]
mod dashboard;
#[path = "manifests/generate_helm_charts.rs"]
mod generate_helm_charts;
#[path = "manifests/olm.rs"]
mod olm;
#[path = "manifests/rules_catalogue_tables.rs"]
mod rules_catalogue_tables;

use anyhow::Context as _;
use ifo_engine::rules::cluster_roles;
use rules_catalogue_tables::Shipped;
use std::fs;
use std::path::{Path, PathBuf};

/// The comment above each generated role.
const NOTE: &str =
    "# Generated from the rule sets by `make manifests`: what the server must read for them.\n";

/// Returns the generated files, each with its path in the repository and its content.
///
/// # Errors
///
/// The YAML encoder fails, or a source file cannot be read or is incomplete.
pub fn manifests() -> anyhow::Result<Vec<(String, String)>> {
    let crd = serde_saphyr::to_string(&crds::rule_sets())?;
    let mut manifests = vec![(
        "deploy/crd/operationrulesets.yaml".to_owned(),
        format!("# Generated from crates/api/src/ruleset.rs by `make manifests`.\n{crd}"),
    )];
    let crd = serde_saphyr::to_string(&crds::persisted_operations())?;
    manifests.push((
        "deploy/crd-persistence/inflightoperations.yaml".to_owned(),
        format!("# Generated from crates/api/src/persisted.rs by `make manifests`.\n{crd}"),
    ));
    let catalogue = catalogue()?;
    for shipped in catalogue.chunk_by(|a, b| a.folder == b.folder) {
        manifests.extend(roles_of(&shipped[0].folder, shipped)?);
    }
    let dashboard = read(&repository().join(dashboard::SOURCE))?;
    let config_map = dashboard::config_map(&dashboard);
    manifests.push((dashboard::CONFIG_MAP.to_owned(), config_map));
    let charts = generate_helm_charts::charts(&catalogue, &manifests)?;
    manifests.extend(charts);
    manifests.extend(olm::bundle(&manifests[0].1)?);
    let document = "docs/rules-catalogue.md";
    let text = read(&repository().join(document))?;
    let text = rules_catalogue_tables::insert(&text, &rules_catalogue_tables::table(&catalogue)?)
        .context(document)?;
    manifests.push((document.to_owned(), text));
    Ok(manifests)
}

/// Returns all rule sets in `rules`.
///
/// # Errors
///
/// A file cannot be read, or is no rule set.
pub fn catalogue() -> anyhow::Result<Vec<Shipped>> {
    let folders = sorted(&repository().join("rules"))?.into_iter();
    let folders = folders.filter(|path| path.is_dir());
    let rule_sets = folders.map(|folder| rule_sets_in(&folder));
    Ok(rule_sets.collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// Returns the rule sets in one folder below `rules`. If the folder has no kustomization, the list
/// is empty.
fn rule_sets_in(folder: &Path) -> anyhow::Result<Vec<Shipped>> {
    let kustomization = folder.join("kustomization.yaml");
    if !kustomization.is_file() {
        return Ok(Vec::new());
    }
    let kustomization: serde_json::Value = parse(&kustomization, &read(&kustomization)?)?;
    let listed = |name: &str| {
        let resources = kustomization["resources"].as_array();
        resources.is_some_and(|resources| resources.iter().any(|resource| resource == name))
    };
    let mut shipped = Vec::new();
    for path in sorted(folder)? {
        let file = file_name(&path);
        let Some(stem) = file.strip_suffix(".yaml") else {
            continue;
        };
        if ["kustomization", "clusterrole"].contains(&stem) {
            continue;
        }
        let text = read(&path)?;
        // The first document of the file is the rule set. A second document is the generated role.
        let own = text.split("\n---\n").next().unwrap_or_default().trim_end();
        shipped.push(Shipped {
            folder: file_name(folder),
            default: listed(&file),
            rule_set: parse(&path, own)?,
            text: own.to_owned(),
            file,
        });
    }
    Ok(shipped)
}

/// Returns the files with the roles for the rule sets of one folder.
fn roles_of(folder: &str, shipped: &[Shipped]) -> anyhow::Result<Vec<(String, String)>> {
    let folder_role = cluster_roles::role_name(folder);
    let mut manifests = Vec::new();
    for alone in shipped.iter().filter(|set| !set.default) {
        let stem = alone.file.trim_end_matches(".yaml");
        let role_name = format!("{folder_role}-{stem}");
        let role = cluster_roles::cluster_role(&role_name, [&alone.rule_set.spec.target]);
        let role = serde_saphyr::to_string(&role)?;
        let path = format!("rules/{folder}/{}", alone.file);
        manifests.push((path, format!("{}\n---\n{NOTE}{role}", alone.text)));
    }
    let targets = shipped.iter().filter(|set| set.default);
    let targets = targets.map(|set| &set.rule_set.spec.target);
    let role = serde_saphyr::to_string(&cluster_roles::cluster_role(&folder_role, targets))?;
    let path = format!("rules/{folder}/clusterrole.yaml");
    manifests.push((path, format!("{NOTE}{role}")));
    Ok(manifests)
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the paths in a folder, in alphabetical order.
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
