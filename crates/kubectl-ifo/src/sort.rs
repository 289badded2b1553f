//! Sorts operations by the value of `--sort-by`, which is a column or a JSONPath as in kubectl.

use super::columns::OperationColumn;
use super::listed_operation::ListedOperation;
use super::problem::Problem;
use serde_json::Value;
use std::cmp::Ordering;

/// The order of the printed operations.
#[derive(Clone, Debug)]
pub(super) enum SortBy {
    /// Sorts by a column.
    Column(OperationColumn),
    /// Sorts by the kind of the subject (the object that the operation is about).
    Kind,
    /// Sorts by a field of the InFlightOperation.
    Path {
        /// The JSONPath of the user, without braces and `$`, such as `.status.progress`.
        text: String,
        /// The JSON pointer (RFC 6901) to the field, such as `/status/progress`.
        pointer: String,
    },
}

/// The default order is by namespace, subject and operation. These values never change, so an
/// operation keeps its place when the list is printed again.
impl Default for SortBy {
    fn default() -> Self {
        Self::Column(OperationColumn::Subject)
    }
}

impl SortBy {
    /// Parses the value of `--sort-by`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let path = text.trim_start_matches('{').trim_end_matches('}');
        let path = path.strip_prefix('$').unwrap_or(path);
        if path.starts_with(['.', '[']) {
            return pointer(path)
                .map(|pointer| Self::Path {
                    text: path.to_owned(),
                    pointer,
                })
                .ok_or_else(|| {
                    format!(
                        "unsupported JSONPath {text:?}; supported: fields (.status.progress), keys \
                         (.metadata.labels['a.b/c']) and indexes (.status.conditions[0].reason)"
                    )
                });
        }
        let column = match path.to_ascii_lowercase().as_str() {
            "kind" => return Ok(Self::Kind),
            "phase" => Some(OperationColumn::State),
            name => OperationColumn::sortable().find(|it| it.header().eq_ignore_ascii_case(name)),
        };
        column.map(Self::Column).ok_or_else(|| {
            let columns = OperationColumn::sortable().map(|it| it.header().to_lowercase());
            let columns = columns.collect::<Vec<_>>().join(", ");
            format!(
                "{text:?} is no column (kind, {columns}) and no JSONPath such as .status.progress"
            )
        })
    }

    /// Returns true if the sort needs the JSON of the operations.
    pub(super) fn needs_raw(&self) -> bool {
        matches!(self, Self::Path { .. })
    }

    /// Returns an error if no operation has the field of the JSONPath. An empty list is no error. A
    /// command with `--watch` does not call this method, because a later change can add the field.
    pub(super) fn check(&self, operations: &[ListedOperation]) -> Result<(), Problem> {
        if let Self::Path { text, pointer } = self
            && !operations.is_empty()
            && !operations.iter().any(|it| field(it, pointer).is_some())
        {
            return Err(Problem::Usage(format!(
                "--sort-by: no operation has a field {text}"
            )));
        }
        Ok(())
    }

    /// Sorts operations. Operations with equal values have the order of [`by_subject`]. Operations
    /// without the field of the JSONPath come first.
    pub(super) fn sort(&self, operations: &mut [ListedOperation]) {
        // The second sort is stable, so operations with equal values keep the order of this first
        // sort.
        operations.sort_by(by_subject);
        match self {
            Self::Column(column) => operations.sort_by(|a, b| column.compare(a, b)),
            Self::Kind => operations.sort_by(|a, b| a.subject.kind.cmp(&b.subject.kind)),
            Self::Path { pointer, .. } => {
                operations.sort_by_cached_key(|it| FieldKey(field(it, pointer)));
            }
        }
    }
}

/// Returns the rank of an operation by urgency. The most urgent operations have the rank 0.
pub(super) fn urgency(operation: &ListedOperation) -> u8 {
    match operation.state.as_str() {
        "Failing" => 0,
        "Blocked" => 1,
        _ if operation.is_stalled() || operation.is_overdue() => 2,
        "Held" => 4,
        _ if operation.active => 3,
        "Failed" => 5,
        _ => 6,
    }
}

/// Compares two operations by the namespace, kind and name of the subject, and then by the
/// operation, its item, and the name of the InFlightOperation.
pub(super) fn by_subject(a: &ListedOperation, b: &ListedOperation) -> Ordering {
    subject_key(a).cmp(&subject_key(b))
}

fn subject_key(it: &ListedOperation) -> [&str; 6] {
    let subject = &it.subject;
    [
        subject.namespace.as_deref().unwrap_or_default(),
        &subject.kind,
        &subject.name,
        &it.operation,
        it.item.as_deref().unwrap_or_default(),
        &it.name,
    ]
}

/// Converts a JSONPath to a JSON pointer: `.a.b[0].c` gives `/a/b/0/c`. None if the path can have
/// several results or is invalid.
fn pointer(path: &str) -> Option<String> {
    let mut pointer = String::new();
    let mut add = |key: &str| {
        pointer.push('/');
        pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    };
    let mut rest = path.chars().peekable();
    while let Some(begin) = rest.next() {
        if begin == '.' {
            let mut key = String::new();
            while let Some(c) = rest.next_if(|c| !matches!(c, '.' | '[')) {
                match c {
                    '\\' => key.push(rest.next()?),
                    '*' | '?' | '(' | ')' | '@' | ']' | '{' | '}' | '\'' | '"' => return None,
                    c if c.is_whitespace() => return None,
                    c => key.push(c),
                }
            }
            if key.is_empty() {
                return None;
            }
            add(&key);
        } else if begin == '[' {
            let mut inside = String::new();
            if let Some(quote) = rest.next_if(|c| matches!(c, '\'' | '"')) {
                loop {
                    match rest.next()? {
                        '\\' => inside.push(rest.next()?),
                        c if c == quote => break,
                        c => inside.push(c),
                    }
                }
            } else {
                while let Some(c) = rest.next_if(char::is_ascii_digit) {
                    inside.push(c);
                }
                inside.parse::<usize>().ok()?;
            }
            add(&inside);
            rest.next_if_eq(&']')?;
        } else {
            return None;
        }
    }
    Some(pointer)
}

fn field(operation: &ListedOperation, pointer: &str) -> Option<Value> {
    let mut object: Value = serde_json::from_str(operation.raw.as_ref()?.get()).ok()?;
    object.pointer_mut(pointer).map(Value::take)
}

/// The sort key of a field. The order is that of kubectl: absent values first, numbers by size,
/// other values as text.
#[derive(Debug, PartialEq)]
struct FieldKey(Option<Value>);

impl Eq for FieldKey {}

impl PartialOrd for FieldKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FieldKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Some(Value::Number(a)), Some(Value::Number(b))) => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
            (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
            (a, b) => a
                .as_ref()
                .map(Value::to_string)
                .cmp(&b.as_ref().map(Value::to_string)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshots::mixed;
    use super::*;

    fn sorted(by: &str) -> Vec<String> {
        let mut operations = mixed();
        SortBy::read(by)
            .expect("the order must be supported")
            .sort(&mut operations);
        operations.into_iter().map(|it| it.subject.name).collect()
    }

    #[test]
    fn each_column_and_json_path_can_be_sorted_by() {
        for (by, order) in [
            ("subject", ["version", "データ", "backend", "frontend"]),
            ("age", ["version", "データ", "backend", "frontend"]),
            ("PROGRESS", ["frontend", "version", "データ", "backend"]),
            ("state", ["データ", "frontend", "version", "backend"]),
            ("operation", ["データ", "frontend", "backend", "version"]),
            (
                ".status.progress",
                ["データ", "backend", "version", "frontend"],
            ),
            (
                "{.metadata.name}",
                ["backend", "frontend", "version", "データ"],
            ),
        ] {
            assert_eq!(sorted(by), order, "{by}");
        }
    }

    #[test]
    fn unknown_sort_keys_are_reported() {
        assert!(SortBy::read("size").is_err());
        let nowhere = SortBy::read(".status.nothing").expect("the path must be supported");
        assert!(nowhere.check(&mixed()).is_err());
        assert!(nowhere.check(&[]).is_ok());
    }

    #[test]
    fn json_paths_support_only_indexes_and_quoted_keys() {
        let more = serde_json::json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"reason": "y"}]},
        });
        let operation = super::super::snapshots::operation("a", "VM/b", "Up", 5, more);
        let value = |path: &str| match SortBy::read(path) {
            Ok(SortBy::Path { pointer, .. }) => field(&operation, &pointer),
            other => panic!("{path}: {other:?}"),
        };
        for (path, found) in [
            (".metadata.labels['a.b/c']", Some("x")),
            ("{.metadata.labels[\"a.b/c\"]}", Some("x")),
            (".metadata.labels.a\\.b/c", Some("x")),
            ("{$.status.conditions[0].reason}", Some("y")),
            ("['status'].conditions[0]['reason']", Some("y")),
            (".status.conditions[1].reason", None),
            (".status[0]", None),
        ] {
            assert_eq!(value(path), found.map(Value::from), "{path}");
        }
        for path in [
            ".",
            "..name",
            ".status.",
            ".status.conditions[*].reason",
            ".status.conditions[-1]",
            ".status.conditions[0",
            ".status.conditions[?(@.type==\"Stalled\")].reason",
            ".a['b",
            ".a\\",
            ".a[0]b",
        ] {
            let refused = SortBy::read(path).expect_err(path);
            assert!(
                refused.contains("unsupported JSONPath"),
                "{path}: {refused}"
            );
        }
    }

    #[test]
    fn operations_without_the_sort_field_are_included() {
        let order = ["version", "データ", "backend", "frontend"];
        assert_eq!(sorted(".status.nothing"), order);
    }
}
