//! Compiles a rule set, evaluates it on a [`Fixture`] (an object with its expected operations), and
//! compares the results with the expected results.

use crate::read_fixtures::Fixture;
use ifo_api::Gvr;
use ifo_api::Text;
use ifo_api::live::State;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_cel::Doc;
use ifo_engine::detect::{Evaluation, RuleValues, evaluate};
use ifo_engine::rules::{RuleBook, compile};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Compiles a rule set. Returns a rule book (all compiled rule sets for one resource) that contains
/// only this rule set. If the rule set does not compile, returns the errors.
pub fn book(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleBook, String> {
    let rule_set = compile(name, spec).map_err(|invalid| {
        let invalid: Vec<String> = invalid.iter().map(ToString::to_string).collect();
        invalid.join("; ")
    })?;
    let target = Gvr {
        group: spec.target.group.as_str().into(),
        version: spec.target.version.as_str().into(),
        resource: spec.target.resource.as_str().into(),
    };
    let sets = vec![Arc::new(rule_set)];
    Ok(RuleBook::new(1, target, "Any".into(), true, sets))
}

/// Evaluates the rules on a fixture, and compares the results with the expected results. If the
/// evaluation fails, or a result differs, returns an error. The error describes the failure or the
/// first difference. If `only` contains an operation, compares only the results for this operation.
pub fn judge(book: &RuleBook, fixture: &Fixture, only: Option<&str>) -> Result<(), String> {
    let json = fixture.object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("the object is valid JSON");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("the text is a time");
    let evaluation = evaluate(book, &doc, now, &()).expect("the fixture has a name");
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
        let Some(values) = found.get(name) else {
            return Err(format!(
                "expect-status has {name}, but no rule detects it or keeps it in flight"
            ));
        };
        compare(name, values, status)?;
    }
    let outcomes = outcomes_by_name(&evaluation);
    for (name, expected) in fixture
        .outcomes
        .iter()
        .filter(|(name, _)| is_compared(name))
    {
        // The server evaluates `outcome` only if the rule neither detects nor continues the
        // operation.
        if found.contains_key(name) {
            return Err(format!(
                "expect-outcome names {name}, but a rule detects or continues it"
            ));
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
pub fn operation_name(name: &str) -> &str {
    name.split('/')
        .next()
        .expect("split yields at least one item")
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
    findings
        .filter_map(|finding| {
            let name = full_name(&finding.operation, finding.item.as_ref());
            Some((name, finding.values.as_ref()?))
        })
        .collect()
}

/// Returns the outcome of each operation whose `outcome` expression yields a final state. The key
/// is the full name of the operation.
fn outcomes_by_name(evaluation: &Evaluation) -> BTreeMap<String, State> {
    let outcomes = evaluation.outcomes.iter();
    outcomes
        .map(|outcome| {
            let name = full_name(&outcome.operation, outcome.item.as_ref());
            (name, outcome.state)
        })
        .collect()
}

fn compare(name: &str, values: &RuleValues, expected: &Map<String, Value>) -> Result<(), String> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for (field, expected) in expected {
        let value = match field.as_str() {
            "state" => json!(values.state.unwrap_or(State::Progressing).name()),
            "message" => json!(text(&values.shown.message)),
            "reason" => json!(values.shown.reason.as_deref()),
            "progress" => json!(values.shown.progress),
            "started" => json!(values.started.map(|time| time.to_string())),
            "queued" => json!(values.queued.map(|time| time.to_string())),
            "instance" => json!(values.instance.as_deref()),
            "work" => json!(values.shown.work.as_deref()),
            "initiator" => json!(values.initiator.as_deref()),
            "cancel" => json!(values.shown.cancel.as_deref()),
            "nodes" => json!(
                values
                    .shown
                    .nodes
                    .iter()
                    .map(|it| &**it)
                    .collect::<Vec<_>>()
            ),
            "expectedSeconds" => json!(values.expected.map(|it| it.as_secs())),
            "stalledSeconds" => json!(values.stalled_after.map(|it| it.as_secs())),
            "size" => json!(values.size),
            other => return Err(format!("expect-status: {name}: unknown field {other}")),
        };
        if value != *expected {
            return Err(format!("{name}: {field} is {value}, expected {expected}"));
        }
    }
    Ok(())
}

#[test]
fn an_expected_outcome_of_an_operation_in_flight_is_an_error() {
    let spec = json!({
        "component": "tests",
        "target": {"group": "", "version": "v1", "resource": "pods"},
        "rules": [{"operation": "Starting", "expression": "true", "outcome": "'Succeeded'"}],
    });
    let spec = serde_json::from_value(spec).expect("the spec is valid");
    let book = book("tests", &spec).expect("the rule set compiles");
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
    let error = judge(&book, &fixture, None).expect_err("the operation is in flight");
    assert!(
        error.starts_with("expect-outcome names Starting"),
        "{error}"
    );
}
