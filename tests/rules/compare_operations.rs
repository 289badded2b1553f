//! Compares the results of a rule set on a fixture with the expected ones. Input: a spec and a
//! fixture. Output: the first difference in words, if there is one.

use crate::fixtures::Fixture;
use ifo_api::Gvr;
use ifo_api::live::State;
use ifo_api::ruleset::OperationRuleSetSpec;
use ifo_cel::Doc;
use ifo_engine::detect::{Evaluation, RuleValues, evaluate};
use ifo_engine::rules::{RuleBook, compile};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A rule book with one rule set, or its errors.
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

/// Compares all expected results, or those of the rule for `only`.
pub fn judge(book: &RuleBook, fixture: &Fixture, only: Option<&str>) -> Result<(), String> {
    let json = fixture.object.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).expect("a document");
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().expect("a time");
    let evaluation = evaluate(book, &doc, now, &()).expect("it has a name");
    if let Some(failure) = evaluation.failures.first() {
        return Err(format!("{} failed: {}", failure.field, failure.error));
    }
    let asked = |name: &str| only.is_none_or(|only| of(name) == only);
    let found = found(&evaluation);
    let both = [
        ("found", false, &fixture.operations),
        ("continued", true, &fixture.continued),
    ];
    for (what, continues, expected) in both {
        let names = found.iter().filter(|(_, says)| says.continues == continues);
        let names: BTreeSet<&String> = names.map(|(name, _)| name).collect();
        let expected: BTreeSet<&String> = expected.iter().filter(|name| asked(name)).collect();
        if names != expected {
            return Err(format!("{what} {names:?} and not {expected:?}"));
        }
    }
    for (name, status) in fixture.status.iter().filter(|(name, _)| asked(name)) {
        let Some(says) = found.get(name) else {
            return Err(format!("expect-status: {name} is not under way"));
        };
        compare(name, says, status)?;
    }
    let outcomes = ends(&evaluation);
    for (name, expected) in fixture.outcomes.iter().filter(|(name, _)| asked(name)) {
        let outcome = outcomes.get(name).map_or("", |state| state.name());
        if outcome != expected {
            return Err(format!("{name} ended {outcome:?} and not {expected:?}"));
        }
    }
    Ok(())
}

/// Returns the operation of `Operation/itemKey`.
pub fn of(name: &str) -> &str {
    name.split('/').next().expect("split yields one at least")
}

fn full(operation: &str, item: Option<&Arc<str>>) -> String {
    item.map_or_else(|| operation.into(), |item| format!("{operation}/{item}"))
}

fn found(evaluation: &Evaluation) -> BTreeMap<String, &RuleValues> {
    let findings = evaluation.findings.iter();
    findings
        .filter_map(|finding| {
            let name = full(&finding.operation, finding.item.as_ref());
            Some((name, finding.says.as_ref()?))
        })
        .collect()
}

fn ends(evaluation: &Evaluation) -> BTreeMap<String, State> {
    let outcomes = evaluation.outcomes.iter();
    outcomes
        .map(|outcome| {
            let name = full(&outcome.operation, outcome.item.as_ref());
            (name, outcome.state)
        })
        .collect()
}

fn compare(name: &str, says: &RuleValues, expected: &Map<String, Value>) -> Result<(), String> {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for (field, expected) in expected {
        let value = match field.as_str() {
            "state" => json!(says.state.unwrap_or(State::Progressing).name()),
            "message" => json!(text(&says.message)),
            "reason" => json!(says.reason.as_deref()),
            "progress" => json!(says.progress),
            "started" => json!(says.started.map(|time| time.to_string())),
            "instance" => json!(says.instance.as_deref()),
            other => return Err(format!("expect-status: {name}: {other} is no field")),
        };
        if value != *expected {
            return Err(format!("{name}: {field} is {value} and not {expected}"));
        }
    }
    Ok(())
}
