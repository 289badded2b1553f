//! Checks the texts of the repository: documentation, comments, messages and rule sets.

mod names_in_documentation;
mod plain_english;

use std::path::{Path, PathBuf};
use walkdir::WalkDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all files with this extension below a folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    let paths = entries.map(|entry| entry.expect("the folder must be readable").into_path());
    let has_extension = |path: &PathBuf| path.extension().is_some_and(|it| it == extension);
    paths.filter(has_extension).collect()
}
