//! Finds the OperationRuleSets among the objects of the input files, and compiles them as
//! `ifo-apiserver` does. The errors of an invalid rule set are added to [`Input::faults`]. The
//! other rule sets are still compiled.

use super::input_files::{FoundObject, Input, InputFault};
use crate::suggestion::nearest;
use ifo_api::ruleset::{KIND, OperationRuleSet, OperationRuleSetSpec};
use ifo_api::{GROUP, Gvr, VERSION};
use ifo_cel::Program;
use ifo_engine::rules::{RuleBook, RuleSet, compile};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A rule set that compiles.
#[derive(Debug)]
pub(super) struct CompiledRuleSet {
    /// The path of the file that contains the rule set.
    pub(super) source: String,
    /// The name of the rule set.
    pub(super) name: String,
    /// The spec of the rule set, as in the file.
    pub(super) spec: OperationRuleSetSpec,
    /// The compiled rule set, as the server uses it.
    pub(super) compiled: Arc<RuleSet>,
}

impl CompiledRuleSet {
    /// Returns the target of the rule set (the resource that it watches).
    pub(super) fn target(&self) -> Gvr {
        self.spec.target.gvr()
    }
}

/// Returns the apiVersion of rule sets.
fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

/// Compiles the rule sets among the objects of `input`. Adds the errors of invalid rule sets to
/// `input.faults`. If there is no rule set and no other error, adds an error that says so.
pub(super) fn load(input: &mut Input) -> Vec<CompiledRuleSet> {
    let mut loaded: Vec<CompiledRuleSet> = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut faults = Vec::new();
    for FoundObject { source, object } in &input.objects {
        if !object.kind.eq_ignore_ascii_case(KIND) {
            continue;
        }
        let name = &object.name;
        let mut fault = |what: String, excerpt: Option<String>| {
            let text = format!("{source}: {name}: {what}");
            faults.push(InputFault { text, excerpt });
        };
        if let Some(first) = seen.insert(name.clone(), source.clone()) {
            fault(format!("is defined twice, first in {first}"), None);
            continue;
        }
        let version = &object.api_version;
        if *version != api_version() {
            let what = format!(
                "apiVersion {version:?} does not exist (hint: write {})",
                api_version()
            );
            fault(what, None);
            continue;
        }
        if object.kind != KIND {
            let kind = &object.kind;
            fault(
                format!("kind {kind:?} does not exist (hint: write {KIND})"),
                None,
            );
            continue;
        }
        let rule_set: OperationRuleSet = match serde_json::from_value(object.json.clone()) {
            Ok(rule_set) => rule_set,
            Err(error) => {
                let what = non_string_error(&object.json["spec"], "spec");
                let what = what.map(|what| what.trim_start_matches("spec.").to_owned());
                fault(what.unwrap_or_else(|| error.to_string()), None);
                continue;
            }
        };
        match compile(name, &rule_set.spec) {
            Ok(compiled) => loaded.push(CompiledRuleSet {
                source: source.clone(),
                name: name.clone(),
                spec: rule_set.spec,
                compiled: Arc::new(compiled),
            }),
            Err(invalid) => {
                for what in invalid {
                    fault(what.to_string(), what.excerpt());
                }
            }
        }
    }
    if seen.is_empty() && input.faults.is_empty() {
        faults.push(InputFault::new(format!("no {KIND} in the files")));
    }
    input.faults.extend(faults);
    loaded
}

/// Fields of a rule set whose values are strings, such as expressions. Without quotes, YAML reads
/// some texts as another type. For example, the value of `expression: true` is a boolean.
const TEXT_FIELDS: [&str; 17] = [
    "appearAfter",
    "continueWhile",
    "debounce",
    "expectedDuration",
    "expression",
    "forEach",
    "itemKey",
    "message",
    "nodes",
    "outcome",
    "progress",
    "reason",
    "size",
    "stalledAfter",
    "startedAt",
    "state",
    "work",
];

/// Returns the error for the first field of [`TEXT_FIELDS`] in `value` that is not a string. None
/// if all these fields are strings. `path` is the path of `value`, such as `spec`.
fn non_string_error(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let path = format!("{path}.{name}");
            if !TEXT_FIELDS.contains(&name.as_str()) {
                return non_string_error(member, &path);
            }
            let (kind, hint) = match member {
                Value::Bool(_) => ("a boolean", format!("put quotes around it: {name}: \"{member}\"")),
                Value::Number(_) => ("a number", format!("put quotes around it: {name}: \"{member}\"")),
                Value::Null => (
                    "empty",
                    "an expression that begins with `!` or `&` needs quotes, because these characters \
                     have a meaning in YAML"
                        .to_owned(),
                ),
                Value::Array(_) => ("a YAML list", "quote the expression".to_owned()),
                Value::Object(_) => ("a YAML map", "quote the expression".to_owned()),
                Value::String(_) => return None,
            };
            Some(format!("{path} is {kind}, not a string (hint: {hint})"))
        }),
        Value::Array(elements) => elements.iter().enumerate().find_map(|(index, element)| {
            // As in other errors, the path names a rule by its operation: `rules[Migrating]`. The
            // elements of other lists are named by their field `name` or `key`. An element without
            // these fields is named by its index.
            let name = ["operation", "name", "key"]
                .iter()
                .find_map(|key| element.get(key)?.as_str());
            let name = name.map_or_else(|| index.to_string(), str::to_owned);
            non_string_error(element, &format!("{path}[{name}]"))
        }),
        _ => None,
    }
}

/// Returns a warning for each unknown operation in the field `supersedes` of a rule. This field is
/// a list of operations. When the rule's own operation starts on an object, the listed operations
/// on this object end.
///
/// An operation is unknown if no rule in the files detects it on the same target. This is no error,
/// because a rule set outside these files can detect the operation.
pub(super) fn unknown_superseded(loaded: &[CompiledRuleSet]) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule_set in loaded {
        let same_target = loaded.iter().filter(|it| it.target() == rule_set.target());
        let known: BTreeSet<&str> = same_target
            .flat_map(|it| it.spec.rules.iter().map(|rule| rule.operation.as_str()))
            .collect();
        for rule in &rule_set.spec.rules {
            for other in &rule.supersedes {
                if other == "*" || known.contains(other.as_str()) {
                    continue;
                }
                let similar = nearest(other, known.iter().copied());
                let hint = similar.map(|it| format!(" (hint: the most similar is {it})"));
                warnings.push(format!(
                    "{}: {}: rules[{}].supersedes: no rule in the files detects {other} on this resource{}",
                    rule_set.source,
                    rule_set.name,
                    rule.operation,
                    hint.unwrap_or_default(),
                ));
            }
        }
    }
    warnings
}

/// Returns a warning for each `expectedDuration` and `stalledAfter` that has no effect, because
/// `state` is the constant `Blocked` or `Failing`. These limits count only time in the state
/// `Progressing`.
pub(super) fn limits_without_effect(loaded: &[CompiledRuleSet]) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule_set in loaded {
        for rule in &rule_set.compiled.rules {
            let state = rule.details.state.as_ref();
            let Some(state @ ("Blocked" | "Failing")) = state.and_then(Program::literal) else {
                continue;
            };
            let limits = [
                ("expectedDuration", rule.expected.is_some()),
                ("stalledAfter", rule.stalled_after.is_some()),
            ];
            for (field, _) in limits.iter().filter(|(_, is_set)| *is_set) {
                warnings.push(format!(
                    "{}: {}: rules[{}].{field} has no effect: it counts only time in the state Progressing, but the state is always {state}",
                    rule_set.source, rule_set.name, rule.operation,
                ));
            }
        }
    }
    warnings
}

/// Groups the rule sets by target, because the server evaluates all rule sets of one target
/// together.
pub(super) fn by_target(loaded: &[CompiledRuleSet]) -> BTreeMap<Gvr, Vec<Arc<RuleSet>>> {
    let mut targets: BTreeMap<Gvr, Vec<Arc<RuleSet>>> = BTreeMap::new();
    for rule_set in loaded {
        targets
            .entry(rule_set.target())
            .or_default()
            .push(rule_set.compiled.clone());
    }
    targets
}

/// Creates the rule book of `target`: all compiled rule sets that watch the target.
pub(super) fn book(
    target: Gvr,
    kind: &str,
    namespaced: bool,
    rule_sets: &[Arc<RuleSet>],
) -> Arc<RuleBook> {
    // The server gives each version of a rule book a new generation. Here, the rules do not change
    // while a command runs, so the generation is constant.
    let (generation, kind) = (1, kind.to_owned());
    let book = RuleBook::new(generation, target, kind, namespaced, rule_sets.to_vec());
    Arc::new(book)
}
