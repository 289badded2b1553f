//! Which resource belongs to which. Enters: operations, and what is known of owners that
//! have none. Leaves: one node for each resource, with the nodes that it may hang under.
//!
//! A resource hangs under an owner that has an operation, or whose own owners have one;
//! else under the root of its correlation group; else under an owner that has none. The
//! owner that is the controller comes first. Cycles are left in: who walks the nodes
//! must expect them.

use super::operation::{ListedOperation, ListedSubject};
use ifo_client::kinds::group;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use std::collections::{HashMap, HashSet, VecDeque};

/// A resource, as operations and owner references name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Who<'a> {
    /// Group and version.
    pub(super) api_version: &'a str,
    /// Kind.
    pub(super) kind: &'a str,
    /// Name.
    pub(super) name: &'a str,
    /// Namespace; None for a cluster-scoped one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<&'a str>,
    /// UID, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<&'a str>,
}

impl<'a> Who<'a> {
    /// The subject of an operation.
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

/// Group, kind, namespace, name.
type ResourceNames<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// A resource and its operations.
#[derive(Debug)]
pub(super) struct KinNode<'a> {
    /// Which one.
    pub(super) who: Who<'a>,
    /// Its operations, in the order in which they were given; empty for one that is only
    /// known as an owner.
    pub(super) operations: Vec<&'a ListedOperation>,
    /// What it may hang under, the best first.
    pub(super) parents: Vec<usize>,
    /// Whether its own owners are known.
    known: bool,
    references: &'a [OwnerReference],
    owners: Vec<usize>,
}

/// All resources that operations tell of.
#[derive(Debug, Default)]
pub(super) struct Kin<'a> {
    /// Those with operations first, in the order in which they were given.
    pub(super) nodes: Vec<KinNode<'a>>,
    by_uid: HashMap<&'a str, usize>,
    by_names: HashMap<ResourceNames<'a>, usize>,
}

impl<'a> Kin<'a> {
    /// Who belongs to whom. `known` are objects that were looked up as owners.
    pub(super) fn of(
        operations: impl IntoIterator<Item = &'a ListedOperation>,
        known: &'a [ListedSubject],
    ) -> Self {
        let mut kin = Self::default();
        for operation in operations {
            let number = kin.known(&operation.subject);
            kin.nodes[number].operations.push(operation);
        }
        for subject in known {
            kin.known(subject);
        }
        // Owners that are new here join at the end, and have no owners.
        for number in 0..kin.nodes.len() {
            let mut references: Vec<&OwnerReference> =
                kin.nodes[number].references.iter().collect();
            references.sort_by_key(|it| it.controller != Some(true));
            for reference in references {
                let owner = kin.owner(reference, kin.nodes[number].who.namespace);
                if owner != number {
                    kin.nodes[number].owners.push(owner);
                }
            }
        }
        kin.relate();
        kin
    }

    /// The node that has this operation.
    pub(super) fn of_operation(&self, operation: &ListedOperation) -> Option<usize> {
        let is_it = |it: &&ListedOperation| it.key() == operation.key();
        let mut nodes = self.nodes.iter();
        nodes.position(|node| node.operations.iter().any(is_it))
    }

    /// The node of an object whose owners are known.
    fn known(&mut self, subject: &'a ListedSubject) -> usize {
        let who = Who::of(subject);
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

    fn add(&mut self, who: Who<'a>) -> usize {
        let number = self.nodes.len();
        if let Some(uid) = who.uid {
            self.by_uid.insert(uid, number);
        }
        self.by_names.entry(who.names()).or_insert(number);
        self.nodes.push(KinNode {
            who,
            operations: Vec::new(),
            parents: Vec::new(),
            known: false,
            references: &[],
            owners: Vec::new(),
        });
        number
    }

    /// The node of an owner of something in `namespace`. An owner is the object with that
    /// UID; a name alone says it only where one of the two has no UID.
    fn owner(&mut self, reference: &'a OwnerReference, namespace: Option<&'a str>) -> usize {
        let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty());
        if let Some(number) = uid.and_then(|uid| self.by_uid.get(uid)).copied() {
            let node = &mut self.nodes[number];
            // Owned from two namespaces, so it is in none.
            if !node.known && node.who.namespace != namespace {
                node.who.namespace = None;
            }
            return number;
        }
        let who = Who {
            api_version: &reference.api_version,
            kind: &reference.kind,
            name: &reference.name,
            namespace,
            uid,
        };
        let in_no_namespace = Who {
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

    /// Puts what each may hang under in order.
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

    /// The nodes that something with an operation owns, at any distance.
    fn below_operations(&self) -> HashSet<usize> {
        let owned = self.owned_by_each();
        let tops = self.numbers(|node| !node.operations.is_empty());
        reach(tops, |it| &owned[it])
    }

    /// Owners whose own owners nobody knows, of what has an operation that is `meant`, and
    /// of all that this may hang under.
    pub(super) fn strangers(&self, meant: &dyn Fn(&ListedOperation) -> bool) -> Vec<Who<'a>> {
        let own = self.numbers(|node| node.operations.iter().any(|it| meant(it)));
        let above = reach(own, |it| &self.nodes[it].parents);
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(number, node)| !node.known && above.contains(number))
            .map(|(_, node)| node.who)
            .collect()
    }

    fn numbers(&self, is: impl Fn(&KinNode<'a>) -> bool) -> Vec<usize> {
        let numbers = 0..self.nodes.len();
        numbers.filter(|it| is(&self.nodes[*it])).collect()
    }

    fn owned_by_each(&self) -> Vec<Vec<usize>> {
        children(self.nodes.iter().map(|node| node.owners.as_slice()))
    }

    /// All that hangs under `tops` at any distance, each with the nearest way there: the
    /// node above it; None for the tops themselves.
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

    /// The owners of `number`, at any distance.
    pub(super) fn owners(&self, number: usize) -> HashSet<usize> {
        reach(vec![number], |it| &self.nodes[it].owners)
    }

    /// What `number` owns, at any distance.
    pub(super) fn owned(&self, number: usize) -> HashSet<usize> {
        let owned = self.owned_by_each();
        reach(vec![number], |it| &owned[it])
    }
}

/// All that a way from one of the starts leads to; a start itself if it is in a cycle.
fn reach<'e>(starts: Vec<usize>, next: impl Fn(usize) -> &'e [usize]) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut queue = starts;
    while let Some(number) = queue.pop() {
        queue.extend(next(number).iter().filter(|it| found.insert(**it)));
    }
    found
}

/// The other direction of `parents`.
fn children<'p>(parents: impl ExactSizeIterator<Item = &'p [usize]>) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); parents.len()];
    for (number, parents) in parents.enumerate() {
        for parent in parents {
            children[*parent].push(number);
        }
    }
    children
}

/// The roots of correlation groups, by group and namespace.
struct Roots<'a> {
    within: HashMap<(&'a str, Option<&'a str>), Vec<usize>>,
    namespaced: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Roots<'a> {
    fn of(nodes: &[KinNode<'a>]) -> Self {
        let mut within: HashMap<_, Vec<usize>> = HashMap::new();
        let mut namespaced: HashMap<_, Vec<usize>> = HashMap::new();
        for (number, node) in nodes.iter().enumerate() {
            for group in root_of(node) {
                let namespace = node.who.namespace;
                let one = within.entry((group, namespace)).or_default();
                // Several operations of one root tell of the same group.
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

    /// The roots that a node hangs under: of its group in its namespace; for what is in
    /// no namespace, the group's only root in any; and where its namespace has none, the
    /// group's root in no namespace. Where there are several, nobody can tell which.
    fn over(&self, node: &KinNode<'a>) -> impl Iterator<Item = usize> {
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

/// The groups that a node is a root of.
fn root_of<'a>(node: &KinNode<'a>) -> Vec<&'a str> {
    node.operations
        .iter()
        .filter(|it| it.correlation("role") == Some("root"))
        .filter_map(|it| it.correlation("group"))
        .filter(|group| !group.is_empty())
        .collect()
}
