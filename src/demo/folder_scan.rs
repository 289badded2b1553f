//! Reads the objects in a folder of manifests.
//!
//! The scanner reads a file again when its modification time or its size changes. If a file cannot
//! be decoded, the scanner keeps the previous objects of the file. For example, a file can be
//! incomplete while an editor saves it. If the scanner removed the objects, their operations would
//! end. The scanner logs the error once for each change of the file.

use super::world::World;
use ifo_client::manifest::{self, Object};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tracing::warn;
use walkdir::{DirEntry, WalkDir};

/// Maximum number of manifest files. If a folder has more files, the scan fails. A folder of
/// manifests usually has far fewer files. The limit helps a user who passes `/` by mistake.
const MAX_FILES: usize = 10_000;

/// Maximum total size of all files in bytes. If the total is larger, the scan fails. The limit is
/// necessary because the scanner keeps all objects of the files in memory.
const MAX_TOTAL: u64 = 256 << 20;

/// The modification time of a file, and its size in bytes. The time is `None` if the file system
/// does not report it.
type FileStamp = (Option<SystemTime>, u64);

/// Reads a folder repeatedly, and keeps the objects of unchanged files.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    dir: PathBuf,
    stamps: BTreeMap<PathBuf, FileStamp>,
    /// The objects of the files, sorted by path. If two files contain the same object, each scan uses
    /// the file with the later path.
    objects: BTreeMap<PathBuf, Vec<Object>>,
}

impl Scanner {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the current objects in the folder, or `None` if no file has changed since the last
    /// call.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, has too many files, or its files are too large in total. The
    /// previous objects stay valid.
    pub(super) fn scan(&mut self) -> Result<Option<World>, String> {
        let found = manifests(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        let total: u64 = found.values().map(|stamp| stamp.1).sum();
        if total > MAX_TOTAL {
            return Err(format!(
                "{}: the manifests have {total} bytes; the limit is {MAX_TOTAL} bytes",
                self.dir.display()
            ));
        }
        if found == self.stamps {
            return Ok(None);
        }
        self.objects.retain(|path, _| found.contains_key(path));
        for (path, stamp) in &found {
            if self.stamps.get(path) == Some(stamp) {
                continue;
            }
            match read(path) {
                Ok(objects) => _ = self.objects.insert(path.clone(), objects),
                Err(why) => warn!(
                    file = %path.display(),
                    "{why}; the {} previous objects of the file are kept",
                    self.objects.get(path).map_or(0, Vec::len)
                ),
            }
        }
        self.stamps = found;
        let files = self.objects.iter();
        let objects = files.flat_map(|(path, objects)| objects.iter().map(move |it| (&**path, it)));
        Ok(Some(World::of(objects)))
    }
}

/// Returns the manifests in `dir` and in the folders below it.
fn manifests(dir: &Path) -> io::Result<BTreeMap<PathBuf, FileStamp>> {
    let mut found = BTreeMap::new();
    // The scan skips hidden files and folders, such as the folder `..data` of a mounted ConfigMap.
    // It reads the visible files of the ConfigMap, which are links into `..data`.
    let is_visible = |entry: &DirEntry| {
        entry.depth() == 0 || !entry.file_name().as_encoded_bytes().starts_with(b".")
    };
    for entry in WalkDir::new(dir).into_iter().filter_entry(is_visible) {
        let entry = match entry.map_err(io::Error::from) {
            // The file was deleted during the walk, for example by an editor.
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() => continue,
            entry => entry?,
        };
        if !is_manifest(entry.path()) {
            continue;
        }
        // The scan follows links to files. It ignores links to folders, because they could form a
        // loop.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => {
                if found.len() >= MAX_FILES {
                    return Err(io::Error::other(format!("more than {MAX_FILES} manifests")));
                }
                let stamp = (metadata.modified().ok(), metadata.len());
                found.insert(entry.into_path(), stamp);
            }
            _ => {}
        }
    }
    Ok(found)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|end| {
        ["yaml", "yml", "json"]
            .iter()
            .any(|known| end.eq_ignore_ascii_case(known))
    })
}

fn read(path: &Path) -> Result<Vec<Object>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    manifest::read(&text)
}
