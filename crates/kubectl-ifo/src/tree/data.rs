//! Trees as data: what `--output json|yaml` prints.

use super::forest::Forest;
use crate::operation::Operation;
use crate::source::IncompleteData;
use jiff::Timestamp;
use serde::Serialize;

/// How deep resources are nested; many parsers stop at 128 levels of JSON, two of which
/// are one of ours. What is deeper stands, with its depth, beside what is as deep as this.
const MOST_NESTED: usize = 50;

/// All trees.
#[derive(Debug, Serialize)]
pub(super) struct Trees<'a> {
    components: Vec<Component<'a>>,
    /// Why operations may be missing; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<IncompleteData>,
}

#[derive(Debug, Serialize)]
struct Component<'a> {
    component: &'a str,
    namespaces: Vec<Namespace<'a>>,
}

#[derive(Debug, Serialize)]
struct Namespace<'a> {
    /// None for cluster-scoped resources.
    namespace: Option<&'a str>,
    resources: Vec<Resource<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    /// Levels above it, where that is more than the data's own nesting shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<usize>,
    operations: Vec<Brief<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Resource<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Brief<'a> {
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'a str>,
    /// Name and namespace of the InFlightOperation.
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    component: &'a str,
    rule_set: &'a str,
    phase: &'static str,
    state: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<Timestamp>,
}

impl<'a> Trees<'a> {
    /// The trees of a forest, and why operations may be missing from them.
    pub(super) fn of(forest: &Forest<'a>, incomplete: Option<IncompleteData>) -> Self {
        let components = forest.components.iter().map(|component| Component {
            component: component.name,
            namespaces: component
                .namespaces
                .iter()
                .map(|namespace| Namespace {
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

/// Resources with what hangs under them. Calls itself at most [`MOST_NESTED`] times.
fn nested<'a>(forest: &Forest<'a>, numbers: &[usize], depth: usize) -> Vec<Resource<'a>> {
    if depth < MOST_NESTED {
        let resources = numbers.iter().map(|number| {
            let children = nested(forest, &forest.branch(*number).children, depth + 1);
            resource(forest, *number, None, children)
        });
        return resources.collect();
    }
    let mut resources = Vec::new();
    let mut stack: Vec<(usize, usize)> = numbers.iter().rev().map(|it| (*it, depth)).collect();
    while let Some((number, depth)) = stack.pop() {
        let deeper = Some(depth).filter(|depth| *depth > MOST_NESTED);
        resources.push(resource(forest, number, deeper, Vec::new()));
        let children = &forest.branch(number).children;
        stack.extend(children.iter().rev().map(|it| (*it, depth + 1)));
    }
    resources
}

fn resource<'a>(
    forest: &Forest<'a>,
    number: usize,
    depth: Option<usize>,
    children: Vec<Resource<'a>>,
) -> Resource<'a> {
    let branch = forest.branch(number);
    Resource {
        api_version: branch.who.api_version,
        kind: branch.who.kind,
        name: branch.who.name,
        namespace: branch.who.namespace,
        uid: branch.who.uid,
        depth,
        operations: branch.operations.iter().map(|it| brief(it)).collect(),
        children,
    }
}

fn brief(operation: &Operation) -> Brief<'_> {
    Brief {
        operation: &operation.operation,
        item: operation.item.as_deref(),
        name: &operation.name,
        namespace: operation.namespace.as_deref(),
        component: &operation.component,
        rule_set: &operation.rule_set,
        phase: if operation.active {
            "Active"
        } else {
            "Completed"
        },
        state: &operation.state,
        reason: &operation.reason,
        message: &operation.message,
        progress: operation.progress,
        started: operation.started,
        completed: operation.completed,
    }
}
