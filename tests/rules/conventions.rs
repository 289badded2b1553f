//! Checks conventions of the shipped rule sets (`docs/rules.md`). `exceptions.yaml` lists the results
//! that differ from a convention, each with a reason.

use crate::catalogue::{Shipped, evaluation, read, repository, table};
use ifo_api::live::State;
use ifo_engine::rules::RuleBook;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The exceptions of one rule set. Each value is the reason of the exception.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Exceptions {
    /// Why an object without a status has no operation that is `Blocked` or `Failing`.
    without_status: Option<String>,
    /// Why the operation that deletes the subject is never `Blocked` or `Failing`.
    deletion: Option<String>,
    /// Why an operation is `Progressing` although a condition reports trouble. A key has the form
    /// `Rollout on ReplicaFailure`.
    trouble: BTreeMap<String, String>,
    /// Why an operation is not detected without a field that its rule does not need. A key has the
    /// form `Rollout without status.replicas`.
    pub removal: BTreeMap<String, String>,
}

/// Collects the breaches of a convention from all shipped rule sets. Fails if they are not exactly
/// those that `excepted` returns. A breach is empty if a rule set can have only one.
pub fn assert_breaches<K: AsRef<str>>(
    breaches: impl Fn(&Shipped) -> BTreeSet<String>,
    excepted: impl Fn(&Exceptions) -> Vec<K>,
) {
    let mut exceptions: BTreeMap<String, Exceptions> = table("exceptions.yaml");
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let own = exceptions.remove(&shipped.file).unwrap_or_default();
        let breaches = breaches(&shipped);
        let excepted = excepted(&own)
            .iter()
            .map(|it| it.as_ref().to_owned())
            .collect();
        for breach in breaches.symmetric_difference(&excepted) {
            let what = if breaches.contains(breach) {
                "not allowed without an exception"
            } else {
                "the exception is no longer needed"
            };
            wrong.push(format!("{}: {breach}: {what}", shipped.file));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown: Vec<String> = exceptions.into_keys().collect();
    assert_eq!(unknown, [""; 0], "these rule sets are not shipped");
}

/// Ends of the types of conditions that report trouble when they are `True`.
const TROUBLE: [&str; 6] = [
    "Degraded", "Error", "Failed", "Failing", "Failure", "Stalled",
];

/// Evaluates the rules on an object. Returns the operations that the rules detect or keep in
/// flight, with their states. The states are those that the rules yield, so `stateAfter` does not
/// delay them.
pub fn states(book: &RuleBook, object: &Value) -> Vec<(String, State)> {
    let findings = evaluation(book, object).findings.into_iter();
    let states = findings.filter_map(|finding| {
        let state = finding.values.as_ref()?.state;
        Some((finding.operation.to_string(), state))
    });
    states.collect()
}

/// Returns the conditions in the status of the object.
pub fn conditions(object: &Value) -> &[Value] {
    let conditions = object["status"]["conditions"].as_array();
    conditions.map_or(&[], Vec::as_slice)
}

/// Sets a condition of the object, or adds it. If `status` is None, removes the condition.
pub fn set_condition(object: &mut Value, name: &str, status: Option<&str>) {
    let mut all = conditions(object).to_vec();
    all.retain(|other| other["type"] != name);
    all.extend(status.map(|status| {
        json!({
            "type": name, "status": status, "reason": format!("{name}Changed"),
            "message": format!("{name} has changed"), "lastTransitionTime": "2026-11-21T11:00:00Z",
        })
    }));
    object["status"]["conditions"] = all.into();
}

#[test]
fn no_operation_is_progressing_while_a_condition_reports_trouble() {
    let breaches = |shipped: &Shipped| {
        let (book, fixtures) = (shipped.book(), shipped.fixtures());
        let conditions = fixtures.iter().flat_map(|it| conditions(&it.object));
        let types: BTreeSet<&str> = conditions
            .filter_map(|condition| condition["type"].as_str())
            .filter(|name| TROUBLE.iter().any(|end| name.ends_with(end)))
            .collect();
        let mut breaches = BTreeSet::new();
        for (fixture, name) in fixtures
            .iter()
            .flat_map(|it| types.iter().map(move |name| (it, name)))
        {
            let mut object = fixture.object.clone();
            set_condition(&mut object, name, Some("True"));
            let progressing = states(&book, &object).into_iter();
            let progressing = progressing.filter(|(_, state)| *state == State::Progressing);
            breaches.extend(progressing.map(|(operation, _)| format!("{operation} on {name}")));
        }
        breaches
    };
    assert_breaches(breaches, |it| it.trouble.keys().cloned().collect());
}

#[test]
fn a_deletion_that_cannot_proceed_is_not_progressing() {
    let breaches = |shipped: &Shipped| {
        let (book, fixtures) = (shipped.book(), shipped.fixtures());
        let states = fixtures.iter().flat_map(|it| states(&book, &it.object));
        let stuck = states.filter(|(_, state)| *state != State::Progressing);
        let stuck: BTreeSet<String> = stuck.map(|(operation, _)| operation).collect();
        let mut deletions = shipped.spec.rules.iter().filter(|it| it.deletes_subject);
        let is_breached = deletions.any(|rule| !stuck.contains(&rule.operation));
        is_breached.then(String::new).into_iter().collect()
    };
    assert_breaches(breaches, |it| it.deletion.iter().map(|_| "").collect());
}

/// The test takes the first fixture of each rule set, and removes its status.
#[test]
fn an_object_without_a_status_waits_for_its_controller() {
    let breaches = |shipped: &Shipped| {
        let mut object = shipped.fixtures().swap_remove(0).object;
        for (pointer, field) in [("", "status"), ("/metadata", "deletionTimestamp")] {
            let fields = object.pointer_mut(pointer).and_then(Value::as_object_mut);
            fields
                .expect("a fixture is an object with metadata")
                .remove(field);
        }
        let states = states(&shipped.book(), &object);
        let waits = states.iter().any(|(_, state)| *state != State::Progressing);
        (!waits).then(String::new).into_iter().collect()
    };
    assert_breaches(breaches, |it| {
        it.without_status.iter().map(|_| "").collect()
    });
}

/// The deletion of an object is the success of each operation that deletes the object.
#[test]
fn every_operation_that_deletes_its_subject_says_so() {
    // In this rule set, the subject is a request, and the operation deletes a backup.
    let others = Shipped::all()
        .into_iter()
        .filter(|it| it.file != "velero/deletebackuprequests.yaml");
    let rules: Vec<_> = others.flat_map(|it| it.spec.rules).collect();
    let deletions = rules
        .iter()
        .filter(|it| ["Deleting", "Terminating"].contains(&&*it.operation));
    let (right, wrong): (Vec<_>, Vec<_>) = deletions.partition(|rule| rule.deletes_subject);
    assert!(wrong.is_empty(), "deletesSubject must be true: {wrong:#?}");
    assert!(right.len() > 20, "only {} rules were checked", right.len());
}

#[test]
fn every_promised_operation_exists() {
    let all = Shipped::all();
    let text = read(&repository("tests/rules/promised_operations.txt"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, pattern) = (words[0], words[1]);
        let matches = |target: &str| match pattern.split_once('*') {
            Some((group, resource)) => target.starts_with(group) && target.ends_with(resource),
            None => pattern == target,
        };
        let sets = all.iter().filter(|set| matches(&set.target()));
        let sets = sets.filter(|set| name == "-" || set.name == name);
        let rules = sets.flat_map(|set| &set.spec.rules);
        let known: BTreeSet<&str> = rules.map(|rule| rule.operation.as_str()).collect();
        let missing = words[2..].iter().filter(|word| !known.contains(*word));
        wrong.extend(missing.map(|word| format!("{name} {pattern}: {word}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
