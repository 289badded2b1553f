//! Compares the results of the shipped rules with the expectations of the fixtures, and checks that the
//! fixtures cover all rules. For each rule:
//!
//! - At least one fixture expects the operation of the rule, and at least one does not.
//! - For each detail that the rule computes, such as the message, a fixture expects a value.

use crate::catalogue::{Fixture, Shipped, evaluation};
use ifo_api::Text;
use ifo_api::live::State;
use ifo_api::ruleset::Rule;
use ifo_engine::detect::{Evaluation, RuleValues};
use ifo_engine::rules::RuleBook;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The details of an operation whose expressions are fields of a rule: the name of the field, and the
/// name in the annotation `expect-status`.
const DETAILS: [(&str, &str); 13] = [
    ("message", "message"),
    ("reason", "reason"),
    ("state", "state"),
    ("progress", "progress"),
    ("startedAt", "started"),
    ("queuedAt", "queued"),
    ("instance", "instance"),
    ("work", "work"),
    ("initiator", "initiator"),
    ("cancel", "cancel"),
    ("expectedDuration", "expectedSeconds"),
    ("stalledAfter", "stalledSeconds"),
    ("size", "size"),
];

/// Evaluates the rules on a fixture, and compares the results with the expected results. If the
/// evaluation fails, or a result differs, returns an error. The error describes the failure or the
/// first difference. If `only` contains an operation, compares only the results for this operation.
pub fn judge(book: &RuleBook, fixture: &Fixture, only: Option<&str>) -> Result<(), String> {
    let evaluation = evaluation(book, &fixture.object);
    if let Some(failure) = evaluation.failures.first() {
        return Err(format!("{} failed: {}", failure.field, failure.error));
    }
    let is_compared = |name: &str| only.is_none_or(|only| operation_name(name) == only);
    let found = values_by_name(&evaluation);
    let both = [
        ("found", false, &fixture.operations),
        ("continued", true, &fixture.continued),
    ];
    for (what, continues, expected) in both {
        let names = found
            .iter()
            .filter(|(_, values)| values.only_continues == continues);
        let names: BTreeSet<&String> = names.map(|(name, _)| name).collect();
        let expected: BTreeSet<&String> =
            expected.iter().filter(|name| is_compared(name)).collect();
        if names != expected {
            return Err(format!("{what} {names:?}, expected {expected:?}"));
        }
    }
    for (name, status) in fixture.status.iter().filter(|(name, _)| is_compared(name)) {
        let values = found.get(name);
        let values = values.ok_or_else(|| format!("expect-status: {name} is not in flight"))?;
        compare(name, values, status)?;
    }
    let outcomes = evaluation.outcomes.iter();
    let outcomes: BTreeMap<String, State> = outcomes
        .map(|it| (full_name(&it.operation, it.item.as_ref()), it.state))
        .collect();
    let expected = fixture.outcomes.iter();
    for (name, expected) in expected.filter(|(name, _)| is_compared(name)) {
        // The server evaluates `outcome` only if the rule neither detects nor continues the
        // operation.
        if found.contains_key(name) {
            return Err(format!("expect-outcome: {name} is in flight"));
        }
        let outcome = outcomes.get(name).map_or("", |state| state.name());
        if outcome != expected {
            return Err(format!("{name} ended {outcome:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Returns the operation in a full name (see [`full_name`]). For example, `MigratingVM/vm-1203`
/// gives `MigratingVM`.
fn operation_name(name: &str) -> &str {
    name.split_once('/')
        .map_or(name, |(operation, _)| operation)
}

/// Returns `Operation/itemKey` for a rule with `forEach`, which detects one operation for each
/// element of a list. Returns `Operation` for any other rule.
fn full_name(operation: &str, item: Option<&Text>) -> String {
    item.map_or_else(|| operation.into(), |item| format!("{operation}/{item}"))
}

/// Returns the details, such as state and message, of each operation that a rule detects or
/// continues. The key is the full name of the operation.
fn values_by_name(evaluation: &Evaluation) -> BTreeMap<String, &RuleValues> {
    let findings = evaluation.findings.iter();
    let values = findings.filter_map(|finding| {
        let name = full_name(&finding.operation, finding.item.as_ref());
        Some((name, finding.values.as_ref()?))
    });
    values.collect()
}

fn compare(name: &str, values: &RuleValues, expected: &Map<String, Value>) -> Result<(), String> {
    let shown = &values.shown;
    let nodes: Vec<&str> = shown.nodes.iter().map(|it| &**it).collect();
    let found = json!({
        "state": values.state.unwrap_or(State::Progressing).name(),
        "message": (!shown.message.is_empty()).then_some(&*shown.message),
        "reason": shown.reason.as_deref(),
        "progress": shown.progress,
        "started": values.started.map(|time| time.to_string()),
        "queued": values.queued.map(|time| time.to_string()),
        "instance": values.instance.as_deref(),
        "work": shown.work.as_deref(),
        "initiator": values.initiator.as_deref(),
        "cancel": shown.cancel.as_deref(),
        "nodes": nodes,
        "expectedSeconds": values.expected.map(|it| it.as_secs()),
        "stalledSeconds": values.stalled_after.map(|it| it.as_secs()),
        "size": values.size,
    });
    for (field, expected) in expected {
        let value = found
            .get(field)
            .ok_or_else(|| format!("{name}: unknown field {field}"))?;
        if value != expected {
            return Err(format!("{name}: {field} is {value}, expected {expected}"));
        }
    }
    Ok(())
}

/// Returns a description of each fixture that is missing for `rule`. If several of the rules
/// compute a detail with the same expression, a fixture for one of these rules is enough.
fn missing(rule: &Rule, rules: &[Rule], fixtures: &[Fixture]) -> Vec<String> {
    let operation = rule.operation.as_str();
    let is_named = |name: &String| operation_name(name) == operation;
    let has = |fixture: &Fixture| fixture.operations.iter().any(is_named);
    let mut missing = Vec::new();
    if !fixtures.iter().any(has) {
        missing.push("no fixture expects the operation".to_owned());
    }
    if fixtures.iter().all(has) {
        missing.push("every fixture expects the operation".to_owned());
    }
    let continued = |fixture: &Fixture| fixture.continued.iter().any(is_named);
    if rule.continue_while.is_some() && !fixtures.iter().any(continued) {
        missing.push("no expect-continued names the operation".to_owned());
    }
    let field = |rule: &Rule, name: &str| json!(rule)[name].take();
    for (name, detail) in DETAILS {
        let source = field(rule, name);
        let same = |other: &&Rule| field(other, name) == source;
        let same: BTreeSet<&str> = rules.iter().filter(same).map(|it| &*it.operation).collect();
        let is_expected = fixtures.iter().any(|fixture| {
            let mut status = fixture.status.iter();
            status.any(|(name, values)| {
                same.contains(operation_name(name))
                    && values.get(detail).is_some_and(|it| !it.is_null())
            })
        });
        if !source.is_null() && !is_expected {
            missing.push(format!("no expect-status names the {detail}"));
        }
    }
    let ended = fixtures.iter().any(|fixture| {
        let mut outcomes = fixture.outcomes.iter();
        outcomes.any(|(name, outcome)| is_named(name) && !outcome.is_empty())
    });
    if rule.outcome.is_some() && !ended {
        missing.push("no expect-outcome names an outcome".to_owned());
    }
    missing
}

/// Returns what is wrong with the description and the names in a fixture.
fn defects(shipped: &Shipped, fixture: &Fixture) -> Vec<String> {
    let mut defects = Vec::new();
    if fixture.comment.is_empty() {
        defects.push("a comment must name the source of the object".to_owned());
    }
    let target = shipped.target();
    let version = target.rsplit_once('/').map(|(version, _)| version);
    if fixture.object["apiVersion"].as_str() != version {
        defects.push("the apiVersion must be that of the target".to_owned());
    }
    let names = fixture.operations.iter().chain(&fixture.continued);
    let names = names
        .chain(fixture.outcomes.keys())
        .chain(fixture.status.keys());
    let is_unknown = |name: &&String| {
        let mut rules = shipped.spec.rules.iter();
        !rules.any(|rule| rule.operation == operation_name(name))
    };
    let unknown = names.filter(is_unknown);
    defects.extend(unknown.map(|name| format!("no rule detects the operation {name}")));
    defects
}

#[test]
fn every_object_has_its_expected_operations() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let book = shipped.book();
        for fixture in shipped.fixtures() {
            let difference = judge(&book, &fixture, None).err();
            let all = difference.into_iter().chain(defects(&shipped, &fixture));
            wrong.extend(all.map(|it| format!("{}: {it}", fixture.place)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_operation_and_detail_has_a_fixture() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let fixtures = shipped.fixtures();
        for rule in &shipped.spec.rules {
            for missing in missing(rule, &shipped.spec.rules, &fixtures) {
                wrong.push(format!("{} {}: {missing}", shipped.file, rule.operation));
            }
        }
        let has_nodes =
            |values: &Map<String, Value>| values.get("nodes").is_some_and(|it| *it != json!([]));
        let mut status = fixtures.iter().flat_map(|it| it.status.values());
        if shipped.spec.nodes.is_some() && !status.any(has_nodes) {
            wrong.push(format!(
                "{}: no expect-status names the nodes",
                shipped.file
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_expected_outcome_of_an_operation_in_flight_is_an_error() {
    let spec = serde_json::from_value(json!({
        "component": "tests",
        "target": {"group": "", "version": "v1", "resource": "pods"},
        "rules": [{"operation": "Starting", "expression": "true", "outcome": "'Succeeded'"}],
    }));
    let spec = spec.expect("the spec is valid");
    let book = crate::catalogue::book("tests", &spec).expect("the rule set compiles");
    let mut fixture = Fixture {
        place: "pods.yaml[0]".to_owned(),
        comment: String::new(),
        object: json!({"metadata": {"name": "a", "namespace": "shop", "uid": "1"}}),
        operations: BTreeSet::from(["Starting".to_owned()]),
        continued: BTreeSet::new(),
        status: BTreeMap::new(),
        outcomes: BTreeMap::new(),
    };
    assert_eq!(judge(&book, &fixture, None), Ok(()));
    fixture
        .outcomes
        .insert("Starting".to_owned(), String::new());
    assert!(judge(&book, &fixture, None).is_err());
}
