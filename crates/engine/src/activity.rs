//! Computes the activities: whether a namespace, a node, a component or the cluster is idle.
//!
//! The input is each write of an operation, the rule sets that may miss operations ([`Gaps`]), and
//! the names of namespaces and nodes. The output is the writes of the activities. The caller
//! commits them together with the writes of the operations. So at every resourceVersion, the
//! condition `Idle` agrees with the operations.

mod build;
#[cfg(test)]
mod tests;

use crate::track::{Existing, Write};
use ifo_api::activity::Activity;
use ifo_api::completeness::Gaps;
use ifo_api::live::{InFlightOperation, Phase, State};
use ifo_api::metadata::shared_text;
use ifo_api::{Collection, Key, Object, Text, labels};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum number of nodes that have an activity only because operations name them. A rule can
/// yield any text as the name of a node, so this number must be limited. Beyond the maximum,
/// further such nodes get no activity. Nodes of the cluster always have an activity.
const MAX_UNLISTED_NODES: usize = 1_000;

/// The part of the cluster that one activity is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Cluster,
    Component(Text),
    Namespace(Text),
    Node(Text),
}

impl Scope {
    /// Returns the value of the label [`LABEL`].
    fn sort(&self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Component(_) => "component",
            Self::Namespace(_) => "namespace",
            Self::Node(_) => "node",
        }
    }
}

/// One activity.
#[derive(Debug, Default)]
struct ScopeState {
    /// The operations of the scope with the phase `Active`, sorted by their start.
    operations: BTreeSet<(Timestamp, Key)>,
    /// The activity that clients see.
    shown: Option<Arc<Activity>>,
}

/// All activities of the cluster.
#[derive(Debug)]
pub struct Activities {
    cluster_namespace: Text,
    /// The scopes that have an activity even without operations: the existing namespaces and nodes,
    /// the components of rule sets, and the cluster.
    existing: BTreeSet<Scope>,
    scopes: BTreeMap<Scope, ScopeState>,
    /// The operations with the phase `Active`.
    in_flight: HashMap<Key, Arc<InFlightOperation>>,
    /// Number of nodes that have an activity only because operations name them.
    unlisted_nodes: usize,
    gaps: Arc<Gaps>,
    /// The scopes that have changed since they were last compared with the activities that clients
    /// see.
    changed: BTreeSet<Scope>,
    /// The scopes whose activity has the right status and reason, but outdated numbers.
    outdated: BTreeSet<Scope>,
}

impl Activities {
    /// Creates the activities of a new leader, which has read nothing yet. `cluster_namespace` is
    /// the namespace of operations on cluster-scoped objects. `index` contains the objects of the
    /// leader's index.
    pub fn new<'a>(
        cluster_namespace: Text,
        index: impl IntoIterator<Item = (&'a Key, &'a Object)>,
    ) -> Self {
        let mut activities = Self {
            cluster_namespace,
            existing: BTreeSet::from([Scope::Cluster]),
            scopes: BTreeMap::new(),
            in_flight: HashMap::new(),
            unlisted_nodes: 0,
            gaps: Arc::default(),
            changed: BTreeSet::from([Scope::Cluster]),
            outdated: BTreeSet::new(),
        };
        for (key, object) in index {
            match object {
                Object::Operation(operation) => activities.set_operation(key, Some(operation)),
                Object::Activity(shown) => activities.restore(key, shown),
                Object::Record(_) | Object::Gaps(_) => {}
            }
        }
        activities
    }

    /// Takes over an activity of an earlier leader.
    fn restore(&mut self, key: &Key, shown: &Arc<Activity>) {
        let namespace = key.object_namespace();
        let scope = match key.name.split_once('.') {
            Some(("node", name)) => Scope::Node(name.into()),
            Some(("component", name)) => Scope::Component(name.into()),
            _ if *key.name == *"cluster" => Scope::Cluster,
            _ => Scope::Namespace(namespace.into()),
        };
        self.changed.insert(scope.clone());
        // A namespace or a node that no longer exists is removed when the leader has read the
        // namespaces and the nodes.
        self.existing.insert(scope.clone());
        self.scopes.entry(scope).or_default().shown = Some(shown.clone());
    }

    /// Records a write of the tracker. The caller must commit the result of [`Self::writes`]
    /// together with this write.
    pub fn record(&mut self, write: &Write) {
        match write {
            Write::Put { key, object } => {
                if let Some(operation) = object.operation() {
                    self.set_operation(key, Some(operation));
                }
            }
            Write::Delete { key } => self.set_operation(key, None),
        }
    }

    fn set_operation(&mut self, key: &Key, operation: Option<&Arc<InFlightOperation>>) {
        let in_flight = operation.filter(|it| it.status.phase == Phase::Active);
        let before = match in_flight {
            Some(operation) => self.in_flight.insert(key.clone(), operation.clone()),
            None => self.in_flight.remove(key),
        };
        // Most changes, such as the progress, do not affect an activity.
        if let (Some(before), Some(operation)) = (&before, in_flight)
            && counted_facts(before) == counted_facts(operation)
        {
            return;
        }
        if let Some(before) = before {
            self.count(key, &before, false);
        }
        if let Some(operation) = in_flight {
            self.count(key, operation, true);
        }
    }

    /// Adds an operation to its scopes, or removes it from them.
    fn count(&mut self, key: &Key, operation: &InFlightOperation, add: bool) {
        let scopes = [
            Scope::Cluster,
            Scope::Component(operation.spec.component.clone()),
            Scope::Namespace(key.namespace.clone()),
        ];
        for scope in scopes {
            self.count_in(scope, key, operation, add);
        }
        self.count_nodes(key, operation, add);
    }

    fn count_nodes(&mut self, key: &Key, operation: &InFlightOperation, add: bool) {
        // A rule can yield any text as the name of a node. Only a name that a node can have becomes
        // the name of an activity.
        let nodes = operation.status.nodes.iter();
        for node in nodes.filter(|node| labels::is_subdomain(node)) {
            let scope = Scope::Node(node.clone());
            if !self.scopes.contains_key(&scope) && !self.existing.contains(&scope) {
                if self.unlisted_nodes >= MAX_UNLISTED_NODES {
                    continue;
                }
                self.unlisted_nodes += 1;
            }
            self.count_in(scope, key, operation, add);
        }
    }

    fn count_in(&mut self, scope: Scope, key: &Key, operation: &InFlightOperation, add: bool) {
        self.changed.insert(scope.clone());
        let state = self.scopes.entry(scope).or_default();
        let entry = (operation.metadata.creation_timestamp.0, key.clone());
        if add {
            state.operations.insert(entry);
        } else {
            state.operations.remove(&entry);
        }
    }

    /// Returns the operations of a scope, the oldest first.
    fn operations_of<'a>(
        &'a self,
        state: &'a ScopeState,
    ) -> impl Iterator<Item = (&'a Key, &'a InFlightOperation)> {
        let keys = state.operations.iter().map(|(_, key)| key);
        keys.filter_map(|key| Some((key, &**self.in_flight.get(key)?)))
    }

    /// Returns true if the scope has an operation that is not `Held`. An operation that a person
    /// has put on hold does not make its scope busy.
    fn is_busy(&self, state: &ScopeState) -> bool {
        let mut operations = self.operations_of(state);
        operations.any(|(_, operation)| operation.status.state != State::Held)
    }

    /// Sets the rule sets that may miss operations. Before a gap ends, the caller must record and
    /// commit all operations that were detected during the gap. Otherwise, an activity could become
    /// idle although such an operation is in flight.
    pub fn set_gaps(&mut self, gaps: Arc<Gaps>) {
        // Before the rule sets have been read, the existing components are not known.
        if gaps.rule_sets_are_read {
            let components = gaps.components.iter().cloned().map(Scope::Component);
            self.replace_existing(|it| matches!(it, Scope::Component(_)), components);
        }
        self.gaps = gaps;
        self.changed.extend(self.scopes.keys().cloned());
    }

    /// Records which namespaces or nodes exist.
    pub fn set_existing(&mut self, existing: &Existing) {
        match existing {
            Existing::Namespaces(namespaces) => {
                let names = namespaces.keys().cloned().map(Scope::Namespace);
                self.replace_existing(|it| matches!(it, Scope::Namespace(_)), names);
            }
            Existing::Nodes(names) => {
                let names = names.iter().cloned().map(Scope::Node);
                self.replace_existing(|it| matches!(it, Scope::Node(_)), names);
                let is_unlisted =
                    |it: &&Scope| matches!(it, Scope::Node(_)) && !self.existing.contains(it);
                self.unlisted_nodes = self.scopes.keys().filter(is_unlisted).count();
                // Operations may name nodes that were skipped before, because `MAX_UNLISTED_NODES`
                // was reached.
                for (key, operation) in self.in_flight.clone() {
                    self.count_nodes(&key, &operation, true);
                }
            }
        }
    }

    /// Replaces the existing scopes of one sort, which `is_of_sort` selects, by `existing`.
    fn replace_existing(
        &mut self,
        is_of_sort: fn(&Scope) -> bool,
        existing: impl Iterator<Item = Scope>,
    ) {
        let others = self.existing.iter().filter(|it| !is_of_sort(it)).cloned();
        let existing: BTreeSet<Scope> = others.chain(existing).collect();
        let differing = self.existing.symmetric_difference(&existing);
        self.changed.extend(differing.cloned());
        self.existing = existing;
    }

    /// Returns the writes that create and delete activities, and the writes of all activities whose
    /// status or reason must change. For example, an activity becomes busy, idle or unknown. If
    /// `with_numbers` is true, also returns the writes of the activities whose numbers have
    /// changed. `now` is the time of the change.
    pub fn writes(&mut self, now: Timestamp, with_numbers: bool) -> Vec<Write> {
        let mut scopes = std::mem::take(&mut self.changed);
        if with_numbers {
            scopes.append(&mut self.outdated);
        }
        let mut writes = Vec::new();
        for scope in scopes {
            let key = self.key(&scope);
            let exists = self.existing.contains(&scope);
            if exists {
                self.scopes.entry(scope.clone()).or_default();
            }
            let Some(state) = self.scopes.get(&scope) else {
                continue;
            };
            if !exists && state.operations.is_empty() {
                if state.shown.is_some() {
                    writes.push(Write::Delete { key });
                }
                self.scopes.remove(&scope);
                self.outdated.remove(&scope);
                self.unlisted_nodes -= usize::from(matches!(scope, Scope::Node(_)));
                continue;
            }
            // If an activity stays busy, its status and reason stay the same.
            let is_shown_busy = state.shown.iter().any(|shown| {
                let idle = shown.idle();
                idle.is_some_and(|idle| *idle.status == *"False")
            });
            if !with_numbers && is_shown_busy && self.is_busy(state) {
                self.outdated.insert(scope);
                continue;
            }
            let activity = self.build(&scope, state, &key, now);
            if let Some(shown) = &state.shown {
                if **shown == activity {
                    continue;
                }
                let condition = |activity: &Activity| {
                    let idle = activity.idle();
                    idle.map(|idle| (idle.status.clone(), idle.reason.clone()))
                };
                if !with_numbers && condition(shown) == condition(&activity) {
                    self.outdated.insert(scope);
                    continue;
                }
            }
            let activity = Arc::new(activity);
            if let Some(state) = self.scopes.get_mut(&scope) {
                state.shown = Some(activity.clone());
            }
            let object = Object::Activity(activity);
            writes.push(Write::Put { key, object });
        }
        writes
    }

    /// Returns true if the numbers of an activity are outdated. The caller then calls
    /// [`Self::writes`] with `with_numbers` after at most one second.
    pub fn has_outdated_numbers(&self) -> bool {
        !self.outdated.is_empty()
    }

    fn key(&self, scope: &Scope) -> Key {
        let name = match scope {
            Scope::Namespace(_) => shared_text("namespace"),
            Scope::Cluster => "cluster".into(),
            Scope::Component(name) => format!("component.{name}").into(),
            Scope::Node(name) => format!("node.{name}").into(),
        };
        Collection::Activities.key(self.namespace(scope), name)
    }

    /// Returns the namespace of the activity of a scope.
    fn namespace<'a>(&'a self, scope: &'a Scope) -> &'a Text {
        match scope {
            Scope::Namespace(namespace) => namespace,
            Scope::Cluster | Scope::Component(_) | Scope::Node(_) => &self.cluster_namespace,
        }
    }
}

/// Returns the facts of an operation on which the activities of its scopes depend.
fn counted_facts(operation: &InFlightOperation) -> (Timestamp, &Text, State, bool, &[Text]) {
    let status = &operation.status;
    (
        operation.metadata.creation_timestamp.0,
        &operation.spec.component,
        status.state,
        status.is_true("Overdue"),
        &status.nodes,
    )
}
