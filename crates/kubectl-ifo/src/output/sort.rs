//! Sorts operations by the value of `--sort-by`, which is a column or a JSONPath as in kubectl.

use crate::cluster::problem::Problem;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::encode;
use crate::output::columns::{ALL_COLUMNS, OperationColumn};
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;
use std::borrow::Borrow;
use std::fmt;

/// The order of the printed operations.
#[derive(Clone, Debug)]
pub(crate) enum SortBy {
    /// Sorts by a column.
    Column(OperationColumn),
    /// Sorts by a field of the InFlightOperation.
    Path {
        /// The JSONPath of the user, without braces, such as `.status.progress`.
        text: String,
        /// The parsed JSONPath (RFC 9535).
        query: JpQuery,
    },
}

/// The default order of objects and trees is by namespace, subject and operation. These values
/// never change, so an operation keeps its place when it is printed again. Tables of operations
/// have the order [`SortBy::NEED`].
impl Default for SortBy {
    fn default() -> Self {
        Self::Column(OperationColumn::Subject)
    }
}

/// Formats the value of `--sort-by`.
impl fmt::Display for SortBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(column) => f.write_str(&column.header().to_lowercase()),
            Self::Path { text, .. } => f.write_str(text),
        }
    }
}

impl SortBy {
    /// The default order of tables: the worst first.
    pub(crate) const NEED: Self = Self::Column(OperationColumn::State);

    /// Parses the value of `--sort-by`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let path = text.trim_start_matches('{').trim_end_matches('}');
        let path = match path.to_ascii_lowercase().as_str() {
            "kind" => ".spec.subject.kind",
            "phase" => "state",
            _ => path,
        };
        let mut columns = ALL_COLUMNS.iter();
        if let Some(column) = columns.find(|it| it.header().eq_ignore_ascii_case(path)) {
            return Ok(Self::Column(*column));
        }
        if !path.starts_with(['.', '[', '$']) {
            let columns = ALL_COLUMNS.iter().map(|it| it.header().to_lowercase());
            let columns = columns.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "{text:?} is no column (kind, {columns}) and no JSONPath such as .status.progress"
            ));
        }
        let text = path.trim_start_matches('$').to_owned();
        let examples = ".status.progress and .metadata.labels['a.b/c']";
        let invalid = |_| format!("invalid JSONPath {path:?}; examples: {examples}");
        let query = parse_json_path(&format!("${text}")).map_err(invalid)?;
        Ok(Self::Path { text, query })
    }

    /// Returns an error if no operation has the field of the JSONPath. An empty list is no error. A
    /// command with `--watch` does not call this method, because a later change can add the field.
    pub(crate) fn check(&self, operations: &[InFlightOperation]) -> Result<(), Problem> {
        let Self::Path { text, query } = self else {
            return Ok(());
        };
        let has_field = |it| field(&encode(it), query).is_some();
        if operations.is_empty() || operations.iter().any(has_field) {
            return Ok(());
        }
        let why = format!("--sort-by: no operation has a field {text}");
        Err(Problem::Usage(why))
    }

    /// Sorts operations. Operations with equal values have the order of [`by_subject`]. Operations
    /// without the field of the JSONPath come first.
    pub(crate) fn sort<T: Borrow<InFlightOperation>>(&self, operations: &mut [T]) {
        // The second sort is stable, so operations with equal values keep the order of this first
        // sort.
        operations.sort_by(|a, b| by_subject(a.borrow()).cmp(&by_subject(b.borrow())));
        match self {
            Self::Column(column) => {
                operations.sort_by(|a, b| column.compare(a.borrow(), b.borrow()));
            }
            Self::Path { query, .. } => {
                operations.sort_by_cached_key(|it| field_key(field(&encode(it.borrow()), query)));
            }
        }
    }
}

/// Returns the sort key of the subject: its namespace, kind and name, and then the operation, its
/// item and its name.
fn by_subject(it: &InFlightOperation) -> [&str; 6] {
    let (spec, subject) = (&it.spec, &it.spec.subject);
    [
        subject.namespace.as_deref().unwrap_or_default(),
        &subject.kind,
        &subject.name,
        &spec.operation,
        spec.item.as_deref().unwrap_or_default(),
        &it.metadata.name,
    ]
}

/// Returns the first value of a JSONPath in an object.
fn field(object: &Value, query: &JpQuery) -> Option<Value> {
    let found = js_path_process(query, object).ok()?;
    found.into_iter().next().map(|it| it.val().clone())
}

/// Returns the sort key of a field. Absent values come first, then numbers by size, then texts.
fn field_key(value: Option<Value>) -> (i64, String) {
    match value {
        None => (i64::MIN, String::new()),
        Some(Value::String(text)) => (i64::MAX, text),
        Some(Value::Number(number)) => {
            // The bits of positive floats have the order of the numbers. The bits of a negative float
            // are those of the positive one and the sign bit.
            let bits = number.as_f64().unwrap_or_default().to_bits().cast_signed();
            let order = if bits < 0 { i64::MIN - bits } else { bits };
            (order, String::new())
        }
        Some(value) => (i64::MAX, value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{OperationFixture as _, condition, mixed, on};

    fn sorted(by: &str) -> Vec<String> {
        let mut operations = mixed();
        let by = SortBy::read(by).expect("the order must be supported");
        by.sort(&mut operations);
        let names = operations.iter().map(|it| it.spec.subject.name.to_string());
        names.collect()
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
    fn the_worst_come_first_then_the_oldest_and_of_completed_ones_the_newest() {
        let pod = |name: &str, state: &str, age: i64| {
            on("a", "Pod", name, "Up").since(age).state(state, None)
        };
        let with = |mut it: InFlightOperation, marker: &str| {
            it.status.conditions = vec![condition(marker, "True")];
            it
        };
        let mut operations = vec![
            pod("ended first", "Failed", 900).ended(20),
            pod("ended last", "Succeeded", 900).ended(10),
            pod("young", "Progressing", 1),
            pod("held", "Held", 2),
            pod("old", "Progressing", 3),
            with(pod("overdue", "Progressing", 100), "Overdue"),
            with(pod("stalled", "Progressing", 10), "Stalled"),
            pod("blocked", "Blocked", 4),
            pod("older blocked", "Blocked", 5),
            pod("failing", "Failing", 1),
        ];
        SortBy::NEED.sort(&mut operations);
        let order = operations.iter().map(|it| &*it.spec.subject.name);
        assert_eq!(
            order.collect::<Vec<_>>(),
            [
                "failing",
                "older blocked",
                "blocked",
                "stalled",
                "overdue",
                "old",
                "held",
                "young",
                "ended last",
                "ended first",
            ]
        );
    }

    #[test]
    fn unknown_sort_keys_are_reported() {
        assert!(SortBy::read("size").is_err());
        let nowhere = SortBy::read(".status.nothing").expect("the path must be supported");
        assert!(nowhere.check(&mixed()).is_err());
        assert!(nowhere.check(&[]).is_ok());
    }

    #[test]
    fn a_json_path_can_have_indexes_quoted_keys_braces_and_a_root() {
        let object = serde_json::json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"reason": "y"}]},
        });
        for (path, found) in [
            (".metadata.labels['a.b/c']", Some("x")),
            ("{$.status.conditions[0].reason}", Some("y")),
            (".status.conditions[1].reason", None),
        ] {
            let Ok(SortBy::Path { query, .. }) = SortBy::read(path) else {
                panic!("{path}");
            };
            assert_eq!(field(&object, &query), found.map(Value::from), "{path}");
        }
        for path in [".", ".status.", ".status.conditions[0", ".a['b"] {
            let refused = SortBy::read(path).expect_err(path);
            assert!(refused.contains("invalid JSONPath"), "{path}: {refused}");
        }
    }

    #[test]
    fn absent_values_come_before_numbers_by_size_and_texts() {
        let sorted =
            serde_json::json!([-1e300, -10, -9.5, -9, 0, 1e-9, 9, 10, 1e300, "", "10", "9"]);
        let values = sorted.as_array().expect("the JSON is a list").iter();
        let values = std::iter::once(None).chain(values.cloned().map(Some));
        let keys: Vec<_> = values.map(field_key).collect();
        assert!(keys.is_sorted_by(|one, other| one < other), "{keys:?}");
    }

    #[test]
    fn operations_without_the_sort_field_are_included() {
        let order = ["version", "データ", "backend", "frontend"];
        assert_eq!(sorted(".status.nothing"), order);
    }
}
