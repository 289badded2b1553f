//! Tests of the shipped rules with incomplete objects. In such an object, a counter (such as the
//! number of replicas) is zero or missing, or a condition is `Unknown` or missing. A controller
//! writes such an object rarely, or only for a short time. So the tests create incomplete objects:
//! they change fields of the fixtures. No evaluation may fail, for example because of a division by
//! zero.

use crate::read_shipped_rule_sets::Shipped;
use crate::{compare_with_expected_operations, read_fixtures};
use ifo_cel::Doc;
use ifo_engine::detect::evaluate;
use ifo_engine::rules::RuleBook;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A changed copy of an object, and a description of the change.
type Variant = (String, Value);

/// Returns the JSON pointers (RFC 6901), such as `/spec/replicas`, of the values for which `wanted`
/// returns true. The search begins with the value at `pointer`. It does not search inside a value
/// that it has found.
fn pointers(object: &Value, pointer: &str, wanted: &dyn Fn(&Value) -> bool) -> Vec<String> {
    let Some(value) = object.pointer(pointer) else {
        return Vec::new();
    };
    if wanted(value) {
        return vec![pointer.to_owned()];
    }
    let below: Vec<String> = match value {
        Value::Object(members) => members
            .keys()
            .map(|key| key.replace('~', "~0").replace('/', "~1"))
            .collect(),
        Value::Array(elements) => (0..elements.len()).map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    };
    let below = below.iter().map(|key| format!("{pointer}/{key}"));
    below.flat_map(|it| pointers(object, &it, wanted)).collect()
}

/// Returns true if the value is a counter: an integer, or a string of digits with a unit of at most
/// two letters, such as `10Gi`.
fn is_counter(value: &Value) -> bool {
    let is_quantity = |text: &str| {
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.len() < text.len() && unit.len() <= 2 && unit.chars().all(char::is_alphabetic)
    };
    value.is_i64() || value.as_str().is_some_and(is_quantity)
}

fn is_conditions(value: &Value) -> bool {
    value.as_array().is_some_and(|all| {
        all.iter()
            .any(|it| it.get("type").is_some() && it.get("status").is_some())
    })
}

fn zero(object: &mut Value, pointer: &str) {
    if let Some(value) = object.pointer_mut(pointer) {
        *value = if value.is_string() {
            json!("0")
        } else {
            json!(0)
        };
    }
}

/// Removes a field of a JSON object. If `pointer` points to an element of an array, the function
/// removes nothing, because the indexes of the later elements would change.
fn remove(object: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
    let key = key.replace("~1", "/").replace("~0", "~");
    if let Some(members) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        members.remove(&key);
    }
}

/// Returns copies of the object in which counters are zero or missing. For each counter, there are
/// copies in which only this counter is changed. In other copies, all counters of `spec`, of
/// `status`, or of both are changed.
fn with_changed_counters(object: &Value) -> Vec<Variant> {
    let of = |root: &str| pointers(object, root, &is_counter);
    let (spec, status) = (of("/spec"), of("/status"));
    let both: Vec<String> = spec.iter().chain(&status).cloned().collect();
    let mut groups = vec![
        ("the counters of spec".to_owned(), spec),
        ("the counters of status".to_owned(), status),
        ("all counters".to_owned(), both.clone()),
    ];
    groups.extend(both.into_iter().map(|it| (it.clone(), vec![it])));
    let mut variants = Vec::new();
    for (name, group) in groups {
        for (change, what) in [(zero as fn(&mut Value, &str), "zero"), (remove, "missing")] {
            let mut changed = object.clone();
            for pointer in &group {
                change(&mut changed, pointer);
            }
            variants.push((format!("{name} {what}"), changed));
        }
    }
    variants
}

/// Returns copies of the object in which conditions are missing or `Unknown`. For each list of
/// conditions, the copies are:
///
/// - One condition is `Unknown` or missing. There are two such copies for each condition.
/// - All conditions are `Unknown`.
/// - The list is empty.
/// - The list is missing.
fn with_changed_conditions(object: &Value) -> Vec<Variant> {
    let mut variants = Vec::new();
    for pointer in pointers(object, "/status", &is_conditions) {
        let mut change = |name: &str, change: &dyn Fn(&mut Vec<Value>)| {
            let mut changed = object.clone();
            let list = changed.pointer_mut(&pointer).and_then(Value::as_array_mut);
            change(list.expect("`is_conditions` is true for arrays only"));
            variants.push((format!("{pointer} {name}"), changed));
        };
        let unknown = |condition: &mut Value| condition["status"] = json!("Unknown");
        change("empty", &Vec::clear);
        change("all unknown", &|all| all.iter_mut().for_each(unknown));
        let count = object
            .pointer(&pointer)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        for index in 0..count {
            change(&format!("{index} unknown"), &|all| unknown(&mut all[index]));
            change(&format!("without {index}"), &|all| drop(all.remove(index)));
        }
        let mut changed = object.clone();
        remove(&mut changed, &pointer);
        variants.push((format!("{pointer} missing"), changed));
    }
    variants
}

/// Returns all incomplete copies of the object: the copies of [`with_changed_counters`] and
/// [`with_changed_conditions`], a copy without `status`, and a copy with an empty `status`.
fn variants(object: &Value) -> Vec<Variant> {
    let mut variants = with_changed_counters(object);
    variants.extend(with_changed_conditions(object));
    let mut changed = object.clone();
    remove(&mut changed, "/status");
    variants.push(("no status".to_owned(), changed.clone()));
    changed["status"] = json!({});
    variants.push(("an empty status".to_owned(), changed));
    variants
}

/// Evaluates all rules on an object. Returns a description of each failed evaluation.
fn failures(book: &RuleBook, object: &Value) -> Vec<String> {
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    let evaluation = evaluate(book, &doc, now, &()).expect("the fixture has a name");
    let failures = evaluation.failures.iter();
    failures
        .map(|failure| format!("{}: {}", failure.field, failure.error))
        .collect()
}

#[test]
fn no_rule_fails_on_zeros_or_missing_fields() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let book = compare_with_expected_operations::book(&shipped.name, &shipped.spec)
            .expect("shipped rule sets compile");
        let mut known = BTreeSet::new();
        for fixture in read_fixtures::of_rule_set(&shipped) {
            for (what, object) in variants(&fixture.object) {
                for failure in failures(&book, &object) {
                    // If several objects cause the same failure, the test reports only the first
                    // object.
                    if known.insert(failure.clone()) {
                        wrong.push(format!("{} with {what}: {failure}", fixture.place));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn counters_and_conditions_are_found_in_objects() {
    let object = json!({
        "spec": {"replicas": 3, "name": "a", "size": "10Gi"},
        "status": {"parts": [{"done": 1}], "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let all = with_changed_counters(&object);
    assert_eq!(all.len(), 2 * (3 + 3));
    let of = |name: &str| {
        &all.iter()
            .find(|(own, _)| own == name)
            .expect("there must be a variant of this name")
            .1
    };
    assert_eq!(
        of("all counters zero")["spec"],
        json!({"replicas": 0, "name": "a", "size": "0"})
    );
    assert_eq!(of("all counters missing")["status"]["parts"], json!([{}]));
    assert_eq!(
        of("/spec/replicas missing")["spec"],
        json!({"name": "a", "size": "10Gi"})
    );
    let names: Vec<String> = with_changed_conditions(&object)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let expected = ["empty", "all unknown", "0 unknown", "without 0", "missing"];
    assert_eq!(names, expected.map(|it| format!("/status/conditions {it}")));
}
