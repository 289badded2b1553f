//! The trees to show. Enters: who belongs to whom, and which operations are meant.
//! Leaves: component → namespace → resources. Every resource is in it once, cycles of
//! owners or not; nothing here calls itself, so that no depth is too deep.

use crate::kin::{Kin, Who};
use crate::operation::ListedOperation;
use std::collections::{BTreeMap, HashMap};

/// Operations by component and namespace.
#[derive(Debug, Default)]
pub(super) struct Forest<'a> {
    /// In alphabetical order.
    pub(super) components: Vec<Component<'a>>,
    branches: Vec<Branch<'a>>,
}

/// What belongs to one component.
#[derive(Debug)]
pub(super) struct Component<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// In alphabetical order, what is in no namespace first.
    pub(super) namespaces: Vec<Namespace<'a>>,
}

/// What is in one namespace.
#[derive(Debug)]
pub(super) struct Namespace<'a> {
    /// None for cluster-scoped resources.
    pub(super) name: Option<&'a str>,
    /// Resources that hang under nothing.
    pub(super) tops: Vec<usize>,
}

/// A resource in a tree.
#[derive(Debug)]
pub(super) struct Branch<'a> {
    /// Which one.
    pub(super) who: Who<'a>,
    /// Its operations; none if it is here for what hangs under it.
    pub(super) operations: Vec<&'a ListedOperation>,
    /// What hangs under it.
    pub(super) children: Vec<usize>,
}

impl<'a> Forest<'a> {
    /// All operations that are `meant`. A resource without one is shown where it joins several
    /// that have one.
    pub(super) fn all(kin: &Kin<'a>, meant: &dyn Fn(&ListedOperation) -> bool) -> Self {
        let parents: Vec<Option<usize>> = kin
            .nodes
            .iter()
            .map(|node| node.parents.first().copied())
            .collect();
        let parents = without_cycles(parents);
        Growth::new(kin, meant, false).grow(&parents)
    }

    /// Those of `tops`, and of all that hangs under them, at any depth, if `meant`. What
    /// is in between is shown with them.
    pub(super) fn under(
        kin: &Kin<'a>,
        tops: &[usize],
        meant: &dyn Fn(&ListedOperation) -> bool,
    ) -> Self {
        let found = kin.below(tops);
        let mut parents = vec![None; kin.nodes.len()];
        for (number, nearest) in &found {
            if nearest.is_some() {
                let parents_of = &kin.nodes[*number].parents;
                parents[*number] = parents_of.iter().copied().find(|it| found.contains_key(it));
            }
        }
        if without_cycles(parents.clone()) != parents {
            // The nearest way has no cycle, and comes from the top.
            for (number, nearest) in &found {
                parents[*number] = *nearest;
            }
        }
        let mut growth = Growth::new(kin, meant, true);
        for number in 0..kin.nodes.len() {
            if !found.contains_key(&number) {
                growth.operations[number].clear();
            }
        }
        growth.grow(&parents)
    }

    /// Whether there is nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// A resource by its number.
    pub(super) fn branch(&self, number: usize) -> &Branch<'a> {
        &self.branches[number]
    }

    /// All operations, from the top to the bottom.
    pub(super) fn operations(&self) -> Vec<&'a ListedOperation> {
        let mut operations = Vec::new();
        for component in &self.components {
            for namespace in &component.namespaces {
                let mut stack: Vec<usize> = namespace.tops.iter().rev().copied().collect();
                while let Some(number) = stack.pop() {
                    let branch = self.branch(number);
                    operations.extend_from_slice(&branch.operations);
                    stack.extend(branch.children.iter().rev());
                }
            }
        }
        operations
    }
}

/// Cuts each cycle above the node in it that comes first, which becomes a top.
fn without_cycles(mut parents: Vec<Option<usize>>) -> Vec<Option<usize>> {
    // The walk in which a node was met first; 0 for none.
    let mut met = vec![0; parents.len()];
    for start in 0..parents.len() {
        let walk = start + 1;
        let mut at = start;
        while met[at] == 0 {
            met[at] = walk;
            match parents[at] {
                Some(parent) => at = parent,
                None => break,
            }
        }
        // Back on its own track: `at` is in a cycle. Only then has it a parent still.
        if met[at] == walk && parents[at].is_some() {
            let mut first = at;
            let mut other = parents[at];
            while let Some(number) = other.filter(|number| *number != at) {
                first = first.min(number);
                other = parents[number];
            }
            parents[first] = None;
        }
    }
    parents
}

/// Trees while they are made, from the leaves up.
struct Growth<'a, 'k> {
    kin: &'k Kin<'a>,
    /// Whether resources without operations stay wherever something hangs under them.
    all_owners: bool,
    operations: Vec<Vec<&'a ListedOperation>>,
    /// What hangs under each, as far as it stays.
    children: Vec<Vec<usize>>,
    tops: Vec<usize>,
    /// Place of a node among its like.
    rank: Vec<usize>,
    component: Vec<&'a str>,
}

impl<'a, 'k> Growth<'a, 'k> {
    fn new(kin: &'k Kin<'a>, meant: &dyn Fn(&ListedOperation) -> bool, all_owners: bool) -> Self {
        let operations = kin.nodes.iter().map(|node| {
            let operations = node.operations.iter().copied();
            operations.filter(|it| meant(it)).collect()
        });
        let size = kin.nodes.len();
        Self {
            kin,
            all_owners,
            operations: operations.collect(),
            children: vec![Vec::new(); size],
            tops: Vec::new(),
            rank: (0..size).collect(),
            component: vec![""; size],
        }
    }

    fn grow(mut self, parents: &[Option<usize>]) -> Forest<'a> {
        for number in from_the_leaves(parents) {
            let mut children = std::mem::take(&mut self.children[number]);
            children.sort_by_key(|it| self.rank[*it]);
            let up = if self.stays(number, &children, parents[number]) {
                if let Some(operation) = self.operations[number].first() {
                    self.component[number] = &operation.component;
                } else if let Some(first) = children.first() {
                    self.component[number] = self.component[*first];
                    self.rank[number] = self.rank[*first];
                }
                self.children[number] = children;
                vec![number]
            } else {
                children
            };
            match parents[number] {
                Some(parent) => self.children[parent].extend(up),
                None => self.tops.extend(up),
            }
        }
        self.tops.sort_by_key(|it| self.rank[*it]);
        let mut components: BTreeMap<&str, BTreeMap<Option<&str>, Vec<usize>>> = BTreeMap::new();
        for top in self.tops {
            let namespaces = components.entry(self.component[top]).or_default();
            let namespace = self.kin.nodes[top].who.namespace;
            namespaces.entry(namespace).or_default().push(top);
        }
        let components = components.into_iter().map(|(name, namespaces)| Component {
            name,
            namespaces: namespaces
                .into_iter()
                .map(|(name, tops)| Namespace { name, tops })
                .collect(),
        });
        let branches = self
            .kin
            .nodes
            .iter()
            .zip(self.operations.into_iter().zip(self.children));
        Forest {
            components: components.collect(),
            branches: branches
                .map(|(node, (operations, children))| Branch {
                    who: node.who,
                    operations,
                    children,
                })
                .collect(),
        }
    }

    /// Whether a resource is worth a line.
    fn stays(&self, number: usize, children: &[usize], parent: Option<usize>) -> bool {
        if !self.operations[number].is_empty() {
            return true;
        }
        if self.all_owners {
            return !children.is_empty();
        }
        let namespace_of = |it: usize| self.kin.nodes[it].who.namespace;
        // A Node owns pods of many namespaces, each of which has a heading of its own.
        let over_namespaces = parent.is_none()
            && namespace_of(number).is_none()
            && children.iter().any(|it| namespace_of(*it).is_some());
        children.len() > 1 && !over_namespaces
    }
}

/// All nodes, each after those that hang under it.
fn from_the_leaves(parents: &[Option<usize>]) -> Vec<usize> {
    let mut waiting: HashMap<usize, usize> = HashMap::new();
    for parent in parents.iter().flatten() {
        *waiting.entry(*parent).or_default() += 1;
    }
    let mut order: Vec<usize> = (0..parents.len())
        .filter(|it| !waiting.contains_key(it))
        .collect();
    let mut next = 0;
    while let Some(number) = order.get(next).copied() {
        next += 1;
        if let Some(parent) = parents[number]
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
