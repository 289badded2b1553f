//! Mutation tests of the shipped rule sets. If an expression of a rule is changed, the test of at
//! least one fixture must fail. Otherwise, the fixtures do not cover this part of the expression.
//! The test changes the expressions in the fields [`FIELDS`] of rules, in the field `nodes` of rule
//! sets, and in the variables that these expressions use.

use crate::catalogue::Shipped;
use crate::compare_operations::{book, judge};
use crate::fixtures::{self, Fixture};
use crate::mutants::mutants;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Changed expressions that have the same results as the original expression, so that no fixture
/// can detect them. An entry has the file, a part of the name of the expression, a part of the
/// change, and the reason.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[];

/// An expression in a rule set that the test changes.
struct Site {
    /// Name of the expression, such as `Migrating.expression` or `variables.available`.
    name: String,
    source: String,
    /// Returns the spec of the rule set with another expression in this place. If the expression
    /// belongs to a rule, the spec contains only this rule, so that the test is faster.
    replaced: Box<dyn Fn(String) -> OperationRuleSetSpec>,
    /// The operation of the rule that contains the expression. None for an expression of a variable
    /// or of the field `nodes`.
    only: Option<String>,
}

/// The fields of a rule whose expressions are mutated.
const FIELDS: [&str; 10] = [
    "expression",
    "continueWhile",
    "state",
    "outcome",
    "message",
    "progress",
    "work",
    "expectedDuration",
    "stalledAfter",
    "size",
];

fn field<'r>(rule: &'r mut Rule, name: &str) -> Option<&'r mut String> {
    match name {
        "expression" => Some(&mut rule.expression),
        "continueWhile" => rule.continue_while.as_mut(),
        "state" => rule.state.as_mut(),
        "outcome" => rule.outcome.as_mut(),
        "message" => rule.message.as_mut(),
        "progress" => rule.progress.as_mut(),
        "work" => rule.work.as_mut(),
        "expectedDuration" => rule.expected_duration.as_mut(),
        "stalledAfter" => rule.stalled_after.as_mut(),
        "size" => rule.size.as_mut(),
        other => panic!("unknown field {other}"),
    }
}

/// Returns the expressions that the test changes: those of all rules, of the field `nodes`, and of
/// the variables that these expressions use.
fn sites(spec: &OperationRuleSetSpec) -> Vec<Site> {
    let mut sites = Vec::new();
    let mut sources = String::new();
    for rule in &spec.rules {
        for name in FIELDS {
            let mut alone = spec.clone();
            alone.rules = vec![rule.clone()];
            let Some(source) = field(&mut alone.rules[0], name).map(|source| source.clone()) else {
                continue;
            };
            sources.push_str(&source);
            sources.push('\n');
            sites.push(Site {
                name: format!("{}.{name}", rule.operation),
                source,
                replaced: Box::new(move |text| {
                    let mut spec = alone.clone();
                    *field(&mut spec.rules[0], name).expect("the rule has this field") = text;
                    spec
                }),
                only: Some(rule.operation.clone()),
            });
        }
    }
    if let Some(source) = &spec.nodes {
        sources.push_str(source);
        sources.push('\n');
        let whole = spec.clone();
        sites.push(Site {
            name: "nodes".to_owned(),
            source: source.clone(),
            replaced: Box::new(move |text| OperationRuleSetSpec {
                nodes: Some(text),
                ..whole.clone()
            }),
            only: None,
        });
    }
    // The variables are visited from the last to the first. So when a variable is visited,
    // `sources` contains every expression that can use it: those of the rules, of the nodes and of
    // the later variables.
    for (index, variable) in spec.variables.iter().enumerate().rev() {
        if !uses(&sources, &variable.name) {
            continue;
        }
        sources.push_str(&variable.expression);
        sources.push('\n');
        let whole = spec.clone();
        sites.push(Site {
            name: format!("variables.{}", variable.name),
            source: variable.expression.clone(),
            replaced: Box::new(move |text| {
                let mut spec = whole.clone();
                spec.variables[index].expression = text;
                spec
            }),
            only: None,
        });
    }
    sites
}

fn uses(text: &str, variable: &str) -> bool {
    let name = format!("variables.{variable}");
    text.match_indices(&name).any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns a description of each changed expression that no fixture detects.
fn undetected_mutants(shipped: &Shipped) -> Vec<String> {
    let fixtures = fixtures::of_rule_set(shipped);
    let mut undetected = Vec::new();
    for site in sites(&shipped.spec) {
        for mutant in mutants(&site.source) {
            // If the changed expression does not compile, the change counts as detected.
            let Ok(book) = book(&shipped.name, &(site.replaced)(mutant.text)) else {
                continue;
            };
            let only = site.only.as_deref();
            let passes = |fixture: &Fixture| judge(&book, fixture, only).is_ok();
            let known = EQUIVALENT.iter().any(|(file, name, change, _)| {
                shipped.file == *file && site.name.contains(name) && mutant.change.contains(change)
            });
            if fixtures.iter().all(passes) && !known {
                undetected.push(format!("{} {}: {}", shipped.file, site.name, mutant.change));
            }
        }
    }
    undetected
}

#[test]
fn every_mutation_of_an_expression_is_detected() {
    let all = Shipped::all();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(shipped) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let undetected = undetected_mutants(shipped);
            found
                .lock()
                .expect("no thread has panicked")
                .extend(undetected);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().expect("no thread has panicked");
    found.sort();
    let count = found.len();
    assert!(
        found.is_empty(),
        "{count} mutants are not detected:\n{}",
        found.join("\n")
    );
}
