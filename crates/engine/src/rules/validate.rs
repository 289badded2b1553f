//! Checks the fields of a rule set against the schema of the CRD. In two cases, no kube-apiserver
//! has checked the rule set against the current schema:
//!
//! - rule sets that are read from files
//! - rule sets that were stored in the cluster before the schema got stricter
//!
//! The module also checks the name, the label selector and the durations, which the schema does not
//! check completely.

use super::RuleSetError;
use ifo_api::ruleset::{MAX_WAIT_SECONDS, OperationRuleSetSpec, Rule};
use ifo_api::{duration, labels, schema};
use ifo_cel::{Budget, Doc, Environment, EvaluationScope, Program, ResultKind, STEPS_PER_OBJECT};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The schema of a spec.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| schema::rule_set()["properties"]["spec"].take());

/// Returns all errors in the name and in `spec`, except errors in the code of its expressions.
pub(super) fn validate(name: &str, spec: &OperationRuleSetSpec) -> Vec<RuleSetError> {
    let mut check = RuleSetCheck(Vec::new());
    let allowed = "at most 253 lowercase letters, digits, `-` or `.`";
    let message = format_args!("metadata.name: {name:?} is not a DNS subdomain: {allowed}");
    check.require(labels::is_subdomain(name), message);
    check.value("", &SCHEMA, &json!(spec));
    if let Some(selector) = &spec.label_selector {
        check.selector(selector);
    }
    for rule in &spec.rules {
        check.durations(rule);
    }
    check.0
}

/// Evaluates a validation rule of the schema: a CEL expression that reads the value as `self`.
fn holds(rule: &str, value: &Value) -> bool {
    /// The compiled validation rules. The schema has about 20.
    static PROGRAMS: Mutex<BTreeMap<String, Program>> = Mutex::new(BTreeMap::new());
    let program = {
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = programs.entry(rule.to_owned()).or_insert_with(|| {
            let of_object = rule.replace("self", "object.self");
            ifo_cel::compile(&of_object, ResultKind::Bool, &Environment::default())
                .expect("a test compiles all validation rules of the schema")
        });
        compiled.clone()
    };
    let json = json!({ "self": value }).to_string();
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    Doc::parse(json.as_bytes(), program.projection()).is_ok_and(|doc| {
        let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
        program.test(&mut scope) == Ok(true)
    })
}

/// Returns true if `text` is meant as a duration, and not as an expression. Also returns true for
/// invalid durations that match the pattern of the schema, such as `30m1h` and
/// `99999999999999999999`.
pub(super) fn is_duration(text: &str) -> bool {
    let pattern = &SCHEMA["properties"]["rules"]["items"]["properties"]["debounce"]["pattern"];
    duration::parse(text).is_some() || holds(&format!("self.matches({pattern})"), &json!(text))
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

    /// Checks a value against its schema, as the kube-apiserver does. `path` is the path of the
    /// value, such as `rules[Migrating].state`.
    fn value(&mut self, path: &str, schema: &Value, value: &Value) {
        match value {
            Value::String(text) => {
                self.size(path, schema, ("Length", "characters"), text.chars().count());
                if let Some(pattern) = schema["pattern"].as_str() {
                    let is_valid = holds(&format!("self.matches({})", json!(pattern)), value);
                    let description = schema["description"].as_str().unwrap_or_default();
                    let expected = description.replace('\n', " ");
                    let message = format_args!("{path}: {text:?} is not valid. {expected}");
                    self.require(is_valid, message);
                }
            }
            Value::Array(entries) => {
                self.size(path, schema, ("Items", "entries"), entries.len());
                let mut names = BTreeSet::new();
                for entry in entries {
                    let name = match &schema["x-kubernetes-list-map-keys"][0] {
                        Value::String(key) => &entry[key],
                        _ => entry,
                    };
                    let name = name.as_str().unwrap_or_default();
                    let is_new = names.insert(name) || schema["x-kubernetes-list-type"].is_null();
                    self.require(is_new, format_args!("{path}: {name:?} is declared twice"));
                    self.value(&format!("{path}[{name}]"), &schema["items"], entry);
                }
            }
            Value::Object(fields) => {
                self.size(path, schema, ("Properties", "entries"), fields.len());
                for (name, field) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    let (path, own) = match schema["properties"].get(name) {
                        Some(own) => (format!("{path}{dot}{name}"), own),
                        None => (format!("{path}[{name}]"), &schema["additionalProperties"]),
                    };
                    self.value(&path, own, field);
                }
            }
            _ => return,
        }
        let rules = schema["x-kubernetes-validations"].as_array();
        for rule in rules.into_iter().flatten() {
            let text = |key: &str| rule[key].as_str().unwrap_or_default();
            if holds(text("rule"), value) {
                continue;
            }
            // The rules of a map check its keys. The error names the first wrong key.
            let is_map = !schema["additionalProperties"].is_null();
            let mut entries = value.as_object().filter(|_| is_map).into_iter().flatten();
            let wrong = entries.find(|(key, entry)| !holds(text("rule"), &json!({*key: entry})));
            let place =
                wrong.map_or_else(|| text("fieldPath").to_owned(), |it| format!("[{}]", it.0));
            self.require(false, format_args!("{path}{place}: {}", text("message")));
        }
    }

    /// Checks the number of characters or entries. `of` is the last part of the schema's keyword,
    /// such as `Length` of `maxLength`.
    fn size(&mut self, path: &str, schema: &Value, (of, unit): (&str, &str), size: usize) {
        let limit = |kind: &str| schema[format!("{kind}{of}")].as_u64()?.try_into().ok();
        let least = limit("min").unwrap_or(0);
        let most = limit("max").unwrap_or(usize::MAX);
        let message = format_args!("{path}: {size} {unit} are not allowed, but {least} to {most}");
        self.require((least..=most).contains(&size), message);
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

    fn durations(&mut self, rule: &Rule) {
        for (field, text) in [
            ("debounce", &rule.debounce),
            ("appearAfter", &rule.appear_after),
            ("stateAfter", &rule.state_after),
            ("expectedDuration", &rule.expected_duration),
            ("stalledAfter", &rule.stalled_after),
        ] {
            let Some(text) = text.as_deref().filter(|text| is_duration(text)) else {
                continue;
            };
            let path = format_args!("rules[{}].{field}", rule.operation);
            let Some(fixed) = duration::parse(text) else {
                let wrong = "is not a duration such as 30s or 1h30m";
                self.require(false, format_args!("{path}: {text:?} {wrong}"));
                continue;
            };
            let may_be_zero = !matches!(field, "expectedDuration" | "stalledAfter");
            let is_valid = may_be_zero || !fixed.is_zero();
            self.require(is_valid, format_args!("{path}: zero is not allowed"));
            let is_valid = field == "expectedDuration" || fixed.as_secs() <= MAX_WAIT_SECONDS;
            self.require(is_valid, format_args!("{path}: at most 24h are allowed"));
        }
    }
}
