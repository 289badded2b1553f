//! Checks the fields of a rule set. This module repeats the checks of the CRD's schema, because two
//! kinds of rule sets were never checked against the current schema:
//!
//! - rule sets that are read from files
//! - rule sets that were stored in the cluster before the schema got stricter
//!
//! The module also makes some checks that the schema does not make, for example of the label
//! selector.

use super::RuleSetError;
use super::lint::expressions;
use ifo_api::ruleset::{
    MAX_EXPRESSION, MAX_LABELS, MAX_NAMESPACES, MAX_RULES, MAX_VARIABLES, MAX_WAIT_SECONDS,
    OperationRuleSetSpec, Rule,
};
use ifo_api::{GROUP, Gvr, LIVE_GROUP, duration, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Returns all errors in `spec`, except errors in the code of its expressions.
pub(super) fn validate(spec: &OperationRuleSetSpec) -> Vec<RuleSetError> {
    let mut check = RuleSetCheck(Vec::new());
    check.value("component", &spec.component);
    check.target(&spec.target);
    check.count("namespaces", spec.namespaces.len(), MAX_NAMESPACES);
    for namespace in &spec.namespaces {
        let message = format_args!("namespaces: {namespace:?} is not a namespace's name");
        check.require(is_dns_label(namespace), message);
    }
    if let Some(selector) = &spec.label_selector {
        check.selector(selector);
    }
    for (field, expression) in expressions(spec) {
        let length = expression.chars().count();
        check.require(length > 0, format_args!("{field} is empty"));
        let message = format_args!("{field} has {length} characters, more than {MAX_EXPRESSION}");
        check.require(length <= MAX_EXPRESSION, message);
    }
    check.count("variables", spec.variables.len(), MAX_VARIABLES);
    let message = format_args!("rules: at least one rule is needed");
    check.require(!spec.rules.is_empty(), message);
    check.count("rules", spec.rules.len(), MAX_RULES);
    check.unique(
        "rules: operation",
        spec.rules.iter().map(|it| &*it.operation),
    );
    for rule in &spec.rules {
        check.rule(rule);
    }
    check.labels(spec);
    check.0
}

/// The errors that were found.
struct RuleSetCheck(Vec<RuleSetError>);

impl RuleSetCheck {
    /// Adds an error with this message if `is_valid` is false.
    fn require(&mut self, is_valid: bool, message: fmt::Arguments<'_>) {
        if !is_valid {
            self.0.push(RuleSetError::Spec(message.to_string()));
        }
    }

    fn count(&mut self, field: &str, count: usize, most: usize) {
        let message = format_args!("{field}: at most {most} entries are allowed, found {count}");
        self.require(count <= most, message);
    }

    fn unique<'a>(&mut self, field: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = BTreeSet::new();
        for name in names {
            let message = format_args!("{field} {name:?} is declared twice");
            self.require(seen.insert(name), message);
        }
    }

    /// Checks a label value that must not be empty.
    fn value(&mut self, field: &str, value: &str) {
        let is_valid = !value.is_empty() && labels::is_value(value);
        self.require(
            is_valid,
            format_args!("{field} {value:?} is not a label value"),
        );
    }

    fn target(&mut self, target: &Gvr) {
        let group = &*target.group;
        let message =
            format_args!("target: group {group:?} belongs to this server and cannot be watched");
        self.require(group != GROUP && group != LIVE_GROUP, message);
        let is_group = group.is_empty() || labels::is_subdomain(group);
        self.require(is_group, format_args!("target: {group:?} is not a group"));
        for (field, value) in [("version", &target.version), ("resource", &target.resource)] {
            let is_valid = is_dns_label(value) && !value.starts_with(|c: char| c.is_ascii_digit());
            let hint = match field {
                "version" => "such as v1",
                _ => "the plural of the kind in lower case",
            };
            let message = format_args!("target: {value:?} is not a {field} ({hint})");
            self.require(is_valid, message);
        }
    }

    fn selector(&mut self, selector: &LabelSelector) {
        let requirements = selector.match_expressions.as_deref().unwrap_or_default();
        let equal = selector.match_labels.iter().flatten();
        let keys = requirements.iter().map(|requirement| &requirement.key);
        for key in keys.chain(equal.clone().map(|(key, _)| key)) {
            let message = format_args!("labelSelector: {key:?} is not a label key");
            self.require(labels::is_key(key), message);
        }
        let values = requirements
            .iter()
            .flat_map(|it| it.values.iter().flatten());
        for value in values.chain(equal.map(|(_, value)| value)) {
            let message = format_args!("labelSelector: {value:?} is not a label value");
            self.require(labels::is_value(value), message);
        }
        for requirement in requirements {
            let empty = requirement.values.iter().flatten().next().is_none();
            let (operator, key) = (&*requirement.operator, &requirement.key);
            let (is_valid, wrong) = match operator {
                "In" | "NotIn" => (!empty, "needs values"),
                "Exists" | "DoesNotExist" => (empty, "takes no values"),
                _ => (false, "is not one of In, NotIn, Exists, DoesNotExist"),
            };
            let message = format_args!("labelSelector: operator {operator:?} of {key:?} {wrong}");
            self.require(is_valid, message);
        }
    }

    fn rule(&mut self, rule: &Rule) {
        let name = &rule.operation;
        self.value("rules: operation", name);
        for (field, own, needed, other) in [
            ("itemKey", &rule.item_key, "forEach", &rule.for_each),
            (
                "stalledAfter",
                &rule.stalled_after,
                "progress",
                &rule.progress,
            ),
            (
                "outcomeMessage",
                &rule.outcome_message,
                "outcome",
                &rule.outcome,
            ),
        ] {
            let message = format_args!("rules[{name}].{field} needs {needed}, which is missing");
            self.require(own.is_none() || other.is_some(), message);
        }
        let most = Duration::from_secs(MAX_WAIT_SECONDS);
        let most_of_limit = Duration::MAX;
        for (field, text, may_be_zero, most) in [
            ("debounce", &rule.debounce, true, most),
            ("appearAfter", &rule.appear_after, true, most),
            ("stateAfter", &rule.state_after, true, most),
            (
                "expectedDuration",
                &rule.expected_duration,
                false,
                most_of_limit,
            ),
            ("stalledAfter", &rule.stalled_after, false, most),
        ] {
            let Some(text) = text else { continue };
            let fixed = duration::parse(text);
            // A limit that is not a duration is an expression.
            let message = format_args!(
                "rules[{name}].{field}: {text:?} is not a duration such as 30s or 1h30m"
            );
            self.require(fixed.is_some() || !may_be_zero, message);
            let is_zero = fixed.is_some_and(|it| it.is_zero());
            let message = format_args!("rules[{name}].{field} is zero");
            self.require(may_be_zero || !is_zero, message);
            let message = format_args!("rules[{name}].{field}: {text:?} is more than 24h");
            self.require(fixed.is_none_or(|it| it <= most), message);
        }
        let count = rule.supersedes.len();
        self.count(&format!("rules[{name}].supersedes"), count, MAX_RULES);
        for other in &rule.supersedes {
            let is_valid = other == "*" || !other.is_empty() && labels::is_value(other);
            let message = format_args!("rules[{name}].supersedes: {other:?} is not an operation");
            self.require(is_valid, message);
        }
    }

    fn labels(&mut self, spec: &OperationRuleSetSpec) {
        self.count("labels", spec.labels.len(), MAX_LABELS);
        self.count("labelExpressions", spec.label_expressions.len(), MAX_LABELS);
        let computed = spec.label_expressions.iter().map(|label| &*label.key);
        self.unique("labelExpressions: key", computed.clone());
        for key in spec.labels.keys().map(String::as_str).chain(computed) {
            let message = format_args!("label key {key:?} is not a qualified name");
            self.require(labels::is_key(key), message);
            let own = key.strip_prefix(labels::PREFIX);
            let is_free = own.is_none_or(|suffix| labels::AUTHOR_SUFFIXES.contains(&suffix));
            let message = format_args!("label key {key:?} is set by the server itself");
            self.require(is_free, message);
        }
        for (key, value) in &spec.labels {
            let message = format_args!("labels: value {value:?} of {key} is not a label value");
            self.require(labels::is_value(value), message);
        }
    }
}

fn is_dns_label(text: &str) -> bool {
    labels::is_subdomain(text) && !text.contains('.') && text.len() <= 63
}
