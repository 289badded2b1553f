//! Finds the OperationRuleSets among the objects of the input files, and compiles them as the
//! server does. If a rule set is invalid, its errors are recorded, and the other rule sets are
//! still compiled.

use super::input_files::{FoundObject, Input};
use ifo_api::ruleset::{KIND, OperationRuleSet, OperationRuleSetSpec};
use ifo_api::{GROUP, Gvr};
use ifo_engine::rules::{RuleBook, RuleSet, compile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A rule set that compiles.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The path of the file that contains the rule set.
    pub(super) source: String,
    /// The name of the rule set.
    pub(super) name: String,
    /// The spec of the rule set, as in the file.
    pub(super) spec: OperationRuleSetSpec,
    /// The compiled rule set, as the server uses it.
    pub(super) compiled: Arc<RuleSet>,
}

impl Loaded {
    /// Returns the target of the rule set (the resource that it watches).
    pub(super) fn target(&self) -> Gvr {
        self.spec.target.gvr()
    }
}

/// Compiles the rule sets among the objects of `input`. Errors are added to the errors of `input`.
pub(super) fn load(input: &mut Input) -> Vec<Loaded> {
    let mut loaded: Vec<Loaded> = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut faults = Vec::new();
    for FoundObject { source, object } in &input.objects {
        if object.kind != KIND || object.group() != GROUP {
            continue;
        }
        let name = &object.name;
        let mut fault = |what: String| faults.push(format!("{source}: {name}: {what}"));
        if let Some(first) = seen.insert(name.clone(), source.clone()) {
            fault(format!("is defined twice, first in {first}"));
            continue;
        }
        let rule_set: OperationRuleSet = match serde_json::from_value(object.json.clone()) {
            Ok(rule_set) => rule_set,
            Err(error) => {
                fault(error.to_string());
                continue;
            }
        };
        match compile(name, &rule_set.spec) {
            Ok(compiled) => loaded.push(Loaded {
                source: source.clone(),
                name: name.clone(),
                spec: rule_set.spec,
                compiled: Arc::new(compiled),
            }),
            Err(invalid) => invalid.iter().for_each(|what| fault(what.to_string())),
        }
    }
    if seen.is_empty() && input.faults.is_empty() {
        faults.push(format!("no {KIND} in the files"));
    }
    input.faults.extend(faults);
    loaded
}

/// Groups the rule sets by target, because the server evaluates all rule sets of one target
/// together.
pub(super) fn by_target(loaded: &[Loaded]) -> BTreeMap<Gvr, Vec<Arc<RuleSet>>> {
    let mut targets: BTreeMap<Gvr, Vec<Arc<RuleSet>>> = BTreeMap::new();
    for rule_set in loaded {
        targets
            .entry(rule_set.target())
            .or_default()
            .push(rule_set.compiled.clone());
    }
    targets
}

/// Creates the rule book of a target, which contains all its compiled rule sets.
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
