//! Drops the data that must not leave the cluster in a support bundle without `--include-text`.
//!
//! [`keep`] drops the fields that `fields.txt` does not list. So if a later release adds a field,
//! the field stays in the cluster until a developer adds it to the list. The list has no field with
//! a message, an expression, an address, an argument, an environment variable or an annotation.
//!
//! Of the listed fields, [`keep`] also drops texts that do not look like a name, a time or a word
//! of an API. For example, it drops texts with blanks.

use serde_json::Value;

/// The list of the fields that may leave the cluster. The first line of each block names the
/// resources to which the block applies.
const FIELDS: &str = include_str!("fields.txt");

/// The name in [`FIELDS`] that stands for all resources.
const ALL_RESOURCES: &str = "all";

/// Fields of a rule set with expressions. Commands with `--from` need to know whether these fields
/// exist. The expressions must not leave the cluster, so [`LEFT_OUT`] replaces them.
const PRESENT: [&str; 3] = [
    "spec.nodes",
    "spec.labelExpressions.expression",
    "spec.rules.expression",
];

/// The text that replaces an expression.
const LEFT_OUT: &str = "(left out)";

/// Returns the fields that may leave the cluster, for the objects at `path`. This is the path of a
/// list or of an object.
fn allowed_fields(path: &str) -> Vec<&'static str> {
    let blocks = FIELDS.split("\n\n").filter_map(|it| it.split_once('\n'));
    let is_in_path = |name: &str| name == ALL_RESOURCES || path.split('/').any(|it| it == name);
    let of_path = blocks.filter(|(names, _)| names.split(' ').any(is_in_path));
    let fields = of_path.flat_map(|(_, paths)| paths.split_whitespace());
    fields.collect()
}

/// Drops all fields of the objects at `path` that must not leave the cluster.
pub(super) fn keep(path: &str, objects: &mut [Value]) {
    let allowed = allowed_fields(path);
    for object in objects {
        keep_below(&allowed, "", object);
    }
}

/// Drops the fields below `path` that must not leave the cluster. Returns false if nothing is left.
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

/// Returns true if a text has only characters that occur in names, times and words of an API.
/// Sentences, most expressions and URLs with a query contain other characters.
fn is_word(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:+%".contains(c);
    text.len() <= 253 && text.chars().all(is_allowed)
}
