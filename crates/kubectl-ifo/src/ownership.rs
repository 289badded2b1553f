//! Builds a graph of objects and their owners.
//!
//! The graph has a node for each object that an operation is about, and for each direct or indirect
//! owner of such an object. An operation contains the owner references of its object. The plugin
//! looks up the owner references of owners in the cluster (`owner_lookup`).
//!
//! `kubectl ifo tree` shows each object below a parent. The graph lists the possible parents of an
//! object, the preferred parent first:
//!
//! 1. owners that have an operation, and owners that are descendants of an object with an operation
//! 2. the root of the correlation group of the object
//! 3. all other owners
//!
//! Within 1 and within 3, the owner whose owner reference has `controller: true` comes first.
//!
//! A correlation group connects objects that do not own each other. A rule set puts an operation
//! into a group with the label `ifo.kubevirt.io/correlation-group`. The label
//! `ifo.kubevirt.io/correlation-role: root` marks an operation on the root of the group.
//!
//! Owner references can form a cycle. The graph keeps such cycles, so code that walks the graph
//! must not loop forever. The graph ignores only a reference of an object to itself.

use super::operation::{InFlightOperation, OperationFacts as _};
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use ifo_api::metadata::OwnerReference;
use ifo_client::offline_kinds::group;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Group, kind, namespace and name.
type GroupKindName = (String, Text, Option<Text>, Text);

fn names(object: &SubjectReference) -> GroupKindName {
    (
        group(&object.api_version).to_owned(),
        object.kind.clone(),
        object.namespace.clone(),
        object.name.clone(),
    )
}

/// An object and its operations.
#[derive(Debug)]
pub(super) struct OwnershipNode<'a> {
    /// The object. Its owners are in `owners`.
    pub(super) object: SubjectReference,
    /// The operations on the object, in input order. Empty if the object is known only as the owner
    /// of another object.
    pub(super) operations: Vec<&'a InFlightOperation>,
    /// The indexes of the possible parents, the preferred parent first.
    pub(super) parents: Vec<usize>,
    /// True if the owner references of the object are known: from an operation on the object, or
    /// from a lookup in the cluster.
    owners_known: bool,
    /// The owner references of the object. Empty if they are unknown.
    references: &'a [OwnerReference],
    /// The indexes of the direct owners.
    owners: Vec<usize>,
}

/// The graph of all objects that operations and owner references name.
#[derive(Debug, Default)]
pub(super) struct Ownership<'a> {
    /// The nodes. Objects with operations come first, in input order.
    pub(super) nodes: Vec<OwnershipNode<'a>>,
    by_uid: HashMap<Text, usize>,
    by_names: HashMap<GroupKindName, usize>,
}

impl<'a> Ownership<'a> {
    /// Builds the graph. `known` are owners that were looked up in the cluster.
    pub(super) fn of(
        operations: impl IntoIterator<Item = &'a InFlightOperation>,
        known: &'a [SubjectReference],
    ) -> Self {
        let mut ownership = Self::default();
        for operation in operations {
            let index = ownership.known_node(&operation.spec.subject);
            ownership.nodes[index].operations.push(operation);
        }
        for subject in known {
            ownership.known_node(subject);
        }
        // The loop appends nodes for owners that have no node yet. The loop does not visit these
        // new nodes, because their owner references are unknown.
        for index in 0..ownership.nodes.len() {
            let mut references: Vec<&OwnerReference> =
                ownership.nodes[index].references.iter().collect();
            references.sort_by_key(|it| it.controller != Some(true));
            for reference in references {
                let namespace = ownership.nodes[index].object.namespace.clone();
                let owner = ownership.owner_node(reference, namespace);
                if owner != index {
                    ownership.nodes[index].owners.push(owner);
                }
            }
        }
        ownership.set_parents();
        ownership
    }

    /// Returns the index of the node for an object whose owner references are known. Adds the node
    /// if it does not exist.
    fn known_node(&mut self, subject: &'a SubjectReference) -> usize {
        let object = SubjectReference {
            uid: subject.uid.clone().filter(|uid| !uid.is_empty()),
            owner_references: Arc::default(),
            ..subject.clone()
        };
        let index = match &object.uid {
            Some(uid) => self.by_uid.get(uid),
            None => self.by_names.get(&names(&object)),
        };
        let index = index.copied().unwrap_or_else(|| self.add_node(object));
        let node = &mut self.nodes[index];
        node.owners_known = true;
        if node.references.is_empty() {
            node.references = &subject.owner_references;
        }
        index
    }

    fn add_node(&mut self, object: SubjectReference) -> usize {
        let index = self.nodes.len();
        if let Some(uid) = &object.uid {
            self.by_uid.insert(uid.clone(), index);
        }
        self.by_names.entry(names(&object)).or_insert(index);
        self.nodes.push(OwnershipNode {
            object,
            operations: Vec::new(),
            parents: Vec::new(),
            owners_known: false,
            references: &[],
            owners: Vec::new(),
        });
        index
    }

    /// Returns the index of the node for an owner of an object in `namespace`. Adds the node if it
    /// does not exist.
    ///
    /// The method finds the node by the UID of the owner. If the owner reference or the node has no
    /// UID, the method finds the node by name.
    fn owner_node(&mut self, reference: &OwnerReference, namespace: Option<Text>) -> usize {
        let uid = Some(reference.uid.clone()).filter(|uid| !uid.is_empty());
        if let Some(index) = uid.as_ref().and_then(|uid| self.by_uid.get(uid)).copied() {
            let node = &mut self.nodes[index];
            // The node was added as the owner of an object in another namespace. An object that
            // owns objects in two namespaces is cluster-scoped.
            if !node.owners_known && node.object.namespace != namespace {
                node.object.namespace = None;
            }
            return index;
        }
        let mut object = SubjectReference {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid,
            ..SubjectReference::default()
        };
        for namespace in [namespace.clone(), None] {
            object.namespace = namespace;
            if let Some(index) = self.by_names.get(&names(&object))
                && (object.uid.is_none() || self.nodes[*index].object.uid.is_none())
            {
                return *index;
            }
        }
        object.namespace = namespace;
        self.add_node(object)
    }

    /// Determines the possible parents of each node.
    fn set_parents(&mut self) {
        let below = self.below_operations();
        let roots = Roots::of(&self.nodes);
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            let (near, far): (Vec<usize>, Vec<usize>) = node
                .owners
                .iter()
                .partition(|it| !self.nodes[**it].operations.is_empty() || below.contains(*it));
            let roots = roots.of_groups(index, &self.nodes);
            let mut seen = HashSet::new();
            self.nodes[index].parents = near
                .into_iter()
                .chain(roots)
                .chain(far)
                .filter(|it| seen.insert(*it))
                .collect();
        }
    }

    /// Returns the nodes that a node with an operation owns, directly or indirectly.
    fn below_operations(&self) -> HashSet<usize> {
        let owned = children(self.nodes.iter().map(|node| node.owners.as_slice()));
        let tops = self.nodes_where(|node| !node.operations.is_empty());
        reach(tops, |it| &owned[it])
    }

    /// Returns the owners that must be read from the cluster, because their own owner references
    /// are unknown. The result contains only ancestors of objects with an operation for which
    /// `is_included` returns true.
    pub(super) fn owners_to_look_up(
        &self,
        is_included: &dyn Fn(&InFlightOperation) -> bool,
    ) -> Vec<SubjectReference> {
        let own = self.nodes_where(|node| node.operations.iter().any(|it| is_included(it)));
        let above = reach(own, |it| &self.nodes[it].parents);
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(index, node)| !node.owners_known && above.contains(index))
            .map(|(_, node)| node.object.clone())
            .collect()
    }

    fn nodes_where(&self, is: impl Fn(&OwnershipNode<'a>) -> bool) -> Vec<usize> {
        let indexes = 0..self.nodes.len();
        indexes.filter(|it| is(&self.nodes[*it])).collect()
    }

    /// Returns `tops` and all descendants of `tops`.
    pub(super) fn below(&self, tops: &[usize]) -> HashSet<usize> {
        let children = self.children(|parents| parents);
        let mut found = reach(tops.to_vec(), |it| &children[it]);
        found.extend(tops);
        found
    }

    /// Returns the children of each node. `choose` selects the parents that count.
    pub(super) fn children(&self, choose: impl Fn(&[usize]) -> &[usize]) -> Vec<Vec<usize>> {
        children(self.nodes.iter().map(|node| choose(&node.parents)))
    }
}

/// Returns all nodes that can be reached from `starts` in one or more steps. So a start is included
/// only if a path leads to it from another start, or through a cycle from itself.
fn reach<'e>(starts: Vec<usize>, next: impl Fn(usize) -> &'e [usize]) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut queue = starts;
    while let Some(index) = queue.pop() {
        queue.extend(next(index).iter().filter(|it| found.insert(**it)));
    }
    found
}

/// Returns the children of each node. `parents` are the parents of each node.
fn children<'p>(parents: impl ExactSizeIterator<Item = &'p [usize]>) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); parents.len()];
    for (index, parents) in parents.enumerate() {
        for parent in parents {
            children[*parent].push(index);
        }
    }
    children
}

/// The nodes that are roots of correlation groups, by group. A node is a root if an operation on its
/// object has the value `root` in the label `ifo.kubevirt.io/correlation-role`.
struct Roots<'a>(HashMap<&'a str, BTreeSet<usize>>);

impl<'a> Roots<'a> {
    fn of(nodes: &[OwnershipNode<'a>]) -> Self {
        let mut roots: HashMap<_, BTreeSet<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for operation in &node.operations {
                if let Some(group) = operation.correlation("group")
                    && operation.correlation("role") == Some("root")
                {
                    roots.entry(group).or_default().insert(index);
                }
            }
        }
        Self(roots)
    }

    /// Returns the root of each correlation group of the node `index`: the only root in the same
    /// namespace. If there is none, the only cluster-scoped root, or for a cluster-scoped node, the
    /// only root in any namespace.
    fn of_groups(&self, index: usize, nodes: &[OwnershipNode<'a>]) -> Vec<usize> {
        let namespace = &nodes[index].object.namespace;
        let mut found = Vec::new();
        for operation in &nodes[index].operations {
            let group = operation.correlation("group").filter(|it| !it.is_empty());
            let Some(roots) = group.and_then(|group| self.0.get(group)) else {
                continue;
            };
            if roots.contains(&index) {
                continue;
            }
            let of = |it: &usize| &nodes[*it].object.namespace;
            let (here, others): (Vec<usize>, Vec<usize>) =
                roots.iter().partition(|it| of(it) == namespace);
            let others = others.into_iter();
            let others = others.filter(|it| namespace.is_none() || of(it).is_none());
            let possible = match here.as_slice() {
                [] => others.collect(),
                _ => here,
            };
            if let [root] = possible.as_slice() {
                found.push(*root);
            }
        }
        found
    }
}
