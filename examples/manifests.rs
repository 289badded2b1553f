//! Writes the manifests that are generated from Rust types: `make manifests` runs it,
//! `tests/manifests.rs` fails when the files differ from what it would write.

use ifo::api::schema;
use std::path::Path;

/// The generated files, each with its path below the repository and its content.
///
/// # Errors
///
/// Those of the YAML encoder.
pub fn manifests() -> Result<Vec<(&'static str, String)>, serde_saphyr::ser::Error> {
    let crd = serde_saphyr::to_string(&schema::operation_rule_sets())?;
    Ok(vec![(
        "deploy/crd/operationrulesets.yaml",
        format!("# Generated from src/api/ruleset.rs by `make manifests`.\n{crd}"),
    )])
}

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, content) in manifests()? {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}
