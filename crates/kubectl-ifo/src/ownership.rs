//! Builds a graph of objects and their owners.
//!
//! The graph has a node for each object that an operation is about, and for each direct or indirect
//! owner of such an object. An operation contains the owner references of its object. The plugin
//! looks up the owner references of owners in the cluster (`owner_lookup`).
//!
//! `kubectl ifo tree` shows each object below one parent, the first of these:
//!
//! 1. an owner that has an operation, or that is a descendant of an object with an operation
//! 2. the root of the correlation group of the object
//! 3. another owner
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
    /// The index of the parent.
    pub(super) parent: Option<usize>,
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
        let index = self.node(SubjectReference {
            owner_references: Arc::default(),
            ..subject.clone()
        });
        let node = &mut self.nodes[index];
        node.owners_known = true;
        if node.references.is_empty() {
            node.references = &subject.owner_references;
        }
        index
    }

    /// Returns the index of the node with the names of `object`. Adds the node if it does not
    /// exist.
    fn node(&mut self, object: SubjectReference) -> usize {
        let next = self.nodes.len();
        let index = *self.by_names.entry(names(&object)).or_insert(next);
        if index == next {
            self.nodes.push(OwnershipNode {
                object,
                operations: Vec::new(),
                parent: None,
                owners_known: false,
                references: &[],
                owners: Vec::new(),
            });
        }
        index
    }

    /// Returns the index of the node for an owner of an object in `namespace`. An owner is in the
    /// same namespace or cluster-scoped. If there is neither node, adds one in the same namespace.
    fn owner_node(&mut self, reference: &OwnerReference, namespace: Option<Text>) -> usize {
        let mut owner = SubjectReference {
            api_version: reference.api_version.clone(),
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            uid: Some(reference.uid.clone()),
            ..SubjectReference::default()
        };
        let cluster_scoped = self.by_names.get(&names(&owner)).copied();
        owner.namespace = namespace;
        match (self.by_names.get(&names(&owner)), cluster_scoped) {
            (None, Some(index)) => index,
            _ => self.node(owner),
        }
    }

    /// Determines the parent of each node.
    fn set_parents(&mut self) {
        let below = self.below_operations();
        let roots = self.group_roots();
        for index in 0..self.nodes.len() {
            let owners = &self.nodes[index].owners;
            let is_near =
                |it: &&usize| !self.nodes[**it].operations.is_empty() || below.contains(*it);
            let near = owners.iter().find(is_near).copied();
            let parent = near.or_else(|| self.root_of_group(index, &roots));
            self.nodes[index].parent = parent.or(owners.first().copied());
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
        let above = reach(own, |it| &self.nodes[it].owners);
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

    /// Returns the children of each node.
    pub(super) fn children(&self) -> Vec<Vec<usize>> {
        children(self.nodes.iter().map(|node| node.parent.as_slice()))
    }

    /// Returns the nodes that are roots of correlation groups, by group. A node is a root if an
    /// operation on its object has the value `root` in the label
    /// `ifo.kubevirt.io/correlation-role`.
    fn group_roots(&self) -> HashMap<&'a str, BTreeSet<usize>> {
        let mut roots: HashMap<_, BTreeSet<usize>> = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let operations = node.operations.iter();
            let of_roots = operations.filter(|it| it.correlation("role") == Some("root"));
            for group in of_roots.filter_map(|it| it.correlation("group")) {
                roots.entry(group).or_default().insert(index);
            }
        }
        roots
    }

    /// Returns the root of the correlation group of a node: the only root in the same namespace. If
    /// there is none, the only cluster-scoped root, or for a cluster-scoped node, the only root in
    /// any namespace.
    fn root_of_group(&self, index: usize, roots: &HashMap<&str, BTreeSet<usize>>) -> Option<usize> {
        let namespace = &self.nodes[index].object.namespace;
        let groups = self.nodes[index].operations.iter();
        let groups = groups.filter_map(|it| it.correlation("group"));
        let mut groups = groups.filter_map(|it| roots.get(it));
        groups.find_map(|roots| {
            let of = |it: &usize| &self.nodes[*it].object.namespace;
            let (here, others): (Vec<usize>, Vec<usize>) =
                roots.iter().partition(|it| of(it) == namespace);
            let mut others = others.into_iter();
            let mut others = others
                .by_ref()
                .filter(|it| namespace.is_none() || of(it).is_none());
            match (here.as_slice(), others.next(), others.next()) {
                _ if roots.contains(&index) => None,
                ([root], _, _) => Some(*root),
                ([], Some(root), None) => Some(root),
                _ => None,
            }
        })
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
