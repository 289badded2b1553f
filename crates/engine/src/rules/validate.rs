//! Checks the fields of a rule set. This module repeats the checks of the CRD's schema, because two
//! kinds of rule sets were never checked against the current schema:
//!
//! - rule sets that are read from files
//! - rule sets that were stored in the cluster before the schema got stricter
//!
//! The module also makes some checks that the schema does not make, for example of the label
//! selector.

use super::RuleSetError;
use ifo_api::ruleset::{
    self, MAX_EXPRESSION, MAX_LABELS, MAX_NAMESPACES, MAX_RULES, MAX_VARIABLES, MAX_WAIT_SECONDS,
    OperationRuleSetSpec,
};
use ifo_api::{GROUP, LIVE_GROUP, duration, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;
use std::time::Duration;

/// Returns all errors in `spec`, except errors in the code of its expressions.
pub(super) fn validate(spec: &OperationRuleSetSpec) -> Vec<RuleSetError> {
    let mut check = RuleSetCheck(Vec::new());
    check.value("component", &spec.component);
    check.target(&spec.target);
    check.count("namespaces", spec.namespaces.len(), MAX_NAMESPACES);
    for namespace in &spec.namespaces {
        if !is_dns_label(namespace) {
            check.refuse(format!(
                "namespaces: {namespace:?} is not a namespace's name"
            ));
        }
    }
    if let Some(selector) = &spec.label_selector {
        check.selector(selector);
    }
    check.variables(&spec.variables);
    if spec.rules.is_empty() {
        check.refuse("rules: at least one rule is needed".to_owned());
    }
    check.count("rules", spec.rules.len(), MAX_RULES);
    let mut seen = BTreeSet::new();
    for rule in &spec.rules {
        check.rule(rule);
        if !seen.insert(&rule.operation) {
            check.refuse(format!(
                "rules: operation {:?} is declared twice",
                rule.operation
            ));
        }
    }
    check.labels(spec);
    if let Some(nodes) = &spec.nodes {
        check.length("nodes", nodes);
    }
    check.0
}

struct RuleSetCheck(Vec<RuleSetError>);

impl RuleSetCheck {
    fn refuse(&mut self, message: String) {
        self.0.push(RuleSetError::Spec(message));
    }

    fn count(&mut self, field: &str, count: usize, most: usize) {
        if count > most {
            self.refuse(format!(
                "{field}: at most {most} entries are allowed, found {count}"
            ));
        }
    }

    fn value(&mut self, field: &str, value: &str) {
        if value.is_empty() || !labels::is_value(value) {
            self.refuse(format!("{field} {value:?} is not a label value"));
        }
    }

    fn length(&mut self, field: &str, expression: &str) {
        let length = expression.chars().count();
        if length == 0 {
            self.refuse(format!("{field} is empty"));
        } else if length > MAX_EXPRESSION {
            self.refuse(format!(
                "{field} has {length} characters, more than {MAX_EXPRESSION}"
            ));
        }
    }

    fn target(&mut self, target: &ruleset::Target) {
        if target.group == GROUP || target.group == LIVE_GROUP {
            self.refuse(format!(
                "target: group {:?} belongs to this server and cannot be watched",
                target.group
            ));
        }
        if !target.group.is_empty() && !labels::is_subdomain(&target.group) {
            self.refuse(format!("target: {:?} is not a group", target.group));
        }
        for (field, value) in [("version", &target.version), ("resource", &target.resource)] {
            if !is_dns_label(value) || value.starts_with(|c: char| c.is_ascii_digit()) {
                let hint = match field {
                    "resource" if value.starts_with(|c: char| c.is_ascii_uppercase()) => {
                        let plural = guessed_plural(value);
                        format!(" (hint: write the plural of the kind in lower case: {plural})")
                    }
                    "version" => value
                        .split_once('/')
                        .map(|(group, version)| {
                            format!(" (hint: write group: {group} and version: {version})")
                        })
                        .unwrap_or_default(),
                    _ => String::new(),
                };
                self.refuse(format!("target: {value:?} is not a {field}{hint}"));
            }
        }
    }

    /// Makes the same checks as the kube-apiserver makes on the label selector of a request
    /// (`labels.NewRequirement` in apimachinery).
    fn selector(&mut self, selector: &LabelSelector) {
        let requirements = selector.match_expressions.as_deref().unwrap_or_default();
        let equal = selector.match_labels.iter().flatten();
        let keys = requirements.iter().map(|requirement| &requirement.key);
        for key in keys.chain(equal.clone().map(|(key, _)| key)) {
            if !labels::is_key(key) {
                self.refuse(format!("labelSelector: {key:?} is not a label key"));
            }
        }
        let values = requirements
            .iter()
            .flat_map(|requirement| requirement.values.iter().flatten());
        for value in values.chain(equal.map(|(_, value)| value)) {
            if !labels::is_value(value) {
                self.refuse(format!("labelSelector: {value:?} is not a label value"));
            }
        }
        for requirement in requirements {
            let empty = requirement.values.iter().flatten().next().is_none();
            let wrong = match requirement.operator.as_str() {
                "In" | "NotIn" if empty => "needs values",
                "Exists" | "DoesNotExist" if !empty => "takes no values",
                "In" | "NotIn" | "Exists" | "DoesNotExist" => continue,
                _ => "is not one of In, NotIn, Exists, DoesNotExist",
            };
            self.refuse(format!(
                "labelSelector: operator {:?} of {:?} {wrong}",
                requirement.operator, requirement.key
            ));
        }
    }

    fn variables(&mut self, variables: &[ruleset::Variable]) {
        self.count("variables", variables.len(), MAX_VARIABLES);
        for variable in variables {
            self.length(
                &format!("variables[{}].expression", variable.name),
                &variable.expression,
            );
        }
    }

    fn rule(&mut self, rule: &ruleset::Rule) {
        let name = &rule.operation;
        self.value("rules: operation", name);
        let list = rule.for_each.as_deref().map(|list| ("forEach", list));
        for (field, expression) in list.into_iter().chain(rule.expressions()) {
            self.length(&format!("rules[{name}].{field}"), expression);
        }
        if rule.item_key.is_some() && rule.for_each.is_none() {
            self.refuse(format!(
                "rules[{name}].itemKey needs forEach, which is missing"
            ));
        }
        if rule.stalled_after.is_some() && rule.progress.is_none() {
            self.refuse(format!(
                "rules[{name}].stalledAfter needs progress, which is missing"
            ));
        }
        if rule.outcome_message.is_some() && rule.outcome.is_none() {
            self.refuse(format!(
                "rules[{name}].outcomeMessage needs outcome, which is missing"
            ));
        }
        let stalled_after = rule.stalled_after.as_deref().and_then(duration::parse);
        for (field, fixed) in [
            (
                "expectedDuration",
                rule.expected_duration.as_deref().and_then(duration::parse),
            ),
            ("stalledAfter", stalled_after),
        ] {
            if fixed.is_some_and(|fixed| fixed.is_zero()) {
                self.refuse(format!("rules[{name}].{field} is zero"));
            }
        }
        if stalled_after.is_some_and(|wait| wait > Duration::from_secs(MAX_WAIT_SECONDS)) {
            self.refuse(format!("rules[{name}].stalledAfter is more than 24h"));
        }
        self.count(
            &format!("rules[{name}].supersedes"),
            rule.supersedes.len(),
            MAX_RULES,
        );
        for other in &rule.supersedes {
            if other != "*" && (other.is_empty() || !labels::is_value(other)) {
                self.refuse(format!(
                    "rules[{name}].supersedes: {other:?} is not an operation"
                ));
            }
        }
        for (field, text) in [
            ("debounce", &rule.debounce),
            ("appearAfter", &rule.appear_after),
            ("stateAfter", &rule.state_after),
        ] {
            let Some(text) = text else { continue };
            match duration::parse(text) {
                None => {
                    let hint = duration::suggestion(text)
                        .map(|suggested| format!(" (hint: write {suggested})"));
                    self.refuse(format!(
                        "rules[{name}].{field}: {text:?} is not a duration such as 30s or 1h30m{}",
                        hint.unwrap_or_default()
                    ));
                }
                Some(wait) if wait > Duration::from_secs(MAX_WAIT_SECONDS) => {
                    self.refuse(format!("rules[{name}].{field}: {text:?} is more than 24h"));
                }
                Some(_) => {}
            }
        }
    }

    fn labels(&mut self, spec: &OperationRuleSetSpec) {
        self.count("labels", spec.labels.len(), MAX_LABELS);
        self.count("labelExpressions", spec.label_expressions.len(), MAX_LABELS);
        for key in spec.labels.keys() {
            self.key(key);
        }
        for (key, value) in &spec.labels {
            if !labels::is_value(value) {
                self.refuse(format!(
                    "labels: value {value:?} of {key} is not a label value"
                ));
            }
        }
        let mut seen = BTreeSet::new();
        for label in &spec.label_expressions {
            self.key(&label.key);
            self.length(
                &format!("labelExpressions[{}].expression", label.key),
                &label.expression,
            );
            if !seen.insert(&label.key) {
                self.refuse(format!(
                    "labelExpressions: key {:?} is declared twice",
                    label.key
                ));
            }
        }
    }

    fn key(&mut self, key: &str) {
        if !labels::is_key(key) {
            self.refuse(format!("label key {key:?} is not a qualified name"));
        } else if key
            .strip_prefix(labels::PREFIX)
            .is_some_and(|suffix| !labels::AUTHOR_SUFFIXES.contains(&suffix))
        {
            self.refuse(format!("label key {key:?} is set by the server itself"));
        }
    }
}

/// Guesses the name of the resource for `kind`: the English plural in lower case. For example,
/// `NetworkPolicy` gives `networkpolicies`.
fn guessed_plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if kind.ends_with(['s', 'x']) || kind.ends_with("ch") => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// Returns true if `text` is a DNS label as in RFC 1123, such as the name of a namespace.
fn is_dns_label(text: &str) -> bool {
    labels::is_subdomain(text) && !text.contains('.') && text.len() <= 63
}
