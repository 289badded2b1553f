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

use super::listed_operation::{ListedOperation, ListedSubject};
use ifo_client::offline_kinds::group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};

/// The identity of an object, as operations and owner references contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectIdentity<'a> {
    /// Group and version.
    pub(super) api_version: &'a str,
    /// Kind.
    pub(super) kind: &'a str,
    /// Name.
    pub(super) name: &'a str,
    /// Namespace. None for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'a str>,
    /// UID, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'a str>,
}

impl<'a> ObjectIdentity<'a> {
    /// Returns the identity of the subject of an operation (the object that the operation is
    /// about).
    pub(super) fn of(subject: &'a ListedSubject) -> Self {
        Self {
            api_version: &subject.api_version,
            kind: &subject.kind,
            name: &subject.name,
            namespace: subject.namespace.as_deref(),
            uid: subject.uid.as_deref().filter(|uid| !uid.is_empty()),
        }
    }

    fn names(&self) -> GroupKindName<'a> {
        (
            group(self.api_version),
            self.kind,
            self.namespace,
            self.name,
        )
    }
}

/// Group, kind, namespace and name.
type GroupKindName<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// An object and its operations.
#[derive(Debug)]
pub(super) struct OwnershipNode<'a> {
    /// The identity of the object.
    pub(super) identity: ObjectIdentity<'a>,
    /// The operations on the object, in input order. Empty if the object is known only as the owner
    /// of another object.
    pub(super) operations: Vec<&'a ListedOperation>,
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
    by_uid: HashMap<&'a str, usize>,
    by_names: HashMap<GroupKindName<'a>, usize>,
}

impl<'a> Ownership<'a> {
    /// Builds the graph. `known` are owners that were looked up in the cluster.
    pub(super) fn of(
        operations: impl IntoIterator<Item = &'a ListedOperation>,
        known: &'a [ListedSubject],
    ) -> Self {
        let mut ownership = Self::default();
        for operation in operations {
            let index = ownership.known_node(&operation.subject);
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
                let owner =
                    ownership.owner_node(reference, ownership.nodes[index].identity.namespace);
                if owner != index {
                    ownership.nodes[index].owners.push(owner);
                }
            }
        }
        ownership.set_parents();
        ownership
    }

    /// Returns the index of the node with this operation. None if the graph has no such node.
    pub(super) fn of_operation(&self, operation: &ListedOperation) -> Option<usize> {
        let is_it = |it: &&ListedOperation| it.key() == operation.key();
        let mut nodes = self.nodes.iter();
        nodes.position(|node| node.operations.iter().any(is_it))
    }

    /// Returns the index of the node for an object whose owner references are known. Adds the node
    /// if it does not exist.
    fn known_node(&mut self, subject: &'a ListedSubject) -> usize {
        let identity = ObjectIdentity::of(subject);
        let index = match identity.uid {
            Some(uid) => self.by_uid.get(uid),
            None => self.by_names.get(&identity.names()),
        };
        let index = index.copied().unwrap_or_else(|| self.add_node(identity));
        let node = &mut self.nodes[index];
        node.owners_known = true;
        if node.references.is_empty() {
            node.references = &subject.owner_references;
        }
        index
    }

    fn add_node(&mut self, identity: ObjectIdentity<'a>) -> usize {
        let index = self.nodes.len();
        if let Some(uid) = identity.uid {
            self.by_uid.insert(uid, index);
        }
        self.by_names.entry(identity.names()).or_insert(index);
        self.nodes.push(OwnershipNode {
            identity,
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
    fn owner_node(&mut self, reference: &'a OwnerReference, namespace: Option<&'a str>) -> usize {
        let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty());
        if let Some(index) = uid.and_then(|uid| self.by_uid.get(uid)).copied() {
            let node = &mut self.nodes[index];
            // The node was added as the owner of an object in another namespace. An object that
            // owns objects in two namespaces is cluster-scoped.
            if !node.owners_known && node.identity.namespace != namespace {
                node.identity.namespace = None;
            }
            return index;
        }
        let identity = ObjectIdentity {
            api_version: &reference.api_version,
            kind: &reference.kind,
            name: &reference.name,
            namespace,
            uid,
        };
        let in_no_namespace = ObjectIdentity {
            namespace: None,
            ..identity
        };
        for candidate in [identity, in_no_namespace] {
            if let Some(index) = self.by_names.get(&candidate.names())
                && (uid.is_none() || self.nodes[*index].identity.uid.is_none())
            {
                return *index;
            }
        }
        self.add_node(identity)
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
            let roots = roots.of_groups(node).filter(|root| *root != index);
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
        let owned = self.dependents();
        let tops = self.nodes_where(|node| !node.operations.is_empty());
        reach(tops, |it| &owned[it])
    }

    /// Returns the owners that must be read from the cluster, because their own owner references
    /// are unknown. The result contains only ancestors of objects with an operation for which
    /// `is_included` returns true.
    pub(super) fn owners_to_look_up(
        &self,
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> Vec<ObjectIdentity<'a>> {
        let own = self.nodes_where(|node| node.operations.iter().any(|it| is_included(it)));
        let above = reach(own, |it| &self.nodes[it].parents);
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(index, node)| !node.owners_known && above.contains(index))
            .map(|(_, node)| node.identity)
            .collect()
    }

    fn nodes_where(&self, is: impl Fn(&OwnershipNode<'a>) -> bool) -> Vec<usize> {
        let indexes = 0..self.nodes.len();
        indexes.filter(|it| is(&self.nodes[*it])).collect()
    }

    fn dependents(&self) -> Vec<Vec<usize>> {
        children(self.nodes.iter().map(|node| node.owners.as_slice()))
    }

    /// Returns a map whose keys are `tops` and all descendants of `tops`. The value of a descendant
    /// is its parent on the shortest path from one of the `tops`. The value of each of the `tops`
    /// is None.
    pub(super) fn below(&self, tops: &[usize]) -> HashMap<usize, Option<usize>> {
        let children = children(self.nodes.iter().map(|node| node.parents.as_slice()));
        let mut found: HashMap<usize, Option<usize>> = tops.iter().map(|it| (*it, None)).collect();
        let mut queue: VecDeque<usize> = tops.iter().copied().collect();
        while let Some(index) = queue.pop_front() {
            for child in &children[index] {
                found.entry(*child).or_insert_with(|| {
                    queue.push_back(*child);
                    Some(index)
                });
            }
        }
        found
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

/// The nodes that are roots of correlation groups. A node is a root if an operation on its object
/// has the value `root` in the label `ifo.kubevirt.io/correlation-role`.
struct Roots<'a> {
    /// The roots, by correlation group and namespace. The namespace of a cluster-scoped root is
    /// None.
    within: HashMap<(&'a str, Option<&'a str>), Vec<usize>>,
    /// The roots that are in a namespace, by correlation group.
    namespaced: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Roots<'a> {
    fn of(nodes: &[OwnershipNode<'a>]) -> Self {
        let mut within: HashMap<_, Vec<usize>> = HashMap::new();
        let mut namespaced: HashMap<_, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for group in root_of(node) {
                let namespace = node.identity.namespace;
                let one = within.entry((group, namespace)).or_default();
                // Several operations on one root can name the same group. The root is added once.
                if one.last() == Some(&index) {
                    continue;
                }
                one.push(index);
                if namespace.is_some() {
                    namespaced.entry(group).or_default().push(index);
                }
            }
        }
        Self { within, namespaced }
    }

    /// Returns the root of each correlation group of a node. Groups of which the node itself is a
    /// root are left out.
    ///
    /// | node | root |
    /// | --- | --- |
    /// | namespaced | the root in the same namespace; if there is none, the cluster-scoped root |
    /// | cluster-scoped | the cluster-scoped root; if there is none, the root in a namespace |
    ///
    /// If several roots are possible for a group, no root of this group is returned.
    fn of_groups(&self, node: &OwnershipNode<'a>) -> impl Iterator<Item = usize> {
        let only = |roots: Option<&Vec<usize>>| match roots.map(Vec::as_slice) {
            Some([root]) => Some(*root),
            _ => None,
        };
        let own = root_of(node);
        let namespace = node.identity.namespace;
        let groups = node
            .operations
            .iter()
            .filter_map(|it| it.correlation("group"))
            .filter(move |group| !own.contains(group));
        groups.filter_map(move |group| {
            let here = self.within.get(&(group, namespace));
            only(here.or_else(|| match namespace {
                None => self.namespaced.get(group),
                Some(_) => self.within.get(&(group, None)),
            }))
        })
    }
}

/// Returns the correlation groups of which a node is a root.
fn root_of<'a>(node: &OwnershipNode<'a>) -> Vec<&'a str> {
    node.operations
        .iter()
        .filter(|it| it.correlation("role") == Some("root"))
        .filter_map(|it| it.correlation("group"))
        .filter(|group| !group.is_empty())
        .collect()
}
