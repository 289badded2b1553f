//! Mutation test of the shipped rule sets. The test changes one expression at a time: a field of a
//! rule (see [`FIELDS`]), the field `nodes` of a rule set, or a variable that these expressions
//! use. The changed expression is called a mutant. With each mutant, at least one fixture (an
//! object with the expected operations) must fail. If no fixture fails, the fixtures do not cover
//! the changed part of the expression.

use crate::compare_with_expected_operations::{book, judge};
use crate::expression_mutants::mutants;
use crate::read_fixtures::{self, Fixture};
use crate::read_shipped_rule_sets::Shipped;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mutants that no fixture can detect, because they have the same results as the original
/// expression. An entry has four texts:
///
/// 1. the file of the rule set
/// 2. a part of [`Site::name`]
/// 3. a part of the description of the change (the field `change` of the mutant)
/// 4. the reason why the results are the same
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[];

/// An expression in a rule set that the test changes.
struct Site {
    /// Name of the expression, such as `Migrating.expression` or `variables.available`.
    name: String,
    source: String,
    /// Takes a changed expression, and returns the spec of the rule set with the changed expression
    /// instead of `source`. If the expression belongs to a rule, the spec contains only this rule,
    /// so that the test is faster.
    build_spec: Box<dyn Fn(String) -> OperationRuleSetSpec>,
    /// The operation of the rule that contains the expression. None for an expression of a variable
    /// or of the field `nodes`.
    judged_operation: Option<String>,
}

/// The fields of a rule whose expressions the test changes.
const FIELDS: [&str; 12] = [
    "expression",
    "continueWhile",
    "state",
    "outcome",
    "message",
    "progress",
    "work",
    "initiator",
    "cancel",
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
        "initiator" => rule.initiator.as_mut(),
        "cancel" => rule.cancel.as_mut(),
        "expectedDuration" => rule.expected_duration.as_mut(),
        "stalledAfter" => rule.stalled_after.as_mut(),
        "size" => rule.size.as_mut(),
        other => panic!("unknown field {other}"),
    }
}

/// Returns the expressions that the test changes: the [`FIELDS`] of all rules, the field `nodes`,
/// and the variables that these expressions use.
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
                build_spec: Box::new(move |text| {
                    let mut spec = alone.clone();
                    *field(&mut spec.rules[0], name).expect("the rule has this field") = text;
                    spec
                }),
                judged_operation: Some(rule.operation.clone()),
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
            build_spec: Box::new(move |text| OperationRuleSetSpec {
                nodes: Some(text),
                ..whole.clone()
            }),
            judged_operation: None,
        });
    }
    // The expression of a variable can use only earlier variables. So the loop goes from the last
    // variable to the first. When it reaches a variable, `sources` already has the texts of all
    // tested expressions that could use this variable. If none of them does, the test skips it.
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
            build_spec: Box::new(move |text| {
                let mut spec = whole.clone();
                spec.variables[index].expression = text;
                spec
            }),
            judged_operation: None,
        });
    }
    sites
}

/// Returns true if `text` reads the variable. The text `variables.stepCount` does not read the
/// variable `step`.
fn uses(text: &str, variable: &str) -> bool {
    let name = format!("variables.{variable}");
    text.match_indices(&name).any(|(at, _)| {
        let next = text[at + name.len()..].chars().next();
        !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns a description of each mutant that no fixture detects and that is not in [`EQUIVALENT`].
fn undetected_mutants(shipped: &Shipped) -> Vec<String> {
    let fixtures = read_fixtures::of_rule_set(shipped);
    let mut undetected = Vec::new();
    for site in sites(&shipped.spec) {
        for mutant in mutants(&site.source) {
            // If the changed expression does not compile, the mutant counts as detected.
            let Ok(book) = book(&shipped.name, &(site.build_spec)(mutant.text)) else {
                continue;
            };
            let judged_operation = site.judged_operation.as_deref();
            let passes = |fixture: &Fixture| judge(&book, fixture, judged_operation).is_ok();
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
