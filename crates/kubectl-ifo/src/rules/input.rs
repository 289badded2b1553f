//! Reads Kubernetes objects from files: manifests, lists, kustomizations, folders such as a
//! `must-gather`, or standard input.
//!
//! If a file cannot be read, the plugin reports an error with the name of the file, and still reads
//! the other files.
//!
//! Some documents may be no Kubernetes objects. If the plugin has found the file in a folder, it
//! skips such documents. If the user or a kustomization names the file, such a document is an
//! error.

use crate::operations::from_files::{FoundFile, read, text};
use crate::output::print::complain;
use ifo_client::manifest::{self, MemoryBudget, Object};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Largest nesting of folders and kustomizations. A deeper nesting is reported as an error, because
/// each level takes a part of the stack.
const MAX_DEPTH: usize = 32;

/// The possible names of a kustomization file.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The hint for a syntax error in YAML. Most of these errors are in expressions.
const YAML_HINT: &str = "quote an expression that contains `: ` or begins with `!`, `{` or a quote";

/// An object, and the file that contains it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FoundObject {
    /// The path of the file. `-` is standard input.
    pub(super) source: String,
    /// The object.
    pub(super) object: Object,
}

/// Reads the objects in files, in the order of the files and of the documents in each file. A path
/// is a file, a folder, or `-` for standard input. Prints the errors, and returns true if there are
/// none.
pub(super) fn read_objects(paths: &[PathBuf]) -> (Vec<FoundObject>, bool) {
    let mut input = Input::default();
    for path in paths {
        input.read_path(path, 0);
    }
    input.faults.iter().for_each(|it| complain("error", it));
    (input.objects, input.faults.is_empty())
}

/// The objects and the errors that have been found so far.
#[derive(Debug, Default)]
struct Input {
    objects: Vec<FoundObject>,
    faults: Vec<String>,
    /// The files and folders that have been read, as paths without symbolic links. Each of them is
    /// read once. So links and kustomizations that form a cycle come to an end.
    visited: HashSet<PathBuf>,
    /// The memory that all objects together may take.
    budget: MemoryBudget,
}

impl Input {
    fn add_fault(&mut self, path: &Path, why: impl std::fmt::Display) {
        self.faults.push(format!("{}: {why}", path.display()));
    }

    /// Reads a file, an archive, a folder or a kustomization.
    fn read_path(&mut self, path: &Path, depth: usize) {
        if !self.is_new(path) {
            return;
        }
        let read = match kustomization_in(path) {
            _ if depth > MAX_DEPTH => Err("nested too deeply".to_owned()),
            Some(kustomization) => self.read_kustomization(&kustomization, depth),
            None => self.read_files(path),
        };
        if let Err(why) = read {
            self.add_fault(path, why);
        }
    }

    fn read_files(&mut self, path: &Path) -> Result<(), String> {
        let is_manifest = |path: &str, _: &[u8]| {
            let name = path.rsplit('/').next().unwrap_or_default();
            !KUSTOMIZATIONS.contains(&name)
        };
        let found = read(path, is_manifest).map_err(|error| error.to_string())?;
        for (within, error) in found.errors {
            self.add_fault(&path.join(within), error);
        }
        for file in found.files {
            let is_named = Path::new(&file.path) == path;
            let path = if is_named {
                path.to_owned()
            } else {
                path.join(&file.path)
            };
            if (is_named || self.is_new(&path))
                && let Err(why) = self.read_file(&file, &path, is_named)
            {
                self.add_fault(&path, why);
            }
        }
        Ok(())
    }

    /// Returns true at the first call for this file or folder.
    fn is_new(&mut self, path: &Path) -> bool {
        // A path that does not exist, and standard input, have no canonical path.
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.visited.insert(canonical)
    }

    /// Reads the files that a kustomization lists. The other fields, such as patches, have no
    /// effect.
    fn read_kustomization(&mut self, path: &Path, depth: usize) -> Result<(), String> {
        let text = text(path).map_err(|error| error.to_string())?;
        let documents = manifest::documents(&text, &mut self.budget)?;
        let kustomization = documents.into_iter().next().unwrap_or_default();
        let listed = ["resources", "bases", "components"].map(|key| kustomization[key].as_array());
        for entry in listed.into_iter().flatten().flatten() {
            let entry = entry.as_str().ok_or("a resource is not a string")?;
            if entry.contains("://") || entry.starts_with("github.com/") {
                return Err(format!("{entry} is remote, so it is not read"));
            }
            let folder = path.parent().unwrap_or(Path::new(""));
            self.read_path(&folder.join(entry), depth + 1);
        }
        Ok(())
    }

    fn read_file(&mut self, file: &FoundFile, path: &Path, is_named: bool) -> Result<(), String> {
        let (documents, read) = file.documents(&mut self.budget);
        read.map_err(|why| match why {
            syntax if syntax.starts_with("line ") && !syntax.contains("duplicate mapping key") => {
                format!("{syntax} (hint: {YAML_HINT})")
            }
            other => other,
        })?;
        for (index, document) in documents.into_iter().enumerate() {
            if !is_named && !is_object(&document) {
                continue;
            }
            let mut objects = Vec::new();
            if let Err(why) = manifest::append_objects(document, &mut objects) {
                self.add_fault(path, format!("document {}: {why}", index + 1));
            }
            let source = path.display().to_string();
            let found = objects.into_iter().map(|object| FoundObject {
                source: source.clone(),
                object,
            });
            self.objects.extend(found);
        }
        Ok(())
    }
}

/// Returns the path of the kustomization file in a folder. None if the folder has no such file.
fn kustomization_in(folder: &Path) -> Option<PathBuf> {
    let mut paths = KUSTOMIZATIONS.iter().map(|name| folder.join(name));
    paths.find(|path| path.is_file())
}

/// Returns true if a document has the fields of a Kubernetes object.
fn is_object(document: &Value) -> bool {
    let mut fields = ["apiVersion", "kind"].iter();
    fields.all(|key| document[key].is_string())
}
