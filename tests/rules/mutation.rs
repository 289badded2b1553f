//! Checks that a fixture fails when an expression is changed. The expressions are each rule's
//! `expression`, `continueWhile`, `state`, `outcome`, `message` and `progress`, and the
//! variables that these use.

use crate::catalogue::Shipped;
use crate::fixtures::{self, Fixture};
use crate::judge::{book, judge};
use crate::mutants::mutants;
use ifo_api::ruleset::{OperationRuleSetSpec, Rule};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Changes that no object can show: the file, part of the name of the changed expression, part of
/// the change, and the reason.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[];

/// The position of an expression.
struct Site {
    /// Its name, such as `Migrating.expression` or `variables.available`.
    name: String,
    source: String,
    /// The spec with this expression replaced. For an expression of a rule, the other rules are
    /// removed, which makes the test faster.
    replaced: Box<dyn Fn(String) -> OperationRuleSetSpec>,
    /// The only rule that is compared.
    only: Option<String>,
}

/// The fields of a rule whose expressions are changed.
const FIELDS: [&str; 6] = [
    "expression",
    "continueWhile",
    "state",
    "outcome",
    "message",
    "progress",
];

fn field<'r>(rule: &'r mut Rule, name: &str) -> Option<&'r mut String> {
    match name {
        "expression" => Some(&mut rule.expression),
        "continueWhile" => rule.continue_while.as_mut(),
        "state" => rule.state.as_mut(),
        "outcome" => rule.outcome.as_mut(),
        "message" => rule.message.as_mut(),
        "progress" => rule.progress.as_mut(),
        other => panic!("{other} is not among FIELDS"),
    }
}

/// The changed expressions, and the variables that they use.
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
                    *field(&mut spec.rules[0], name).expect("it is there") = text;
                    spec
                }),
                only: Some(rule.operation.clone()),
            });
        }
    }
    // From the last to the first, because a variable can be used by later ones.
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

/// The changes of a rule set that no fixture shows.
fn survivors(shipped: &Shipped) -> Vec<String> {
    let fixtures = fixtures::of(shipped);
    let mut survivors = Vec::new();
    for site in sites(&shipped.spec) {
        for mutant in mutants(&site.source) {
            // A change that does not compile counts as noticed.
            let Ok(book) = book(&shipped.name, &(site.replaced)(mutant.text)) else {
                continue;
            };
            let only = site.only.as_deref();
            let unnoticed = |fixture: &Fixture| judge(&book, fixture, only).is_ok();
            let known = EQUIVALENT.iter().any(|(file, name, change, _)| {
                shipped.file == *file && site.name.contains(name) && mutant.change.contains(change)
            });
            if fixtures.iter().all(unnoticed) && !known {
                survivors.push(format!("{} {}: {}", shipped.file, site.name, mutant.change));
            }
        }
    }
    survivors
}

#[test]
fn every_mutation_of_an_expression_is_detected() {
    let all = Shipped::all();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(shipped) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let survivors = survivors(shipped);
            found.lock().expect("no thread failed").extend(survivors);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().expect("no thread failed");
    found.sort();
    let count = found.len();
    assert!(found.is_empty(), "{count} unnoticed:\n{}", found.join("\n"));
}
