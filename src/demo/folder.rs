//! Reads the objects or the rule sets of the demo from a folder of manifests, and follows the
//! changes of the files. The flags `--objects DIR` and `--rules DIR` set the folder.
//!
//! The demo reads a file again when its modification time or its size changes. If a file cannot be
//! decoded, the demo keeps the previous objects of the file. It logs the error once for each change
//! of the file. For example, a file can be incomplete while an editor saves it. If the demo removed
//! the objects, their operations would end. A rule set with a wrong `apiVersion` or `kind` has no
//! effect, so it is also logged once for each change of the file.

use super::kinds::Kinds;
use super::objects::ObjectStore;
use ifo_client::manifest::{self, Object};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};
use tokio::time::sleep;
use tracing::warn;
use walkdir::{DirEntry, WalkDir};

/// Time between two scans of the folder. A scan of unchanged files costs one `stat` for each file. The
/// notifications of the operating system are not used, because network file systems and some container
/// mounts send none.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of manifest files. If a folder has more files, the scan fails. A folder of
/// manifests usually has far fewer files. The limit helps a user who passes `/` by mistake.
const MAX_FILES: usize = 10_000;

/// Maximum total size of all files in bytes. If the total is larger, the scan fails. The limit is
/// necessary because the demo keeps all objects of the files in memory.
const MAX_TOTAL: u64 = 256 << 20;

/// The modification time of a file, and its size in bytes. The time is `None` if the file system
/// does not report a modification time.
type FileStamp = (Option<SystemTime>, u64);

/// Reads the manifests (`.yaml`, `.yml`, `.json`) in `dir` and in the folders below it into a store. The
/// store also contains the Namespaces of the objects, and `namespaces`.
///
/// Also returns a future that follows the changes of the files and never ends. The caller must run this
/// future as a task.
///
/// # Errors
///
/// The folder cannot be read, has too many files, or its files are too large in total.
pub fn open(
    dir: &Path,
    namespaces: &[&str],
) -> io::Result<(ObjectStore, impl Future<Output = ()> + Send + 'static)> {
    let store = ObjectStore::new(Kinds::default());
    let mut folder = Folder {
        dir: dir.to_owned(),
        namespaces: namespaces.iter().map(ToString::to_string).collect(),
        store: store.clone(),
        files: BTreeMap::new(),
    };
    folder.scan().map_err(io::Error::other)?;
    folder.publish();
    let follow = async move {
        let mut last = Ok(false);
        loop {
            sleep(POLL_INTERVAL).await;
            let scan = tokio::task::spawn_blocking(move || {
                let scanned = folder.scan();
                if scanned == Ok(true) {
                    folder.publish();
                }
                (folder, scanned)
            });
            let scanned = scan.await;
            let scanned = scanned.expect("a scan does not panic and is not cancelled");
            folder = scanned.0;
            // If several scans in a row fail in the same way, only the first failure is logged.
            if let Err(why) = &scanned.1
                && scanned.1 != last
            {
                warn!("{why}; the objects of the folder are unchanged");
            }
            last = scanned.1;
        }
    };
    Ok((store, follow))
}

/// A folder, and the store with its objects.
struct Folder {
    dir: PathBuf,
    namespaces: Vec<String>,
    store: ObjectStore,
    /// The stamps and the objects of the files, sorted by path. If two files contain the same object,
    /// the file with the later path counts.
    files: BTreeMap<PathBuf, (FileStamp, Vec<Object>)>,
}

impl Folder {
    /// Reads the files that were added or changed since the last call. Returns true if files were
    /// added, changed or removed. After an error, the previous objects stay valid.
    fn scan(&mut self) -> Result<bool, String> {
        let found = manifests(&self.dir);
        let found = found.map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let known = self.files.iter().map(|(path, (stamp, _))| (path, stamp));
        if known.eq(&found) {
            return Ok(false);
        }
        self.files.retain(|path, _| found.contains_key(path));
        for (path, stamp) in found {
            let file = self.files.entry(path.clone()).or_default();
            if file.0 == stamp {
                continue;
            }
            file.0 = stamp;
            let text = fs::read_to_string(&path).map_err(|error| error.to_string());
            match text.and_then(|text| manifest::read(&text)) {
                Ok(objects) => {
                    let meant = objects.iter().filter(|it| it.is_meant_as_rule_set());
                    for why in meant.filter_map(|it| it.check_rule_set_kind().err()) {
                        warn!(file = %path.display(), "{why}");
                    }
                    file.1 = objects;
                }
                Err(why) => {
                    let is_empty = file.1.is_empty();
                    let verb = if is_empty {
                        "ignores"
                    } else {
                        "keeps the previous objects of"
                    };
                    warn!(file = %path.display(), "{why}; the demo {verb} the file");
                }
            }
        }
        Ok(true)
    }

    fn publish(&self) {
        let files = self.files.iter();
        let objects = files.flat_map(|(path, file)| file.1.iter().map(|it| (path.as_path(), it)));
        self.store.replace(objects, &self.namespaces);
    }
}

/// Returns the manifests in `dir` and in the folders below it.
fn manifests(dir: &Path) -> io::Result<BTreeMap<PathBuf, FileStamp>> {
    let mut found = BTreeMap::new();
    let mut total = 0;
    // If the folder is missing, the error of the walk would name it twice.
    fs::metadata(dir)?;
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
        let end = entry.path().extension().unwrap_or_default();
        let end = end.to_ascii_lowercase();
        if !matches!(end.to_str(), Some("yaml" | "yml" | "json")) {
            continue;
        }
        // The scan follows links to files. It ignores links to folders, because they could form a
        // loop.
        let Some(metadata) = fs::metadata(entry.path())
            .ok()
            .filter(fs::Metadata::is_file)
        else {
            continue;
        };
        total += metadata.len();
        let stamp = (metadata.modified().ok(), metadata.len());
        found.insert(entry.into_path(), stamp);
        if found.len() > MAX_FILES || total > MAX_TOTAL {
            let limit = MAX_TOTAL >> 20;
            let limit = format!("more than {MAX_FILES} manifests, or more than {limit} MiB");
            return Err(io::Error::other(limit));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
