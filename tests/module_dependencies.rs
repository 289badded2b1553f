//! Checks rules for the source code:
//!
//! - `src/observe` depends neither on rule sets nor on the engine (`docs/architecture.md`).
//! - The modules of the engine depend on each other in one direction (`docs/architecture.md`).
//! - No two types have the same name, except types with the name `Error`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, Item};

/// Returns all Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder must exist") {
        let path = entry.expect("the folder must be readable").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Searches the Rust files below a folder of the repository for these Rust paths, such as
/// `crate::rules`. Returns the matching lines in the form `FILE: LINE`.
fn lines_with(folder: &str, paths: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in files(&root.join(folder)) {
        let text = std::fs::read_to_string(&file).expect("the file must be readable");
        let named = text.lines().filter(|line| {
            let mut paths = paths.iter();
            paths.any(|path| line.contains(path))
        });
        found.extend(named.map(|line| format!("{}: {line}", file.display())));
    }
    found
}

#[test]
fn observe_depends_on_neither_rules_nor_engine() {
    let foreign = [
        "crate::rules",
        "crate::detection",
        "crate::tracker_task",
        "ifo_engine",
    ];
    assert_eq!(lines_with("src/observe", &foreign), [""; 0]);
    // The module `detection` uses these paths, so the search must find them there. This check
    // fails if the search itself is wrong.
    for path in ["crate::rules", "ifo_engine"] {
        assert!(!lines_with("src/detection", &[path]).is_empty(), "{path}");
    }
}

#[test]
fn engine_modules_depend_only_on_modules_earlier_in_the_pipeline() {
    let order = ["rules", "detect", "track", "replay"];
    for (place, module) in order.iter().enumerate().take(3) {
        let later: Vec<String> = order[place + 1..]
            .iter()
            .map(|later| format!("crate::{later}"))
            .collect();
        let later: Vec<&str> = later.iter().map(String::as_str).collect();
        let folder = format!("crates/engine/src/{module}");
        assert_eq!(lines_with(&folder, &later), [""; 0]);
    }
    assert!(!lines_with("crates/engine/src/track", &["crate::detect"]).is_empty());
}

/// Returns true if the attributes contain a `cfg` with `test` or `fuzzing`. The item is then
/// compiled only for tests or for fuzzing.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && condition.is_ok_and(|it| it.contains("test") || it.contains("fuzzing"))
    })
}

/// Returns the names of the types that are defined outside of functions and tests.
fn type_names(items: &[Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        let (name, attributes) = match item {
            Item::Struct(it) => (&it.ident, &it.attrs),
            Item::Enum(it) => (&it.ident, &it.attrs),
            Item::Trait(it) => (&it.ident, &it.attrs),
            Item::Type(it) => (&it.ident, &it.attrs),
            Item::Mod(it) => {
                let inner = it.content.iter().flat_map(|(_, items)| type_names(items));
                if !is_for_tests(&it.attrs) {
                    names.extend(inner);
                }
                continue;
            }
            _ => continue,
        };
        if !is_for_tests(attributes) {
            names.push(name.to_string());
        }
    }
    names
}

/// A contributor who searches a crate for the name of a type must find only one definition. The name
/// `Error` is an exception: several modules may have a type with this name.
#[test]
fn type_names_are_unique_in_their_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sources = ["src", "crates"].map(|folder| files(&root.join(folder)));
    for file in sources.concat() {
        let path = file
            .strip_prefix(root)
            .expect("the file is in the repository");
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let package = if parts[0] == "crates" {
            parts[1]
        } else {
            "ifo"
        };
        let is_program = parts.iter().all(|part| {
            let name = part.strip_suffix(".rs").unwrap_or(part);
            let others = ["tests", "testing", "benches", "target"];
            !others.contains(&name) && !name.ends_with("_tests")
        });
        if is_program {
            let text = std::fs::read_to_string(&file).expect("the file must be readable");
            let parsed = syn::parse_file(&text).expect("the file must be valid Rust");
            for name in type_names(&parsed.items) {
                defined
                    .entry(format!("{package}: {name}"))
                    .or_default()
                    .push(path.display().to_string());
            }
        }
    }
    assert!(
        defined.contains_key("api: InFlightOperationStatus"),
        "the search must find the types of the workspace"
    );
    defined.retain(|name, files| files.len() > 1 && !name.ends_with(": Error"));
    assert_eq!(defined, BTreeMap::new());
}
