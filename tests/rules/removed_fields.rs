//! Property test of the shipped rules: a rule still detects its operation if a field or a list
//! element is removed that the rule does not need. Controllers leave out optional fields, such as
//! the reason of a condition. If the rule reads such a field only to exclude objects, its absence
//! must not exclude the object.

use crate::catalogue::{Shipped, evaluation};
use crate::conventions::assert_breaches;
use crate::rule_reads::RuleReads;
use ifo_cel::PathStep;
use ifo_engine::rules::RuleBook;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields that each object has.
const REQUIRED: [&str; 7] = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "spec",
    "uid",
];

/// Returns true if each object has the field `name` of the value at `parent`. A condition always has
/// a type and a status (apimachinery, `Condition`).
fn is_required(parent: &[PathStep], name: &str) -> bool {
    match parent {
        [] | [_] => REQUIRED.contains(&name),
        [.., PathStep::Field(list), PathStep::Index] => {
            list == "conditions" && matches!(name, "type" | "status")
        }
        _ => false,
    }
}

/// Calls `visit` with each copy of `object` from which one field or one list element is removed,
/// and with the path of the removed value.
fn without_each_part(object: &Value, visit: &mut dyn FnMut(&[PathStep], &Value)) {
    let mut changed = object.clone();
    let mut path = Vec::new();
    let mut pointer = String::new();
    remove_below(object, &mut changed, &mut path, &mut pointer, visit);
}

/// `value` is the part of the original object at `pointer`. `changed` is a copy of the whole
/// object, which this function restores after each removal.
fn remove_below(
    value: &Value,
    changed: &mut Value,
    path: &mut Vec<PathStep>,
    pointer: &mut String,
    visit: &mut dyn FnMut(&[PathStep], &Value),
) {
    let keys: Vec<(PathStep, String)> = match value {
        Value::Object(members) => members
            .keys()
            .filter(|key| !is_required(path, key))
            .map(|key| {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                (PathStep::Field(key.clone()), escaped)
            })
            .collect(),
        Value::Array(all) => (0..all.len())
            .map(|index| (PathStep::Index, index.to_string()))
            .collect(),
        _ => return,
    };
    for (step, key) in keys {
        let parent = changed.pointer_mut(pointer);
        let parent = parent.expect("the copy has the parts of the object");
        let before = parent.clone();
        let below = match (&step, parent) {
            (PathStep::Field(name), Value::Object(members)) => members.remove(name),
            (_, Value::Array(all)) => {
                Some(all.remove(key.parse().expect("the key of a list is an index")))
            }
            _ => None,
        };
        path.push(step);
        visit(path, changed);
        *changed
            .pointer_mut(pointer)
            .expect("the copy has the parts of the object") = before;
        let length = pointer.len();
        pointer.push('/');
        pointer.push_str(&key);
        if let Some(below) = below {
            remove_below(&below, changed, path, pointer, visit);
        }
        pointer.truncate(length);
        path.pop();
    }
}

/// Returns the operations that the rules detect on an object.
fn detected(book: &RuleBook, object: &Value) -> BTreeSet<String> {
    let findings = evaluation(book, object).findings.into_iter();
    let detected = findings.filter(|finding| {
        let values = finding.values.as_ref();
        values.is_some_and(|values| !values.only_continues)
    });
    detected.map(|it| it.operation.to_string()).collect()
}

#[test]
fn an_operation_is_detected_without_the_fields_that_its_rule_does_not_need() {
    let breaches = |shipped: &Shipped| {
        let book = shipped.book();
        let rules = shipped.spec.rules.iter();
        let reads: BTreeMap<&str, RuleReads> = rules
            .map(|rule| (&*rule.operation, RuleReads::of(&shipped.spec, rule)))
            .collect();
        let mut breaches = BTreeSet::new();
        for fixture in shipped.fixtures() {
            let before = detected(&book, &fixture.object);
            if before.is_empty() {
                continue;
            }
            without_each_part(&fixture.object, &mut |path, object| {
                let after = detected(&book, object);
                let gone = before.difference(&after);
                let gone = gone.filter(|it| !reads[it.as_str()].needs(path));
                breaches.extend(gone.map(|it| format!("{it} without {}", shown(path))));
            });
        }
        breaches
    };
    assert_breaches(breaches, |it| it.removal.keys().cloned().collect());
}

/// Returns a path for people, such as `status.conditions[].reason`.
fn shown(path: &[PathStep]) -> String {
    let steps = path.iter().map(|step| match step {
        PathStep::Field(name) => format!(".{name}"),
        PathStep::Index | PathStep::Each => "[]".to_owned(),
    });
    let text: String = steps.collect();
    text.trim_start_matches('.').to_owned()
}
