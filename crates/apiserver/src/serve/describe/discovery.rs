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
use axum::response::IntoResponse;
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
    let groups = grouped(resources.iter().chain(others), |it| it.group);
    let groups = groups.into_iter().map(|(name, resources)| Group {
        name,
        versions: grouped(resources, |it| it.version),
    });
    let (core, groups): (Vec<_>, Vec<_>) = groups.partition(|group| group.name.is_empty());
    let described: Vec<Value> = groups.iter().map(describe).collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": described});
    let mut router = serve(Router::new(), "/apis", with_aggregated(&list, &groups));
    if served_by_other_router.is_some() {
        let versions = core.iter().flat_map(|group| &group.versions);
        let versions: Vec<&str> = versions.map(|(version, _)| *version).collect();
        let list = json!({
            "kind": "APIVersions",
            "versions": versions,
            "serverAddressByClientCIDRs": [],
        });
        router = serve(router, "/api", with_aggregated(&list, &core));
    }
    for group in core.iter().chain(&groups) {
        let mut root = "/api".to_owned();
        if !group.name.is_empty() {
            root = format!("/apis/{}", group.name);
            let mut described = describe(group);
            described["kind"] = "APIGroup".into();
            described["apiVersion"] = "v1".into();
            router = serve(
                router,
                &root,
                vec![(None, Document::json(&described, JSON))],
            );
        }
        for (version, resources) in &group.versions {
            let described = resources.iter().map(|it| describe_resource(it));
            let list = json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": resources[0].api_version(),
                "resources": described.collect::<Vec<_>>(),
            });
            let documents = vec![(None, Document::json(&list, JSON))];
            router = serve(router, &format!("{root}/{version}"), documents);
        }
    }
    router
}

/// Resources with the same group, or with the same version.
type Named<'a> = (&'static str, Vec<&'a ResourceInfo>);

struct Group<'a> {
    name: &'static str,
    versions: Vec<Named<'a>>,
}

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

/// The documents of a path, each with the requested version of aggregated discovery. None for plain
/// discovery.
type Documents = Vec<(Option<&'static str>, Document)>;

/// Returns the documents of a root path: the plain list, and aggregated discovery of the groups.
fn with_aggregated(plain: &Value, groups: &[Group<'_>]) -> Documents {
    let items: Vec<Value> = groups.iter().map(aggregate).collect();
    let aggregated = |version, content_type| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        (Some(version), Document::json(&list, content_type))
    };
    vec![
        (None, Document::json(plain, JSON)),
        aggregated("v2", V2),
        aggregated("v2beta1", V2_BETA1),
    ]
}

/// Serves the first document that the client accepts.
fn serve(router: Router, path: &str, documents: Documents) -> Router {
    let answer = async move |headers: HeaderMap| {
        let document = |clause: &AcceptClause<'_>| {
            let version = if clause.is_plain() {
                None
            } else {
                Some(clause.version_of("apidiscovery.k8s.io", "APIGroupDiscoveryList")?)
            };
            documents.iter().find(|(of, _)| *of == version)
        };
        let clauses = clauses(&headers);
        let mut accepted = clauses.iter().filter(|clause| clause.allows_json());
        let Some((version, document)) = accepted.find_map(document) else {
            return unacceptable().into_response();
        };
        let mut response = document.answer(&headers);
        let headers = response.headers_mut();
        if documents.len() > 1 {
            headers.insert(VARY, HeaderValue::from_static("Accept"));
        }
        if version.is_some() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        }
        response
    };
    router.route(path, get(answer))
}

/// Describes a group in plain discovery.
fn describe(group: &Group<'_>) -> Value {
    let versions = group.versions.iter().map(|(version, resources)| {
        json!({"groupVersion": resources[0].api_version(), "version": version})
    });
    let versions: Vec<Value> = versions.collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group.name, "versions": versions, "preferredVersion": preferred})
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
fn aggregate(group: &Group<'_>) -> Value {
    let resource = |resource: &&ResourceInfo| {
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
    let versions = group.versions.iter().map(|(version, resources)| {
        let resources: Vec<Value> = resources.iter().map(resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    });
    json!({"metadata": {"name": group.name}, "versions": versions.collect::<Vec<_>>()})
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
