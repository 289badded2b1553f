//! Serves API discovery. Input: the descriptions of the resources. Output: the paths `/api`,
//! `/apis`, `/apis/GROUP` and `/apis/GROUP/VERSION`.
//!
//! In plain discovery, each group and each version has its own path. In aggregated discovery
//! (KEP-3352), one answer of `/apis` or `/api` describes all groups, versions and resources. The
//! client selects the type of discovery with the header `Accept`.
//!
//! The server computes the answers once, at the start, so discovery works before the store has any
//! object. This is important: while the discovery of an aggregated API fails, Kubernetes cannot
//! delete any namespace in the cluster.

use crate::serve::answer::document::Document;
use crate::serve::request::negotiation::{AcceptClause, clauses, unacceptable};
use crate::serve::resource::ResourceInfo;
use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, VARY};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

/// The media type of aggregated discovery since Kubernetes 1.30.
pub const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The media type of aggregated discovery that clients of Kubernetes 1.26 to 1.29 request.
pub const V2_BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// The media type of plain discovery in JSON.
pub const JSON: &str = "application/json";

/// Returns the routes of discovery. `served_by_other_router` are the resources that the caller
/// serves with routes of its own. If it is Some, the routes also describe the core group, on
/// `/api`.
pub fn routes(
    resources: &[ResourceInfo],
    served_by_other_router: Option<&[ResourceInfo]>,
) -> Router {
    let others = served_by_other_router.into_iter().flatten();
    let (core, groups): (Vec<_>, Vec<_>) = grouped(resources.iter().chain(others), |it| it.group)
        .into_iter()
        .partition(|(group, _)| group.is_empty());
    let mut router = Router::new();
    let list: Vec<Value> = groups
        .iter()
        .map(|(name, all)| describe(name, all))
        .collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list});
    router = serve_root(router, "/apis", &list, &groups);
    if served_by_other_router.is_some() {
        let versions = core
            .iter()
            .flat_map(|(_, all)| grouped(all.iter().copied(), version));
        let versions: Vec<&str> = versions.map(|(version, _)| version).collect();
        let list = json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [],
        });
        router = serve_root(router, "/api", &list, &core);
    }
    for (name, resources) in core.into_iter().chain(groups) {
        let mut root = "/api".to_owned();
        if !name.is_empty() {
            root = format!("/apis/{name}");
            let mut group = describe(name, &resources);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            router = serve(router, &root, &group);
        }
        for (version, resources) in grouped(resources, version) {
            let group_version = resources[0].api_version();
            let resources: Vec<Value> = resources.into_iter().map(describe_resource).collect();
            let list = json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": group_version,
                "resources": resources,
            });
            router = serve(router, &format!("{root}/{version}"), &list);
        }
    }
    router
}

/// Resources with the same group, or with the same version.
type Named<'a> = (&'static str, Vec<&'a ResourceInfo>);

/// Groups the resources by a name, in the order in which the names occur first.
fn grouped<'a>(
    resources: impl IntoIterator<Item = &'a ResourceInfo>,
    name: fn(&ResourceInfo) -> &'static str,
) -> Vec<Named<'a>> {
    let mut groups: Vec<Named<'a>> = Vec::new();
    for resource in resources {
        let name = name(resource);
        match groups.iter_mut().find(|group| group.0 == name) {
            Some(group) => group.1.push(resource),
            None => groups.push((name, vec![resource])),
        }
    }
    groups
}

fn version(resource: &ResourceInfo) -> &'static str {
    resource.version
}

/// Serves the list of all groups, and aggregated discovery.
fn serve_root(router: Router, path: &str, plain: &Value, groups: &[Named<'_>]) -> Router {
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, all)| aggregate(name, all))
        .collect();
    let aggregated = |version: &str, content_type| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        Document::json(&list, content_type)
    };
    let plain = Document::json(plain, JSON);
    let (v2, v2_beta1) = (aggregated("v2", V2), aggregated("v2beta1", V2_BETA1));
    let answer = async move |headers: HeaderMap| {
        let document = |clause: &AcceptClause<'_>| {
            if clause.is_plain() {
                return Some(&plain);
            }
            match clause.version_of("apidiscovery.k8s.io", "APIGroupDiscoveryList") {
                Some("v2") => Some(&v2),
                Some("v2beta1") => Some(&v2_beta1),
                _ => None,
            }
        };
        let clauses = clauses(&headers);
        let mut accepted = clauses.iter().filter(|clause| clause.allows_json());
        let Some((clause, document)) =
            accepted.find_map(|clause| document(clause).map(|document| (clause, document)))
        else {
            return unacceptable().into_response();
        };
        let mut response = document.answer(&headers);
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        if !clause.is_plain() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        }
        response
    };
    router.route(path, get(answer))
}

/// Serves a document of plain discovery.
fn serve(router: Router, path: &str, value: &Value) -> Router {
    let document = Document::json(value, JSON);
    let answer = async move |headers: HeaderMap| -> Response {
        let clauses = clauses(&headers);
        if clauses.iter().any(|it| it.allows_json() && it.is_plain()) {
            document.answer(&headers)
        } else {
            unacceptable().into_response()
        }
    };
    router.route(path, get(answer))
}

/// Describes a group in plain discovery.
fn describe(name: &str, resources: &[&ResourceInfo]) -> Value {
    let versions = grouped(resources.iter().copied(), version).into_iter();
    let versions: Vec<Value> = versions
        .map(|(version, of_version)| {
            json!({"groupVersion": of_version[0].api_version(), "version": version})
        })
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": name, "versions": versions, "preferredVersion": preferred})
}

/// Describes a resource in plain discovery.
fn describe_resource(resource: &ResourceInfo) -> Value {
    let description = json!({
        "name": resource.plural,
        "singularName": resource.kind.to_ascii_lowercase(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
    });
    with_names(description, resource)
}

/// Describes a group in aggregated discovery.
fn aggregate(name: &str, resources: &[&ResourceInfo]) -> Value {
    let resource = |resource: &ResourceInfo| {
        let description = json!({
            "resource": resource.plural,
            "responseKind": {
                "group": resource.group,
                "version": resource.version,
                "kind": resource.kind,
            },
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.kind.to_ascii_lowercase(),
        });
        with_names(description, resource)
    };
    let versions = grouped(resources.iter().copied(), version).into_iter();
    let versions: Vec<Value> = versions
        .map(|(version, resources)| {
            let resources: Vec<Value> = resources.into_iter().map(resource).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    json!({"metadata": {"name": name}, "versions": versions})
}

/// Adds the verbs, the short names and the categories.
fn with_names(mut description: Value, resource: &ResourceInfo) -> Value {
    description["verbs"] = json!(resource.verbs);
    if !resource.short_names.is_empty() {
        description["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        description["categories"] = json!(resource.categories);
    }
    description
}
