//! Builds the trees of operations. The first level has the components (such as `kubevirt`), and the
//! second level the namespaces. In a namespace, each object is below its parent: an owner, or the
//! root of its correlation group (see `ownership`). With serde, the trees become the document of
//! `-o json`.
//!
//! Every object occurs at most once, even if owner references form a cycle. The code has no
//! recursion over owners, so long chains of owners are no problem.

use crate::operation::{InFlightOperation, PrintedField, PrintedFields};
use crate::operation_source::IncompleteJson;
use crate::ownership::Ownership;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

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
    pub(super) incomplete: Option<IncompleteJson>,
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

/// The fields of an operation in JSON, in order.
const FIELDS: &[PrintedField] = &[
    ("operation", "/spec/operation"),
    ("item", "/spec/item"),
    ("name", "/metadata/name"),
    ("namespace", "/metadata/namespace"),
    ("component", "/spec/component"),
    ("ruleSet", "/spec/ruleSet"),
    ("phase", "/status/phase"),
    ("state", "/status/state"),
    ("reason", "/status/reason"),
    ("message", "/status/message"),
    ("progress", "/status/progress"),
    ("started", "/metadata/creationTimestamp"),
    ("completed", "/status/completed"),
];

fn operations<S: Serializer>(of: &[&InFlightOperation], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(of.iter().map(|operation| PrintedFields {
        operation,
        fields: FIELDS,
        // No field depends on the current time.
        now: Timestamp::UNIX_EPOCH,
    }))
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
}

impl<'a> Forest<'a> {
    /// Builds the trees with the operations for which `is_included` returns true. If an object is not
    /// shown, its children become children of its parent.
    ///
    /// - Without `tops`, these are all trees. An object without operations is shown if it has several
    ///   children in the tree. There is one exception: a cluster-scoped top without operations, such as a
    ///   Node, is not shown above namespaced objects.
    /// - With `tops`, these are the trees of these objects and their descendants. An object without these
    ///   operations is shown if one of its descendants has one.
    pub(super) fn new(
        ownership: &Ownership<'a>,
        tops: Option<&[usize]>,
        is_included: &dyn Fn(&InFlightOperation) -> bool,
    ) -> Self {
        let mut order = Placement {
            places: vec![None; ownership.nodes.len()],
            order: Vec::new(),
            children: ownership.children(),
        };
        if let Some(tops) = tops {
            order.place(tops.iter().copied());
        } else {
            let indexes = 0..ownership.nodes.len();
            let is_top = |it: &usize| ownership.nodes[*it].parent.is_none();
            order.place(indexes.clone().filter(is_top));
            // The parents of the other objects form cycles. The first object of a cycle becomes a top.
            indexes.for_each(|index| order.place([index]));
        }
        order.grow(ownership, is_included, tops.is_some())
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

/// The places of objects in trees.
struct Placement {
    /// For each placed object: its level, and its parent.
    places: Vec<Option<(usize, Option<usize>)>>,
    /// The placed objects. Each object comes after its parent.
    order: Vec<usize>,
    children: Vec<Vec<usize>>,
}

impl Placement {
    /// Places `tops` and their descendants, the children of one object before its grandchildren. Objects
    /// that already have a place keep it.
    fn place(&mut self, tops: impl IntoIterator<Item = usize>) {
        let mut next = self.order.len();
        for top in tops {
            if self.places[top].is_none() {
                self.places[top] = Some((0, None));
                self.order.push(top);
            }
        }
        while let Some(index) = self.order.get(next).copied() {
            next += 1;
            let (depth, parent) = match self.places[index] {
                Some((depth, parent)) if depth >= MAX_DEPTH => (depth, parent),
                Some((depth, _)) => (depth + 1, Some(index)),
                None => continue,
            };
            for child in &self.children[index] {
                if self.places[*child].is_none() {
                    self.places[*child] = Some((depth, parent));
                    self.order.push(*child);
                }
            }
        }
    }

    /// Builds the trees from the leaves up.
    fn grow<'a>(
        &self,
        ownership: &Ownership<'a>,
        is_included: &dyn Fn(&InFlightOperation) -> bool,
        shows_all_ancestors: bool,
    ) -> Forest<'a> {
        let mut below: Vec<Vec<TreeObject<'a>>> = Vec::new();
        below.resize_with(ownership.nodes.len(), Vec::new);
        let mut tops = Vec::new();
        for index in self.order.iter().rev().copied() {
            let parent = self.places[index].and_then(|(_, parent)| parent);
            let mut children = std::mem::take(&mut below[index]);
            children.sort_by_key(|it| it.position);
            let mut object = TreeObject {
                object: ownership.nodes[index].object.clone(),
                operations: ownership.nodes[index].operations.clone(),
                position: index,
                children,
            };
            object.operations.retain(|it| is_included(it));
            let up = if is_shown(&object, parent.is_none(), shows_all_ancestors) {
                if object.operations.is_empty() {
                    object.position = object.children[0].position;
                }
                vec![object]
            } else {
                object.children
            };
            match parent {
                Some(parent) => below[parent].extend(up),
                None => tops.extend(up),
            }
        }
        tops.sort_by_key(|it| it.position);
        let mut components: BTreeMap<&str, BTreeMap<Option<Text>, Vec<_>>> = BTreeMap::new();
        for top in tops {
            let namespaces = components.entry(top.component()).or_default();
            namespaces
                .entry(top.object.namespace.clone())
                .or_default()
                .push(top);
        }
        let components = components.into_iter().map(|(name, namespaces)| {
            let namespaces = namespaces.into_iter();
            let namespaces = namespaces.map(|(name, resources)| Namespace { name, resources });
            Component {
                name,
                namespaces: namespaces.collect(),
            }
        });
        Forest {
            components: components.collect(),
            incomplete: None,
        }
    }
}

/// Returns true if an object with these operations and children is shown in the tree.
fn is_shown(object: &TreeObject<'_>, is_top: bool, shows_all_ancestors: bool) -> bool {
    let children = &object.children;
    if !object.operations.is_empty() || shows_all_ancestors {
        return !object.operations.is_empty() || !children.is_empty();
    }
    // A cluster-scoped owner such as a Kubernetes Node can own pods of many namespaces. If such an
    // owner has no operation, it is not shown, so that each pod stays under the heading of its
    // namespace.
    let over_namespaces = is_top
        && object.object.namespace.is_none()
        && children.iter().any(|it| it.object.namespace.is_some());
    children.len() > 1 && !over_namespaces
}
