//! Reads Kubernetes objects from files: manifests, lists, kustomizations, folders such as a
//! `must-gather`, or standard input.
//!
//! If a file cannot be read, the plugin reports an error with the name of the file, and still reads
//! the other files.
//!
//! Some documents may be no Kubernetes objects. If the plugin has found the file in a folder, it
//! skips such documents. If the user or a kustomization names the file, such a document is an
//! error.

use crate::from_files::MAX_FILE_BYTES;
use crate::output::{complain, print_excerpt};
use ifo_client::manifest::{self, MemoryBudget, Object};
use ifo_engine::rules::RuleSetError;
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
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

/// An error in a file.
#[derive(Debug)]
pub(super) struct InputFault {
    /// The error, as `file: reason`.
    text: String,
    /// Lines of the expression that contains the error. The lines show the position of the error.
    /// None if the error is not in an expression.
    excerpt: Option<String>,
}

impl InputFault {
    pub(super) fn new(text: String) -> Self {
        Self {
            text,
            excerpt: None,
        }
    }

    /// Returns the error of a rule set.
    pub(super) fn of(error: &RuleSetError) -> Self {
        Self {
            text: error.to_string(),
            excerpt: error.excerpt(),
        }
    }

    /// Adds the place of the error to the text.
    pub(super) fn at(self, place: &str) -> Self {
        let text = format!("{place}: {}", self.text);
        Self { text, ..self }
    }

    /// Prints the error to standard error. `level` is `error` or `warning`.
    pub(super) fn print(&self, level: &str) {
        complain(level, &self.text);
        if let Some(excerpt) = &self.excerpt {
            print_excerpt(excerpt);
        }
    }
}

/// The objects in files, and the errors of reading them.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The objects, in the order of the files and of the documents in each file.
    pub(super) objects: Vec<FoundObject>,
    /// Errors of reading the files and of compiling rule sets.
    pub(super) faults: Vec<InputFault>,
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
            input.read_path(path, true, 0);
        }
        input
    }

    /// Prints the errors to standard error. Returns true if there are none.
    pub(super) fn report(&self) -> bool {
        self.faults.iter().for_each(|fault| fault.print("error"));
        self.faults.is_empty()
    }

    fn add_fault(&mut self, path: &Path, why: impl std::fmt::Display) {
        let text = format!("{}: {why}", path.display());
        self.faults.push(InputFault::new(text));
    }

    /// Reads a file or a folder. `is_named` is false if the path was found in a folder.
    fn read_path(&mut self, path: &Path, is_named: bool, depth: usize) {
        // A path that does not exist, and standard input, have no canonical path.
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.visited.insert(canonical) {
            return;
        }
        if depth > MAX_DEPTH {
            return self.add_fault(path, "nested too deeply");
        }
        let read = if !path.is_dir() || path.as_os_str() == "-" {
            self.read_file(path, is_named)
        } else if let Some(kustomization) = kustomization_in(path).filter(|_| is_named) {
            self.read_kustomization(&kustomization, depth)
        } else {
            self.read_manifests(path, depth)
        };
        if let Err(why) = read {
            self.add_fault(path, why);
        }
    }

    /// Reads every manifest below `folder`, in the order of the paths. A manifest is a YAML or JSON
    /// file that is not a kustomization.
    fn read_manifests(&mut self, folder: &Path, depth: usize) -> Result<(), String> {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = entries.map_err(|error| error.to_string())?;
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        paths.sort();
        for path in paths {
            let extension = path.extension().and_then(|it| it.to_str());
            let is_manifest = matches!(extension, Some("yaml" | "yml" | "json"))
                && !KUSTOMIZATIONS.iter().any(|name| path.ends_with(name))
                // Reading a named pipe or a device could take forever.
                && path.is_file();
            if is_manifest || path.is_dir() {
                self.read_path(&path, false, depth + 1);
            }
        }
        Ok(())
    }

    /// Reads the files that a kustomization lists. The other fields, such as patches, have no
    /// effect.
    fn read_kustomization(&mut self, path: &Path, depth: usize) -> Result<(), String> {
        let text = text_in(path).map_err(|error| error.to_string())?;
        let documents = manifest::documents(&text, &mut self.budget)?;
        let kustomization = documents.into_iter().next().unwrap_or_default();
        let listed = ["resources", "bases", "components"].map(|key| kustomization[key].as_array());
        for entry in listed.into_iter().flatten().flatten() {
            let entry = entry.as_str().ok_or("a resource is not a string")?;
            if entry.contains("://") || entry.starts_with("github.com/") {
                return Err(format!("{entry} is remote, so it is not read"));
            }
            let folder = path.parent().unwrap_or(Path::new(""));
            self.read_path(&folder.join(entry), true, depth + 1);
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, is_named: bool) -> Result<(), String> {
        let text = text_in(path).map_err(|error| error.to_string())?;
        let documents = manifest::documents(&text, &mut self.budget);
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

/// Returns the text of a file. `-` is standard input. Returns an error if the file is larger than
/// [`MAX_FILE_BYTES`].
pub(super) fn text_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file: Box<dyn io::Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(fs::File::open(path)?)
    };
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        return Err(io::Error::other(format!("larger than {limit} MiB")));
    }
    Ok(text)
}

/// Returns true if a document has the fields of a Kubernetes object.
fn is_object(document: &Value) -> bool {
    let mut fields = ["apiVersion", "kind"].iter();
    fields.all(|key| document[key].is_string())
}
