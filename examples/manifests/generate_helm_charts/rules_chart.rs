//! Creates the Helm chart `ifo-rules` from the shipped rule sets.
//!
//! The output is:
//!
//! - a template for each rule set and for each role
//! - `values.yaml` and its schema
//!
//! The value `packs` has an entry for each rule pack (a folder of rule sets). The value `optional`
//! lists the optional rule sets to install. A rule set is optional if the kustomization of its
//! folder does not list it.

use super::{Added, RULES_CHART, Shipped, template};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Returns the templates, values and schema of the chart with the rule packs.
pub fn files(catalogue: &[Shipped]) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut packs = Vec::new();
    let mut optional = Vec::new();
    let added = Added::default();
    for sets in catalogue.chunk_by(|a, b| a.folder == b.folder) {
        let folder = &sets[0].folder;
        packs.push(folder.as_str());
        let condition = format!("index .Values.packs \"{folder}\"");
        for (path, text) in super::super::roles_of(folder, sets)? {
            let source = path.trim_start_matches("rules/").to_owned();
            let stem = source.trim_end_matches(".yaml");
            // The file of an optional rule set also contains its role. The roles of all other rule
            // sets of the folder are in `clusterrole.yaml`.
            let text = if path.ends_with("/clusterrole.yaml") {
                template(&path, &text, &condition, &added)?
            } else {
                optional.push(stem.to_owned());
                let condition = format!("has \"{stem}\" .Values.optional");
                template(&path, &text, &condition, &added)?
            };
            files.push((format!("{RULES_CHART}/templates/{source}"), text));
        }
        for set in sets.iter().filter(|set| set.default) {
            let source = format!("{folder}/{}", set.file);
            let text = template(&format!("rules/{source}"), &set.text, &condition, &added)?;
            files.push((format!("{RULES_CHART}/templates/{source}"), text));
        }
    }
    let mut values = "# Generated from the folder rules by `make manifests`.\n\n\
        # The rule packs to install. Each contains the rule sets of one component, and the\n\
        # ClusterRole that lets the server read their targets. A rule set does no harm on a\n\
        # cluster without its target.\npacks:\n"
        .to_owned();
    for pack in &packs {
        writeln!(values, "  {pack}: true")?;
    }
    values
        .push_str("\n# Optional rule sets to install. No pack contains them; their files explain why. Names:\n");
    for set in &optional {
        writeln!(values, "# - {set}")?;
    }
    values.push_str("optional: []\n");
    files.push((format!("{RULES_CHART}/values.yaml"), values));
    files.push((
        format!("{RULES_CHART}/values.schema.json"),
        schema(&packs, &optional)?,
    ));
    Ok(files)
}

fn schema(packs: &[&str], optional: &[String]) -> anyhow::Result<String> {
    let packs: Map<String, Value> = packs
        .iter()
        .map(|pack| ((*pack).to_owned(), json!({"type": "boolean"})))
        .collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            // If another chart depends on this chart, Helm sets the value `global`.
            "global": {"type": "object"},
            "packs": {"type": "object", "additionalProperties": false, "properties": packs},
            "optional": {"type": "array", "uniqueItems": true, "items": {"enum": optional}},
        },
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&schema)?))
}
