//! The compiled rule sets of one target. Input: the rule sets. Output: the feeds that they need,
//! and the fields that a feed reads of each object.

use super::{IDENTITY_PATHS, LABELS_PATH, RuleSet};
use ifo_api::{Gvr, Source};
use ifo_cel::Projection;
use kube::core::Selector;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where managed fields have their times. A feed reads them of the objects that it lists at its
/// start. Of an object that changes later, they are read only if a new operation is detected.
const MANAGED_TIME_PATH: &[&str] = &["metadata", "managedFields", "*", "time"];

/// All compiled rule sets of one target, as of one generation. Results of an evaluation under
/// an older generation than the newest published one are discarded.
#[derive(Debug)]
pub struct RuleBook {
    /// Rises with every publication for any target.
    pub generation: u64,
    /// The resource that is watched.
    pub target: Gvr,
    /// Kind of the target's objects, from discovery.
    pub kind: String,
    /// True if the target is namespaced.
    pub namespaced: bool,
    /// The rule sets, by name.
    pub rule_sets: Vec<Arc<RuleSet>>,
    /// True if each rule set names its namespaces, so that each namespace has its own feed.
    pub by_namespace: bool,
    /// The fields that rules read, and those that identify a subject.
    pub projection: Projection,
    /// The same fields and the times of managedFields, for objects that a feed lists at its start.
    pub initial_projection: Projection,
}

impl RuleBook {
    /// Puts the rule sets of one target together.
    pub fn new(
        generation: u64,
        target: Gvr,
        kind: String,
        namespaced: bool,
        mut rule_sets: Vec<Arc<RuleSet>>,
    ) -> Self {
        rule_sets.sort_by(|a, b| a.name.cmp(&b.name));
        let mut projection = Projection::default();
        for path in IDENTITY_PATHS {
            projection.add(path);
        }
        for rule_set in &rule_sets {
            rule_set.project(&mut projection);
            if rule_set.selector.is_some() {
                projection.add(LABELS_PATH);
            }
        }
        let mut initial_projection = projection.clone();
        initial_projection.add(MANAGED_TIME_PATH);
        let by_namespace = !rule_sets.is_empty()
            && rule_sets
                .iter()
                .all(|rule_set| rule_set.namespaces.is_some());
        Self {
            generation,
            target,
            kind,
            namespaced,
            rule_sets,
            by_namespace,
            projection,
            initial_projection,
        }
    }

    /// The namespaces to watch. None stands for all namespaces.
    pub fn namespaces(&self) -> Option<BTreeSet<&str>> {
        let mut union = BTreeSet::new();
        for rule_set in &self.rule_sets {
            union.extend(rule_set.namespaces.as_ref()?.iter().map(String::as_str));
        }
        Some(union)
    }

    /// The label selector of the watch, if all rule sets have the same one.
    pub fn selector(&self) -> Option<&Selector> {
        let (first, others) = self.rule_sets.split_first()?;
        let shared = first.selector.as_ref()?;
        others
            .iter()
            .all(|other| other.selector.as_ref() == Some(shared))
            .then_some(shared)
    }

    /// The feeds that the rule sets need. `target` is the target of this book.
    pub fn sources(&self, target: &Arc<Gvr>) -> Vec<Source> {
        let source = |namespace: Option<&str>| Source {
            target: target.clone(),
            namespace: namespace.map(Into::into),
        };
        match self.namespaces() {
            Some(namespaces) => namespaces
                .into_iter()
                .map(|own| source(Some(own)))
                .collect(),
            None => vec![source(None)],
        }
    }

    /// Returns true if any rule reads the outcome of an operation from its subject.
    pub fn asks_for_outcomes(&self) -> bool {
        self.rule_sets
            .iter()
            .flat_map(|rule_set| &rule_set.rules)
            .any(|rule| rule.details.outcome.is_some())
    }

    /// Returns true if a rule detects `operation` on subjects in `namespace`.
    pub fn has_rule(&self, operation: &str, namespace: Option<&str>) -> bool {
        self.rules_of(operation, namespace).next().is_some()
    }

    /// The rule sets that detect `operation` on subjects in `namespace`, each with the index of
    /// its rule.
    pub fn rules_of(
        &self,
        operation: &str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Arc<RuleSet>, usize)> {
        self.rule_sets.iter().filter_map(move |rule_set| {
            let mut rules = rule_set.rules.iter();
            let place = rules.position(|rule| *rule.operation == *operation)?;
            rule_set.covers(namespace).then_some((rule_set, place))
        })
    }
}

/// Rule sets whose target has no book. Operations from before a restart may belong to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSetsWithoutBook {
    /// Names of rule sets of which discovery has not yet answered whether the target is served.
    pub undecided: BTreeSet<String>,
    /// Names of rule sets whose target is not served.
    pub unserved: BTreeSet<String>,
}
