//! Rooms depend on each other in one direction, as docs/architecture.md says.

use std::path::{Path, PathBuf};

/// The Rust files in a folder, and in the folders in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files_in_it = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files_in_it.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files_in_it.push(path);
        }
    }
    files_in_it
}

/// The lines in a folder of the repository that name one of `paths`, each with its file.
fn lines_with(folder: &str, paths: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in files(&root.join(folder)) {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let named = text.lines().filter(|line| {
            let mut paths = paths.iter();
            paths.any(|path| line.contains(path))
        });
        found.extend(named.map(|line| format!("{}: {line}", file.display())));
    }
    found
}

#[test]
fn observe_knows_neither_rules_nor_the_engine() {
    let foreign = [
        "crate::rules",
        "crate::detection",
        "crate::tracking",
        "ifo_engine",
    ];
    assert_eq!(lines_with("src/observe", &foreign), [""; 0]);
    // What is looked for is found where it is used.
    for path in ["crate::rules", "ifo_engine"] {
        assert!(!lines_with("src/detection", &[path]).is_empty(), "{path}");
    }
}

#[test]
fn modules_of_the_engine_depend_on_those_before_them_only() {
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
