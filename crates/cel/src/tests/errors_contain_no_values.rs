//! Tests that no error of an evaluation contains a value of the object.

use super::same_results_as_kubernetes::{Answers, object_expressions};
use super::*;
use serde_json::Value;

/// A text that the strings of the object contain, and that no expression contains.
const MARKER: &str = "ZQX";

/// A number that the object contains, and that no expression contains.
const NUMBER: i64 = 918_273_645;

/// Returns `value` with [`MARKER`] before every string. If `numbers` is true, every number becomes
/// [`NUMBER`]. In addition, every JSON object gets a member whose key is the marker.
fn marked(value: &Value, numbers: bool) -> Value {
    match value {
        Value::String(text) => format!("{MARKER}{text}").into(),
        Value::Number(_) if numbers => NUMBER.into(),
        Value::Array(items) => items.iter().map(|item| marked(item, numbers)).collect(),
        Value::Object(members) => {
            let own = members.iter();
            let own = own.map(|(key, value)| (key.clone(), marked(value, numbers)));
            let added = (MARKER.to_owned(), Value::Null);
            own.chain([added]).collect()
        }
        other => other.clone(),
    }
}

/// Returns the number of `programs` that fail on `object`. Panics if an error contains the marker
/// or the number.
fn count_failures(programs: &[&Compiled], object: &Value) -> usize {
    let json = object.to_string();
    let whole = whole_object();
    let Ok(doc) = Doc::parse(json.as_bytes(), &whole) else {
        return 0;
    };
    let mut count = 0;
    for program in programs {
        if let Err(failure) = evaluate(program, &doc, &mut full_budget()) {
            count += 1;
            let source = &program.source;
            for text in [failure.to_string(), format!("{failure:?}")] {
                assert!(!text.contains(MARKER), "{source}: {text}");
                let quotes = text.contains(&NUMBER.to_string());
                assert!(!quotes, "{source}: {text}");
            }
        }
    }
    count
}

#[test]
fn no_failure_of_a_golden_expression_quotes_a_value() {
    let answers = Answers::load();
    let expressions = object_expressions(answers);
    let programs: Vec<&Compiled> = expressions.iter().map(|(_, program)| &*program.0).collect();
    let mut count = 0;
    let texts = answers.objects.iter();
    for object in texts.filter_map(|text| serde_json::from_str::<Value>(text).ok()) {
        for numbers in [false, true] {
            count += count_failures(&programs, &marked(&object, numbers));
        }
    }
    assert!(count > 5_000, "only {count} evaluations failed");
}
