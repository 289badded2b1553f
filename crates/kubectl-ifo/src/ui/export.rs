//! Writes the page with its data to one file, for a post-mortem or a support case.

use super::page::self_contained;
use super::store::Snapshot;
use crate::problem::Problem;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Formats the data of the page. Objects are copied as they are.
fn data(begin: &Value, snapshot: &Snapshot) -> String {
    let objects = snapshot.objects.join(",\n");
    let state = json!(snapshot.state);
    format!("{{\"begin\":{begin},\"items\":[{objects}],\"state\":{state}}}")
}

/// Writes a new file that only the user may read. If the write fails, the path does not exist
/// afterwards.
pub(super) fn write(path: &Path, begin: &Value, snapshot: &Snapshot) -> Result<(), Problem> {
    let page = self_contained(&data(begin, snapshot));
    let part = part_of(path);
    let written = write_part(&part, page.as_bytes()).and_then(|()| {
        // Unlike a rename, a link does not replace an existing file.
        std::fs::hard_link(&part, path)
    });
    let _ = std::fs::remove_file(&part);
    written.map_err(|error| Problem::Other(format!("cannot write {}: {error}", path.display())))
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

fn write_part(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
