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

use super::accept_header::{AcceptClause, clauses};
use super::content_negotiation::{AnswerContent, Syntax, negotiate_syntax, syntax, unacceptable};
use super::request::Query;
use super::resource::ResourceInfo;
use super::static_document::Document;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::header::{CACHE_CONTROL, VARY};
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Value, json};

/// The media type of aggregated discovery since Kubernetes 1.30.
pub const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The media type of aggregated discovery in Kubernetes 1.26 to 1.29.
pub const V2_BETA1: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// The media type of plain discovery in JSON.
pub const JSON: &str = "application/json";

/// A resource as discovery describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedResource {
    /// The API group. Empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name, which paths contain.
    pub plural: &'static str,
    /// The kind of one object. The singular name is the kind in lower case.
    pub kind: &'static str,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// The short names of the resource in kubectl.
    pub short_names: &'static [&'static str],
    /// The categories of the resource in kubectl, such as `all`.
    pub categories: &'static [&'static str],
    /// The supported verbs.
    pub verbs: &'static [&'static str],
}

impl From<&ResourceInfo> for AdvertisedResource {
    fn from(resource: &ResourceInfo) -> Self {
        Self {
            group: resource.group,
            version: resource.version,
            plural: resource.plural,
            kind: resource.kind,
            namespaced: resource.namespaced,
            short_names: resource.short_names,
            categories: resource.categories,
            verbs: resource.verbs,
        }
    }
}

/// Creates the routes of discovery. They describe `resources`, and the resources
/// `served_by_other_router`, which another router of this server serves.
///
/// In a cluster, `served_by_other_router` is None, and there is no route `/api`, because the
/// kube-apiserver serves the core group. The clients of the demo use this server without a
/// kube-apiserver. So the demo has the route `/api`, even if the core group has no resources.
///
/// Several resources may have the same group or the same version. The first version of a group is
/// the preferred version of the group.
pub fn routes(
    resources: &[ResourceInfo],
    served_by_other_router: Option<&[AdvertisedResource]>,
) -> Router {
    let all: Vec<AdvertisedResource> = resources
        .iter()
        .map(AdvertisedResource::from)
        .chain(served_by_other_router.into_iter().flatten().copied())
        .collect();
    let (core, groups): (Vec<_>, Vec<_>) = group_by_version(&all)
        .into_iter()
        .partition(|group| group.name.is_empty());
    let list: Vec<Value> = groups.iter().map(DiscoveryGroup::describe).collect();
    let mut router = serve_root(
        Router::new(),
        "/apis",
        &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}),
        &groups
            .iter()
            .map(DiscoveryGroup::aggregate)
            .collect::<Vec<_>>(),
    );
    if served_by_other_router.is_some() {
        router = serve_core(router, core.first());
    }
    for group in &groups {
        let mut description = group.describe();
        description["kind"] = "APIGroup".into();
        description["apiVersion"] = "v1".into();
        router = serve(router, &format!("/apis/{}", group.name), &description);
        for version in &group.versions {
            router = serve(
                router,
                &format!("/apis/{}/{}", group.name, version.name),
                &version.describe(group.name),
            );
        }
    }
    router
}

/// Adds the routes of the core group. `core` is None if the core group has no resource.
fn serve_core(router: Router, core: Option<&DiscoveryGroup<'_>>) -> Router {
    let versions = core
        .map(|core| core.versions.as_slice())
        .unwrap_or_default();
    let plain = json!({
        "kind": "APIVersions",
        "versions": versions.iter().map(|version| version.name).collect::<Vec<_>>(),
        "serverAddressByClientCIDRs": [],
    });
    let items: Vec<Value> = core.iter().map(|core| core.aggregate()).collect();
    let mut router = serve_root(router, "/api", &plain, &items);
    for version in versions {
        let path = format!("/api/{}", version.name);
        router = serve(router, &path, &version.describe(""));
    }
    router
}

/// Adds the route `path`. In plain discovery, the answer is `plain`. In aggregated discovery, the
/// answer is a list of `items`.
fn serve_root(router: Router, path: &str, plain: &Value, items: &[Value]) -> Router {
    let aggregated = |version: &str, content_type| {
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        Document::json(&list, content_type)
    };
    let root = Root {
        plain: Document::json(plain, JSON),
        v2: aggregated("v2", V2),
        v2_beta1: aggregated("v2beta1", V2_BETA1),
    };
    add(router, path, move |query, headers| {
        root.answer(query, headers)
    })
}

/// Adds the route `path`. The answer is `value`.
fn serve(router: Router, path: &str, value: &Value) -> Router {
    let document = Document::json(value, JSON);
    add(router, path, move |query, headers| {
        let syntax = negotiate_syntax(headers, query)?;
        Some(document.answer_as(syntax, headers))
    })
}

/// Adds the route `path`. `answer` gets the query and the headers of the request. If the client
/// accepts no available media type, `answer` returns None, and the client gets a 406.
fn add<F>(router: Router, path: &str, answer: F) -> Router
where
    F: Fn(&Query, &HeaderMap) -> Option<Response> + Clone + Send + Sync + 'static,
{
    let answer = async move |uri: Uri, headers: HeaderMap| {
        answer(&Query::of(&uri), &headers)
            .unwrap_or_else(|| unacceptable(AnswerContent::Object).response(Syntax::Indented))
    };
    router.route(path, get(answer))
}

/// The answers of `/apis` or `/api`: plain discovery, and aggregated discovery in two versions.
#[derive(Clone, Debug)]
struct Root {
    plain: Document,
    v2: Document,
    v2_beta1: Document,
}

impl Root {
    /// Returns the answer that the client prefers. None if this server has no answer for any
    /// clause of `Accept`. Unknown parameters of a media type, such as `profile`, are ignored, as
    /// in the kube-apiserver.
    fn answer(&self, query: &Query, request: &HeaderMap) -> Option<Response> {
        let (clause, document) = clauses(request)
            .into_iter()
            .find_map(|clause| self.document(&clause).map(|document| (clause, document)))?;
        let mut response = document.answer_as(syntax(request, query, &clause), request);
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        if !clause.is_plain() {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        }
        Some(response)
    }

    /// Returns the answer that a clause of `Accept` requests. None if this server has no answer for
    /// the clause.
    fn document(&self, clause: &AcceptClause<'_>) -> Option<&Document> {
        if !clause.has_supported_syntax() {
            return None;
        }
        if clause.is_plain() {
            return Some(&self.plain);
        }
        match clause.version_of("apidiscovery.k8s.io", "APIGroupDiscoveryList") {
            Some("v2") => Some(&self.v2),
            Some("v2beta1") => Some(&self.v2_beta1),
            _ => None,
        }
    }
}

/// A group and its versions, in the order of the resources.
struct DiscoveryGroup<'a> {
    name: &'static str,
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'static str,
    resources: Vec<&'a AdvertisedResource>,
}

fn group_by_version(resources: &[AdvertisedResource]) -> Vec<DiscoveryGroup<'_>> {
    let mut groups: Vec<DiscoveryGroup<'_>> = Vec::new();
    for resource in resources {
        let group = match groups.iter().position(|group| group.name == resource.group) {
            Some(at) => &mut groups[at],
            None => groups.push_mut(DiscoveryGroup {
                name: resource.group,
                versions: Vec::new(),
            }),
        };
        match group
            .versions
            .iter_mut()
            .find(|version| version.name == resource.version)
        {
            Some(version) => version.resources.push(resource),
            None => group.versions.push(Version {
                name: resource.version,
                resources: vec![resource],
            }),
        }
    }
    groups
}

impl DiscoveryGroup<'_> {
    /// Returns the `APIGroup`, without `kind` and `apiVersion`.
    fn describe(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| {
                json!({
                    "groupVersion": group_version(self.name, version.name),
                    "version": version.name,
                })
            })
            .collect();
        // A group always has a version.
        let preferred = versions.first().cloned().unwrap_or_default();
        json!({"name": self.name, "versions": versions, "preferredVersion": preferred})
    }

    /// Returns the `APIGroupDiscovery`.
    fn aggregate(&self) -> Value {
        let versions: Vec<Value> = self.versions.iter().map(Version::aggregate).collect();
        json!({"metadata": {"name": self.name}, "versions": versions})
    }
}

impl Version<'_> {
    /// Returns the `APIResourceList`.
    fn describe(&self, group: &str) -> Value {
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|resource| {
                let mut description = json!({
                    "name": resource.plural,
                    "singularName": resource.kind.to_ascii_lowercase(),
                    "namespaced": resource.namespaced,
                    "kind": resource.kind,
                    "verbs": resource.verbs,
                });
                add_aliases(&mut description, resource);
                description
            })
            .collect();
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version(group, self.name),
            "resources": resources,
        })
    }

    /// Returns the `APIVersionDiscovery`.
    fn aggregate(&self) -> Value {
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|resource| {
                let mut description = json!({
                    "resource": resource.plural,
                    "responseKind": {
                        "group": resource.group,
                        "version": resource.version,
                        "kind": resource.kind,
                    },
                    "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                    "singularResource": resource.kind.to_ascii_lowercase(),
                    "verbs": resource.verbs,
                });
                add_aliases(&mut description, resource);
                description
            })
            .collect();
        json!({"version": self.name, "resources": resources, "freshness": "Current"})
    }
}

/// Returns `group/version`, or only `version` for the core group.
fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Adds the short names and categories of a resource, if it has any.
fn add_aliases(description: &mut Value, resource: &AdvertisedResource) {
    if !resource.short_names.is_empty() {
        description["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        description["categories"] = json!(resource.categories);
    }
}
