//! `kubectl ifo check`: what the server would say of a rule set, before it is applied.

use crate::api::ruleset::OperationRuleSet;
use crate::rules::compile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints one line for each rule set, and one for each thing that is wrong with it.
pub(super) fn run(files: &[PathBuf]) -> ExitCode {
    let mut bad = false;
    for file in files {
        match check(file) {
            Ok(rule_sets) => {
                for (name, problems) in rule_sets {
                    if problems.is_empty() {
                        println!("{}: {name}: ok", file.display());
                    }
                    for problem in problems {
                        bad = true;
                        println!("{}: {name}: {problem}", file.display());
                    }
                }
            }
            Err(error) => {
                bad = true;
                println!("{}: {error}", file.display());
            }
        }
    }
    if bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// The names of the rule sets in a file, each with what is wrong with it.
fn check(file: &Path) -> Result<Vec<(String, Vec<String>)>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|error| error.to_string())?;
    let rule_sets = documents
        .into_iter()
        .filter(|document| document["kind"] == "OperationRuleSet");
    Ok(rule_sets
        .map(|document| {
            let name = document["metadata"]["name"]
                .as_str()
                .unwrap_or("(no name)")
                .to_owned();
            let problems = match serde_json::from_value::<OperationRuleSet>(document) {
                Err(error) => vec![error.to_string()],
                Ok(rule_set) => match compile(&name, &rule_set.spec) {
                    Ok(_) => Vec::new(),
                    Err(invalid) => invalid.iter().map(ToString::to_string).collect(),
                },
            };
            (name, problems)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn every_document_is_checked_and_other_kinds_are_left_out() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let rule_set = |name: &str, expression: &str| {
            format!(
                "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\nmetadata: {{name: {name}}}\n\
                 spec:\n  component: c\n  target: {{group: g, version: v1, resource: things}}\n  \
                 rules:\n  - {{operation: Moving, expression: '{expression}'}}\n"
            )
        };
        write!(
            file,
            "{}---\nkind: ConfigMap\n---\n{}",
            rule_set("good", "object.moving"),
            rule_set("bad", "object.moving &&")
        )
        .expect("written");
        let checked = check(file.path()).expect("it can be read");
        assert_eq!(checked.len(), 2);
        assert_eq!(checked[0], ("good".to_owned(), Vec::new()));
        assert_eq!(checked[1].0, "bad");
        assert!(
            checked[1].1[0].starts_with("rules[Moving].expression: 1:"),
            "{:?}",
            checked[1].1
        );
    }
}
