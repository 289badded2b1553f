//! Checks that the fixtures cover every value that a rule can yield.

use crate::catalogue::Shipped;
use crate::fixtures::{self, Fixture};
use crate::judge::of;
use ifo_api::ruleset::Rule;
use std::collections::BTreeSet;

/// A field of a rule whose value `expect-status` names, with its text.
type Field = (&'static str, fn(&Rule) -> Option<&String>);

const FIELDS: [Field; 6] = [
    ("message", |rule| rule.message.as_ref()),
    ("reason", |rule| rule.reason.as_ref()),
    ("state", |rule| rule.state.as_ref()),
    ("progress", |rule| rule.progress.as_ref()),
    ("started", |rule| rule.started_at.as_ref()),
    ("instance", |rule| rule.instance.as_ref()),
];

/// Returns the missing fixtures of one rule. If several rules yield the same text, one of them is
/// enough.
fn missing(rule: &Rule, rules: &[Rule], fixtures: &[Fixture]) -> Vec<String> {
    let operation = rule.operation.as_str();
    let has = |fixture: &Fixture| fixture.operations.iter().any(|name| of(name) == operation);
    let mut missing = Vec::new();
    if !fixtures.iter().any(has) {
        missing.push("no object has it".to_owned());
    }
    if fixtures.iter().all(has) {
        missing.push("no object is without it".to_owned());
    }
    let continued = |fixture: &Fixture| fixture.continued.iter().any(|name| of(name) == operation);
    if rule.continue_while.is_some() && !fixtures.iter().any(continued) {
        missing.push("no expect-continued has it".to_owned());
    }
    for (field, text) in FIELDS {
        let Some(source) = text(rule) else { continue };
        let same = |name: &str| {
            let mut rules = rules.iter();
            rules.any(|other| other.operation == name && text(other) == Some(source))
        };
        let said = fixtures.iter().any(|fixture| {
            let mut status = fixture.status.iter();
            status
                .any(|(name, says)| same(of(name)) && says.get(field).is_some_and(|v| !v.is_null()))
        });
        if !said {
            missing.push(format!("no expect-status has its {field}"));
        }
    }
    let ended = fixtures.iter().any(|fixture| {
        let mut outcomes = fixture.outcomes.iter();
        outcomes.any(|(name, outcome)| of(name) == operation && !outcome.is_empty())
    });
    if rule.outcome.is_some() && !ended {
        missing.push("no expect-outcome has its outcome".to_owned());
    }
    missing
}

#[test]
fn every_operation_and_detail_has_an_object_that_shows_it() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let fixtures = fixtures::of(&shipped);
        for rule in &shipped.spec.rules {
            for missing in missing(rule, &shipped.spec.rules, &fixtures) {
                wrong.push(format!("{} {}: {missing}", shipped.file, rule.operation));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_object_names_the_source_of_its_state() {
    for shipped in Shipped::all() {
        for fixture in fixtures::of(&shipped) {
            let place = &fixture.place;
            assert!(!fixture.comment.is_empty(), "{place}: where is it from?");
            let group = &shipped.spec.target.group;
            let version = &shipped.spec.target.version;
            let expected = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            let of = fixture.object["apiVersion"].as_str();
            assert_eq!(of, Some(expected.as_str()), "{place}");
        }
    }
}

#[test]
fn expectations_name_existing_operations() {
    for shipped in Shipped::all() {
        let rules = shipped.spec.rules.iter();
        let known: BTreeSet<&str> = rules.map(|rule| rule.operation.as_str()).collect();
        for fixture in fixtures::of(&shipped) {
            let names = fixture.operations.iter().chain(&fixture.continued);
            let names = names.chain(fixture.outcomes.keys());
            for name in names.chain(fixture.status.keys()) {
                assert!(known.contains(of(name)), "{}: {name}", fixture.place);
            }
        }
    }
}

#[test]
fn every_file_of_objects_has_its_rule_set() {
    let shipped: BTreeSet<String> = Shipped::all().into_iter().map(|set| set.file).collect();
    let strangers: Vec<String> = fixtures::files().difference(&shipped).cloned().collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}
