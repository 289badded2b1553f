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
use serde_path_to_error::Segment;
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
                let what = spec_error(&object.json["spec"]);
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

/// Returns the error of a spec that cannot be decoded, with the path of the field. Returns None if
/// the spec can be decoded.
fn spec_error(spec: &Value) -> Option<String> {
    if spec.is_null() {
        return Some("the field `spec` is missing".to_owned());
    }
    let error = serde_path_to_error::deserialize::<_, OperationRuleSetSpec>(spec).err()?;
    let (path, value) = named_path(spec, error.path());
    let why = error.inner().to_string();
    // Without quotes, YAML reads some texts as another type. For example, the value of `expression:
    // true` is a boolean.
    let is_string_expected = why.ends_with("expected a string");
    let Some((name, value)) = value.filter(|_| is_string_expected) else {
        let begin = if path.is_empty() { "spec" } else { &path };
        return Some(format!("{begin}: {why}"));
    };
    let (kind, hint) = match value {
        Value::Bool(is_true) => {
            let words = if *is_true {
                "`on` and `yes` as true"
            } else {
                "`off` and `no` as false"
            };
            (
                "a boolean",
                format!("put quotes around it: {name}: \"{value}\". YAML also reads {words}"),
            )
        }
        Value::Number(_) => (
            "a number",
            format!("put quotes around it: {name}: \"{value}\""),
        ),
        Value::Null => (
            "empty",
            "an expression that begins with `!` or `&` needs quotes, because these characters have \
             a meaning in YAML"
                .to_owned(),
        ),
        Value::Array(_) => ("a YAML list", "put quotes around the whole value".to_owned()),
        Value::Object(_) => ("a YAML map", "put quotes around the whole value".to_owned()),
        Value::String(_) => return Some(format!("{path}: {why}")),
    };
    Some(format!("{path} is {kind}, not a string (hint: {hint})"))
}

/// Returns the text of a path in `spec`, and the name and value of the last field of the path. None
/// in place of the field if the path does not end with a field that exists.
///
/// As in other errors, the text names a rule by its operation: `rules[Migrating]`. The elements of
/// other lists are named by their field `name` or `key`. An element without these fields is named
/// by its index.
fn named_path<'a>(
    spec: &'a Value,
    path: &'a serde_path_to_error::Path,
) -> (String, Option<(&'a str, &'a Value)>) {
    let mut text = String::new();
    let mut at = Some(spec);
    let mut last = None;
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                at = at.and_then(|it| it.get(index));
                last = None;
                let name = ["operation", "name", "key"]
                    .iter()
                    .find_map(|key| at?.get(key)?.as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                text.extend(["[", &name, "]"]);
            }
            Segment::Map { key } => {
                at = at.and_then(|it| it.get(key));
                last = at.map(|it| (key.as_str(), it));
                if !text.is_empty() {
                    text.push('.');
                }
                text += key;
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    (text, last)
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
