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

/// Adds the paths and the JSON pointers of all fields and list elements below `value` that an object can
/// lack.
fn add_parts(
    value: &Value,
    (path, pointer): (&[PathStep], &str),
    parts: &mut Vec<(Vec<PathStep>, String)>,
) {
    let below: Vec<(PathStep, String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .filter(|(key, _)| !is_required(path, key))
            .map(|(key, value)| {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                (PathStep::Field(key.clone()), escaped, value)
            })
            .collect(),
        Value::Array(all) => (0..)
            .zip(all)
            .map(|(index, value): (usize, _)| (PathStep::Index, index.to_string(), value))
            .collect(),
        _ => return,
    };
    for (step, key, value) in below {
        let path = [path, &[step]].concat();
        let pointer = format!("{pointer}/{key}");
        add_parts(value, (&path, &pointer), parts);
        parts.push((path, pointer));
    }
}

/// Removes the field or the list element at a JSON pointer.
fn remove(object: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
    match object.pointer_mut(parent).expect("it is in the object") {
        Value::Object(members) => {
            members.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        Value::Array(all) => drop(all.remove(key.parse().expect("the key is an index"))),
        other => panic!("{other} has no parts"),
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
            let mut parts = Vec::new();
            add_parts(&fixture.object, (&[], ""), &mut parts);
            for (path, pointer) in parts {
                let mut object = fixture.object.clone();
                remove(&mut object, &pointer);
                let after = detected(&book, &object);
                let gone = before.difference(&after);
                let gone = gone.filter(|it| !reads[it.as_str()].needs(&path));
                breaches.extend(gone.map(|it| format!("{it} without {}", shown(&path))));
            }
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
