//! Converts the trees of objects, with the operations on each object, to data for
//! `--output json|yaml`.

use super::forest::Forest;
use crate::listed_operation::{JsonField, OperationJson};
use crate::operation_source::IncompleteJson;
use crate::ownership::ObjectIdentity;
use serde::Serialize;

/// Deepest level at which objects are nested in the data. Tops have the level 0. Many parsers
/// accept at most 128 levels of JSON, and each object takes two levels (the object and its list
/// `children`). Objects on deeper levels are listed at this level, and the field `depth` has their
/// real level.
const MAX_NESTED: usize = 50;

/// The fields of an operation, in order.
const FIELDS: &[JsonField] = &[
    JsonField::Operation,
    JsonField::Item,
    JsonField::Name,
    JsonField::Namespace,
    JsonField::Component,
    JsonField::RuleSet,
    JsonField::Phase,
    JsonField::State,
    JsonField::Reason,
    JsonField::Message,
    JsonField::Progress,
    JsonField::Started,
    JsonField::Completed,
];

/// The output of `tree` as JSON or YAML.
#[derive(Debug, Serialize)]
pub(super) struct TreesJson<'a> {
    components: Vec<ComponentJson<'a>>,
    /// The reason why operations may be missing. None if no reason is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<IncompleteJson>,
}

#[derive(Debug, Serialize)]
struct ComponentJson<'a> {
    component: &'a str,
    namespaces: Vec<NamespaceJson<'a>>,
}

#[derive(Debug, Serialize)]
struct NamespaceJson<'a> {
    /// Name of the namespace. None for cluster-scoped objects.
    namespace: Option<&'a str>,
    resources: Vec<ResourceJson<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceJson<'a> {
    #[serde(flatten)]
    identity: ObjectIdentity<'a>,
    /// Level of the object in the tree. Set only if the object is on a deeper level than
    /// [`MAX_NESTED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<usize>,
    operations: Vec<OperationJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<ResourceJson<'a>>,
}

impl<'a> TreesJson<'a> {
    /// Converts trees, and the reason why operations may be missing.
    pub(super) fn of(forest: &Forest<'a>, incomplete: Option<IncompleteJson>) -> Self {
        let components = forest.components.iter().map(|component| ComponentJson {
            component: component.name,
            namespaces: component
                .namespaces
                .iter()
                .map(|namespace| NamespaceJson {
                    namespace: namespace.name,
                    resources: nested(forest, &namespace.tops, 0),
                })
                .collect(),
        });
        Self {
            components: components.collect(),
            incomplete,
        }
    }
}

/// Converts objects with their descendants. The recursion is at most [`MAX_NESTED`] levels deep.
fn nested<'a>(forest: &Forest<'a>, indexes: &[usize], depth: usize) -> Vec<ResourceJson<'a>> {
    if depth < MAX_NESTED {
        let resources = indexes.iter().map(|index| {
            let children = nested(forest, &forest.node(*index).children, depth + 1);
            resource(forest, *index, None, children)
        });
        return resources.collect();
    }
    let mut resources = Vec::new();
    let mut stack: Vec<(usize, usize)> = indexes.iter().rev().map(|it| (*it, depth)).collect();
    while let Some((index, depth)) = stack.pop() {
        let deeper = Some(depth).filter(|depth| *depth > MAX_NESTED);
        resources.push(resource(forest, index, deeper, Vec::new()));
        let children = &forest.node(index).children;
        stack.extend(children.iter().rev().map(|it| (*it, depth + 1)));
    }
    resources
}

fn resource<'a>(
    forest: &Forest<'a>,
    index: usize,
    depth: Option<usize>,
    children: Vec<ResourceJson<'a>>,
) -> ResourceJson<'a> {
    let node = forest.node(index);
    ResourceJson {
        identity: node.identity,
        depth,
        operations: node.operations.iter().map(|it| it.json(FIELDS)).collect(),
        children,
    }
}
