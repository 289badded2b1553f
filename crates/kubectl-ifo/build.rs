//! Build script: embeds the YAML files of the folder `rules/`, which contains the shipped rule
//! sets. `kubectl ifo support-bundle` hides the names and texts of a cluster. The command does not
//! hide names and texts that the embedded files contain, because these files are public.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    // The script reads the variable when it runs. With `env!`, it would keep the folder in which it
    // was compiled, and fail if two clones share a target folder.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let folder = Path::new(&package).join("../../rules");
    let mut files = Vec::new();
    collect_files(&folder, &mut files);
    files.sort();
    let mut code = "[\n".to_owned();
    for file in files {
        let file = file.to_str().expect("the path of the repository is UTF-8");
        writeln!(code, "include_str!({file:?}),").expect("writing to a String cannot fail");
    }
    code.push(']');
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(PathBuf::from(out).join("shipped_rule_sets.rs"), code)
        .expect("the output folder is writable");
}

/// Appends the YAML files below a folder.
fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in std::fs::read_dir(folder).expect("the folder rules/ is readable") {
        let path = entry.expect("the folder rules/ is readable").path();
        if path.is_dir() {
            collect_files(&path, files);
        } else if path.extension().is_some_and(|it| it == "yaml") {
            files.push(path);
        }
    }
}
