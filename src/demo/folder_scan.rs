//! Reads the objects in a folder of manifests.
//!
//! The scanner reads a file again when its modification time or its size changes. If a file cannot
//! be decoded, the scanner keeps the previous objects of the file. For example, a file can be
//! incomplete while an editor saves it. If the scanner removed the objects, their operations would
//! end. The scanner logs the error once for each change of the file.

use super::model::{active_namespace, key};
use aggregated_apiserver::store::Key;
use ifo_api::Gvr;
use ifo_client::manifest::{self, Object};
use ifo_client::offline_kinds::{KnownKinds, group};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tracing::warn;
use uuid::Uuid;
use walkdir::{DirEntry, WalkDir};

/// Maximum number of manifest files. If a folder has more files, the scan fails. A folder of
/// manifests usually has far fewer files. The limit helps a user who passes `/` by mistake.
const MAX_FILES: usize = 10_000;

/// Maximum size of one file in bytes. The scanner treats a larger file as a file that cannot be
/// decoded. The limit is enough for about ten thousand objects.
const MAX_FILE: u64 = 16 << 20;

/// Maximum total size of all files in bytes. If the total is larger, the scan fails. The limit is
/// necessary because the scanner keeps all objects of the files in memory.
const MAX_TOTAL: u64 = 256 << 20;

/// The objects and kinds in the folder at the time of one scan.
#[derive(Debug, Default)]
pub(super) struct FolderContent {
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) kinds: FolderKinds,
}

/// The kinds in the folder.
#[derive(Debug, Default)]
pub(super) struct FolderKinds {
    /// All kinds that have an object or a `CustomResourceDefinition`. The key is the `apiVersion`
    /// and the kind. The value is true if the kind is namespaced.
    kinds: BTreeMap<(String, String), bool>,
    /// The facts about kinds in the `CustomResourceDefinition`s of the folder.
    known: KnownKinds,
}

impl FolderKinds {
    /// Returns the kind of `gvr`, and true if the kind is namespaced. Returns `None` if the folder
    /// has neither an object nor a CRD of this resource.
    pub(super) fn kind(&self, gvr: &Gvr) -> Option<(&str, bool)> {
        let api_version = gvr.api_version();
        self.kinds
            .iter()
            .filter(|((version, _), _)| *version == api_version)
            .find(|((_, kind), _)| self.known.is_resource(&gvr.group, kind, &gvr.resource))
            .map(|((_, kind), namespaced)| (kind.as_str(), *namespaced))
    }
}

impl FolderContent {
    fn of<'a>(files: impl Iterator<Item = (&'a Path, &'a Object)> + Clone) -> Self {
        let all = files.clone().map(|(_, object)| object);
        let known = KnownKinds::of(all.clone());
        let with_namespace = all.clone().filter(|object| object.namespace.is_some());
        let with_namespace: HashSet<(&str, &str)> = with_namespace
            .map(|object| (object.group(), object.kind.as_str()))
            .collect();
        let declared = known
            .declared()
            .map(|(version, kind)| (version, kind.to_owned()));
        let used = all.map(|object| (object.api_version.clone(), object.kind.clone()));
        let kinds = declared.chain(used).map(|(version, kind)| {
            let group = group(&version);
            let has_namespace = with_namespace.contains(&(group, &*kind));
            let namespaced = known.is_namespaced(group, &kind, has_namespace);
            ((version, kind), namespaced)
        });
        let kinds: BTreeMap<_, _> = kinds.collect();
        let mut objects: BTreeMap<Key, Value> = BTreeMap::new();
        for (path, object) in files {
            let namespaced = kinds[&(object.api_version.clone(), object.kind.clone())];
            let object_as_served = as_served(object, namespaced);
            if let Some(key) = key(&object_as_served)
                && objects.insert(key, object_as_served).is_some()
            {
                warn!(file = %path.display(), kind = object.kind, name = object.name, "the folder contains the object twice; the later one is used");
            }
        }
        Self {
            objects,
            kinds: FolderKinds { kinds, known },
        }
    }

    /// Adds the Namespaces of the objects, and `more`, unless the folder contains them.
    pub(super) fn add_namespaces(&mut self, more: &[String]) {
        let own = self.objects.keys().map(Key::object_namespace);
        let own = own.filter(|name| !name.is_empty()).map(str::to_owned);
        let names: Vec<String> = own.chain(more.iter().cloned()).collect();
        for namespace in names.iter().map(|name| active_namespace(name)) {
            if let Some(key) = key(&namespace) {
                self.objects.entry(key).or_insert(namespace);
            }
        }
    }
}

/// Returns the object as an API server would: with a UID, and with a namespace if its kind is
/// namespaced.
fn as_served(object: &Object, namespaced: bool) -> Value {
    let mut json = object.json.clone();
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        if namespaced && object.namespace.is_none() {
            // kubectl also uses the namespace `default` if the kubeconfig names no other namespace.
            metadata.insert("namespace".into(), "default".into());
        }
        let text = |field| {
            metadata
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        if text("uid").is_empty() {
            let uid = derived_uid(object, text("namespace"));
            metadata.insert("uid".into(), uid.into());
        }
    }
    json
}

/// Derives a UID from `apiVersion`, kind, namespace and name. So the object has the same UID after
/// each scan and after a restart.
fn derived_uid(object: &Object, namespace: &str) -> String {
    let space = Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"manifests.ifo.kubevirt.io");
    let name = [&object.api_version, &object.kind, namespace, &object.name].join("/");
    Uuid::new_v5(&space, name.as_bytes()).to_string()
}

/// Reads a folder repeatedly, and keeps the objects of unchanged files.
#[derive(Debug)]
pub(super) struct Scanner {
    dir: PathBuf,
    /// The files, sorted by path. If two files contain the same object, each scan uses the file
    /// with the later path.
    files: BTreeMap<PathBuf, File>,
}

#[derive(Debug, Default)]
struct File {
    stamp: Option<FileStamp>,
    objects: Vec<Object>,
}

/// The modification time of a file, and its size in bytes. The time is `None` if the file system
/// does not report it.
type FileStamp = (Option<SystemTime>, u64);

impl Scanner {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            files: BTreeMap::new(),
        }
    }

    /// Returns the current content of the folder, or `None` if no file has changed since the last
    /// call.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, has too many files, or its files are too large in total. The
    /// previous content stays valid.
    pub(super) fn scan(&mut self) -> Result<Option<FolderContent>, String> {
        let found = manifests(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        let total: u64 = found.values().map(|stamp| stamp.1.min(MAX_FILE)).sum();
        if total > MAX_TOTAL {
            return Err(format!(
                "{}: the manifests have {total} bytes; the limit is {MAX_TOTAL} bytes",
                self.dir.display()
            ));
        }
        let before = self.files.len();
        self.files.retain(|path, _| found.contains_key(path));
        let mut changed = self.files.len() != before;
        for (path, stamp) in found {
            let file = self.files.entry(path.clone()).or_default();
            if file.stamp == Some(stamp) {
                continue;
            }
            changed = true;
            file.stamp = Some(stamp);
            match read(&path) {
                Ok(objects) => file.objects = objects,
                Err(why) => warn!(
                    file = %path.display(),
                    "{why}; the {} previous objects of the file are kept",
                    file.objects.len()
                ),
            }
        }
        Ok(changed.then(|| self.content()))
    }

    fn content(&self) -> FolderContent {
        FolderContent::of(
            self.files
                .iter()
                .flat_map(|(path, file)| file.objects.iter().map(move |o| (path.as_path(), o))),
        )
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
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
        .map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("more than {MAX_FILE} bytes"));
    }
    manifest::read(&text)
}
