//! The state of all rule sets and of their targets (the resources that rule sets watch). The
//! registry decides which rule books are published and which statuses are written. A rule book
//! contains the compiled rule sets of one target. The registry has no I/O and no clock.

use super::StatusWrite;
use super::compilations::CompiledSpec;
use super::health::{NotReady, RuleSetHealth, WatchState};
use super::rule_set::{KnownStatus, RegisteredRuleSet};
use super::states::{Report, ReportedRuleSet};
use super::status;
use super::tracked_target::{Feedback, TrackedTarget};
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{RuleSetsWithoutBook, expression_bytes};
use ifo_engine::track::Publication;
use ifo_observe::ResolvedTarget;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The state of all rule sets and targets.
#[derive(Debug, Default)]
pub(super) struct Registry {
    allow_secrets: bool,
    requeue: Duration,
    rule_sets: BTreeMap<String, RegisteredRuleSet>,
    /// Names of the objects that cannot be decoded as rule sets.
    unreadable: BTreeSet<String>,
    /// Fields that the installed CRD does not have. `None` if the CRD has not been read.
    missing_fields: Option<Vec<String>>,
    targets: HashMap<Arc<Gvr>, TrackedTarget>,
    /// Number of compilations that have been started.
    compilations: u64,
    /// The generation of the newest rule book. Each new rule book gets the next number.
    generation: u64,
    /// The value of [`Report::without_book`].
    without_book: Option<Arc<RuleSetsWithoutBook>>,
}

impl Registry {
    pub(super) fn new(allow_secrets: bool, requeue: Duration) -> Self {
        Self {
            allow_secrets,
            requeue,
            ..Self::default()
        }
    }

    /// Records a rule set that was created or changed. If its spec has changed, it must be compiled.
    pub(super) fn apply(&mut self, object: OperationRuleSet, unknown_fields: Vec<String>) {
        let OperationRuleSet {
            metadata,
            spec,
            status,
        } = object;
        let name = metadata.name.unwrap_or_default();
        self.unreadable.remove(&name);
        let is_other = |known: &RegisteredRuleSet| known.uid != metadata.uid;
        if self.rule_sets.get(&name).is_some_and(is_other) {
            self.remove(&name);
        }
        self.targets
            .entry(Arc::new(spec.target.clone()))
            .or_default();
        let (spec, version) = (Arc::new(spec), metadata.resource_version);
        let status = status.unwrap_or_default();
        let known = self.rule_sets.entry(name);
        let known = known.or_insert_with(|| RegisteredRuleSet {
            uid: metadata.uid,
            generation: None,
            spec: spec.clone(),
            arrived: self.compilations,
            compiled: None,
            in_use: None,
            unknown_fields: Vec::new(),
            cluster_status: KnownStatus {
                version: version.clone(),
                status: status.clone(),
            },
        });
        known.generation = metadata.generation;
        known.unknown_fields = unknown_fields;
        if version.is_some() {
            known.cluster_status.record(version, status);
        }
        if known.spec != spec {
            known.spec = spec;
            known.arrived = self.compilations;
            known.compiled = None;
        }
    }

    /// Returns the name and the spec of the rule set that must be compiled next. The order is:
    ///
    /// 1. Specs are sorted by the number of compilations that had been started when they arrived.
    ///    So a rule set that changes again and again does not keep other rule sets waiting.
    /// 2. Specs with the same number are sorted by the bytes of their expressions. The smallest
    ///    spec comes first, because its compilation takes the shortest time.
    ///
    /// At the start, all specs have the same number. If all rule sets together then exceed
    /// `MAX_ALL_EXPRESSIONS`, the largest rule sets get the error.
    pub(super) fn begin_next_compilation(&mut self) -> Option<(String, Arc<OperationRuleSetSpec>)> {
        let order = |known: &RegisteredRuleSet| (known.arrived, expression_bytes(&known.spec));
        let next = self.waiting().min_by_key(|(_, known)| order(known));
        let (name, spec) = next.map(|(name, known)| (name.clone(), known.spec.clone()))?;
        self.compilations += 1;
        Some((name, spec))
    }

    /// Returns true if a rule set must be compiled or is being compiled.
    pub(super) fn is_compiling(&self) -> bool {
        self.waiting().next().is_some()
    }

    /// Returns the rule sets that must be compiled or are being compiled. A rule set that would
    /// exceed `MAX_ALL_EXPRESSIONS` is not among them, until other rule sets have become smaller.
    fn waiting(&self) -> impl Iterator<Item = (&String, &RegisteredRuleSet)> {
        let total = self.bytes_in_use();
        let waiting = self.rule_sets.iter();
        waiting.filter(move |(_, it)| it.compiled.is_none() && it.exceeds(total).is_none())
    }

    fn bytes_in_use(&self) -> usize {
        let rule_sets = self.rule_sets.values();
        rule_sets.map(RegisteredRuleSet::bytes_in_use).sum()
    }

    /// Records the result of a compilation. Ignores the result if the rule set was changed or deleted
    /// during the compilation.
    pub(super) fn compiled(&mut self, (name, spec, result): CompiledSpec) {
        let known = self.rule_sets.get_mut(&name);
        let Some(known) = known.filter(|known| Arc::ptr_eq(&known.spec, &spec)) else {
            return;
        };
        let used_target = known.used_target().clone();
        let compiled = result.map(Arc::new);
        // An error in a new version of the spec must not end the operations in flight. So the last
        // valid rules stay in use, if they have the same target.
        known.in_use = match &compiled {
            Ok(rules) => Some((spec.clone(), rules.clone())),
            Err(_) => (known.in_use.take()).filter(|(used, _)| used.target == spec.target),
        };
        known.compiled = Some(compiled);
        self.mark_stale(&used_target);
        self.mark_stale(&spec.target);
    }

    /// Records an object that cannot be decoded as a rule set. The object has no rules, but
    /// [`Self::report`] returns it as a rule set that may miss operations.
    pub(super) fn unreadable(&mut self, name: String) {
        self.remove(&name);
        self.unreadable.insert(name);
    }

    /// Removes the rule set or the unreadable object `name`.
    pub(super) fn remove(&mut self, name: &str) {
        self.unreadable.remove(name);
        if let Some(known) = self.rule_sets.remove(name) {
            self.mark_stale(known.used_target());
        }
    }

    /// Removes all rule sets and all unreadable objects that are not in `listed`.
    pub(super) fn retain(&mut self, listed: &HashSet<String>) {
        let known: Vec<_> = self
            .rule_sets
            .keys()
            .chain(&self.unreadable)
            .cloned()
            .collect();
        for name in known.iter().filter(|name| !listed.contains(*name)) {
            self.remove(name);
        }
    }

    /// Returns the reason why the server refuses to watch the target. `None` if it does not refuse.
    fn refused(&self, target: &Gvr) -> Option<&'static str> {
        let is_secret = target.group.is_empty() && target.resource == "secrets";
        (is_secret && !self.allow_secrets).then_some(
            "secrets are not watched, because a rule set could copy their contents into messages and labels, which more users can read (an administrator can allow it with --allow-secrets-target)",
        )
    }

    fn mark_stale(&mut self, target: &Gvr) {
        if let Some(target) = self.targets.get_mut(target) {
            target.stale = true;
        }
    }

    /// Returns true if `wants_look_up` returns true for a target.
    pub(super) fn any_target(&self, wants_look_up: fn(&TrackedTarget) -> bool) -> bool {
        self.targets.values().any(wants_look_up)
    }

    /// Returns all targets.
    pub(super) fn targets(&self) -> Vec<Arc<Gvr>> {
        self.targets.keys().cloned().collect()
    }

    /// Records the fields that the installed CRD does not have.
    pub(super) fn set_missing_fields(&mut self, fields: Vec<String>) {
        self.missing_fields = Some(fields);
    }

    /// Records the results of discovery.
    pub(super) fn resolved(&mut self, results: Vec<ResolvedTarget>) {
        for (gvr, resolution) in results {
            if let Some(target) = self.targets.get_mut(&gvr) {
                target.record_resolution(resolution);
            }
        }
    }

    /// Records the report of a feed. Returns true if the report changes the state.
    pub(super) fn feedback(&mut self, feedback: Feedback) -> bool {
        self.targets
            .get_mut(&feedback.source.target)
            .is_some_and(|target| target.record_report(feedback))
    }

    /// If the newest spec of a rule set has another target, and is not compiled because of
    /// `MAX_ALL_EXPRESSIONS`, removes the rules of the old spec. Otherwise, the server would
    /// watch the former target until other rule sets have become smaller.
    fn drop_rules_of_former_targets(&mut self) {
        let total = self.bytes_in_use();
        for known in self.rule_sets.values_mut() {
            let is_waiting = known.compiled.is_none() && known.exceeds(total).is_some();
            let is_former = |used: &OperationRuleSetSpec| used.target != known.spec.target;
            if let Some((used, _)) = known.in_use.take_if(|it| is_waiting && is_former(&it.0))
                && let Some(target) = self.targets.get_mut(&used.target)
            {
                target.stale = true;
            }
        }
    }

    /// Returns the rule books that have changed since the last call. A publication without a rule
    /// book ends the feeds of its target.
    pub(super) fn publish(&mut self) -> Vec<Publication> {
        self.drop_rules_of_former_targets();
        let mut targets = std::mem::take(&mut self.targets);
        let mut publications = Vec::new();
        for (gvr, target) in &mut targets {
            let is_allowed = self.refused(gvr).is_none();
            let rule_sets = self.rule_sets.values().filter(|_| is_allowed);
            let usable = rule_sets.filter_map(|known| known.rules_for(gvr)).collect();
            publications.extend(target.publish(gvr, usable, &mut self.generation));
        }
        let is_used = |gvr: &Arc<Gvr>| {
            let mut rule_sets = self.rule_sets.values();
            rule_sets.any(|known| known.spec.target == **gvr || known.used_target() == &**gvr)
        };
        targets.retain(|gvr, target| target.published.is_some() || is_used(gvr));
        self.targets = targets;
        publications
    }

    /// Returns true if every feed that should run has reported whether it is up to date.
    fn caught_up(&self) -> bool {
        self.targets.values().all(TrackedTarget::caught_up)
    }

    /// Returns the rule sets that are in no rule book. Possible causes are:
    ///
    /// - The target is not served, or no look-up of the target has succeeded yet.
    /// - The rule book has not been published yet.
    /// - The newest spec is being compiled. Then the rule set is returned even if its last valid
    ///   rules are in a rule book.
    /// - The rule set does not compile, and no earlier valid version of its rules is known.
    fn rule_sets_without_book(&self) -> RuleSetsWithoutBook {
        let mut rule_sets_without_book = RuleSetsWithoutBook::default();
        for (name, known) in &self.rule_sets {
            let target = self.targets.get(&known.spec.target);
            let resolution = target.and_then(|target| target.resolution.as_ref());
            match (&known.compiled, resolution) {
                (Some(_), Some(Resolution::NotServed { .. })) => {
                    rule_sets_without_book.unserved.insert(name.clone());
                }
                (Some(_), Some(Resolution::Served { .. }))
                    if known.in_use.is_some()
                        && !target.is_some_and(|target| target.awaits_book(name)) => {}
                _ => {
                    rule_sets_without_book.undecided.insert(name.clone());
                }
            }
        }
        rule_sets_without_book
    }

    /// Returns the facts about a rule set from which its state and its status are computed. `total` is
    /// [`Self::bytes_in_use`].
    fn health<'a>(
        &'a self,
        name: &str,
        known: &'a RegisteredRuleSet,
        total: usize,
    ) -> RuleSetHealth<'a> {
        let target = self.targets.get(&known.spec.target);
        let compiled = match &known.compiled {
            Some(Ok(rules)) => Some(Ok(rules)),
            Some(Err(errors)) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Some(Err(errors.join("; ")))
            }
            None => known.exceeds(total).map(Err),
        };
        RuleSetHealth {
            generation: known.generation,
            uses_last_rules: !matches!(compiled, Some(Ok(_))) && known.in_use.is_some(),
            compiled,
            target: &known.spec.target,
            refused: self.refused(&known.spec.target),
            resolution: target.and_then(|target| target.resolution.as_ref()),
            look_up_failure: target.and_then(|target| target.look_up_failure.as_deref()),
            scoped_wrongly: !known.spec.namespaces.is_empty()
                && (target.and_then(TrackedTarget::kind))
                    .is_some_and(|(_, namespaced)| !namespaced),
            watch: target.map_or(WatchState::Pending, |target| target.watch_state(name)),
            unknown_fields: &known.unknown_fields,
            missing_fields: self.missing_fields.as_deref(),
        }
    }

    /// Returns the state of all rule sets. The caller must have sent the rule books that
    /// [`Self::publish`] has returned.
    pub(super) fn report(&mut self) -> Report {
        // The tracker, which turns detections into operations, receives each rule book before the
        // feeds of this rule book start. So when all feeds have reported, the tracker has received
        // all rule books. Before that, `without_book` would lack rule sets whose rule book is
        // published, but has not reached the tracker yet.
        if self.caught_up() {
            self.without_book = Some(Arc::new(self.rule_sets_without_book()));
        }
        let total = self.bytes_in_use();
        let rule_sets = self.rule_sets.iter().map(|(name, known)| ReportedRuleSet {
            name: name.as_str().into(),
            spec: Some(known.spec.clone()),
            kind: (self.targets.get(&known.spec.target)).and_then(TrackedTarget::kind),
            watched: {
                let health = self.health(name, known, total);
                match (NotReady::of(&health), health.compiled) {
                    (None, Some(Ok(rules))) => Ok(rules.clone()),
                    (not_ready, _) => Err(not_ready.unwrap_or_else(NotReady::unreadable)),
                }
            },
        });
        let unreadable = self.unreadable.iter().map(|name| ReportedRuleSet {
            name: name.as_str().into(),
            spec: None,
            kind: None,
            watched: Err(NotReady::unreadable()),
        });
        Report {
            read: true,
            rule_sets: rule_sets.chain(unreadable).collect(),
            without_book: self.without_book.clone(),
        }
    }

    /// Returns the statuses that differ from those in the cluster. Skips the statuses that must
    /// stay for now, as [`status::stays`] decides.
    pub(super) fn statuses(&self, now: Timestamp) -> Vec<StatusWrite> {
        let mut writes = Vec::new();
        let total = self.bytes_in_use();
        for (name, known) in &self.rule_sets {
            let health = self.health(name, known, total);
            if known.has_current_status() && status::stays(&health, &known.cluster_status.status) {
                continue;
            }
            let desired = status::compute(&health, &known.cluster_status.status, now, self.requeue);
            if desired != known.cluster_status.status {
                writes.push(StatusWrite {
                    name: name.clone(),
                    uid: known.uid.clone(),
                    version: known.cluster_status.version.clone(),
                    status: desired,
                });
            }
        }
        writes
    }

    /// Records that a status was written. `version` is the resourceVersion that the rule set has
    /// after the write.
    pub(super) fn written(&mut self, write: StatusWrite, version: Option<String>) {
        // During the write, a user may have deleted the rule set and created another rule set with
        // the same name.
        if let Some(known) = self.rule_sets.get_mut(&write.name)
            && known.uid == write.uid
        {
            known.cluster_status.record(version, write.status);
        }
    }
}
