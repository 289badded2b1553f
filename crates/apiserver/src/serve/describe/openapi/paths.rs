//! Creates the paths of the `OpenAPI` documents, for get, list and watch of each resource. Input:
//! the descriptions of the resources. Output: path items of version 3.

use super::schemas::{group_version_kind, list_name, object_name, reference};
use crate::serve::resource::{AnyResource, ResourceInfo};
use serde_json::{Map, Value, json};

const RESOURCE_VERSION: &str = "For a list: the version of the returned state; resourceVersionMatch selects whether a newer state is allowed. For a watch: the version after which the changes are sent. For a get: the oldest allowed version of the object's state. If unset, a list or get returns the newest state, and a watch starts at the newest state.";

/// Returns the path items of `resources`, by path.
pub(super) fn describe(resources: &[&AnyResource]) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        let resource = &resource.info;
        let (root, plural) = (resource.root(), resource.plural);
        let mut collection = format!("{root}/{plural}");
        if resource.namespaced {
            paths.insert(collection, path_item(resource, "list", true));
            collection = format!("{root}/namespaces/{{namespace}}/{plural}");
        }
        let object = format!("{collection}/{{name}}");
        paths.insert(object, path_item(resource, "get", false));
        paths.insert(collection, path_item(resource, "list", false));
    }
    paths
}

/// Returns the path item for an action: `get`, or `list`, which includes watches. If the resource
/// is namespaced, `all_namespaces` selects the path without a namespace.
fn path_item(resource: &ResourceInfo, action: &str, all_namespaces: bool) -> Value {
    let kind = resource.kind;
    let (mut parameters, answer) = if action == "get" {
        let name = parameter("name", "path", "string", &format!("name of the {kind}"));
        let version = parameter("resourceVersion", "query", "string", RESOURCE_VERSION);
        (vec![name, version], object_name(resource))
    } else {
        let mut parameters = list_parameters();
        if !resource.verbs.contains(&"watch") {
            parameters.retain(|parameter| parameter["name"] != "watch");
        }
        (parameters, list_name(resource))
    };
    if resource.namespaced && !all_namespaces {
        let scope = "object name and auth scope, such as for teams and projects";
        parameters.push(parameter("namespace", "path", "string", scope));
    }
    let (in_scope, scope) = if all_namespaces {
        (" in all namespaces", "ForAllNamespaces")
    } else {
        ("", "")
    };
    json!({
        "get": {
            "tags": [resource.api_version()],
            "description": format!("{action} objects of kind {kind}{in_scope}"),
            "operationId": format!("{action}{kind}{scope}"),
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {"application/json": {"schema": reference(&answer)}},
                },
                "401": {"description": "Unauthorized"},
            },
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(resource, kind),
        },
        "parameters": parameters,
    })
}

fn list_parameters() -> Vec<Value> {
    [
        ("allowWatchBookmarks", "boolean", "Requests watch events with type \"BOOKMARK\": one every minute, and one before the watch ends."),
        ("continue", "string", "The token with which an earlier page of this list ended. The page that follows comes from the same resourceVersion."),
        ("fieldSelector", "string", "Restricts the objects by their fields. Defaults to everything. The fields are metadata.name, metadata.namespace and those under x-kubernetes-selectable-fields of the schema."),
        ("labelSelector", "string", "Restricts the objects by their labels. Defaults to everything."),
        ("limit", "integer", "The largest number of objects in one page of a list. 0 means no limit. A watch ignores this parameter."),
        ("resourceVersion", "string", RESOURCE_VERSION),
        ("resourceVersionMatch", "string", "How resourceVersion is applied to a list: `Exact` or `NotOlderThan`."),
        ("sendInitialEvents", "boolean", "A watch begins with an ADDED event for each existing object. If bookmarks are allowed, a bookmark follows these events. Needs resourceVersionMatch `NotOlderThan`."),
        ("timeoutSeconds", "integer", "Seconds after which a watch ends. If unset or 0, the watch ends after 30 to 60 minutes. A list ignores this parameter."),
        ("watch", "boolean", "Answers with a stream of changes in place of a list."),
    ]
    .into_iter()
    .map(|(name, kind, description)| parameter(name, "query", kind, description))
    .collect()
}

/// Returns a parameter. `location` is `path` or `query`. Parameters in the path are required.
fn parameter(name: &str, location: &str, kind: &str, description: &str) -> Value {
    let mut parameter = json!({
        "name": name,
        "in": location,
        "description": description,
        "schema": {"type": kind, "uniqueItems": true},
    });
    if location == "path" {
        parameter["required"] = json!(true);
    }
    parameter
}
