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

#[test]
fn no_failure_of_a_value_computed_from_the_object_quotes_the_value() {
    let object = serde_json::json!({
        "text": "ZQX", "number": NUMBER, "fraction": 918_273_645.5, "list": ["ZQX"],
        "mixed": ["ZQX", NUMBER], "map": {"ZQX": "ZQX"}, "pattern": "ZQX(",
        "format": "%ZQX", "precise": "%.918273645f", "negative": -NUMBER, "deep": [["ZQX"]],
        "huge": "9".repeat(2_000),
    });
    let sources = [
        "object.map[object.number]",
        "object.map[object.text + 'x']",
        "object.list[object.number]",
        "object.list[object.fraction]",
        "object.list[object.text]",
        "object[object.text]",
        "{1: 2}[object.number]",
        "{1.5: 2}[object.fraction]",
        "bool(object.text)",
        "int(object.text)",
        "uint(object.negative)",
        "double(object.text)",
        "duration(object.text)",
        "timestamp(object.text)",
        "timestamp(object.number * 100000000)",
        "bytes(object.list)",
        "string(object.list)",
        "quantity(object.text)",
        "quantity(object.huge)",
        "quantity(object.text).asInteger()",
        "object.text.matches(object.pattern)",
        "object.text.charAt(object.number)",
        "object.text.substring(object.number)",
        "object.text.substring(object.number, 1)",
        "object.text.indexOf('Q', object.negative)",
        "object.text.lastIndexOf('Q', object.negative)",
        "object.format.format([1])",
        "object.precise.format([1.5])",
        "('%d').format([object.text])",
        "('%s %s').format(object.list)",
        "('%s').format([{object.fraction: 1}])",
        "object.mixed.join(object.text)",
        "object.list.join(object.number)",
        "object.text.split(object.number)",
        "object.text.replace(object.text, object.number)",
        "now.getHours(object.text)",
        "object.text + object.number",
        "object.text < object.number",
        "object.number * object.number * object.number",
        "-object.text",
        "!object.text",
        "object.text ? 1 : 2",
        "object.text in object.text",
        "object.list.all(x, x)",
        "object.text.exists(x, true)",
        "object.list.map(x, int(x))",
        "object.deep.map(x, int(x[0]))",
    ];
    for source in sources {
        let program = compile_any(source).expect(source);
        assert_eq!(
            count_failures(&[&program], &object),
            1,
            "{source} must fail"
        );
    }
}

#[test]
fn text_written_in_the_expression_is_quoted_in_errors() {
    let message = |source: &str| {
        let program = compile_any(source).unwrap();
        let doc = Doc::parse(b"{\"list\":[],\"text\":\"a\"}", &program.projection).unwrap();
        let failure = evaluate(&program, &doc, &mut full_budget()).unwrap_err();
        failure.to_string()
    };
    for (source, want) in [
        ("object.spec.a", "no such key: spec"),
        ("object['spec']", "no such key: spec"),
        ("object.list[7]", "no such key: 7"),
        ("object.list[3 + 4]", "no such key"),
        (
            "object.text.matches('a' + '(')",
            "1:20: error parsing regexp: string.matches(string)",
        ),
    ] {
        assert_eq!(message(source), want, "{source}");
    }
}
