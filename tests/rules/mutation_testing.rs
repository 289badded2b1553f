//! Mutation test of the shipped rule sets. The test changes one expression at a time: a field of a
//! rule (see [`FIELDS`]), the field `nodes` of a rule set, or a variable that these expressions
//! use. The changed expression is called a mutant. With each mutant, at least one fixture (an
//! object with the expected operations) must fail. If no fixture fails, the fixtures do not cover
//! the changed part of the expression. The same must hold if a field is removed.

use crate::catalogue::{Fixture, Shipped, book};
use crate::expectations::judge;
use crate::expression_mutants::{Mutant, mutants};
use ifo_api::ruleset::MAX_EXPRESSION;
use ifo_api::schema;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

/// An expression in a rule set that the test changes.
struct Site {
    /// The spec of the rule set. If the expression belongs to a rule, the spec contains only this rule,
    /// so that the test is faster.
    spec: Value,
    /// The JSON pointer of the expression in the spec.
    pointer: String,
    /// The operation of the rule that contains the expression. None for an expression of a variable
    /// or of the field `nodes`.
    operation: Option<String>,
}

/// The fields of a rule whose expressions the test changes: all fields with expressions, except
/// [`REMOVED_FIELDS`] and [`UNTESTED_FIELDS`].
static FIELDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let schema = schema::rule_set();
    let rules = &schema["properties"]["spec"]["properties"]["rules"];
    let fields = rules["items"]["properties"].as_object().into_iter();
    let has_expression = |schema: &Value| schema["maxLength"] == MAX_EXPRESSION;
    let fields = fields.flatten().filter(|(_, it)| has_expression(it));
    let fields = fields.map(|(field, _)| field.clone());
    let is_left_out = |field: &str| {
        let mut left_out = REMOVED_FIELDS.into_iter().chain(UNTESTED_FIELDS);
        left_out.any(|it| it == field)
    };
    fields.filter(|it| !is_left_out(it)).collect()
});

/// The fields of a rule that the test removes, but does not change.
const REMOVED_FIELDS: [&str; 4] = ["reason", "startedAt", "queuedAt", "instance"];

/// The fields with expressions that the test neither changes nor removes.
const UNTESTED_FIELDS: [&str; 3] = ["forEach", "itemKey", "outcomeMessage"];

impl Site {
    /// Returns None if the rule set has no expression at this place.
    fn source(&self) -> Option<&str> {
        self.spec.pointer(&self.pointer)?.as_str()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mut all = mutants(self.source().unwrap_or_default());
        if self.pointer == "/rules/0/expression" {
            let constant = |value: &str| Mutant {
                text: value.to_owned(),
                change: format!("the expression becomes {value}"),
            };
            all.extend(["true", "false"].map(constant));
        }
        all
    }
}

/// Returns the expressions that the test changes: the [`FIELDS`] of all rules, the field `nodes`,
/// and the variables that these expressions use.
fn sites(spec: &Value) -> Vec<Site> {
    let site = |spec: &Value, pointer: String, operation| Site {
        spec: spec.clone(),
        pointer,
        operation,
    };
    let mut sites = vec![site(spec, "/nodes".to_owned(), None)];
    for rule in spec["rules"].as_array().into_iter().flatten() {
        let mut alone = spec.clone();
        alone["rules"] = json!([rule]);
        let operation = rule["operation"].as_str();
        let of = |name: &String| {
            site(
                &alone,
                format!("/rules/0/{name}"),
                operation.map(str::to_owned),
            )
        };
        sites.extend(FIELDS.iter().map(of));
    }
    sites.retain(|site| site.source().is_some());
    // The expression of a variable can use only earlier variables. So the loop goes from the last
    // variable to the first. When it reaches a variable, `sites` already has all tested expressions
    // that could use this variable. If none of them does, the test skips it.
    let variables = spec["variables"].as_array().into_iter().flatten();
    for (index, variable) in variables.enumerate().collect::<Vec<_>>().into_iter().rev() {
        let name = variable["name"].as_str().unwrap_or_default();
        if sites
            .iter()
            .filter_map(Site::source)
            .any(|it| uses(it, name))
        {
            sites.push(site(spec, format!("/variables/{index}/expression"), None));
        }
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

/// Returns a description of each mutant that no fixture detects.
fn undetected_mutants(shipped: &Shipped) -> Vec<String> {
    let fixtures = shipped.fixtures();
    let mut undetected = Vec::new();
    for site in sites(&json!(shipped.spec)) {
        for mutant in site.mutants() {
            let mut spec = site.spec.clone();
            *spec.pointer_mut(&site.pointer).expect("it is in the spec") = mutant.text.into();
            let spec = serde_json::from_value(spec).expect("only a text has changed");
            // If the changed expression does not compile, the mutant counts as detected.
            let Ok(book) = book(&shipped.name, &spec) else {
                continue;
            };
            let passes = |it: &Fixture| judge(&book, it, site.operation.as_deref()).is_ok();
            if fixtures.iter().all(passes) {
                let operation = site.operation.as_deref().unwrap_or_default();
                let (file, pointer, change) = (&shipped.file, &site.pointer, mutant.change);
                undetected.push(format!("{file} {operation}{pointer}: {change}"));
            }
        }
    }
    undetected
}

/// Returns a description of each field that no fixture needs. If several rules have the same expression
/// for a field, a fixture for one of these rules is enough.
fn undetected_removals(shipped: &Shipped) -> Vec<String> {
    let fixtures = shipped.fixtures();
    let spec = json!(shipped.spec);
    let mut changed = Vec::new();
    if !spec["nodes"].is_null() {
        let mut without = spec.clone();
        without["nodes"].take();
        changed.push(("nodes".to_owned(), without));
    }
    for name in FIELDS.iter().map(|it| &**it).chain(REMOVED_FIELDS) {
        let rules = spec["rules"].as_array().into_iter().flatten();
        let sources: BTreeSet<&str> = rules.filter_map(|rule| rule[name].as_str()).collect();
        for source in sources.into_iter().filter(|_| name != "expression") {
            let mut without = spec.clone();
            for rule in without["rules"].as_array_mut().into_iter().flatten() {
                if rule[name] == source {
                    rule[name].take();
                }
            }
            changed.push((format!("{name}: {source}"), without));
        }
    }
    let is_undetected = |(_, spec): &(String, Value)| {
        let spec = serde_json::from_value(spec.clone()).expect("only a field is missing");
        // A rule set that needs the field does not compile, which counts as detected.
        let book = book(&shipped.name, &spec);
        book.is_ok_and(|book| fixtures.iter().all(|it| judge(&book, it, None).is_ok()))
    };
    changed.retain(is_undetected);
    let describe = |(what, _)| format!("{} without {what}", shipped.file);
    changed.into_iter().map(describe).collect()
}

#[test]
fn every_mutation_of_an_expression_is_detected() {
    let all = Shipped::all();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(shipped) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut undetected = undetected_mutants(shipped);
            undetected.extend(undetected_removals(shipped));
            let mut found = found.lock().expect("no thread has panicked");
            found.extend(undetected);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().expect("no thread has panicked");
    assert!(found.is_empty(), "not detected:\n{}", found.join("\n"));
}
