//! Drops what may not leave the cluster in a support bundle without `--include-text`.
//!
//! [`keep`] drops the fields that `fields.txt` does not name, and texts with a character that names,
//! times and words of an API do not have. So a field that a later release adds stays in the cluster
//! until a developer adds it to the list. The list has no field with a message, an expression, an
//! address, an argument, an environment variable or an annotation.

use serde_json::Value;

/// The list of the fields that may leave. A block of lines begins with the names of kinds.
const FIELDS: &str = include_str!("fields.txt");

/// The name in [`FIELDS`] that stands for all kinds.
const ALL_KINDS: &str = "all";

/// Expressions of a rule set that commands which read the bundle need or must know of. The expressions
/// may not leave, so [`LEFT_OUT`] replaces them.
const PRESENT: [&str; 3] = [
    "spec.nodes",
    "spec.labelExpressions.expression",
    "spec.rules.expression",
];

/// The text that replaces an expression.
const LEFT_OUT: &str = "(left out)";

/// Label keys of a metric that may leave. A line with another label is dropped.
const METRIC_LABELS: &str = "code component group le operation reason request_kind resource result \
                             ruleset scope state target verb version";

/// Prefixes of the names of the metrics that may leave.
const METRICS: [&str; 3] = ["ifo_", "apiserver_", "process_"];

/// Returns the fields of this kind that may leave.
fn allowed_fields(kind: &str) -> Vec<&'static str> {
    let blocks = FIELDS.split("\n\n").filter_map(|it| it.split_once('\n'));
    let is_it = |it: &str| it == kind || it == ALL_KINDS;
    let of_kind = blocks.filter(|(kinds, _)| kinds.split(' ').any(is_it));
    of_kind
        .flat_map(|(_, paths)| paths.split_whitespace())
        .collect()
}

/// Drops all fields of the objects of this kind that may not leave.
pub(super) fn keep(kind: &str, objects: &mut [Value]) {
    let allowed = allowed_fields(kind);
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

/// Returns the metrics that may leave: the lines of the server's metrics whose labels are all in
/// [`METRIC_LABELS`]. The text after a value, an exemplar, is dropped.
pub(super) fn kept_metrics(text: &str) -> String {
    let may_leave = |label: &str| {
        let (key, value) = label.split_once("=\"").unwrap_or_default();
        let is_known = METRIC_LABELS.split_whitespace().any(|it| it == key);
        is_known && value.strip_suffix('"').is_some_and(is_word)
    };
    let kept = text.lines().filter_map(|line| {
        let line = line.split(" # ").next()?;
        let (series, value) = line.rsplit_once(' ')?;
        value.parse::<f64>().ok()?;
        let labels = series.split_once('{').unwrap_or((series, "}")).1;
        let mut labels = labels.strip_suffix('}')?.split(',');
        let is_kept = METRICS.iter().any(|it| series.starts_with(it))
            && labels.all(|it| it.is_empty() || may_leave(it));
        is_kept.then(|| format!("{line}\n"))
    });
    kept.collect()
}
