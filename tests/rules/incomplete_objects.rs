//! Tests of the shipped rules with incomplete objects. In such an object, a counter (such as the
//! number of replicas) is zero or missing, or a condition is `Unknown` or missing. A controller
//! writes such an object rarely, or only for a short time. So the tests create incomplete objects:
//! they change fields of the fixtures. No evaluation may fail, for example because of a division by
//! zero.

use crate::catalogue::{Shipped, evaluation};
use serde_json::{Value, json};
use std::collections::BTreeMap;

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

#[test]
fn no_rule_fails_on_zeros_or_missing_fields() {
    // The key is the failure, and the value is the first object that causes it.
    let mut failures = BTreeMap::new();
    let mut count = 0;
    for shipped in Shipped::all() {
        let book = shipped.book();
        for fixture in shipped.fixtures() {
            for (what, object) in variants(&fixture.object) {
                count += 1;
                for failure in evaluation(&book, &object).failures {
                    let failure = format!("{} {}", failure.field, failure.error);
                    let place = format!("{} with {what}", fixture.place);
                    failures.entry(failure).or_insert(place);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(
        count > 10_000,
        "only {count} incomplete objects were created"
    );
}
