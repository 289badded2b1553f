//! From an OperationRuleSet to compiled rules.

use super::{Activity, Rule, RuleSet};
use crate::api::labels;
use crate::api::ruleset::OperationRuleSetSpec;
use crate::expression::{self, CompileError, Environment, Kind, Program};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rules of one set that are compiled; the CRD's schema has the same bound, but a
/// folder of manifests does not pass through it.
const MAX_RULES: usize = 64;

/// Why a rule set cannot be used, worded for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// An expression that does not compile.
    #[error("{field}: {error}")]
    Expression {
        /// Which one, such as `rules[Migrating].expression`.
        field: String,
        /// The compiler's message with line and column.
        error: CompileError,
    },
    /// Something that the schema refuses too, for rule sets that did not pass it.
    #[error("{0}")]
    Spec(String),
}

/// Compiles a rule set. All that is wrong is reported, not only the first.
pub fn compile(name: &str, spec: &OperationRuleSetSpec) -> Result<RuleSet, Vec<Invalid>> {
    let mut invalid = check(spec);
    let mut program = |field: String, source: &str, kind: Kind| -> Option<Program> {
        match expression::compile(source, kind, &Environment::default()) {
            Ok(program) => Some(program),
            Err(error) => {
                invalid.push(Invalid::Expression { field, error });
                None
            }
        }
    };
    let mut rules = Vec::with_capacity(spec.rules.len().min(MAX_RULES));
    for rule in spec.rules.iter().take(MAX_RULES) {
        let field = format!("rules[{}].expression", rule.operation);
        if let Some(expression) = program(field, &rule.expression, Kind::Bool) {
            rules.push(Rule {
                operation: rule.operation.as_str().into(),
                expression,
            });
        }
    }
    let mut label_expressions = Vec::new();
    for label in spec.label_expressions.iter().take(MAX_RULES) {
        let field = format!("labelExpressions[{}].expression", label.key);
        if let Some(expression) = program(field, &label.expression, Kind::String) {
            label_expressions.push((label.key.clone(), expression));
        }
    }
    if !invalid.is_empty() {
        return Err(invalid);
    }
    let namespaces =
        (!spec.namespaces.is_empty()).then(|| spec.namespaces.iter().cloned().collect());
    Ok(RuleSet {
        name: Arc::from(name),
        component: Arc::from(spec.component.as_str()),
        namespaces,
        labels: spec.labels.clone(),
        label_expressions,
        rules,
        activity: Activity::default(),
    })
}

/// What the CRD's schema checks, for rule sets that come from files.
fn check(spec: &OperationRuleSetSpec) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    let mut refuse = |message: String| invalid.push(Invalid::Spec(message));
    if spec.component.is_empty() || !labels::is_value(&spec.component) {
        refuse(format!(
            "component {:?} is not a label value",
            spec.component
        ));
    }
    if spec.rules.is_empty() {
        refuse("rules: at least one is needed".to_owned());
    }
    if spec.rules.len() > MAX_RULES || spec.label_expressions.len() > MAX_RULES {
        refuse(format!("more than {MAX_RULES} rules or labelExpressions"));
    }
    let mut seen = BTreeSet::new();
    for rule in &spec.rules {
        if rule.operation.is_empty() || !labels::is_value(&rule.operation) {
            refuse(format!(
                "rules: operation {:?} is not a label value",
                rule.operation
            ));
        }
        if !seen.insert(&rule.operation) {
            refuse(format!(
                "rules: operation {:?} is there twice",
                rule.operation
            ));
        }
    }
    let keys = spec.labels.keys().map(String::as_str);
    for key in keys.chain(
        spec.label_expressions
            .iter()
            .map(|label| label.key.as_str()),
    ) {
        if !labels::is_key(key) {
            refuse(format!("label key {key:?} is not a qualified name"));
        } else if key
            .strip_prefix(labels::PREFIX)
            .is_some_and(|suffix| !labels::AUTHOR_SUFFIXES.contains(&suffix))
        {
            refuse(format!("label key {key:?} is set by the server itself"));
        }
    }
    for (key, value) in &spec.labels {
        if !labels::is_value(value) {
            refuse(format!(
                "labels: value {value:?} of {key} is not a label value"
            ));
        }
    }
    if spec.target.group == crate::api::GROUP || spec.target.group == crate::api::LIVE_GROUP {
        refuse(format!(
            "target: group {:?} would feed operations back",
            spec.target.group
        ));
    }
    invalid
}
