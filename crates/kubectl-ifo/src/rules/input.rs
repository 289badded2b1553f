//! Reads Kubernetes objects from files: manifests, lists, kustomizations, folders such as a
//! `must-gather`, or standard input.
//!
//! If a file cannot be read, the plugin reports an error with the name of the file, and still reads
//! the other files.
//!
//! Some documents may be no Kubernetes objects. If the plugin has found the file in a folder, it
//! skips such documents. If the user or a kustomization names the file, such a document is an
//! error.

use crate::from_files::{FoundFile, read, text};
use crate::output::{complain, print_excerpt};
use ifo_client::manifest::{self, MemoryBudget, Object};
use ifo_engine::rules::RuleSetError;
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

/// Returns the error of a rule set. Further lines show its position in the expression.
pub(super) fn fault(place: &str, error: &RuleSetError) -> String {
    let excerpt = error.excerpt().unwrap_or_default();
    format!("{place}: {error}\n{excerpt}")
}

/// Prints an error to standard error. `level` is `error` or `warning`.
pub(super) fn print_fault(level: &str, fault: &str) {
    let (text, excerpt) = fault.split_once('\n').unwrap_or((fault, ""));
    complain(level, text);
    print_excerpt(excerpt);
}

/// The objects in files, and the errors of reading them.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The objects, in the order of the files and of the documents in each file.
    pub(super) objects: Vec<FoundObject>,
    /// Errors of reading the files and of compiling rule sets. After a line feed, an excerpt follows.
    pub(super) faults: Vec<String>,
    /// The files and folders that have been read, as paths without symbolic links. Each of them is
    /// read once. So links and kustomizations that form a cycle come to an end.
    visited: HashSet<PathBuf>,
    /// The memory that all objects together may take.
    budget: MemoryBudget,
}

impl Input {
    /// Reads all `paths`. A path is a file, a folder, or `-` for standard input.
    pub(super) fn read(paths: &[PathBuf]) -> Self {
        let mut input = Self::default();
        for path in paths {
            input.read_path(path, 0);
        }
        input
    }

    /// Prints the errors to standard error. Returns true if there are none.
    pub(super) fn report(&self) -> bool {
        self.faults.iter().for_each(|it| print_fault("error", it));
        self.faults.is_empty()
    }

    fn add_fault(&mut self, path: &Path, why: impl std::fmt::Display) {
        self.faults.push(format!("{}: {why}", path.display()));
    }

    /// Reads a file, an archive or a folder.
    fn read_path(&mut self, path: &Path, depth: usize) {
        if !self.is_new(path) {
            return;
        }
        if depth > MAX_DEPTH {
            return self.add_fault(path, "nested too deeply");
        }
        if let Some(kustomization) = kustomization_in(path) {
            if let Err(why) = self.read_kustomization(&kustomization, depth) {
                self.add_fault(path, why);
            }
            return;
        }
        let is_manifest = |path: &str, _: &[u8]| {
            let name = path.rsplit('/').next().unwrap_or_default();
            !KUSTOMIZATIONS.contains(&name)
        };
        match read(path, is_manifest) {
            Ok(found) => {
                for (within, error) in found.errors {
                    self.add_fault(&path.join(within), error);
                }
                for file in found.files {
                    let (path, is_named) = match Path::new(&file.path) {
                        of_file if of_file == path => (path.to_owned(), true),
                        within => (path.join(within), false),
                    };
                    if (is_named || self.is_new(&path))
                        && let Err(why) = self.read_file(&file, &path, is_named)
                    {
                        self.add_fault(&path, why);
                    }
                }
            }
            Err(error) => self.add_fault(path, error),
        }
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
        let documents = file.documents(&mut self.budget);
        let documents = documents.map_err(|why| {
            if why.starts_with("line ") {
                format!("{why} (hint: {YAML_HINT})")
            } else {
                why
            }
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
