//! Compares the results of the shipped rules with the expectations of the fixtures.

use crate::catalogue::{Fixture, Shipped, evaluation};
use ifo_api::Text;
use ifo_api::live::State;
use ifo_engine::detect::{Evaluation, RuleValues};
use ifo_engine::rules::RuleBook;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Evaluates the rules on a fixture, and compares the results with the expected results. If the
/// evaluation fails, or a result differs, returns an error. The error describes the failure or the
/// first difference. If `only` contains an operation, compares only the results for this operation.
pub fn judge(book: &RuleBook, fixture: &Fixture, only: Option<&str>) -> Result<(), String> {
    let evaluation = evaluation(book, &fixture.object);
    if let Some((_, failure)) = evaluation.failures.first() {
        return Err(format!("{} failed: {}", failure.what, failure.error));
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
    // The pattern names all fields, so that the compiler reports an error when a field is added.
    let RuleValues {
        only_continues: _,
        state,
        started,
        queued,
        instance,
        initiator,
        expected: overdue_after,
        stalled_after,
        size,
        shown,
    } = values;
    let mut found = json!(shown);
    if shown.message.is_empty() {
        found["message"].take();
    }
    for (field, value) in [
        ("state", json!(state.name())),
        ("started", json!(started.map(|time| time.to_string()))),
        ("queued", json!(queued.map(|time| time.to_string()))),
        ("instance", json!(instance)),
        ("initiator", json!(initiator)),
        (
            "expectedSeconds",
            json!(overdue_after.map(|it| it.as_secs())),
        ),
        (
            "stalledSeconds",
            json!(stalled_after.map(|it| it.as_secs())),
        ),
        ("size", json!(size)),
    ] {
        found[field] = value;
    }
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
