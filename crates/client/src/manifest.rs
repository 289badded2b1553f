//! Reads the Kubernetes objects in a manifest, which is YAML or JSON with one or more documents. A
//! list, such as a `List` or a `PodList`, is replaced by its items. If an object lacks
//! `apiVersion`, `kind` or `metadata.name`, [`read`] refuses the whole manifest. The error contains
//! the position of this object.

#[cfg(test)]
mod tests;

use ifo_api::ruleset::KIND;
use ifo_api::{GROUP, VERSION};
use serde_json::Value;

/// Maximum number of objects in one file, including the items of lists. A file with more objects is
/// refused. The limit is enough for the output of `kubectl get` for one kind in a large cluster.
const MAX_OBJECTS: usize = 100_000;

/// Maximum memory of all documents that share a [`MemoryBudget`], in bytes. It is enough for 100,000
/// operations. A file that needs more is refused, because a small compressed file can contain
/// millions of values.
const MAX_MEMORY: usize = 2 << 30;

/// Estimated memory of a JSON object or a YAML map with at least one key, in bytes: one node of a
/// `BTreeMap`.
const MAP_MEMORY: usize = 640;

/// Estimated memory of any other value or of a key, in bytes, without the text of a string.
const VALUE_MEMORY: usize = 48;

/// Largest average memory of the nodes of a YAML document, in bytes. The average is largest if all
/// maps have one key. Each of these maps consists of three nodes: the map, the key and the value. A
/// node that an alias repeats counts each time, so aliases cannot expand a small file into a huge
/// document.
const YAML_NODE_MEMORY: usize = (MAP_MEMORY + 2 * VALUE_MEMORY) / 3;

/// Maximum depth of a YAML document. A file with a deeper document is refused. serde_json has the
/// same limit for JSON.
const MAX_DEPTH: usize = 128;

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The field `apiVersion`.
    pub api_version: String,
    /// The field `kind`.
    pub kind: String,
    /// The field `metadata.namespace`. None if it is missing or empty.
    pub namespace: Option<String>,
    /// The field `metadata.name`.
    pub name: String,
    /// The whole object, including the fields above.
    pub json: Value,
}

impl Object {
    /// Returns the API group in `apiVersion`. It is empty for the core group.
    pub fn group(&self) -> &str {
        let version = self.api_version.split_once('/');
        version.map_or("", |(group, _)| group)
    }

    /// Returns `metadata.uid`, or None if it is missing or empty.
    pub fn uid(&self) -> Option<&str> {
        let uid = self.json.pointer("/metadata/uid").and_then(Value::as_str);
        uid.filter(|uid| !uid.is_empty())
    }

    /// Returns true if the object is meant as a rule set, also if its kind has wrong capital
    /// letters.
    pub fn is_meant_as_rule_set(&self) -> bool {
        self.kind.eq_ignore_ascii_case(KIND)
    }

    /// Returns an error if `apiVersion` and `kind` are not exactly those of rule sets.
    pub fn check_rule_set_kind(&self) -> Result<(), String> {
        let (version, kind) = (&self.api_version, &self.kind);
        let expected = format!("{GROUP}/{VERSION}");
        if *version == expected && kind == KIND {
            return Ok(());
        }
        let hint = format!("(hint: write {expected} {KIND})");
        Err(format!("{version} {kind} does not exist {hint}"))
    }
}

/// The beginning of the `apiVersion` of a kustomization. Flux's `Kustomization` has another group.
/// It is an object of the cluster, so it is not skipped.
const KUSTOMIZE_GROUP: &str = "kustomize.config.k8s.io/";

/// Reads the objects in the text of a file. The error contains the line of a syntax error (if the
/// parser reports the line), or the number of the document with an invalid object.
///
/// Skips kustomizations. They are instructions for `kubectl apply -k`, and not objects.
pub fn read(text: &str) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    let documents = documents(text, &mut MemoryBudget::default())?;
    for (n, document) in documents.into_iter().enumerate() {
        let version = document.get("apiVersion").and_then(Value::as_str);
        if version.is_some_and(|it| it.starts_with(KUSTOMIZE_GROUP)) {
            continue;
        }
        append_objects(document, &mut objects)
            .map_err(|why| format!("document {}: {why}", n + 1))?;
    }
    Ok(objects)
}

/// The memory that documents may still take, as an estimate in bytes. Callers can share one budget
/// between several files.
#[derive(Debug)]
pub struct MemoryBudget {
    left: usize,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { left: MAX_MEMORY }
    }
}

impl MemoryBudget {
    /// Takes the memory of the values in JSON text from the budget. Returns an error if the budget
    /// is not enough. This method only scans the text. So the check happens before the caller
    /// decodes the text and uses the memory.
    pub fn take_json(&mut self, text: &str) -> Result<(), String> {
        let needed = json_memory(text);
        self.left = self.left.checked_sub(needed).ok_or_else(too_much_memory)?;
        Ok(())
    }
}

fn too_much_memory() -> String {
    format!(
        "the objects need more than {} MiB of memory, which is the limit for all files together",
        MAX_MEMORY >> 20
    )
}

/// Returns an upper bound for the memory of the values in JSON text. Signs such as `,` in strings are
/// also counted.
fn json_memory(text: &str) -> usize {
    let memory = |byte: u8| match byte {
        b'{' => MAP_MEMORY,
        b'[' | b',' | b':' => VALUE_MEMORY,
        _ => 0,
    };
    text.len() + text.bytes().map(memory).sum::<usize>()
}

/// Splits text that is JSON or YAML into documents. The documents need not be Kubernetes objects.
/// Several texts can share a budget. Returns an error if [`documents_before_error`] does.
pub fn documents(text: &str, budget: &mut MemoryBudget) -> Result<Vec<Value>, String> {
    let (documents, end) = documents_before_error(text.as_bytes(), budget);
    end.map(|()| documents)
}

/// Splits text like [`documents`]. If the text has an error, also returns the documents before it.
///
/// If a text begins with `{` or `[`, the function first parses the text as JSON. The JSON parser is
/// much faster, and the YAML parser accepts neither tabs nor JSON documents without a separator. If
/// the JSON parser reports that the text ends too early, this is the error. If it reports another
/// error, the text is parsed as YAML. If both parsers fail before the end of the first document, the
/// error is that of the parser that read more lines.
pub fn documents_before_error(
    bytes: &[u8],
    budget: &mut MemoryBudget,
) -> (Vec<Value>, Result<(), String>) {
    let Ok(text) = str::from_utf8(bytes) else {
        let why = "not JSON or YAML in UTF-8; plain text, gzip and tar are accepted";
        return (Vec::new(), Err(why.to_owned()));
    };
    let mut json_error = None;
    if text.trim_start().starts_with(['{', '[']) {
        let left = budget.left;
        if let Err(error) = budget.take_json(text) {
            return (Vec::new(), Err(error));
        }
        let mut documents = Vec::new();
        // A JSON file can also contain several documents.
        let mut parsed = serde_json::Deserializer::from_str(text).into_iter();
        let error = parsed.find_map(|it| it.map(|it| documents.push(it)).err());
        let Some(error) = error else {
            return (documents, Ok(()));
        };
        // Between two documents, only YAML has separators such as `---`, and comments.
        let rest = text[parsed.byte_offset()..].trim_start();
        let may_be_yaml = documents.is_empty() || rest.starts_with(['-', '.', '#']);
        if error.is_eof() || !may_be_yaml {
            return (documents, Err(error.to_string()));
        }
        json_error = Some(error);
        budget.left = left;
    }
    let (documents, end) = yaml_documents(text, budget);
    let end = end.map_err(|(line, error)| match json_error {
        Some(of_json) if documents.is_empty() && of_json.line() as u64 > line => {
            of_json.to_string()
        }
        _ => error,
    });
    (documents, end)
}

/// Parses YAML, and takes its memory from the budget. If the text has an error, also returns the
/// documents before it. The error contains the position of the fault, if the parser reports it. The
/// line of the fault is 0 if it is unknown. If a limit is exceeded, the line is the largest `u64`, because
/// the caller reports the error with the larger line, and must report this one.
fn yaml_documents(
    text: &str,
    budget: &mut MemoryBudget,
) -> (Vec<Value>, Result<(), (u64, String)>) {
    let max_nodes = budget.left / YAML_NODE_MEMORY;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: MAX_OBJECTS,
            max_nodes: max_nodes,
            max_events: 2 * max_nodes,
            max_depth: MAX_DEPTH,
        },
    };
    let mut documents = Vec::new();
    let mut add = |document: Value| {
        let taken = budget.take_json(&document.to_string());
        taken.map(|()| documents.push(document))
    };
    let error = match serde_saphyr::from_multiple_with_options(text, options.clone()) {
        Ok(parsed) => {
            let added = parsed.into_iter().try_for_each(add);
            return (documents, added.map_err(|why| (u64::MAX, why)));
        }
        Err(error) => error,
    };
    // The first line has the position and the message, such as `error: line 2 column 4: …`.
    let message = error.to_string();
    let message = message.lines().next().unwrap_or_default();
    if message.contains("budget breached: Nodes") {
        return (documents, Err((u64::MAX, too_much_memory())));
    }
    let message = message.trim_start_matches("error: ");
    // The message about a key that occurs twice ends with advice for programmers.
    let message = message.replace(", set DuplicateKeyPolicy in Options if acceptable", "");
    let message = message.replacen(" column ", ", column ", 1);
    // The iterator below has separate limits for each document, so it is used only for text within
    // the limits.
    if ["breached", "exceeded"]
        .iter()
        .any(|it| message.contains(it))
    {
        return (documents, Err((u64::MAX, message)));
    }
    let line = error.location().map_or(0, |it| it.line());
    let mut bytes = text.as_bytes();
    let mut before = serde_saphyr::read_with_options(&mut bytes, options).map_while(Result::ok);
    let end = match before.try_for_each(&mut add) {
        Ok(()) => (line, message),
        Err(why) => (u64::MAX, why),
    };
    (documents, Err(end))
}

/// Appends the objects in one document to `objects`. A list can contain lists. If an item of a list
/// is invalid, returns an error. In this case, `objects` contains the items before the invalid item.
pub fn append_objects(mut document: Value, objects: &mut Vec<Object>) -> Result<(), String> {
    // An empty document is allowed, for example between two separators.
    if document.is_null() {
        return Ok(());
    }
    let (kind, api_version) = (text(&document, "/kind"), text(&document, "/apiVersion"));
    let of_list = kind.as_deref().and_then(|kind| kind.strip_suffix("List"));
    let (Some(of_list), Some(Value::Array(items))) = (of_list, document.get_mut("items")) else {
        return append_object(document, objects);
    };
    for (index, mut item) in std::mem::take(items).into_iter().enumerate() {
        // In a list from a kube-apiserver, such as a `PodList`, the items lack `kind` and
        // `apiVersion`.
        if let Some(item) = item.as_object_mut().filter(|_| !of_list.is_empty()) {
            item.entry("kind").or_insert_with(|| of_list.into());
            let api_version = || api_version.clone().into();
            item.entry("apiVersion").or_insert_with(api_version);
        }
        append_objects(item, objects).map_err(|why| format!("item {index}: {why}"))?;
    }
    Ok(())
}

fn append_object(json: Value, objects: &mut Vec<Object>) -> Result<(), String> {
    if !json.is_object() {
        return Err("not an object".into());
    }
    let kind = text(&json, "/kind").ok_or("kind is missing")?;
    let api_version = text(&json, "/apiVersion").ok_or("apiVersion is missing")?;
    let name = text(&json, "/metadata/name");
    let name = name.ok_or_else(|| format!("{kind} without metadata.name"))?;
    if objects.len() >= MAX_OBJECTS {
        return Err(format!("more than {MAX_OBJECTS} objects in one file"));
    }
    objects.push(Object {
        api_version,
        kind,
        namespace: text(&json, "/metadata/namespace"),
        name,
        json,
    });
    Ok(())
}

/// Returns the text at a JSON pointer. Returns None if it is missing or empty.
pub(crate) fn text(json: &Value, pointer: &str) -> Option<String> {
    let text = json.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}
