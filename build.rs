//! Build script. The binary contains files for the demo: the rule sets that `kubectl apply -k rules`
//! installs, and the scenes (recordings of changes to objects). The script compresses these files, so
//! the binary is 570 KB smaller. The server decompresses the files only for the demo.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    // The script reads the variable when it runs. With `env!`, it would keep the folder in which it
    // was compiled, and fail if two clones share a target folder.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let root = Path::new(&root);
    let rules = root.join("rules");
    let folders = resources(&rules);
    let files = folders.iter().flat_map(|folder| resources(folder));
    embed(
        "rules",
        files.filter(|file| !file.ends_with("clusterrole.yaml")),
    );
    let scenes = fs::read_dir(root.join("src/demo/scenes")).expect("the folder is readable");
    let scenes = scenes.map(|entry| entry.expect("the folder is readable").path());
    embed(
        "scenes",
        scenes.filter(|file| file.extension().is_some_and(|it| it == "jsonl")),
    );
    println!("cargo::rerun-if-changed={}", rules.display());
    println!("cargo::rerun-if-changed=src/demo/scenes");
}

/// Returns the files and folders that the kustomization of a folder lists.
fn resources(folder: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(folder.join("kustomization.yaml"));
    let text = text.expect("each folder has a kustomization");
    let listed = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "));
    listed.map(|name| folder.join(name)).collect()
}

/// Writes all files into one compressed file. Before each text is a line with the character U+0001
/// and the name of the file.
fn embed(name: &str, files: impl Iterator<Item = PathBuf>) {
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let texts = files.iter().map(|file| {
        let name = file.file_stem().expect("a file has a name").display();
        let text = fs::read_to_string(file).expect("the file is readable");
        format!("\u{1}{name}\n{text}")
    });
    let compressed = lz4_flex::block::compress_prepend_size(texts.collect::<String>().as_bytes());
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join(format!("{name}.lz4"));
    fs::write(path, compressed).expect("the output folder is writable");
}
