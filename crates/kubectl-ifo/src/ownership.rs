//! The ownership of resources.
//!
//! Input: operations, and owners that were looked up. Output: one node for each resource, with its
//! possible parents.
//!
//! The possible parents of a resource are, in this order:
//!
//! 1. its owners that have an operation, or whose own owners have one
//! 2. the root of its correlation group
//! 3. its owners without an operation
//!
//! The owner that is the controller comes first. Owners can form a cycle, and cycles are kept, so
//! code that walks the nodes must handle them.

use super::operation::{ListedOperation, ListedSubject};
use ifo_client::kinds::group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};

/// A resource, as operations and owner references name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceIdentity<'a> {
    /// Group and version.
    pub(super) api_version: &'a str,
    /// Kind.
    pub(super) kind: &'a str,
    /// Name.
    pub(super) name: &'a str,
    /// Namespace. None for a cluster-scoped resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'a str>,
    /// UID, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'a str>,
}

impl<'a> ResourceIdentity<'a> {
    /// Returns the subject of an operation.
    pub(super) fn of(subject: &'a ListedSubject) -> Self {
        Self {
            api_version: &subject.api_version,
            kind: &subject.kind,
            name: &subject.name,
            namespace: subject.namespace.as_deref(),
            uid: subject.uid.as_deref().filter(|uid| !uid.is_empty()),
        }
    }

    fn names(&self) -> ResourceNames<'a> {
        (
            group(self.api_version),
            self.kind,
            self.namespace,
            self.name,
        )
    }
}

/// Group, kind, namespace and name.
type ResourceNames<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// A resource and its operations.
#[derive(Debug)]
pub(super) struct OwnershipNode<'a> {
    /// The resource.
    pub(super) who: ResourceIdentity<'a>,
    /// Its operations, in input order. Empty for a resource that is only known as an owner.
    pub(super) operations: Vec<&'a ListedOperation>,
    /// The possible parents, the best first.
    pub(super) parents: Vec<usize>,
    /// True if its own owners are known.
    known: bool,
    references: &'a [OwnerReference],
    owners: Vec<usize>,
}

/// All resources that operations mention.
#[derive(Debug, Default)]
pub(super) struct Ownership<'a> {
    /// Nodes with operations come first, in input order.
    pub(super) nodes: Vec<OwnershipNode<'a>>,
    by_uid: HashMap<&'a str, usize>,
    by_names: HashMap<ResourceNames<'a>, usize>,
}

impl<'a> Ownership<'a> {
    /// Builds the nodes. `known` are objects that were looked up as owners.
    pub(super) fn of(
        operations: impl IntoIterator<Item = &'a ListedOperation>,
        known: &'a [ListedSubject],
    ) -> Self {
        let mut ownership = Self::default();
        for operation in operations {
            let number = ownership.known(&operation.subject);
            ownership.nodes[number].operations.push(operation);
        }
        for subject in known {
            ownership.known(subject);
        }
        // New owners are appended without owners of their own.
        for number in 0..ownership.nodes.len() {
            let mut references: Vec<&OwnerReference> =
                ownership.nodes[number].references.iter().collect();
            references.sort_by_key(|it| it.controller != Some(true));
            for reference in references {
                let owner = ownership.owner(reference, ownership.nodes[number].who.namespace);
                if owner != number {
                    ownership.nodes[number].owners.push(owner);
                }
            }
        }
        ownership.relate();
        ownership
    }

    /// Returns the node of this operation.
    pub(super) fn of_operation(&self, operation: &ListedOperation) -> Option<usize> {
        let is_it = |it: &&ListedOperation| it.key() == operation.key();
        let mut nodes = self.nodes.iter();
        nodes.position(|node| node.operations.iter().any(is_it))
    }

    /// Returns the node of an object whose owners are known.
    fn known(&mut self, subject: &'a ListedSubject) -> usize {
        let who = ResourceIdentity::of(subject);
        let number = match who.uid {
            Some(uid) => self.by_uid.get(uid),
            None => self.by_names.get(&who.names()),
        };
        let number = number.copied().unwrap_or_else(|| self.add(who));
        let node = &mut self.nodes[number];
        node.known = true;
        if node.references.is_empty() {
            node.references = &subject.owner_references;
        }
        number
    }

    fn add(&mut self, who: ResourceIdentity<'a>) -> usize {
        let number = self.nodes.len();
        if let Some(uid) = who.uid {
            self.by_uid.insert(uid, number);
        }
        self.by_names.entry(who.names()).or_insert(number);
        self.nodes.push(OwnershipNode {
            who,
            operations: Vec::new(),
            parents: Vec::new(),
            known: false,
            references: &[],
            owners: Vec::new(),
        });
        number
    }

    /// Returns the node of an owner of a resource in `namespace`. The owner is identified by its
    /// UID. The name is enough only if one of the two has no UID.
    fn owner(&mut self, reference: &'a OwnerReference, namespace: Option<&'a str>) -> usize {
        let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty());
        if let Some(number) = uid.and_then(|uid| self.by_uid.get(uid)).copied() {
            let node = &mut self.nodes[number];
            // It has owned resources in two namespaces, so it is cluster-scoped.
            if !node.known && node.who.namespace != namespace {
                node.who.namespace = None;
            }
            return number;
        }
        let who = ResourceIdentity {
            api_version: &reference.api_version,
            kind: &reference.kind,
            name: &reference.name,
            namespace,
            uid,
        };
        let in_no_namespace = ResourceIdentity {
            namespace: None,
            ..who
        };
        for place in [who, in_no_namespace] {
            if let Some(number) = self.by_names.get(&place.names())
                && (uid.is_none() || self.nodes[*number].who.uid.is_none())
            {
                return *number;
            }
        }
        self.add(who)
    }

    /// Sorts the possible parents of each node.
    fn relate(&mut self) {
        let below = self.below_operations();
        let roots = Roots::of(&self.nodes);
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let (near, far): (Vec<usize>, Vec<usize>) = node
                .owners
                .iter()
                .partition(|it| !self.nodes[**it].operations.is_empty() || below.contains(*it));
            let roots = roots.over(node).filter(|root| *root != number);
            let mut seen = HashSet::new();
            self.nodes[number].parents = near
                .into_iter()
                .chain(roots)
                .chain(far)
                .filter(|it| seen.insert(*it))
                .collect();
        }
    }

    /// Returns the nodes that are owned by a node with an operation, directly or indirectly.
    fn below_operations(&self) -> HashSet<usize> {
        let owned = self.owned_by_each();
        let tops = self.numbers(|node| !node.operations.is_empty());
        reach(tops, |it| &owned[it])
    }

    /// Returns the owners whose own owners are unknown. Only owners of resources with an operation
    /// for which `is_included` is true count, and their ancestors.
    pub(super) fn strangers(
        &self,
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> Vec<ResourceIdentity<'a>> {
        let own = self.numbers(|node| node.operations.iter().any(|it| is_included(it)));
        let above = reach(own, |it| &self.nodes[it].parents);
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(number, node)| !node.known && above.contains(number))
            .map(|(_, node)| node.who)
            .collect()
    }

    fn numbers(&self, is: impl Fn(&OwnershipNode<'a>) -> bool) -> Vec<usize> {
        let numbers = 0..self.nodes.len();
        numbers.filter(|it| is(&self.nodes[*it])).collect()
    }

    fn owned_by_each(&self) -> Vec<Vec<usize>> {
        children(self.nodes.iter().map(|node| node.owners.as_slice()))
    }

    /// Returns all descendants of `tops`. Each has its parent on the shortest path from the tops.
    /// The tops have None.
    pub(super) fn below(&self, tops: &[usize]) -> HashMap<usize, Option<usize>> {
        let children = children(self.nodes.iter().map(|node| node.parents.as_slice()));
        let mut found: HashMap<usize, Option<usize>> = tops.iter().map(|it| (*it, None)).collect();
        let mut queue: VecDeque<usize> = tops.iter().copied().collect();
        while let Some(number) = queue.pop_front() {
            for child in &children[number] {
                found.entry(*child).or_insert_with(|| {
                    queue.push_back(*child);
                    Some(number)
                });
            }
        }
        found
    }

    /// Returns the owners of `number`, direct and indirect.
    pub(super) fn owners(&self, number: usize) -> HashSet<usize> {
        reach(vec![number], |it| &self.nodes[it].owners)
    }

    /// Returns the resources that `number` owns, directly and indirectly.
    pub(super) fn owned(&self, number: usize) -> HashSet<usize> {
        let owned = self.owned_by_each();
        reach(vec![number], |it| &owned[it])
    }
}

/// Returns all nodes that can be reached from the starts. A start is included only if it is in a
/// cycle.
fn reach<'e>(starts: Vec<usize>, next: impl Fn(usize) -> &'e [usize]) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut queue = starts;
    while let Some(number) = queue.pop() {
        queue.extend(next(number).iter().filter(|it| found.insert(**it)));
    }
    found
}

/// Inverts `parents`.
fn children<'p>(parents: impl ExactSizeIterator<Item = &'p [usize]>) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); parents.len()];
    for (number, parents) in parents.enumerate() {
        for parent in parents {
            children[*parent].push(number);
        }
    }
    children
}

/// Returns the roots of correlation groups, by group and namespace.
struct Roots<'a> {
    within: HashMap<(&'a str, Option<&'a str>), Vec<usize>>,
    namespaced: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Roots<'a> {
    fn of(nodes: &[OwnershipNode<'a>]) -> Self {
        let mut within: HashMap<_, Vec<usize>> = HashMap::new();
        let mut namespaced: HashMap<_, Vec<usize>> = HashMap::new();
        for (number, node) in nodes.iter().enumerate() {
            for group in root_of(node) {
                let namespace = node.who.namespace;
                let one = within.entry((group, namespace)).or_default();
                // Several operations of one root can name the same group.
                if one.last() == Some(&number) {
                    continue;
                }
                one.push(number);
                if namespace.is_some() {
                    namespaced.entry(group).or_default().push(number);
                }
            }
        }
        Self { within, namespaced }
    }

    /// Returns the root of the correlation group of a node. For a namespaced resource, this is the
    /// root in its namespace, else the cluster-scoped root. For a cluster-scoped resource, it is
    /// the only root in any namespace. If there are several roots, none is chosen.
    fn over(&self, node: &OwnershipNode<'a>) -> impl Iterator<Item = usize> {
        let only = |roots: Option<&Vec<usize>>| match roots.map(Vec::as_slice) {
            Some([root]) => Some(*root),
            _ => None,
        };
        let own = root_of(node);
        let namespace = node.who.namespace;
        let groups = node
            .operations
            .iter()
            .filter_map(|it| it.correlation("group"))
            .filter(move |group| !own.contains(group));
        groups.filter_map(move |group| {
            let here = self.within.get(&(group, namespace));
            match namespace {
                None => only(here).or_else(|| only(self.namespaced.get(group))),
                Some(_) if here.is_some() => only(here),
                Some(_) => only(self.within.get(&(group, None))),
            }
        })
    }
}

/// Returns the groups of which a node is a root.
fn root_of<'a>(node: &OwnershipNode<'a>) -> Vec<&'a str> {
    node.operations
        .iter()
        .filter(|it| it.correlation("role") == Some("root"))
        .filter_map(|it| it.correlation("group"))
        .filter(|group| !group.is_empty())
        .collect()
}
