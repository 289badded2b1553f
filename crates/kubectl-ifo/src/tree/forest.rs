//! Builds the trees of operations. The first level has the components (such as `kubevirt`), and the
//! second level the namespaces. In a namespace, each object is below its parent (see `graph`). With
//! serde, the trees become the document of `-o json`.
//!
//! Every object occurs at most once, even if the parents form a cycle. The code has no recursion over
//! parents, so long chains are no problem.

use super::graph::OwnerGraph;
use crate::operation::InFlightOperation;
use crate::operation_source::encode;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};

/// Deepest level of an object. Objects that would be on deeper levels are shown on this level.
/// Many parsers accept at most 128 levels of JSON, and each object takes two levels (the object and
/// its list `children`).
const MAX_DEPTH: usize = 32;

/// All trees, by component and namespace.
#[derive(Debug, Default, Serialize)]
pub(super) struct Forest<'a> {
    /// The components, in alphabetical order.
    pub(super) components: Vec<Component<'a>>,
    /// The reason why operations may be missing. None if no reason is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

/// The trees of one component.
#[derive(Debug, Serialize)]
pub(super) struct Component<'a> {
    #[serde(rename = "component")]
    pub(super) name: &'a str,
    /// The namespaces in alphabetical order. The cluster-scoped objects come first.
    pub(super) namespaces: Vec<Namespace<'a>>,
}

/// The trees whose topmost objects are in one namespace.
#[derive(Debug, Serialize)]
pub(super) struct Namespace<'a> {
    /// The name of the namespace. None for cluster-scoped objects.
    #[serde(rename = "namespace")]
    pub(super) name: Option<Text>,
    pub(super) resources: Vec<TreeObject<'a>>,
}

/// An object in a tree.
#[derive(Debug, Serialize)]
pub(super) struct TreeObject<'a> {
    #[serde(flatten)]
    pub(super) object: SubjectReference,
    /// The operations on the object. Empty for an object that is shown only because of its
    /// descendants.
    #[serde(serialize_with = "operations")]
    pub(super) operations: Vec<&'a InFlightOperation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<TreeObject<'a>>,
    /// The index of the object among its siblings: that of its own first operation in the input, or
    /// that of its first child.
    #[serde(skip)]
    position: usize,
}

fn operations<S: Serializer>(of: &[&InFlightOperation], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|it| encode(it)))
}

impl<'a> TreeObject<'a> {
    /// Returns the component of the first operation of the object or of its first child.
    fn component(&self) -> &'a str {
        match (self.operations.first(), self.children.first()) {
            (Some(operation), _) => &operation.spec.component,
            (None, Some(child)) => child.component(),
            (None, None) => "",
        }
    }

    fn add_operations(&self, all: &mut Vec<&'a InFlightOperation>) {
        all.extend_from_slice(&self.operations);
        self.children.iter().for_each(|it| it.add_operations(all));
    }

    /// Returns true if the object is shown. Without operations of its own, it is shown if it joins
    /// several children, and in the tree of one object (`of_one`) above any child.
    fn is_shown(&self, is_top: bool, of_one: bool) -> bool {
        // A cluster-scoped owner such as a Kubernetes Node can own pods of many namespaces. If such
        // an owner has no operation, it is not shown, so that each pod stays under the heading of its
        // namespace.
        let mut children = self.children.iter();
        let is_over_namespaces = is_top
            && self.object.namespace.is_none()
            && children.any(|it| it.object.namespace.is_some());
        let joins = self.children.len() > 1 && !is_over_namespaces;
        !self.operations.is_empty() || joins || of_one && !self.children.is_empty()
    }
}

impl<'a> Forest<'a> {
    /// Builds the trees with the operations for which `is_included` returns true: with `tops` those of
    /// these objects, otherwise all trees. If an object is not shown, its children become children of
    /// its parent.
    pub(super) fn new(
        graph: &OwnerGraph<'a>,
        tops: Option<&[usize]>,
        is_included: &dyn Fn(&InFlightOperation) -> bool,
    ) -> Self {
        let mut below: Vec<Vec<TreeObject<'a>>> = Vec::new();
        below.resize_with(graph.nodes.len(), Vec::new);
        let mut shown_tops = Vec::new();
        // From the leaves up: each object comes after its parent in the list of places.
        for (index, parent) in places(graph, tops).into_iter().rev() {
            let node = &graph.nodes[index];
            let included = node.operations.iter().filter(|it| is_included(it));
            let mut children = std::mem::take(&mut below[index]);
            children.sort_by_key(|it| it.position);
            let mut object = TreeObject {
                object: node.object.clone(),
                operations: included.copied().collect(),
                position: index,
                children,
            };
            let siblings = match parent {
                Some(parent) => &mut below[parent],
                None => &mut shown_tops,
            };
            if object.is_shown(parent.is_none(), tops.is_some()) {
                if object.operations.is_empty() {
                    object.position = object.children[0].position;
                }
                siblings.push(object);
            } else {
                siblings.extend(object.children);
            }
        }
        shown_tops.sort_by_key(|it| it.position);
        Self::of_tops(shown_tops)
    }

    fn of_tops(tops: Vec<TreeObject<'a>>) -> Self {
        let mut components: BTreeMap<&str, BTreeMap<Option<Text>, Vec<_>>> = BTreeMap::new();
        for top in tops {
            let namespaces = components.entry(top.component()).or_default();
            let name = top.object.namespace.clone();
            namespaces.entry(name).or_default().push(top);
        }
        let namespace = |(name, resources)| Namespace { name, resources };
        let components = components.into_iter().map(|(name, namespaces)| Component {
            name,
            namespaces: namespaces.into_iter().map(namespace).collect(),
        });
        Forest {
            components: components.collect(),
            incomplete: None,
        }
    }

    /// Returns all operations, from top to bottom.
    pub(super) fn operations(&self) -> Vec<&'a InFlightOperation> {
        let mut all = Vec::new();
        let namespaces = self.components.iter().flat_map(|it| &it.namespaces);
        for object in namespaces.flat_map(|it| &it.resources) {
            object.add_operations(&mut all);
        }
        all
    }
}

/// Returns the objects in the trees with their parents there. Each object comes after its parent.
/// Without `tops`, the tops are the objects without a parent, and one object of each cycle.
fn places(graph: &OwnerGraph<'_>, tops: Option<&[usize]>) -> Vec<(usize, Option<usize>)> {
    let parents = graph.parents();
    let mut children = vec![Vec::new(); parents.len()];
    for (index, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            children[*parent].push(index);
        }
    }
    let all = 0..parents.len();
    let without_parent = all.clone().filter(|it| parents[*it].is_none());
    let starts: Vec<usize> = match tops {
        Some(tops) => tops.to_vec(),
        None => without_parent.chain(all).collect(),
    };
    let mut is_placed = vec![false; parents.len()];
    let mut places = Vec::new();
    for top in starts {
        let mut queue = VecDeque::from([(top, 0, None)]);
        while let Some((index, depth, parent)) = queue.pop_front() {
            if std::mem::replace(&mut is_placed[index], true) {
                continue;
            }
            places.push((index, parent));
            let (depth, parent) = if depth < MAX_DEPTH {
                (depth + 1, Some(index))
            } else {
                (depth, parent)
            };
            queue.extend(children[index].iter().map(|it| (*it, depth, parent)));
        }
    }
    places
}
