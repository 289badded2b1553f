//! Finds the parent of each object in `kubectl ifo tree`.
//!
//! An operation contains the owner references of its object. The plugin looks up the references of
//! further owners in the cluster (`owners`). Of several owners of an object, only one counts: an
//! owner with an operation, otherwise the controller, otherwise the first one.
//!
//! A correlation group connects objects that do not own each other. A rule set puts an operation
//! into a group with the label `ifo.kubevirt.io/correlation-group`. The label
//! `ifo.kubevirt.io/correlation-role: root` marks the operation on the root of the group.
//!
//! Owners can form a cycle. An object with more than [`MAX_DEPTH`] objects above it gets no parent.
//! This also breaks cycles, because an object in or below a cycle has endlessly many objects above
//! it. So the parents form trees of a limited depth.

use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use ifo_client::offline_kinds::group;
use std::collections::HashMap;
use std::iter::successors;

/// Deepest level of an object. Real chains of owners are shorter. Many parsers accept at most 128
/// levels of JSON, and each object takes two levels (the object and its list `children`).
const MAX_DEPTH: usize = 32;

/// Group, kind, namespace and name.
type ObjectName = (String, Text, Option<Text>, Text);

fn name_of(object: &SubjectReference) -> ObjectName {
    (
        group(&object.api_version).to_owned(),
        object.kind.clone(),
        object.namespace.clone(),
        object.name.clone(),
    )
}

/// An object and its operations.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) object: SubjectReference,
    /// The operations on the object, in input order. Empty if the object is known only as the owner
    /// of another object.
    pub(super) operations: Vec<&'a InFlightOperation>,
    /// True if the owners of the object must be looked up.
    is_unknown: bool,
    owner: Option<usize>,
}

/// The objects of operations, and their owners.
#[derive(Debug, Default)]
pub(super) struct OwnerGraph<'a> {
    /// The nodes. Objects with operations come first, in input order.
    pub(super) nodes: Vec<Node<'a>>,
    by_name: HashMap<ObjectName, usize>,
    /// The roots of correlation groups, by group and namespace.
    roots: HashMap<(&'a str, Option<Text>), usize>,
}

impl<'a> OwnerGraph<'a> {
    /// Builds the graph. The nodes have the operations for which `is_included` returns true. Other
    /// operations can connect their objects. `known` are owners that were looked up in the cluster.
    pub(super) fn of(
        operations: &'a [InFlightOperation],
        is_included: impl Fn(&InFlightOperation) -> bool,
        known: &[SubjectReference],
    ) -> Self {
        let mut graph = Self::default();
        for operation in operations {
            let subject = &operation.spec.subject;
            let index = graph.node(subject, false);
            let included = Some(operation).filter(|it| is_included(it));
            graph.nodes[index].operations.extend(included);
            if operation.correlation("role") == Some("root")
                && let Some(group) = operation.correlation("group")
            {
                let place = (group, subject.namespace.clone());
                graph.roots.entry(place).or_insert(index);
            }
        }
        for owner in known {
            graph.node(owner, false);
        }
        // The loop appends nodes for unknown owners. It does not visit them, because their owner
        // references are unknown.
        for index in 0..graph.nodes.len() {
            graph.nodes[index].owner = graph.owner(index);
        }
        graph
    }

    /// Returns the index of the node with the group, kind, namespace and name of `object`. Adds the
    /// node if it does not exist.
    fn node(&mut self, object: &SubjectReference, is_unknown: bool) -> usize {
        let next = self.nodes.len();
        let index = *self.by_name.entry(name_of(object)).or_insert(next);
        if index == next {
            self.nodes.push(Node {
                object: object.clone(),
                operations: Vec::new(),
                is_unknown,
                owner: None,
            });
        }
        index
    }

    /// Returns the owner of a node. The module documentation tells which of several owners counts.
    /// An owner is in the same namespace as the object, or cluster-scoped.
    fn owner(&mut self, index: usize) -> Option<usize> {
        let object = &self.nodes[index].object;
        let owners = object.owner_references.iter().map(|reference| {
            let mut owner = SubjectReference {
                api_version: reference.api_version.as_str().into(),
                kind: reference.kind.as_str().into(),
                name: reference.name.as_str().into(),
                uid: Some(reference.uid.as_str().into()),
                ..SubjectReference::default()
            };
            if !self.by_name.contains_key(&name_of(&owner)) {
                owner.namespace.clone_from(&object.namespace);
            }
            let node = self.by_name.get(&name_of(&owner));
            let has_operation = node.is_some_and(|it| self.has_operation(*it));
            ((!has_operation, reference.controller != Some(true)), owner)
        });
        let owner = owners.min_by_key(|it| it.0)?.1;
        Some(self.node(&owner, true))
    }

    fn has_operation(&self, index: usize) -> bool {
        !self.nodes[index].operations.is_empty()
    }

    /// Returns the owner of a node, the owner of this owner and so on, for at most [`MAX_DEPTH`]
    /// levels.
    fn owners_above(&self, index: usize) -> impl Iterator<Item = usize> {
        let above = successors(self.nodes[index].owner, |it| self.nodes[*it].owner);
        above.take(MAX_DEPTH)
    }

    /// Returns the owners that must be looked up in the cluster. These are the unknown owners above
    /// objects with operations.
    pub(super) fn unknown_owners(&self) -> Vec<SubjectReference> {
        let with_operation = (0..self.nodes.len()).filter(|it| self.has_operation(*it));
        let above = with_operation.flat_map(|it| self.owners_above(it));
        let unknown = above.filter(|it| self.nodes[*it].is_unknown);
        unknown.map(|it| self.nodes[it].object.clone()).collect()
    }

    /// Returns the parent of a node. If the node has a direct or indirect owner with an operation,
    /// the parent is the direct owner. Otherwise, the parent is the root of the correlation group.
    /// Without such a root, the parent is the owner.
    fn parent(&self, index: usize) -> Option<usize> {
        let owner = self.nodes[index].owner;
        if self.owners_above(index).any(|it| self.has_operation(it)) {
            return owner;
        }
        self.root_of_group(index).or(owner)
    }

    /// Returns the root of the correlation group of a node. A root in the namespace of the object
    /// is preferred to a cluster-scoped root.
    fn root_of_group(&self, index: usize) -> Option<usize> {
        let node = &self.nodes[index];
        let mut operations = node.operations.iter();
        let group = operations.find_map(|it| it.correlation("group"))?;
        let here = self.roots.get(&(group, node.object.namespace.clone()));
        let root = here.or_else(|| self.roots.get(&(group, None)));
        root.copied().filter(|root| *root != index)
    }

    /// Returns the parent of each node. An object with more than [`MAX_DEPTH`] objects above it has
    /// no parent.
    pub(super) fn parents(&self) -> Vec<Option<usize>> {
        let nodes = 0..self.nodes.len();
        let parents: Vec<_> = nodes.map(|it| self.parent(it)).collect();
        let is_too_deep = |parent: usize| {
            let above = successors(Some(parent), |it| parents[*it]);
            above.take(MAX_DEPTH + 1).count() > MAX_DEPTH
        };
        let limited = |parent: &Option<usize>| parent.filter(|it| !is_too_deep(*it));
        parents.iter().map(limited).collect()
    }
}
