//! Checks that the fixtures cover all shipped rules. For each rule:
//!
//! - At least one fixture expects the operation of the rule.
//! - At least one fixture does not expect this operation.
//! - For each detail that the rule computes, such as the message, a fixture expects a value.

use crate::compare_with_expected_operations::operation_name;
use crate::read_fixtures::{self, Fixture};
use crate::read_shipped_rule_sets::Shipped;
use ifo_api::ruleset::Rule;
use std::collections::BTreeSet;

/// A detail of an operation: its name in the annotation `expect-status`, and a function that
/// returns the rule's expression for this detail. None if the rule has no such expression.
type Field = (&'static str, fn(&Rule) -> Option<&String>);

const FIELDS: [Field; 13] = [
    ("message", |rule| rule.message.as_ref()),
    ("reason", |rule| rule.reason.as_ref()),
    ("state", |rule| rule.state.as_ref()),
    ("progress", |rule| rule.progress.as_ref()),
    ("started", |rule| rule.started_at.as_ref()),
    ("queued", |rule| rule.queued_at.as_ref()),
    ("instance", |rule| rule.instance.as_ref()),
    ("work", |rule| rule.work.as_ref()),
    ("initiator", |rule| rule.initiator.as_ref()),
    ("cancel", |rule| rule.cancel.as_ref()),
    ("expectedSeconds", |rule| rule.expected_duration.as_ref()),
    ("stalledSeconds", |rule| rule.stalled_after.as_ref()),
    ("size", |rule| rule.size.as_ref()),
];

/// Returns a description of each fixture that is missing for `rule`. If several of the rules
/// compute a detail with the same expression, a fixture for one of these rules is enough.
fn missing(rule: &Rule, rules: &[Rule], fixtures: &[Fixture]) -> Vec<String> {
    let operation = rule.operation.as_str();
    let has = |fixture: &Fixture| {
        fixture
            .operations
            .iter()
            .any(|name| operation_name(name) == operation)
    };
    let mut missing = Vec::new();
    if !fixtures.iter().any(has) {
        missing.push("no fixture expects the operation".to_owned());
    }
    if fixtures.iter().all(has) {
        missing.push("every fixture expects the operation".to_owned());
    }
    let continued = |fixture: &Fixture| {
        fixture
            .continued
            .iter()
            .any(|name| operation_name(name) == operation)
    };
    if rule.continue_while.is_some() && !fixtures.iter().any(continued) {
        missing.push("no expect-continued names the operation".to_owned());
    }
    for (field, text) in FIELDS {
        let Some(source) = text(rule) else { continue };
        let same = |name: &str| {
            let mut rules = rules.iter();
            rules.any(|other| other.operation == name && text(other) == Some(source))
        };
        let is_expected = fixtures.iter().any(|fixture| {
            let mut status = fixture.status.iter();
            status.any(|(name, values)| {
                same(operation_name(name)) && values.get(field).is_some_and(|v| !v.is_null())
            })
        });
        if !is_expected {
            missing.push(format!("no expect-status names the {field}"));
        }
    }
    let ended = fixtures.iter().any(|fixture| {
        let mut outcomes = fixture.outcomes.iter();
        outcomes.any(|(name, outcome)| operation_name(name) == operation && !outcome.is_empty())
    });
    if rule.outcome.is_some() && !ended {
        missing.push("no expect-outcome names an outcome".to_owned());
    }
    missing
}

#[test]
fn every_operation_and_detail_has_a_fixture() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all() {
        let fixtures = read_fixtures::of_rule_set(&shipped);
        for rule in &shipped.spec.rules {
            for missing in missing(rule, &shipped.spec.rules, &fixtures) {
                wrong.push(format!("{} {}: {missing}", shipped.file, rule.operation));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nodes_of_every_rule_set_have_a_fixture() {
    let mut wrong = Vec::new();
    for shipped in Shipped::all().iter().filter(|it| it.spec.nodes.is_some()) {
        let fixtures = read_fixtures::of_rule_set(shipped);
        let names_nodes = |fixture: &Fixture| {
            let mut status = fixture.status.values();
            status.any(|values| {
                let nodes = values.get("nodes").and_then(|it| it.as_array());
                nodes.is_some_and(|nodes| !nodes.is_empty())
            })
        };
        if !fixtures.iter().any(names_nodes) {
            wrong.push(format!(
                "{}: no expect-status names the nodes",
                shipped.file
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fixture_has_a_comment_and_the_api_version_of_its_target() {
    for shipped in Shipped::all() {
        for fixture in read_fixtures::of_rule_set(&shipped) {
            let place = &fixture.place;
            assert!(
                !fixture.comment.is_empty(),
                "{place}: a comment must name the source of the object"
            );
            let group = &shipped.spec.target.group;
            let version = &shipped.spec.target.version;
            let expected = if group.is_empty() {
                version.clone()
            } else {
                format!("{group}/{version}")
            };
            let version = fixture.object["apiVersion"].as_str();
            assert_eq!(
                version,
                Some(expected.as_str()),
                "{place}: the apiVersion must be that of the target"
            );
        }
    }
}

#[test]
fn expectations_name_existing_operations() {
    for shipped in Shipped::all() {
        let rules = shipped.spec.rules.iter();
        let known: BTreeSet<&str> = rules.map(|rule| rule.operation.as_str()).collect();
        for fixture in read_fixtures::of_rule_set(&shipped) {
            let names = fixture.operations.iter().chain(&fixture.continued);
            let names = names.chain(fixture.outcomes.keys());
            for name in names.chain(fixture.status.keys()) {
                assert!(
                    known.contains(operation_name(name)),
                    "{}: no rule detects the operation {name}",
                    fixture.place
                );
            }
        }
    }
}

#[test]
fn every_file_of_fixtures_belongs_to_a_rule_set() {
    let shipped: BTreeSet<String> = Shipped::all().into_iter().map(|set| set.file).collect();
    let unknown: Vec<String> = read_fixtures::files()
        .difference(&shipped)
        .cloned()
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
