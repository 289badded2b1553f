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
    let value = object.pointer_mut(pointer).expect("it is in the object");
    *value = if value.is_string() {
        json!("0")
    } else {
        json!(0)
    };
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

/// Returns the incomplete copies of an object:
///
/// - One counter, or each counter, is zero or missing.
/// - One condition is `Unknown` or missing, all conditions of a list are `Unknown`, or the list is
///   empty or missing.
/// - The status is empty or missing.
fn variants(object: &Value) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |what: String, change: &dyn Fn(&mut Value)| {
        let mut changed = object.clone();
        change(&mut changed);
        variants.push((what, changed));
    };
    let counters = ["/spec", "/status"].map(|root| pointers(object, root, &is_counter));
    let counters = counters.concat();
    for (what, change) in [("zero", zero as fn(&mut Value, &str)), ("missing", remove)] {
        let change_all = |object: &mut Value| counters.iter().for_each(|it| change(object, it));
        add(format!("all counters {what}"), &change_all);
        for counter in &counters {
            add(format!("{counter} {what}"), &|it| change(it, counter));
        }
    }
    for list in pointers(object, "/status", &is_conditions) {
        let count = object
            .pointer(&list)
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        for (at, index) in (0..count).map(|index| (format!("{list}/{index}"), index)) {
            add(format!("{at} unknown"), &|it| {
                it.pointer_mut(&at).expect("it is in the list")["status"] = json!("Unknown");
            });
            add(format!("without {at}"), &|it| {
                let list = it.pointer_mut(&list).and_then(Value::as_array_mut);
                list.expect("it is a list").remove(index);
            });
        }
        add(format!("{list} unknown"), &|it| {
            let list = it.pointer_mut(&list).and_then(Value::as_array_mut);
            for condition in list.expect("it is a list") {
                condition["status"] = json!("Unknown");
            }
        });
        add(format!("{list} empty"), &|it| {
            *it.pointer_mut(&list).expect("it is in the object") = json!([]);
        });
        add(format!("{list} missing"), &|it| remove(it, &list));
    }
    add("no status".to_owned(), &|it| remove(it, "/status"));
    add("an empty status".to_owned(), &|it| it["status"] = json!({}));
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
                for (_, failure) in evaluation(&book, &object).failures {
                    let failure = format!("{} {}", failure.what, failure.error);
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
