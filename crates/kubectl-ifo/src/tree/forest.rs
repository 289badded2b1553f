//! Builds the trees of operations. The first level has the components (such as `kubevirt`), and the
//! second level the namespaces. In a namespace, each object is below its parent (see `graph`).

use super::graph::OwnerGraph;
use crate::filters::resource_argument::ResourceArgument;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::encode;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All trees, by component and by the namespace of the topmost object, in alphabetical order. The
/// namespace is None for cluster-scoped objects.
pub(super) type Forest<'a> = BTreeMap<&'a str, BTreeMap<Option<Text>, Vec<TreeObject<'a>>>>;

/// An object in a tree.
#[derive(Debug)]
pub(super) struct TreeObject<'a> {
    pub(super) object: SubjectReference,
    /// The operations on the object. Empty for an object that is shown only because of its
    /// descendants.
    pub(super) operations: Vec<&'a InFlightOperation>,
    pub(super) children: Vec<TreeObject<'a>>,
    /// The sort key among the siblings. For an object with operations, this is the index of its
    /// node in the graph. For another object, this is the position of its first child.
    position: usize,
}

impl<'a> TreeObject<'a> {
    /// Returns all operations in the tree, from top to bottom.
    fn all_operations(&self) -> Vec<&'a InFlightOperation> {
        let below = self.children.iter().flat_map(Self::all_operations);
        self.operations.iter().copied().chain(below).collect()
    }

    fn json(&self) -> Value {
        let mut json = json!(self.object);
        json["operations"] = self.operations.iter().map(|it| encode(it)).collect();
        if !self.children.is_empty() {
            json["children"] = self.children.iter().map(Self::json).collect();
        }
        json
    }
}

/// Builds the trees of the objects that match `resource`, or all trees if `resource` is None. Every
/// object occurs at most once.
pub(super) fn forest<'a>(
    graph: &OwnerGraph<'a>,
    resource: Option<&ResourceArgument>,
) -> Forest<'a> {
    let mut children = vec![Vec::new(); graph.nodes.len()];
    let mut tops = Vec::new();
    for (index, parent) in graph.parents().into_iter().enumerate() {
        let is_named = resource.is_some_and(|it| it.matches(&graph.nodes[index].object));
        match parent {
            Some(parent) if !is_named => children[parent].push(index),
            _ if is_named || resource.is_none() => tops.push(index),
            _ => {}
        }
    }
    let trees = Trees {
        graph,
        children,
        of_one: resource.is_some(),
    };
    let tops = tops.into_iter().flat_map(|it| trees.objects(it, true));
    let mut tops: Vec<TreeObject<'a>> = tops.collect();
    tops.sort_by_key(|it| it.position);
    let mut forest = Forest::new();
    for top in tops {
        let first = top.all_operations().into_iter().next();
        let component = first.map_or("", |it| &it.spec.component);
        let namespaces = forest.entry(component).or_default();
        let namespace = top.object.namespace.clone();
        namespaces.entry(namespace).or_default().push(top);
    }
    forest
}

/// The inputs of all trees.
struct Trees<'t, 'a> {
    graph: &'t OwnerGraph<'a>,
    /// The children of each node.
    children: Vec<Vec<usize>>,
    /// True if the user has named an object with `--for`.
    of_one: bool,
}

impl<'a> Trees<'_, 'a> {
    /// Returns the tree of an object. If the object is not shown, returns the trees of its
    /// children.
    ///
    /// An object is shown in these cases:
    ///
    /// - It has an operation.
    /// - It has several children that are shown. There is one exception: a cluster-scoped object at
    ///   the top, above objects in namespaces.
    /// - With `--for`, it has at least one child that is shown.
    ///
    /// The depth of the graph is limited, so the recursion is limited.
    fn objects(&self, index: usize, is_top: bool) -> Vec<TreeObject<'a>> {
        let node = &self.graph.nodes[index];
        let operations = node.operations.clone();
        let children = self.children[index].iter();
        let children = children.flat_map(|it| self.objects(*it, false));
        let mut children: Vec<TreeObject<'a>> = children.collect();
        children.sort_by_key(|it| it.position);
        // A cluster-scoped owner such as a Kubernetes Node can own pods of many namespaces. If such
        // an owner has no operation, it is not shown, so that each pod stays under the heading of
        // its namespace.
        let is_over_namespaces = is_top
            && node.object.namespace.is_none()
            && children.iter().any(|it| it.object.namespace.is_some());
        let joins = children.len() > 1 && !is_over_namespaces;
        let position = match (operations.first(), children.first()) {
            (Some(_), _) => index,
            (None, Some(first)) if joins || self.of_one => first.position,
            (None, _) => return children,
        };
        let mut object = node.object.clone();
        object.owner_references = Arc::default();
        vec![TreeObject {
            object,
            operations,
            children,
            position,
        }]
    }
}

/// Returns all operations, from top to bottom.
pub(super) fn operations<'a>(forest: &Forest<'a>) -> Vec<&'a InFlightOperation> {
    let tops = forest.values().flat_map(BTreeMap::values).flatten();
    tops.flat_map(TreeObject::all_operations).collect()
}

/// Returns the list `components` of `-o json`.
pub(super) fn json(forest: &Forest<'_>) -> Value {
    let namespace = |(name, tops): (&Option<Text>, &Vec<TreeObject<'_>>)| {
        let tops: Vec<Value> = tops.iter().map(TreeObject::json).collect();
        json!({"namespace": name, "resources": tops})
    };
    let components = forest.iter().map(|(name, namespaces)| {
        let namespaces: Vec<Value> = namespaces.iter().map(namespace).collect();
        json!({"component": name, "namespaces": namespaces})
    });
    components.collect()
}
