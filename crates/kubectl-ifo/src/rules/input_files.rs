//! Reads Kubernetes objects from files: manifests, lists, kustomizations, folders such as a
//! `must-gather`, or standard input.
//!
//! If a file cannot be read, the plugin reports an error with the name of the file, and still reads
//! the other files.
//!
//! A file can contain several documents, and some of them may be no Kubernetes objects. If the
//! plugin has found the file in a folder, it skips such documents. If the user or a kustomization
//! names the file, such a document is an error.

use crate::from_files::MAX_FILE_BYTES;
use crate::output::{complain, print_excerpt};
use ifo_cel::excerpt;
use ifo_client::manifest::{self, MemoryBudget, Object};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Largest nesting of folders and kustomizations. A deeper nesting is reported as an error, because
/// each level takes a part of the stack.
const MAX_DEPTH: usize = 32;

/// The error for a kustomization that is nested in more than [`MAX_DEPTH`] others.
const TOO_DEEP: &str = "kustomizations are nested too deeply";

/// The possible names of a kustomization file.
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Fields with which `kubectl apply -k` changes or adds resources. The plugin reads the resources
/// without these changes, and a note names the fields.
const CHANGING_FIELDS: [&str; 14] = [
    "commonAnnotations",
    "commonLabels",
    "configMapGenerator",
    "generators",
    "helmCharts",
    "labels",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "patches",
    "patchesJson6902",
    "patchesStrategicMerge",
    "replacements",
    "transformers",
];

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
    pub(super) text: String,
    /// Lines of the file, or of the expression that contains the error. The lines show the position
    /// of the error. None if the position is unknown.
    pub(super) excerpt: Option<String>,
}

impl InputFault {
    pub(super) fn new(text: String) -> Self {
        Self {
            text,
            excerpt: None,
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
    /// Notes for the user.
    pub(super) notes: Vec<String>,
    /// Files that were found in a folder, and that contain a skipped document: a document that is
    /// not a Kubernetes object.
    files_with_skipped_documents: BTreeSet<String>,
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
            if path.is_dir() && path.as_os_str() != "-" {
                input.read_folder(path);
            } else {
                input.read_file(path, true);
            }
        }
        if let Some(first) = input.files_with_skipped_documents.first() {
            let more = match input.files_with_skipped_documents.len() {
                1 => String::new(),
                files => format!(" and {} more files", files - 1),
            };
            input.notes.push(format!(
                "skipped documents that are not Kubernetes objects, in {first}{more}"
            ));
        }
        input
    }

    /// Prints the notes and the errors to standard error. Returns true if there are no errors.
    pub(super) fn report(&self) -> bool {
        self.notes.iter().for_each(|note| complain("note", note));
        for fault in &self.faults {
            complain("error", &fault.text);
            if let Some(excerpt) = &fault.excerpt {
                print_excerpt(excerpt);
            }
        }
        self.faults.is_empty()
    }

    fn add_fault(&mut self, source: &str, why: impl std::fmt::Display) {
        self.faults
            .push(InputFault::new(format!("{source}: {why}")));
    }

    /// Returns true if the file or folder has not been read yet, and remembers it.
    fn is_first_visit(&mut self, path: &Path) -> bool {
        // A path that does not exist, and standard input, have no canonical path.
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.visited.insert(canonical)
    }

    fn read_folder(&mut self, folder: &Path) {
        let kustomization = KUSTOMIZATIONS.map(|name| folder.join(name));
        match kustomization.iter().find(|path| path.is_file()) {
            Some(path) => self.read_kustomization(path, 0),
            None => self.read_manifests_below(folder, 0),
        }
    }

    /// Reads every manifest below `folder`, in the order of the paths. A manifest is a YAML or JSON
    /// file that is not a kustomization.
    fn read_manifests_below(&mut self, folder: &Path, depth: usize) {
        let name = folder.display().to_string();
        if !self.is_first_visit(folder) {
            return;
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.add_fault(&name, error),
        };
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => paths.push(entry.path()),
                Err(error) => self.add_fault(&name, error),
            }
        }
        paths.sort();
        for path in paths {
            let is = |extensions: &[&str]| {
                let extension = path.extension().and_then(|extension| extension.to_str());
                extension.is_some_and(|own| extensions.contains(&own))
            };
            if path.is_dir() {
                if depth < MAX_DEPTH {
                    self.read_manifests_below(&path, depth + 1);
                } else {
                    self.add_fault(
                        &path.display().to_string(),
                        "the folder is nested too deeply",
                    );
                }
            } else if is(&["yaml", "yml", "json"])
                && !KUSTOMIZATIONS.iter().any(|name| path.ends_with(name))
                // Reading a named pipe or a device could take forever.
                && !path.metadata().is_ok_and(|it| !it.is_file())
            {
                self.read_file(&path, false);
            }
        }
    }

    /// Reads the files that a kustomization lists. `kubectl apply -k` would also apply the fields
    /// in [`CHANGING_FIELDS`] to the objects. This method does not apply them.
    fn read_kustomization(&mut self, path: &Path, depth: usize) {
        let source = path.display().to_string();
        if !self.is_first_visit(path) {
            return;
        }
        let documents = text_in(path)
            .map_err(|error| error.to_string())
            .and_then(|text| manifest::documents_within(&text, false, &mut self.budget));
        let kustomization = match documents {
            Ok(documents) => documents.into_iter().next().unwrap_or_default(),
            Err(why) => return self.add_fault(&source, why),
        };
        let changing_fields: Vec<&str> = CHANGING_FIELDS
            .into_iter()
            .filter(|key| kustomization.get(key).is_some())
            .collect();
        if !changing_fields.is_empty() {
            let changing_fields = changing_fields.join(", ");
            self.notes
                .push(format!("{source}: not applied: {changing_fields}"));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let listed = ["resources", "bases", "components"]
            .into_iter()
            .filter_map(|key| kustomization.get(key)?.as_array())
            .flatten();
        for entry in listed {
            let Some(entry) = entry.as_str() else {
                self.add_fault(
                    &source,
                    "an entry of resources, bases or components is not a string",
                );
                continue;
            };
            if entry.contains("://") || entry.starts_with("github.com/") {
                self.add_fault(&source, format!("{entry} is remote, so it is not read"));
                continue;
            }
            let path = folder.join(entry);
            if !path.is_dir() {
                self.read_file(&path, true);
                continue;
            }
            let inner = KUSTOMIZATIONS.map(|name| path.join(name));
            match inner.iter().find(|path| path.is_file()) {
                Some(_) if depth >= MAX_DEPTH => self.add_fault(&source, TOO_DEEP),
                Some(inner) => self.read_kustomization(inner, depth + 1),
                None => self.add_fault(&source, format!("{entry} has no kustomization.yaml")),
            }
        }
    }

    fn read_file(&mut self, path: &Path, named: bool) {
        let source = path.display().to_string();
        if !self.is_first_visit(path) {
            return;
        }
        match text_in(path) {
            Ok(text) => {
                let json = path
                    .extension()
                    .is_some_and(|extension| extension == "json");
                self.read_text(&source, &text, json, named);
            }
            Err(error) => self.add_fault(&source, error),
        }
    }

    /// Parses all documents of a file. Adds the errors of documents that are not YAML or JSON. The
    /// other documents of a YAML file are still returned.
    fn documents_of(&mut self, source: &str, text: &str, json: bool) -> Vec<Value> {
        let why = match documents(text, json, &mut self.budget) {
            Ok(documents) => return documents,
            Err(why) => why,
        };
        let mut found = Vec::new();
        let mut faults = Vec::new();
        if !json {
            for (lines_before, part) in yaml_parts(text) {
                match manifest::documents_within(part, false, &mut self.budget) {
                    Ok(documents) => found.extend(documents),
                    Err(why) => faults.push(syntax_fault(source, lines_before, part, &why)),
                }
            }
        }
        // If each document alone is valid, the file as a whole exceeds a limit of the parser.
        if faults.is_empty() {
            faults.push(syntax_fault(source, 0, text, &why));
            found.clear();
        }
        self.faults.extend(faults);
        found
    }

    fn read_text(&mut self, source: &str, text: &str, json: bool, named: bool) {
        let documents = self.documents_of(source, text, json);
        let several = documents.len() > 1;
        for (n, document) in documents.into_iter().enumerate() {
            if !named && !is_object(&document) {
                self.files_with_skipped_documents.insert(source.to_owned());
                continue;
            }
            let mut objects = Vec::new();
            if let Err(why) = manifest::append_objects(document, &mut objects) {
                let place = if several {
                    format!("document {}: ", n + 1)
                } else {
                    String::new()
                };
                self.add_fault(source, format!("{place}{why}"));
            }
            self.objects
                .extend(objects.into_iter().map(|object| FoundObject {
                    source: source.to_owned(),
                    object,
                }));
        }
    }
}

/// Returns the error for a text that is not YAML or JSON. `text` begins after the first
/// `lines_before` lines of the file. If the position of the error is known, `why` begins with its
/// position in `text`: `line 3, column 5: …`.
fn syntax_fault(source: &str, lines_before: usize, text: &str, why: &str) -> InputFault {
    let hint = yaml_hint(why).map_or(String::new(), |hint| format!(" (hint: {hint})"));
    let position = why.strip_prefix("line ").and_then(|rest| {
        let (line, rest) = rest.split_once(", column ")?;
        let (column, rest) = rest.split_once(':')?;
        Some((line.parse().ok()?, column.parse().ok()?, rest))
    });
    let Some((line, column, reason)) = position else {
        return InputFault::new(format!("{source}: {why}{hint}"));
    };
    let line_in_file: usize = lines_before + line;
    InputFault {
        text: format!("{source}: line {line_in_file}, column {column}:{reason}{hint}"),
        excerpt: Some(excerpt(text, line, column)),
    }
}

/// Splits YAML into its documents, without parsing it. Returns the number of lines before each
/// document, and the text of the document.
fn yaml_parts(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut lines_before) = (0, 0);
    let mut at = 0;
    for (line, content) in text.split_inclusive('\n').enumerate() {
        let is_separator = content
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_separator && at > 0 {
            parts.push((lines_before, &text[start..at]));
            (start, lines_before) = (at, line);
        }
        at += content.len();
    }
    parts.push((lines_before, &text[start..]));
    parts
}

/// Returns a hint for an error of the YAML parser, if the mistake is frequent.
fn yaml_hint(why: &str) -> Option<&'static str> {
    const HINTS: [(&str, &str); 6] = [
        (
            "mapping values are not allowed",
            "quote the expression, because ': ' begins a value in YAML",
        ),
        (
            "trailing content after single-quoted",
            "the value begins with a quote, so YAML reads only the quoted part. Put the whole \
             expression in double quotes",
        ),
        (
            "trailing content after double-quoted",
            "the value begins with a quote, so YAML reads only the quoted part. Put the whole \
             expression in double quotes, and use single quotes in the expression",
        ),
        (
            "found a tab",
            "indent with spaces, because YAML does not allow tabs",
        ),
        (
            "did not find expected key",
            "quote the expression, because YAML reads its first character as the start of a map or list",
        ),
        (
            "unexpected character",
            "quote the expression, because it begins with a character that is reserved in YAML",
        ),
    ];
    let known = HINTS.iter().find(|(part, _)| why.contains(part));
    known.map(|(_, hint)| *hint)
}

/// Returns the text of a file. `-` is standard input.
/// Returns an error if the file is larger than [`MAX_FILE_BYTES`].
pub(super) fn text_in(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        let stdin = io::stdin().lock();
        stdin.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    } else {
        let file = fs::File::open(path)?;
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    }
    if text.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        return Err(io::Error::other(format!("larger than {limit} MiB")));
    }
    Ok(text)
}

/// Parses all documents in a text. If `json` is true, the text must be JSON. Otherwise, it is JSON
/// or YAML.
pub(super) fn documents(
    text: &str,
    json: bool,
    budget: &mut MemoryBudget,
) -> Result<Vec<Value>, String> {
    if json {
        manifest::documents_within(text, true, budget)
    } else {
        manifest::json_or_yaml_documents(text, budget)
    }
}

/// Returns true if a document has the fields of a Kubernetes object.
fn is_object(document: &Value) -> bool {
    ["apiVersion", "kind"]
        .iter()
        .all(|key| document.get(key).is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder can be created");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("the path is in the folder"))
                .expect("a folder can be created");
            fs::write(path, text).expect("a file can be written");
        }
        folder
    }

    fn names(input: &Input) -> Vec<&str> {
        let names = input.objects.iter().map(|found| found.object.name.as_str());
        names.collect()
    }

    const fn pod() -> &'static str {
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
    }

    #[test]
    fn only_the_resources_of_a_kustomization_are_read() {
        let folder = folder(&[
            (
                "kustomization.yaml",
                "resources: [in.yaml, part]\nnamespace: x\n",
            ),
            ("in.yaml", pod()),
            (
                "out.yaml",
                "{apiVersion: v1, kind: Pod, metadata: {name: out}}",
            ),
            ("part/kustomization.yml", "resources: [b.yaml]\n"),
            (
                "part/b.yaml",
                "{apiVersion: v1, kind: Pod, metadata: {name: b}}",
            ),
            ("part/c.yaml", "nonsense: ["),
        ]);
        let input = Input::read(&[folder.path().to_owned()]);
        assert_eq!(names(&input), ["a", "b"]);
        assert!(input.faults.is_empty(), "{:?}", input.faults);
        assert!(input.notes[0].ends_with("not applied: namespace"));
    }

    #[test]
    fn a_kustomization_that_lists_itself_twice_is_read_once() {
        let folder = folder(&[
            (
                "x/kustomization.yaml",
                "resources: [../x, ../x, a.yaml, a.yaml, ../y]\n",
            ),
            ("x/a.yaml", pod()),
            (
                "y/kustomization.yaml",
                "resources: [../x, ../y, ../x/a.yaml]\n",
            ),
        ]);
        let input = Input::read(&[folder.path().join("x")]);
        assert_eq!(names(&input), ["a"]);
        assert!(input.faults.is_empty(), "{:?}", input.faults);
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_links_to_their_own_folder_are_read_once() {
        let folder = folder(&[("a.yaml", pod()), ("inner/b.yaml", pod())]);
        for link in ["one", "two", "inner/one", "inner/two"] {
            std::os::unix::fs::symlink(folder.path(), folder.path().join(link))
                .expect("a link can be created");
        }
        let input = Input::read(&[folder.path().to_owned(), folder.path().join("one")]);
        assert_eq!(names(&input), ["a", "a"]);
        assert!(input.faults.is_empty(), "{:?}", input.faults);
    }

    #[test]
    fn invalid_files_are_reported_and_the_others_are_read() {
        let folder = folder(&[
            ("a.yaml", pod()),
            ("b.yaml", "a: ["),
            (
                "c/d.json",
                r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"c"}}]}"#,
            ),
            ("values.yaml", "replicas: 3"),
            ("readme.txt", "text"),
        ]);
        let input = Input::read(&[folder.path().to_owned()]);
        assert_eq!(names(&input), ["a", "c"]);
        assert_eq!(input.faults.len(), 1);
        assert!(input.faults[0].text.contains("b.yaml: line 1"));
        assert_eq!(input.notes.len(), 1);
        let named = Input::read(&[
            folder.path().join("values.yaml"),
            folder.path().join("none.yaml"),
        ]);
        assert_eq!(named.faults.len(), 2);
        assert!(
            named.faults[0]
                .text
                .ends_with("values.yaml: kind is missing")
        );
    }

    #[test]
    fn valid_documents_around_an_invalid_one_are_read() {
        let text = format!("{}\n---\n{{kind: Pod}}\n---\n{}\n", pod(), pod());
        let folder = folder(&[("a.yaml", &text)]);
        let input = Input::read(&[folder.path().join("a.yaml")]);
        assert_eq!(names(&input), ["a", "a"]);
        assert!(
            input.faults[0]
                .text
                .ends_with("document 2: apiVersion is missing")
        );
    }
}
