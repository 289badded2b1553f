//! Finds the OperationRuleSets among the objects of the input files, and compiles them as
//! `ifo-apiserver` does. The errors of an invalid rule set are added to [`Input::faults`]. The
//! other rule sets are still compiled.

use super::decode_spec::decode;
use super::input_files::{FoundObject, Input, InputFault};
use crate::suggestion::nearest;
use ifo_api::ruleset::{KIND, OperationRuleSet, OperationRuleSetSpec};
use ifo_api::{GROUP, Gvr, VERSION};
use ifo_cel::Program;
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleBook, RuleSet, compile_within};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

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

/// A rule set that does not compile. The errors are in [`Input::faults`].
#[derive(Debug)]
pub(super) struct InvalidRuleSet {
    /// The path of the file that contains the rule set.
    pub(super) source: String,
    /// The name of the rule set.
    pub(super) name: String,
    /// The spec of the rule set. A field with a wrong type has another value than in the file.
    pub(super) spec: OperationRuleSetSpec,
}

/// Returns the apiVersion of rule sets.
fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

/// Compiles the rule sets among the objects of `input`. Adds the errors of invalid rule sets to
/// `input.faults`. If there is no rule set and no other error, adds an error that says so.
pub(super) fn load(input: &mut Input) -> Vec<CompiledRuleSet> {
    load_all(input).0
}

/// Like [`load`], and also returns the rule sets that do not compile.
pub(super) fn load_all(input: &mut Input) -> (Vec<CompiledRuleSet>, Vec<InvalidRuleSet>) {
    let mut loaded: Vec<CompiledRuleSet> = Vec::new();
    let mut invalid = Vec::new();
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
        let (spec, mut errors) = decode(&object.json["spec"]);
        if errors.is_empty()
            && let Err(error) = OperationRuleSet::deserialize(&object.json)
        {
            errors.push(error.to_string());
        }
        for error in &errors {
            fault(error.clone(), None);
        }
        let Some(spec) = spec else { continue };
        let start = Instant::now();
        let is_over = || start.elapsed() > MAX_COMPILE_TIME;
        let compiled = compile_within(name, &spec, &is_over).map_err(|invalid| {
            for what in invalid {
                fault(what.to_string(), what.excerpt());
            }
        });
        match compiled {
            Ok(compiled) if errors.is_empty() => loaded.push(CompiledRuleSet {
                source: source.clone(),
                name: name.clone(),
                spec,
                compiled: Arc::new(compiled),
            }),
            _ => invalid.push(InvalidRuleSet {
                source: source.clone(),
                name: name.clone(),
                spec,
            }),
        }
    }
    if seen.is_empty() && input.faults.is_empty() {
        faults.push(InputFault::new(format!("no {KIND} in the files")));
    }
    input.faults.extend(faults);
    (loaded, invalid)
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
            for other in &rule.supersedes {
                if other == "*" || known.contains(other.as_str()) {
                    continue;
                }
                let similar = nearest(other, known.iter().copied());
                let hint = similar.map(|it| format!(" (hint: the most similar is {it})"));
                warnings.push(format!(
                    "{}: {}: rules[{}].supersedes: no rule of this component in the files detects {other} on this resource{}",
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
            let state = rule.details.get("state");
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
