//! Finds the OperationRuleSets among the objects of the input files, and compiles them as
//! `ifo-apiserver` does. The errors of an invalid rule set are added to [`Input::faults`]. The
//! other rule sets are still compiled.

use super::input::{FoundObject, Input, fault};
use crate::suggestion::nearest;
use ifo_api::ruleset::{KIND, OperationRuleSetSpec};
use ifo_api::{GROUP, Gvr, VERSION};
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleBook, RuleSet, compile_within};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// A rule set that compiles.
#[derive(Debug)]
pub(super) struct CompiledRuleSet {
    /// The path of the file, and the name of the rule set.
    pub(super) location: String,
    /// The spec of the rule set, as in the file.
    pub(super) spec: OperationRuleSetSpec,
    /// The compiled rule set, as the server uses it.
    pub(super) compiled: Arc<RuleSet>,
}

impl CompiledRuleSet {
    /// Returns the target of the rule set (the resource that it watches).
    pub(super) fn target(&self) -> Gvr {
        self.spec.target.clone()
    }
}

/// Compiles the rule sets among the objects of `input`. Adds the errors of invalid rule sets to
/// `input.faults`. If there is no rule set and no other error, adds an error that says so.
pub(super) fn load(input: &mut Input) -> Vec<CompiledRuleSet> {
    let mut loaded = Vec::new();
    let mut sources: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for FoundObject { source, object } in &input.objects {
        if !object.kind.eq_ignore_ascii_case(KIND) {
            continue;
        }
        let name = object.name.as_str();
        let location = format!("{source}: {name}");
        let expected = format!("{GROUP}/{VERSION}");
        let loadable = match sources.insert(name, source) {
            Some(first) => Err(format!("is defined twice, first in {first}")),
            None if object.api_version != expected || object.kind != KIND => Err(format!(
                "{} {} does not exist (hint: write {expected} {KIND})",
                object.api_version, object.kind
            )),
            None => decode(&object.json["spec"]),
        };
        let compiled = match loadable {
            Ok(spec) => compile(name, &location, &spec).map(|compiled| (spec, compiled)),
            Err(why) => Err(vec![format!("{location}: {why}")]),
        };
        match compiled {
            Ok((spec, compiled)) => loaded.push(CompiledRuleSet {
                location,
                spec,
                compiled,
            }),
            Err(found) => faults.extend(found),
        }
    }
    if sources.is_empty() && input.faults.is_empty() {
        faults.push(format!("no {KIND} in the files"));
    }
    input.faults.extend(faults);
    loaded
}

/// Decodes the spec of a rule set. A field that rule sets do not have is an error, because the
/// kube-apiserver would drop it.
fn decode(spec: &Value) -> Result<OperationRuleSetSpec, String> {
    let mut unknown = Vec::new();
    let mut add_unknown = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let decoder = serde_ignored::Deserializer::new(spec, &mut add_unknown);
    let decoded = serde_path_to_error::deserialize(decoder);
    let decoded = decoded.map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let why = error.inner().to_string();
        let hint = if why.ends_with("expected a string") {
            " (hint: put quotes around the text)"
        } else {
            ""
        };
        format!("spec.{}: {why}{hint}", error.path())
    })?;
    match unknown.first() {
        // `serde_ignored` writes a question mark for a field that can be missing.
        Some(path) => Err(format!("unknown field spec.{}", path.replace(".?", ""))),
        None => Ok(decoded),
    }
}

fn compile(
    name: &str,
    location: &str,
    spec: &OperationRuleSetSpec,
) -> Result<Arc<RuleSet>, Vec<String>> {
    let start = Instant::now();
    let is_over = || start.elapsed() > MAX_COMPILE_TIME;
    let compiled = compile_within(name, spec, None, &is_over).map(Arc::new);
    compiled.map_err(|errors| errors.iter().map(|it| fault(location, it)).collect())
}

/// Returns a warning for each unknown operation in the field `supersedes` of a rule. This field is
/// a list of operations. When the rule's own operation starts on an object, the listed operations
/// on this object end.
///
/// An operation is unknown if no rule of the same component in the files detects it on the same
/// target. This is no error, because a rule set outside these files can detect the operation.
pub(super) fn unknown_superseded(loaded: &[CompiledRuleSet]) -> Vec<String> {
    let mut warnings = Vec::new();
    for rule_set in loaded {
        let of_component = loaded.iter().filter(|it| {
            it.target() == rule_set.target() && it.spec.component == rule_set.spec.component
        });
        let known: BTreeSet<&str> = of_component
            .flat_map(|it| it.spec.rules.iter().map(|rule| rule.operation.as_str()))
            .collect();
        for rule in &rule_set.spec.rules {
            let listed = rule.supersedes.iter().map(String::as_str);
            for other in listed.filter(|it| *it != "*" && !known.contains(it)) {
                let similar = nearest(other, known.iter().copied());
                let hint = similar.map(|it| format!(" (hint: the most similar is {it})"));
                warnings.push(format!(
                    "{}: rules[{}].supersedes: no rule of this component in the files detects {other} on this resource{}",
                    rule_set.location,
                    rule.operation,
                    hint.unwrap_or_default(),
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
        let of_target = targets.entry(rule_set.target()).or_default();
        of_target.push(rule_set.compiled.clone());
    }
    targets
}

/// Creates the rule book of `target`: all compiled rule sets that watch the target.
pub(super) fn book(
    target: &Gvr,
    kind: &str,
    namespaced: bool,
    rule_sets: &[Arc<RuleSet>],
) -> Arc<RuleBook> {
    // The server gives each version of a rule book a new generation. Here, the rules do not change
    // while a command runs, so the generation is constant.
    let (generation, kind) = (1, kind.to_owned());
    let rule_sets = rule_sets.to_vec();
    let book = RuleBook::new(generation, target.clone(), kind, namespaced, rule_sets);
    Arc::new(book)
}
