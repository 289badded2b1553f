//! Writes the page with its data to one file, for a post-mortem or a support case.

use super::page::self_contained;
use super::store::Snapshot;
use crate::output::create_private;
use crate::problem::Problem;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

/// Formats the data of the page. Objects are copied as they are.
fn data(begin: &Value, snapshot: &Snapshot) -> String {
    let objects = snapshot.objects.join(",\n");
    let state = json!(snapshot.state);
    format!("{{\"begin\":{begin},\"items\":[{objects}],\"state\":{state}}}")
}

/// Writes a new file that only the user may read. If the write fails, the file is removed.
pub(super) fn write(path: &Path, begin: &Value, snapshot: &Snapshot) -> Result<(), Problem> {
    let page = self_contained(&data(begin, snapshot));
    let written = create_private(path).and_then(|mut file| {
        let written = file.write_all(page.as_bytes());
        written.inspect_err(|_| drop(std::fs::remove_file(path)))
    });
    written.map_err(|error| Problem::Other(format!("cannot write {}: {error}", path.display())))
}
