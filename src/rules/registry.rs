//! The state of all rule sets and of their targets (the resources that rule sets watch). The
//! registry decides which rule books are published and which statuses are written. A rule book
//! contains the compiled rule sets of one target. The registry has no I/O and no clock.

use super::StatusWrite;
use super::compilations::CompiledSpec;
use super::known_status::KnownStatus;
use super::states::{IdleReason, Report, ReportedRuleSet, RuleSetState};
use super::status::{self, RuleSetHealth, WatchState};
use super::tracked_target::{Feedback, LookupRequest, Publication, TrackedTarget};
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec};
use ifo_api::{Gvr, Resolution};
use ifo_engine::rules::{RuleSet, RuleSetError, RuleSetsWithoutBook, expression_bytes};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of the expressions of all rule sets in use, in bytes. The compiled form can need 72
/// times as much memory. The shipped rule sets together have less than a quarter of this size.
const MAX_ALL_EXPRESSIONS: usize = 1 << 20;

/// The state of all rule sets and targets.
#[derive(Debug)]
pub(super) struct Registry {
    allow_secrets: bool,
    requeue: Duration,
    rule_sets: BTreeMap<String, RegisteredRuleSet>,
    /// Names of the objects that cannot be decoded as rule sets.
    unreadable: BTreeSet<String>,
    /// For each rule set with fields that this server does not know, the paths of these fields.
    unknown_fields: BTreeMap<String, Vec<String>>,
    /// Fields that the installed CRD does not have. `None` if the CRD has not been read.
    missing_fields: Option<Vec<String>>,
    targets: HashMap<Arc<Gvr>, TrackedTarget>,
    /// Number of compilations that have been started.
    compilations: u64,
    /// The generation of the newest rule book. Each new rule book gets the next number.
    generation: u64,
}

/// A rule set with its compiled rules and its status.
#[derive(Debug)]
struct RegisteredRuleSet {
    uid: Option<String>,
    generation: Option<i64>,
    /// The newest spec. A compilation has a clone of this `Arc`.
    spec: Arc<OperationRuleSetSpec>,
    target: Arc<Gvr>,
    /// The value of [`Registry::compilations`] when `spec` arrived.
    arrived: u64,
    /// The result of compiling `spec`. `None` until the compilation ends.
    compiled: Option<Result<Arc<RuleSet>, Vec<RuleSetError>>>,
    /// True if `compiled` is an error because of [`MAX_ALL_EXPRESSIONS`].
    exceeds_total: bool,
    /// The rules that are evaluated, with their target. While `spec` is being compiled, these are
    /// the rules of the last valid spec. If `spec` does not compile, they stay in use if they have
    /// the same target. `None` if there are no such rules.
    in_use: Option<(Arc<Gvr>, Arc<RuleSet>)>,
    /// Size of the expressions of the rules in `in_use`, in bytes. Zero if there are none.
    bytes_in_use: usize,
    /// The reason why the server refuses to watch the target. `None` if it does not refuse.
    refused: Option<String>,
    /// The status that the rule set has in the cluster.
    cluster_status: KnownStatus,
}

impl Registry {
    pub(super) fn new(allow_secrets: bool, requeue: Duration) -> Self {
        Self {
            allow_secrets,
            requeue,
            rule_sets: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            unknown_fields: BTreeMap::new(),
            missing_fields: None,
            targets: HashMap::new(),
            compilations: 0,
            generation: 0,
        }
    }

    /// Returns true if the rule set is new, or if its spec differs from the known one.
    pub(super) fn is_new_or_changed(&self, object: &OperationRuleSet) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.rule_sets
            .get(name)
            .is_none_or(|known| known.uid != object.metadata.uid || *known.spec != object.spec)
    }

    /// Records an event of a rule set whose spec has not changed. Returns true if the version in
    /// the event is newer than the known version.
    pub(super) fn observe(&mut self, object: &OperationRuleSet) -> bool {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let Some(known) = self.rule_sets.get_mut(name) else {
            return false;
        };
        known.generation = object.metadata.generation;
        let version = object.metadata.resource_version.clone();
        known
            .cluster_status
            .observe(version, object.status.as_ref())
    }

    /// Records a rule set that was created or changed, and that must be compiled.
    pub(super) fn apply(&mut self, object: OperationRuleSet) {
        let name = object.metadata.name.unwrap_or_default();
        self.unreadable.remove(&name);
        let uid = object.metadata.uid;
        let version = object.metadata.resource_version;
        let (in_use, bytes_in_use, cluster_status) = match self.rule_sets.remove(&name) {
            Some(before) if before.uid == uid => {
                let mut cluster_status = before.cluster_status;
                cluster_status.observe(version, object.status.as_ref());
                (before.in_use, before.bytes_in_use, cluster_status)
            }
            before => {
                if let Some(before) = before {
                    self.mark_stale(before.used_target());
                }
                let cluster_status = KnownStatus {
                    version,
                    status: object.status.unwrap_or_default(),
                    edited: false,
                };
                (None, 0, cluster_status)
            }
        };
        let target = Arc::new(object.spec.target.gvr());
        self.targets.entry(target.clone()).or_default();
        let known = RegisteredRuleSet {
            uid,
            generation: object.metadata.generation,
            arrived: self.compilations,
            compiled: None,
            exceeds_total: false,
            in_use,
            bytes_in_use,
            refused: refused(&target, self.allow_secrets),
            spec: Arc::new(object.spec),
            target,
            cluster_status,
        };
        self.rule_sets.insert(name, known);
        self.retry_those_that_exceed_the_total();
    }

    /// Returns the name and the spec of the rule set that must be compiled next. A spec never waits
    /// for a spec that has arrived after a later compilation has begun. So a rule set that changes
    /// again and again does not keep others waiting. Of the specs that have arrived during the same
    /// compilation, the one with the fewest bytes is first, because it takes the shortest time.
    ///
    /// If the rule sets in use leave too little of [`MAX_ALL_EXPRESSIONS`], the rule set gets an error
    /// instead. After a start, all specs arrive together, so the largest ones get the error.
    pub(super) fn begin_next_compilation(&mut self) -> Option<(String, Arc<OperationRuleSetSpec>)> {
        loop {
            let waiting = self.rule_sets.iter();
            let waiting = waiting.filter(|(_, known)| known.compiled.is_none());
            let order = |known: &RegisteredRuleSet| (known.arrived, expression_bytes(&known.spec));
            let (name, known) = waiting.min_by_key(|(_, known)| order(known))?;
            let (name, spec) = (name.clone(), known.spec.clone());
            let others = self.rule_sets.iter().filter(|(other, _)| **other != name);
            let others: usize = others.map(|(_, other)| other.bytes_in_use).sum();
            if others + expression_bytes(&spec) <= MAX_ALL_EXPRESSIONS {
                self.compilations += 1;
                return Some((name, spec));
            }
            let error = RuleSetError::Spec(format!(
                "the expressions of all rule sets would have more than {MAX_ALL_EXPRESSIONS} bytes \
                 together; the other rule sets have {others}"
            ));
            self.compiled((name.clone(), spec, Err(vec![error])));
            if let Some(known) = self.rule_sets.get_mut(&name) {
                known.exceeds_total = true;
            }
        }
    }

    /// Marks the rule sets that exceeded [`MAX_ALL_EXPRESSIONS`], so that they are compiled again. The
    /// caller calls this function when a rule set was deleted or changed.
    fn retry_those_that_exceed_the_total(&mut self) {
        for known in self.rule_sets.values_mut() {
            if std::mem::take(&mut known.exceeds_total) {
                known.compiled = None;
                known.arrived = self.compilations;
            }
        }
    }

    /// Returns true if a rule set must be compiled or is being compiled.
    pub(super) fn is_compiling(&self) -> bool {
        self.rule_sets
            .values()
            .any(|known| known.compiled.is_none())
    }

    /// Records the result of a compilation. Returns false if the rule set was changed or deleted
    /// during the compilation. Then the result is ignored.
    pub(super) fn compiled(&mut self, (name, spec, result): CompiledSpec) -> bool {
        let known = self.rule_sets.get_mut(&name);
        let Some(known) = known.filter(|known| Arc::ptr_eq(&known.spec, &spec)) else {
            return false;
        };
        let used_target = known.used_target().clone();
        let target = known.target.clone();
        let last = known.in_use.take().filter(|(used, _)| *used == target);
        let last = last.map(|(_, rules)| rules);
        // If the text of the spec has changed, but the compiled rules are equal, the rule book
        // stays and the feeds do not list again.
        let compiled = result.map(|rules| match &last {
            Some(last) if **last == rules => last.clone(),
            _ => Arc::new(rules),
        });
        // An error in a new version of the spec must not end the operations in flight. So the last
        // valid rules stay in use.
        known.bytes_in_use = match (&compiled, &last) {
            (Ok(_), _) => expression_bytes(&spec),
            (Err(_), Some(_)) => known.bytes_in_use,
            (Err(_), None) => 0,
        };
        let rules = compiled.as_ref().ok().cloned().or(last);
        known.in_use = rules.map(|rules| (target.clone(), rules));
        known.compiled = Some(compiled);
        self.mark_stale(&used_target);
        self.mark_stale(&target);
        true
    }

    /// Records an object that cannot be decoded as a rule set. The object has no rules, but
    /// [`Self::report`] returns it as a rule set that may miss operations.
    pub(super) fn unreadable(&mut self, name: String) {
        self.remove(&name);
        self.unreadable.insert(name);
    }

    /// Removes the rule set or the unreadable object `name`. Returns true if `name` was a rule set.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.unreadable.remove(name);
        self.unknown_fields.remove(name);
        let Some(known) = self.rule_sets.remove(name) else {
            return false;
        };
        self.mark_stale(known.used_target());
        self.retry_those_that_exceed_the_total();
        true
    }

    /// Returns the names of all rule sets and of all unreadable objects.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.rule_sets.keys().chain(&self.unreadable)
    }

    fn mark_stale(&mut self, target: &Arc<Gvr>) {
        self.targets.entry(target.clone()).or_default().mark_stale();
    }

    /// Returns the targets that `which` selects.
    pub(super) fn to_resolve(&self, which: LookupRequest) -> Vec<Arc<Gvr>> {
        self.targets
            .iter()
            .filter(|(_, target)| target.wants_look_up(which))
            .map(|(gvr, _)| gvr.clone())
            .collect()
    }

    /// Records the fields of a rule set that this server does not know.
    pub(super) fn set_unknown_fields(&mut self, rule_set: String, fields: Vec<String>) {
        if fields.is_empty() {
            self.unknown_fields.remove(&rule_set);
        } else {
            self.unknown_fields.insert(rule_set, fields);
        }
    }

    /// Records the fields that the installed CRD does not have.
    pub(super) fn set_missing_fields(&mut self, fields: Vec<String>) {
        self.missing_fields = Some(fields);
    }

    /// Records a result of discovery. Returns true if the result changes the state.
    pub(super) fn resolved(&mut self, gvr: &Arc<Gvr>, resolution: Resolution) -> bool {
        self.targets
            .get_mut(gvr)
            .is_some_and(|target| target.record_resolution(resolution))
    }

    /// Records the report of a feed. Returns true if the report changes the state.
    pub(super) fn feedback(&mut self, feedback: Feedback) -> bool {
        self.targets
            .get_mut(&feedback.source.target)
            .is_some_and(|target| target.record_report(feedback))
    }

    /// Returns new rule books for the targets whose rule book has changed since the last call.
    pub(super) fn publish(&mut self) -> Vec<Publication> {
        let rule_sets = &self.rule_sets;
        let was_watched = |name: &str| {
            rule_sets
                .get(name)
                .is_some_and(RegisteredRuleSet::is_reported_as_watched)
        };
        let mut publications = Vec::new();
        for (gvr, target) in &mut self.targets {
            let usable: Vec<Arc<RuleSet>> = rule_sets
                .values()
                .filter_map(|known| known.rules_for(gvr))
                .collect();
            publications.extend(target.publish(gvr, usable, was_watched, &mut self.generation));
        }
        let used = |gvr: &Arc<Gvr>| {
            let mut rule_sets = rule_sets.values();
            rule_sets.any(|known| known.target == *gvr || known.used_target() == gvr)
        };
        self.targets
            .retain(|gvr, target| target.is_published() || used(gvr));
        publications
    }

    /// Returns true if every feed that should run has reported whether it is up to date.
    pub(super) fn caught_up(&self) -> bool {
        self.targets
            .iter()
            .all(|(gvr, target)| target.caught_up(gvr))
    }

    /// Returns the rule sets without a rule book. Possible causes are:
    ///
    /// - The target is not served, or no look-up of the target has succeeded yet.
    /// - The rule book has not been published yet.
    /// - The rule set is being compiled.
    /// - The rule set does not compile, and no earlier valid version of its rules is known.
    pub(super) fn rule_sets_without_book(&self) -> RuleSetsWithoutBook {
        let mut rule_sets_without_book = RuleSetsWithoutBook::default();
        for (name, known) in &self.rule_sets {
            let target = self.targets.get(&known.target);
            let resolution = target.and_then(TrackedTarget::resolution);
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

    /// Returns the rule sets that may miss operations, because they are being compiled, or because
    /// their target has not been read completely or its watch is interrupted. Invalid rule sets are
    /// not included.
    pub(super) fn unsynced_rule_sets(&self) -> BTreeSet<String> {
        let is_unsynced = |name: &str, known: &RegisteredRuleSet| match &known.compiled {
            None => true,
            Some(Ok(_)) => {
                let target = self.targets.get(&known.target);
                target.is_none_or(|target| target.is_unsynced(name))
            }
            Some(Err(_)) => false,
        };
        let unsynced = self.rule_sets.iter();
        let unsynced = unsynced.filter(|(name, known)| is_unsynced(name, known));
        unsynced.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the state of all rule sets.
    pub(super) fn report(&self) -> Report {
        let rule_sets = self.rule_sets.iter().map(|(name, known)| {
            let target = self.targets.get(&known.target);
            ReportedRuleSet {
                name: name.as_str().into(),
                spec: Some(known.spec.clone()),
                kind: target.and_then(TrackedTarget::kind),
                state: known.state(name, target),
            }
        });
        let unreadable = self.unreadable.iter().map(|name| ReportedRuleSet {
            name: name.as_str().into(),
            spec: None,
            kind: None,
            state: RuleSetState::Idle(IdleReason::Unreadable),
        });
        let rule_sets: Vec<_> = rule_sets.chain(unreadable).collect();
        Report {
            read: true,
            rule_sets,
        }
    }

    /// Returns the statuses that differ from those in the cluster.
    pub(super) fn statuses(&self, now: Timestamp) -> Vec<StatusWrite> {
        let mut writes = Vec::new();
        for (name, known) in &self.rule_sets {
            let target = self.targets.get(&known.target);
            let resolution = target.and_then(TrackedTarget::resolution);
            if (resolution.is_none() || known.compiled.is_none()) && known.has_current_status() {
                // After a restart, the old status stays until the rule set is compiled and
                // discovery has looked up the target.
                continue;
            }
            let health = RuleSetHealth {
                generation: known.generation,
                compiled: (known.compiled.as_ref())
                    .map(|compiled| compiled.as_ref().map_err(Vec::as_slice)),
                uses_last_rules: !matches!(known.compiled, Some(Ok(_))) && known.in_use.is_some(),
                target: &known.target,
                refused: known.refused.as_deref(),
                resolution,
                look_up_failure: target.and_then(TrackedTarget::look_up_failure),
                scoped_wrongly: !known.spec.namespaces.is_empty()
                    && target.is_some_and(TrackedTarget::is_cluster_scoped),
                watch: target.map_or(WatchState::Pending, |target| target.watch_state(name)),
                unknown_fields: self.unknown_fields.get(name).map_or(&[], Vec::as_slice),
                missing_fields: self.missing_fields.as_deref(),
            };
            let desired = status::compute(&health, &known.cluster_status.status, now, self.requeue);
            if desired != known.cluster_status.status {
                writes.push(StatusWrite {
                    name: name.clone(),
                    uid: known.uid.clone(),
                    version: known.cluster_status.version.clone(),
                    repairs: known.cluster_status.edited,
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
            known.cluster_status.record_own_write(version, write.status);
        }
    }
}

impl RegisteredRuleSet {
    /// Returns the target of the rules that are evaluated. If there are none, returns the target of
    /// the newest spec.
    fn used_target(&self) -> &Arc<Gvr> {
        self.in_use.as_ref().map_or(&self.target, |(used, _)| used)
    }

    /// Returns the rules for the rule book of `target`.
    fn rules_for(&self, target: &Arc<Gvr>) -> Option<Arc<RuleSet>> {
        let (used, rules) = self.in_use.as_ref()?;
        let is_refused = self.target == *target && self.refused.is_some();
        (used == target && !is_refused).then(|| rules.clone())
    }

    /// Returns the state of the rule set. If the server does not watch its target, the state
    /// contains the reason.
    fn state(&self, name: &str, target: Option<&TrackedTarget>) -> RuleSetState {
        let rule_set = match &self.compiled {
            None => return RuleSetState::Idle(IdleReason::Compiling),
            Some(Err(_)) => return RuleSetState::Idle(IdleReason::NotCompiled),
            Some(Ok(rule_set)) => rule_set,
        };
        if self.refused.is_some() {
            return RuleSetState::Idle(IdleReason::TargetRefused);
        }
        let Some(target) = target else {
            return RuleSetState::Idle(IdleReason::NotSynced);
        };
        match target.resolution() {
            Some(Resolution::NotServed { .. }) if target.look_up_failure().is_some() => {
                return RuleSetState::Idle(IdleReason::DiscoveryFailed);
            }
            Some(Resolution::NotServed { group_served, .. }) => {
                return if *group_served {
                    RuleSetState::Idle(IdleReason::TargetNotServed)
                } else {
                    RuleSetState::NotInstalled
                };
            }
            Some(Resolution::Unknown { .. }) => {
                return RuleSetState::Idle(IdleReason::DiscoveryFailed);
            }
            Some(Resolution::Served { .. }) | None => {}
        }
        if !self.spec.namespaces.is_empty() && target.is_cluster_scoped() {
            return RuleSetState::Idle(IdleReason::TargetRefused);
        }
        match target.watch_state(name) {
            WatchState::Pending => RuleSetState::Idle(IdleReason::NotSynced),
            WatchState::Failed(_) => RuleSetState::Idle(IdleReason::WatchFailed),
            // After a new rule book is published, `watch_state` returns the state of the previous
            // feeds until the new feeds report. In this time, the rule set may miss operations, and
            // the report must say so.
            WatchState::Active if target.is_unsynced(name) => {
                RuleSetState::Idle(IdleReason::NotSynced)
            }
            WatchState::Active => RuleSetState::Watching(rule_set.clone()),
        }
    }

    /// Returns true if the status was computed for the current generation of the rule set.
    fn has_current_status(&self) -> bool {
        self.generation.is_some()
            && self.cluster_status.status.observed_generation == self.generation
    }

    /// Returns true if the status says that the target is being watched with the current rules.
    fn is_reported_as_watched(&self) -> bool {
        self.has_current_status() && self.cluster_status.status.watch_active
    }
}

fn refused(target: &Gvr, allow_secrets: bool) -> Option<String> {
    (target.group.is_empty() && target.resource == "secrets" && !allow_secrets).then(|| {
        "secrets are not watched, because a rule set could copy their contents into messages and labels, which more users can read (an administrator can allow it with --allow-secrets-target)"
            .to_owned()
    })
}
