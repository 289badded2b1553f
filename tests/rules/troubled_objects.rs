//! Checks that the shipped rules tell the truth about objects in trouble. `docs/rules.md` has the
//! conventions. Each test runs over all shipped rule sets. `exceptions.yaml` lists the results that
//! differ from a convention, each with a reason.

use crate::compare_with_expected_operations::book;
use crate::exceptions::{Exceptions, differences};
use crate::read_fixtures;
use crate::read_shipped_rule_sets::Shipped;
use ifo_api::live::State;
use ifo_cel::Doc;
use ifo_engine::detect::evaluate;
use ifo_engine::rules::RuleBook;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Ends of the types of conditions that report trouble when they are `True`.
const TROUBLE: [&str; 6] = [
    "Degraded", "Error", "Failed", "Failing", "Failure", "Stalled",
];

/// Evaluates the rules on an object. Returns the operations that the rules detect or keep in
/// flight, with their states. The states are those that the rules yield, so `stateAfter` does not
/// delay them.
pub fn states(book: &RuleBook, object: &Value) -> Vec<(String, State)> {
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    let evaluation = evaluate(book, &doc, now, &()).expect("the fixture has a name");
    let findings = evaluation.findings.iter();
    findings
        .filter_map(|finding| {
            let state = finding.values.as_ref()?.state;
            Some((
                finding.operation.to_string(),
                state.unwrap_or(State::Progressing),
            ))
        })
        .collect()
}

/// Evaluates the rules on an object. Returns the operations that the rules detect.
pub fn detected(book: &RuleBook, object: &Value) -> BTreeSet<String> {
    let json = object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    let evaluation = evaluate(book, &doc, now, &()).expect("the fixture has a name");
    let findings = evaluation.findings.iter();
    let detected = findings.filter(|finding| {
        let values = finding.values.as_ref();
        values.is_some_and(|values| !values.only_continues)
    });
    detected
        .map(|finding| finding.operation.to_string())
        .collect()
}

fn compile(shipped: &Shipped) -> RuleBook {
    book(&shipped.name, &shipped.spec).expect("shipped rule sets compile")
}

/// Returns the conditions in the status of the object.
pub fn conditions(object: &Value) -> &[Value] {
    object["status"]["conditions"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

/// Sets a condition of the object, or adds it.
pub fn set_condition(object: &mut Value, condition: Value) {
    let all = &mut object["status"]["conditions"];
    if !all.is_array() {
        *all = json!([]);
    }
    let all = all.as_array_mut().expect("it has just been made an array");
    all.retain(|other| other["type"] != condition["type"]);
    all.push(condition);
}

#[test]
fn no_operation_is_progressing_while_a_condition_reports_trouble() {
    let all = Exceptions::all();
    let mut excepted = BTreeSet::new();
    let mut breaches = BTreeSet::new();
    for shipped in Shipped::all() {
        let book = compile(&shipped);
        let fixtures = read_fixtures::of_rule_set(&shipped);
        let types: BTreeSet<&str> = fixtures
            .iter()
            .flat_map(|fixture| conditions(&fixture.object))
            .filter_map(|condition| condition["type"].as_str())
            .filter(|name| TROUBLE.iter().any(|end| name.ends_with(end)))
            .collect();
        for (fixture, name) in fixtures
            .iter()
            .flat_map(|fixture| types.iter().map(move |name| (fixture, *name)))
        {
            let mut object = fixture.object.clone();
            let condition = json!({
                "type": name, "status": "True", "reason": "Refused", "message": "It was refused",
                "lastTransitionTime": "2026-11-21T11:00:00Z",
            });
            set_condition(&mut object, condition);
            for (operation, state) in states(&book, &object) {
                if state == State::Progressing {
                    breaches.insert(format!("{}: {operation} on {name}", shipped.file));
                }
            }
        }
        if let Some(own) = all.get(&shipped.file) {
            let keys = own.trouble.keys();
            excepted.extend(keys.map(|key| format!("{}: {key}", shipped.file)));
        }
    }
    let wrong = differences(&breaches, &excepted);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_deletion_that_cannot_proceed_is_not_progressing() {
    let all = Exceptions::all();
    let excepted = all.iter().filter(|(_, own)| own.deletion.is_some());
    let excepted = excepted.map(|(file, _)| file.clone()).collect();
    let mut breaches = BTreeSet::new();
    for shipped in Shipped::all() {
        let book = compile(&shipped);
        let fixtures = read_fixtures::of_rule_set(&shipped);
        let rules = shipped.spec.rules.iter();
        for rule in rules.filter(|rule| rule.deletes_subject) {
            let is_stuck = fixtures.iter().any(|fixture| {
                let states = states(&book, &fixture.object);
                states.iter().any(|(operation, state)| {
                    *operation == rule.operation && *state != State::Progressing
                })
            });
            if !is_stuck {
                breaches.insert(shipped.file.clone());
            }
        }
    }
    let wrong = differences(&breaches, &excepted);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test takes the first fixture of each rule set, and removes its status.
#[test]
fn an_object_without_a_status_waits_for_its_controller() {
    let all = Exceptions::all();
    let excepted = all.iter().filter(|(_, own)| own.without_status.is_some());
    let excepted = excepted.map(|(file, _)| file.clone()).collect();
    let mut breaches = BTreeSet::new();
    for shipped in Shipped::all() {
        let book = compile(&shipped);
        let fixtures = read_fixtures::of_rule_set(&shipped);
        let mut object = fixtures[0].object.clone();
        let fields = object.as_object_mut().expect("a fixture is an object");
        fields.remove("status");
        let metadata = object["metadata"].as_object_mut();
        metadata
            .expect("each fixture has metadata")
            .remove("deletionTimestamp");
        let waits = |(_, state): &(String, State)| *state != State::Progressing;
        if !states(&book, &object).iter().any(waits) {
            breaches.insert(shipped.file.clone());
        }
    }
    let wrong = differences(&breaches, &excepted);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Each exception must name a shipped rule set. Otherwise it excepts nothing.
#[test]
fn exceptions_name_shipped_rule_sets() {
    let shipped: BTreeSet<String> = Shipped::all().into_iter().map(|set| set.file).collect();
    let named: BTreeSet<String> = Exceptions::all().into_keys().collect();
    let unknown: Vec<&String> = named.difference(&shipped).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
