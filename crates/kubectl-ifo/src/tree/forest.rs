//! Builds the trees of operations. The first level has the components (such as `kubevirt`), and the
//! second level the namespaces. In a namespace, each object is below its parent: an owner, or the
//! root of its correlation group (see `ownership`).
//!
//! Every object occurs at most once, even if owner references form a cycle. The code has no
//! recursion, so the depth of a tree is not limited.

use crate::listed_operation::ListedOperation;
use crate::ownership::{ObjectIdentity, Ownership};
use std::collections::{BTreeMap, HashMap};

/// All trees, by component and namespace.
#[derive(Debug, Default)]
pub(super) struct Forest<'a> {
    /// The components, in alphabetical order.
    pub(super) components: Vec<Component<'a>>,
    /// The objects. The index of an object is the index of its node in [`Ownership`].
    nodes: Vec<ResourceNode<'a>>,
}

/// The trees of one component.
#[derive(Debug)]
pub(super) struct Component<'a> {
    /// The name of the component.
    pub(super) name: &'a str,
    /// The namespaces in alphabetical order. The cluster-scoped objects come first.
    pub(super) namespaces: Vec<Namespace<'a>>,
}

/// The trees whose topmost objects are in one namespace.
#[derive(Debug)]
pub(super) struct Namespace<'a> {
    /// The name of the namespace. None for cluster-scoped objects.
    pub(super) name: Option<&'a str>,
    /// The indexes of the tops: the objects without a parent in the tree.
    pub(super) tops: Vec<usize>,
}

/// An object in a tree.
#[derive(Debug)]
pub(super) struct ResourceNode<'a> {
    /// The identity of the object.
    pub(super) identity: ObjectIdentity<'a>,
    /// The operations on the object. Empty for an object that is shown only because of its
    /// descendants, and for an object that is not shown.
    pub(super) operations: Vec<&'a ListedOperation>,
    /// The indexes of the children.
    pub(super) children: Vec<usize>,
}

impl<'a> Forest<'a> {
    /// Builds the trees of all operations for which `is_included` returns true. An object without
    /// operations is shown if it has several children in the tree. There is one exception: a
    /// cluster-scoped top without operations, such as a Node, is not shown above namespaced
    /// objects. If an object is not shown, its children become children of its parent.
    pub(super) fn all(
        ownership: &Ownership<'a>,
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> Self {
        let parents: Vec<Option<usize>> = ownership
            .nodes
            .iter()
            .map(|node| node.parents.first().copied())
            .collect();
        let parents = without_cycles(parents);
        ForestBuilder::new(ownership, is_included, false).grow(&parents)
    }

    /// Builds the trees of the objects `tops` and their descendants, with the operations for which
    /// `is_included` returns true. An object without these operations is shown if one of its
    /// descendants has one.
    pub(super) fn under(
        ownership: &Ownership<'a>,
        tops: &[usize],
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> Self {
        let found = ownership.below(tops);
        let mut parents = vec![None; ownership.nodes.len()];
        for (index, nearest) in &found {
            if nearest.is_some() {
                let parents_of = &ownership.nodes[*index].parents;
                parents[*index] = parents_of.iter().copied().find(|it| found.contains_key(it));
            }
        }
        if without_cycles(parents.clone()) != parents {
            // The loop above took the first suitable parent of each object. These parents form a
            // cycle. So this loop takes the parents on the shortest paths from the tops instead,
            // which cannot form a cycle.
            for (index, nearest) in &found {
                parents[*index] = *nearest;
            }
        }
        let mut builder = ForestBuilder::new(ownership, is_included, true);
        for index in 0..ownership.nodes.len() {
            if !found.contains_key(&index) {
                builder.operations[index].clear();
            }
        }
        builder.grow(&parents)
    }

    /// Returns true if there is nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Returns the object with this index.
    pub(super) fn node(&self, index: usize) -> &ResourceNode<'a> {
        &self.nodes[index]
    }

    /// Returns all operations, from top to bottom.
    pub(super) fn operations(&self) -> Vec<&'a ListedOperation> {
        let mut operations = Vec::new();
        for component in &self.components {
            for namespace in &component.namespaces {
                let mut stack: Vec<usize> = namespace.tops.iter().rev().copied().collect();
                while let Some(index) = stack.pop() {
                    let node = self.node(index);
                    operations.extend_from_slice(&node.operations);
                    stack.extend(node.children.iter().rev());
                }
            }
        }
        operations
    }
}

/// Removes cycles from `parents`, which has the parent of each node. In each cycle, the node with
/// the smallest index loses its parent and becomes a top.
fn without_cycles(mut parents: Vec<Option<usize>>) -> Vec<Option<usize>> {
    // One value for each node: the number of the walk that first visited the node, or 0 if no walk
    // has visited it.
    let mut first_visit_walk = vec![0; parents.len()];
    for start in 0..parents.len() {
        let walk = start + 1;
        let mut at = start;
        while first_visit_walk[at] == 0 {
            first_visit_walk[at] = walk;
            match parents[at] {
                Some(parent) => at = parent,
                None => break,
            }
        }
        // If the walk has returned to a node of its own path, that node is in a cycle.
        if first_visit_walk[at] == walk && parents[at].is_some() {
            let mut first = at;
            let mut other = parents[at];
            while let Some(index) = other.filter(|index| *index != at) {
                first = first.min(index);
                other = parents[index];
            }
            parents[first] = None;
        }
    }
    parents
}

/// Builds trees from the leaves up.
struct ForestBuilder<'a, 'k> {
    ownership: &'k Ownership<'a>,
    /// True if an object without operations is shown even if it has only one child. False if such
    /// an object needs several children.
    shows_all_ancestors: bool,
    operations: Vec<Vec<&'a ListedOperation>>,
    /// For each node, the children that are shown.
    children: Vec<Vec<usize>>,
    tops: Vec<usize>,
    /// The key by which siblings are sorted. A node with operations has its index as the key. A
    /// node without operations has the key of its first child.
    sort_key: Vec<usize>,
    /// The component of each shown node. A node with operations has the component of its first
    /// operation. A node without operations has the component of its first child.
    component: Vec<&'a str>,
}

impl<'a, 'k> ForestBuilder<'a, 'k> {
    fn new(
        ownership: &'k Ownership<'a>,
        is_included: &dyn Fn(&ListedOperation) -> bool,
        shows_all_ancestors: bool,
    ) -> Self {
        let operations = ownership.nodes.iter().map(|node| {
            let operations = node.operations.iter().copied();
            operations.filter(|it| is_included(it)).collect()
        });
        let size = ownership.nodes.len();
        Self {
            ownership,
            shows_all_ancestors,
            operations: operations.collect(),
            children: vec![Vec::new(); size],
            tops: Vec::new(),
            sort_key: (0..size).collect(),
            component: vec![""; size],
        }
    }

    fn grow(mut self, parents: &[Option<usize>]) -> Forest<'a> {
        for index in from_the_leaves(parents) {
            let mut children = std::mem::take(&mut self.children[index]);
            children.sort_by_key(|it| self.sort_key[*it]);
            let up = if self.is_shown(index, &children, parents[index]) {
                if let Some(operation) = self.operations[index].first() {
                    self.component[index] = &operation.component;
                } else if let Some(first) = children.first() {
                    self.component[index] = self.component[*first];
                    self.sort_key[index] = self.sort_key[*first];
                }
                self.children[index] = children;
                vec![index]
            } else {
                children
            };
            match parents[index] {
                Some(parent) => self.children[parent].extend(up),
                None => self.tops.extend(up),
            }
        }
        self.tops.sort_by_key(|it| self.sort_key[*it]);
        let mut components: BTreeMap<&str, BTreeMap<Option<&str>, Vec<usize>>> = BTreeMap::new();
        for top in self.tops {
            let namespaces = components.entry(self.component[top]).or_default();
            let namespace = self.ownership.nodes[top].identity.namespace;
            namespaces.entry(namespace).or_default().push(top);
        }
        let components = components.into_iter().map(|(name, namespaces)| Component {
            name,
            namespaces: namespaces
                .into_iter()
                .map(|(name, tops)| Namespace { name, tops })
                .collect(),
        });
        let nodes = self
            .ownership
            .nodes
            .iter()
            .zip(self.operations.into_iter().zip(self.children));
        Forest {
            components: components.collect(),
            nodes: nodes
                .map(|(node, (operations, children))| ResourceNode {
                    identity: node.identity,
                    operations,
                    children,
                })
                .collect(),
        }
    }

    /// Returns true if the object is shown in the tree.
    fn is_shown(&self, index: usize, children: &[usize], parent: Option<usize>) -> bool {
        if !self.operations[index].is_empty() {
            return true;
        }
        if self.shows_all_ancestors {
            return !children.is_empty();
        }
        let namespace_of = |it: usize| self.ownership.nodes[it].identity.namespace;
        // A cluster-scoped owner such as a Kubernetes Node can own pods of many namespaces. If such
        // an owner has no operation, it is not shown, so that each pod stays under the heading of
        // its namespace.
        let over_namespaces = parent.is_none()
            && namespace_of(index).is_none()
            && children.iter().any(|it| namespace_of(*it).is_some());
        children.len() > 1 && !over_namespaces
    }
}

/// Returns the indexes of all nodes. Each node comes after its descendants.
fn from_the_leaves(parents: &[Option<usize>]) -> Vec<usize> {
    let mut waiting: HashMap<usize, usize> = HashMap::new();
    for parent in parents.iter().flatten() {
        *waiting.entry(*parent).or_default() += 1;
    }
    let mut order: Vec<usize> = (0..parents.len())
        .filter(|it| !waiting.contains_key(it))
        .collect();
    let mut next = 0;
    while let Some(index) = order.get(next).copied() {
        next += 1;
        if let Some(parent) = parents[index]
            && let Some(left) = waiting.get_mut(&parent)
        {
            *left -= 1;
            if *left == 0 {
                order.push(parent);
            }
        }
    }
    order
}
