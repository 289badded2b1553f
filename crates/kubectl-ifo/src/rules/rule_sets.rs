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
    let path = if path.is_empty() { "spec" } else { &path };
    let why = error.inner().to_string();
    // Without quotes, YAML reads some texts as another type. For example, the value of `expression:
    // true` is a boolean.
    let value = value.filter(|_| why.ends_with("expected a string"));
    let (kind, hint) = match value {
        Some(Value::Bool(_)) => (
            "a boolean",
            "put quotes around the text: YAML reads true, on and yes as true, and false, off and no \
             as false",
        ),
        Some(Value::Number(_)) => ("a number", "put quotes around the text"),
        Some(Value::Null) => (
            "empty",
            "an expression that begins with `!` or `&` needs quotes, because these characters have \
             a meaning in YAML. Write \"\" for an empty text",
        ),
        Some(Value::Array(_)) => ("a YAML list", "put quotes around the whole text"),
        Some(Value::Object(_)) => ("a YAML map", "put quotes around the whole text"),
        Some(Value::String(_)) | None => {
            // serde calls a list a sequence.
            let why = why.replace("sequence", "list");
            return Some(format!("{path}: {why}"));
        }
    };
    Some(format!("{path} is {kind}, not a string (hint: {hint})"))
}

/// Returns the text of a path in `spec`, and the value at this path. The value is None if the path
/// does not exist.
///
/// As in other errors, the text names a rule by its operation: `rules[Migrating]`. The elements of
/// other lists are named by their field `name` or `key`. An element without these fields is named
/// by its index.
fn named_path<'a>(
    spec: &'a Value,
    path: &serde_path_to_error::Path,
) -> (String, Option<&'a Value>) {
    let mut text = String::new();
    let mut at = Some(spec);
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                at = at.and_then(|it| it.get(index));
                let name = ["operation", "name", "key"]
                    .iter()
                    .find_map(|key| at?.get(key)?.as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                text.extend(["[", &name, "]"]);
            }
            Segment::Map { key } => {
                at = at.and_then(|it| it.get(key));
                if !text.is_empty() {
                    text.push('.');
                }
                text += key;
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    (text, at)
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

/// Returns a warning for each `expectedDuration` and `stalledAfter` that can never apply, because
/// clients always see the state `Blocked`, `Held` or `Failing`. These limits count only time in the state
/// `Progressing`.
pub(super) fn limits_that_never_apply(loaded: &[CompiledRuleSet]) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule_set in loaded {
        for rule in &rule_set.compiled.rules {
            let state = rule.details.state.as_ref();
            let Some(state @ ("Blocked" | "Held" | "Failing")) = state.and_then(Program::literal)
            else {
                continue;
            };
            // With `stateAfter`, clients first see the state `Progressing`.
            if !rule.state_after.is_zero() {
                continue;
            }
            let limits = [
                ("expectedDuration", "overdue", rule.expected.is_some()),
                ("stalledAfter", "stalled", rule.stalled_after.is_some()),
            ];
            for (field, marker, _) in limits.iter().filter(|(.., is_set)| *is_set) {
                warnings.push(format!(
                    "{}: {}: rules[{}].{field}: the operation can never be {marker}, because only time in the state Progressing counts, and the state is always {state}",
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
