//! Drops what may not leave the cluster in a support bundle without `--include-text`.
//!
//! [`keep`] drops the fields that `fields.txt` does not name, and texts with a character that names,
//! times and words of an API do not have. So a field that a later release adds stays in the cluster
//! until a developer adds it to the list. The list has no field with a message, an expression, an
//! address, an argument, an environment variable or an annotation.

use serde_json::Value;

/// The list of the fields that may leave. A block of lines begins with the names of resources.
const FIELDS: &str = include_str!("fields.txt");

/// The name in [`FIELDS`] that stands for all resources.
const ALL_RESOURCES: &str = "all";

/// Expressions of a rule set that commands which read the bundle need or must know of. The expressions
/// may not leave, so [`LEFT_OUT`] replaces them.
const PRESENT: [&str; 3] = [
    "spec.nodes",
    "spec.labelExpressions.expression",
    "spec.rules.expression",
];

/// The text that replaces an expression.
const LEFT_OUT: &str = "(left out)";

/// Returns the fields that may leave of the objects at `path`, the path of a list or of an object.
fn allowed_fields(path: &str) -> Vec<&'static str> {
    let blocks = FIELDS.split("\n\n").filter_map(|it| it.split_once('\n'));
    let is_in_path = |name: &str| name == ALL_RESOURCES || path.split('/').any(|it| it == name);
    let of_path = blocks.filter(|(names, _)| names.split(' ').any(is_in_path));
    of_path
        .flat_map(|(_, paths)| paths.split_whitespace())
        .collect()
}

/// Drops all fields of the objects at `path` that may not leave.
pub(super) fn keep(path: &str, objects: &mut [Value]) {
    let allowed = allowed_fields(path);
    for object in objects {
        keep_below(&allowed, "", object);
    }
}

/// Drops the fields below `path` that may not leave. Returns false if nothing is left.
fn keep_below(allowed: &[&str], path: &str, value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| match path {
                "" => keep_below(allowed, key, value),
                path => keep_below(allowed, &format!("{path}.{key}"), value),
            });
            !fields.is_empty()
        }
        Value::Array(items) => {
            items.retain_mut(|it| keep_below(allowed, path, it));
            !items.is_empty()
        }
        Value::String(text) if PRESENT.contains(&path) => {
            LEFT_OUT.clone_into(text);
            true
        }
        Value::String(text) => is_allowed(allowed, path) && is_word(text),
        Value::Bool(_) | Value::Number(_) => is_allowed(allowed, path),
        Value::Null => false,
    }
}

fn is_allowed(allowed: &[&str], path: &str) -> bool {
    let mut allowed = allowed.iter();
    allowed.any(|it| match it.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => path == *it,
    })
}

/// Returns true if a text has only characters of names, times and words of an API. A sentence, an
/// expression or an address with a port and a query is no such text.
fn is_word(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:+%".contains(c);
    text.len() <= 253 && text.chars().all(is_allowed)
}
