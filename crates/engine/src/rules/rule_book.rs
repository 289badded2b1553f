//! A [`RuleBook`] combines the compiled rule sets for one target. The target is the resource that
//! these rule sets watch. The rule book decides which watches (feeds) are needed, and which fields
//! are decoded from each object.

use super::{IDENTITY_PATHS, LABELS_PATH, RuleSet};
use ifo_api::{Gvr, Source, Text};
use ifo_cel::Projection;
use kube::core::Selector;
use std::collections::BTreeSet;
use std::sync::Arc;

/// All compiled rule sets for one target. The server publishes a new rule book when these rule sets
/// change. Each published rule book has a generation. The `Tracker`, which turns evaluations into
/// operations, discards evaluations that used an older rule book of the target.
#[derive(Debug)]
pub struct RuleBook {
    /// Number that increases with every published rule book of any target.
    pub generation: u64,
    /// Resource that the rule sets watch.
    pub target: Gvr,
    /// Group and version of the target, as in the field `apiVersion` of its objects.
    pub api_version: Text,
    /// Kind of the target's objects, from discovery.
    pub kind: Text,
    /// True if the target is namespaced.
    pub namespaced: bool,
    /// The rule sets, sorted by name.
    pub rule_sets: Vec<Arc<RuleSet>>,
    /// The fields that a feed decodes from each object: the fields that the rules read, and
    /// [`IDENTITY_PATHS`].
    pub projection: Projection,
}

impl RuleBook {
    /// Creates a rule book from all rule sets for one target.
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
            projection.merge(&rule_set.projection);
            if rule_set.selector.is_some() {
                projection.add(LABELS_PATH);
            }
        }
        Self {
            generation,
            api_version: target.api_version().into(),
            target,
            kind: kind.into(),
            namespaced,
            rule_sets,
            projection,
        }
    }

    /// Returns true if each rule set names its namespaces. Then each namespace has its own feed.
    pub fn has_feeds_per_namespace(&self) -> bool {
        self.rule_sets.iter().all(|it| it.namespaces.is_some())
    }

    /// Returns the label selector of the watch, if all rule sets have the same label selector.
    /// Otherwise returns None. Then the watch reports all objects.
    pub fn selector(&self) -> Option<&Selector> {
        let (first, others) = self.rule_sets.split_first()?;
        let shared = first.selector.as_ref()?;
        others
            .iter()
            .all(|other| other.selector.as_ref() == Some(shared))
            .then_some(shared)
    }

    /// Returns the identities of the feeds that the rule sets need. If each rule set names its
    /// namespaces, there is one feed for each namespace. Otherwise, there is one feed for all
    /// namespaces. `target` must be the target of this rule book.
    pub fn sources(&self, target: &Arc<Gvr>) -> Vec<Source> {
        let source = |namespace: Option<&str>| Source {
            target: target.clone(),
            namespace: namespace.map(Into::into),
        };
        if !self.has_feeds_per_namespace() {
            return vec![source(None)];
        }
        let named = self.rule_sets.iter().flat_map(|it| &it.namespaces);
        let namespaces: BTreeSet<&String> = named.flatten().collect();
        namespaces
            .into_iter()
            .map(|own| source(Some(own)))
            .collect()
    }

    /// Returns the rule set with this name.
    pub fn rule_set(&self, name: &str) -> Option<&Arc<RuleSet>> {
        let index = self.rule_sets.binary_search_by(|it| (*it.name).cmp(name));
        Some(&self.rule_sets[index.ok()?])
    }
}

/// The rule sets that are in no rule book. After a restart or a change of the leader, the tracker
/// knows the rule sets of its restored operations only by name. This type tells the tracker which
/// of these operations stay in flight, and which complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSetsWithoutBook {
    /// Names of the rule sets that can get a rule book later. Their restored operations stay in
    /// flight. There are three reasons why a rule set has no rule book yet:
    ///
    /// - Discovery has not shown yet whether the cluster serves the target.
    /// - The rule book is not published yet.
    /// - The rule set does not compile.
    pub undecided: BTreeSet<String>,
    /// Names of the rule sets whose target the cluster does not serve. Their restored operations
    /// complete if no other rule set can detect them.
    pub unserved: BTreeSet<String>,
}
