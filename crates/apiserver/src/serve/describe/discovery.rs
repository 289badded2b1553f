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
use crate::serve::request::negotiation::{clauses, unacceptable};
use crate::serve::resource::ResourceInfo;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, VARY};
use kube::core::Version;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The media type of aggregated discovery since Kubernetes 1.30.
pub const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The media type of plain discovery in JSON.
pub const JSON: &str = "application/json";

/// Returns the routes of discovery. If a resource is in the core group, the routes also describe
/// this group, on `/api`.
pub fn routes(resources: &[ResourceInfo]) -> Router {
    let mut sorted: Vec<&ResourceInfo> = resources.iter().collect();
    sorted.sort_by_cached_key(|it| Reverse(Version::parse(it.version).priority()));
    let mut groups = BTreeMap::<_, Versions<'_>>::new();
    for resource in sorted {
        let versions = groups.entry(resource.group).or_default();
        match versions.last_mut() {
            Some((version, own)) if *version == resource.version => own.push(resource),
            _ => versions.push((resource.version, vec![resource])),
        }
    }
    let core = Vec::from_iter(groups.remove_entry(""));
    let groups = Vec::from_iter(groups);
    let described: Vec<Value> = groups.iter().map(describe).collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": described});
    let mut router = serve(Router::new(), "/apis", &list, Some(&groups));
    if !core.is_empty() {
        let versions = core.iter().flat_map(|(_, versions)| versions);
        let versions = versions.map(|(version, _)| version);
        let list = json!({
            "kind": "APIVersions",
            "versions": versions.collect::<Vec<_>>(),
            "serverAddressByClientCIDRs": [],
        });
        router = serve(router, "/api", &list, Some(&core));
    }
    for group in core.iter().chain(&groups) {
        let mut root = "/api".to_owned();
        if !group.0.is_empty() {
            root = format!("/apis/{}", group.0);
            let mut described = describe(group);
            described["kind"] = "APIGroup".into();
            described["apiVersion"] = "v1".into();
            router = serve(router, &root, &described, None);
        }
        for (version, resources) in &group.1 {
            let described = resources.iter().map(|it| describe_resource(it));
            let list = json!({
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": resources[0].api_version(),
                "resources": described.collect::<Vec<_>>(),
            });
            router = serve(router, &format!("{root}/{version}"), &list, None);
        }
    }
    router
}

/// The resources of a group by version, in the order of the version priority of Kubernetes: `v2`,
/// `v1`, `v1beta1`, `v1alpha1`. The first version is the preferred one.
type Versions<'a> = Vec<(&'static str, Vec<&'a ResourceInfo>)>;

/// The name of a group, and its resources.
type Group<'a> = (&'static str, Versions<'a>);

/// Adds a route that serves the document `plain`. If `groups` are given, the route also serves
/// aggregated discovery of these groups, to clients that prefer aggregated discovery.
fn serve(router: Router, path: &str, plain: &Value, groups: Option<&[Group<'_>]>) -> Router {
    let plain = Document::json(plain, JSON);
    let aggregated = groups.map(|groups| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": groups.iter().map(aggregate).collect::<Vec<_>>(),
        });
        Document::json(&list, V2)
    });
    let answer = async move |headers: HeaderMap| {
        let clauses = clauses(&headers);
        let mut accepted = clauses.iter().filter(|clause| clause.allows_json());
        let document = accepted.find_map(|clause| {
            if clause.is_plain() {
                return Some((&plain, false));
            }
            let aggregated = aggregated.as_ref().filter(|_| clause.is_aggregated())?;
            Some((aggregated, true))
        });
        let Some((document, is_aggregated)) = document else {
            return unacceptable().into_response();
        };
        let vary = aggregated.is_some().then_some([(VARY, "Accept")]);
        let cache = is_aggregated.then_some([(CACHE_CONTROL, "public")]);
        (vary, cache, document.answer(&headers)).into_response()
    };
    router.route(path, get(answer))
}

/// Describes a group in plain discovery.
fn describe((name, versions): &Group<'_>) -> Value {
    let versions = versions.iter().map(|(version, resources)| {
        json!({"groupVersion": resources[0].api_version(), "version": version})
    });
    let versions: Vec<Value> = versions.collect();
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
fn aggregate((name, versions): &Group<'_>) -> Value {
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
    let versions = versions.iter().map(|(version, resources)| {
        let resources: Vec<Value> = resources.iter().map(resource).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    });
    json!({"metadata": {"name": name}, "versions": versions.collect::<Vec<_>>()})
}

/// Adds the verbs and the short names.
fn with_names(mut description: Value, resource: &ResourceInfo) -> Value {
    description["verbs"] = json!(resource.verbs);
    if !resource.short_names.is_empty() {
        description["shortNames"] = json!(resource.short_names);
    }
    description
}
