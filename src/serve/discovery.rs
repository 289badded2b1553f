//! Discovery: which groups, versions and resources there are. Enters: the descriptions
//! of the resources, once. Leaves: `/api`, `/apis`, `/apis/G` and `/apis/G/V`, computed
//! once and answered at any time, before anything is synced: an aggregated API whose
//! discovery fails holds up the deletion of every namespace in the cluster.

use super::accept::{AcceptClause, clauses};
use super::document::Document;
use super::negotiate::{Shape, Syntax, negotiate_plain, syntax, unacceptable};
use super::request::Query;
use super::resource::Resource;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::header::{CACHE_CONTROL, VARY};
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::{Value, json};

/// Media type of aggregated discovery since Kubernetes 1.30.
const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// The same before that, from 1.26.
const V2_BETA1: &str = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// Media type of everything else here.
const JSON: &str = "application/json";

/// What `/api`, the root of the core group, answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreGroup {
    /// 404, as every aggregated server does: the kube-apiserver serves the core group.
    Absent,
    /// A core group without versions, for a server that clients talk to directly.
    Empty,
    /// A core group with namespaces, which somebody else answers for.
    Namespaces,
}

/// The routes of discovery for `resources`. Several may share a group or a version; the
/// version that comes first in a group is its preferred one.
pub fn routes(resources: &[Resource], core: CoreGroup) -> Router {
    let groups = groups(resources);
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
    router = serve_core(router, core);
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

/// Adds the core group, if it is served.
fn serve_core(router: Router, core: CoreGroup) -> Router {
    let (versions, items): (&[&str], _) = match core {
        CoreGroup::Absent => return router,
        CoreGroup::Empty => (&[], Vec::new()),
        CoreGroup::Namespaces => (&["v1"], vec![namespaces_aggregated()]),
    };
    let plain = json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [],
    });
    let router = serve_root(router, "/api", &plain, &items);
    if core == CoreGroup::Namespaces {
        serve(router, "/api/v1", &namespaces())
    } else {
        router
    }
}

/// What can be done with namespaces where no cluster serves them: they are answered from
/// memory, and nothing tells of changes.
const NAMESPACE_VERBS: [&str; 2] = ["get", "list"];

/// `APIResourceList` of a core group with namespaces alone.
fn namespaces() -> Value {
    json!({
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [{
            "name": "namespaces",
            "singularName": "namespace",
            "namespaced": false,
            "kind": "Namespace",
            "verbs": NAMESPACE_VERBS,
            "shortNames": ["ns"],
        }],
    })
}

/// The same as `APIGroupDiscovery`.
fn namespaces_aggregated() -> Value {
    json!({"metadata": {"name": ""}, "versions": [{
        "version": "v1",
        "resources": [{
            "resource": "namespaces",
            "responseKind": {"group": "", "version": "v1", "kind": "Namespace"},
            "scope": "Cluster",
            "singularResource": "namespace",
            "verbs": NAMESPACE_VERBS,
            "shortNames": ["ns"],
        }],
        "freshness": "Current",
    }]})
}

/// Adds `path`, which answers `plain` or, to those who ask, the aggregated `items`.
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

/// Adds `path`, which answers `value`.
fn serve(router: Router, path: &str, value: &Value) -> Router {
    let document = Document::json(value, JSON);
    add(router, path, move |query, headers| {
        let syntax = negotiate_plain(headers, query)?;
        Some(document.answer_as(syntax, headers))
    })
}

/// Adds `path`, which `answer` answers from the request's options and headers; None is
/// what the client does not accept.
fn add<F>(router: Router, path: &str, answer: F) -> Router
where
    F: Fn(&Query, &HeaderMap) -> Option<Response> + Clone + Send + Sync + 'static,
{
    let answer = async move |uri: Uri, headers: HeaderMap| {
        answer(&Query::of(&uri), &headers)
            .unwrap_or_else(|| unacceptable(Shape::Object).response(Syntax::Indented))
    };
    router.route(path, get(answer))
}

/// `/apis` or `/api` in its three forms.
#[derive(Clone, Debug)]
struct Root {
    plain: Document,
    v2: Document,
    v2_beta1: Document,
}

impl Root {
    /// The form that the request prefers. Parameters that we do not know, such as
    /// `profile`, are ignored as upstream ignores them.
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

    /// What the clause asks for.
    fn document(&self, clause: &AcceptClause<'_>) -> Option<&Document> {
        if !clause.can_be_written() {
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

/// A group with its versions, in the order in which the resources name them.
struct DiscoveryGroup<'a> {
    name: &'static str,
    versions: Vec<Version<'a>>,
}

struct Version<'a> {
    name: &'static str,
    resources: Vec<&'a Resource>,
}

fn groups(resources: &[Resource]) -> Vec<DiscoveryGroup<'_>> {
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
    /// `APIGroup`, without kind and apiVersion.
    fn describe(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| {
                json!({
                    "groupVersion": format!("{}/{}", self.name, version.name),
                    "version": version.name,
                })
            })
            .collect();
        // A group is made with its first version.
        let preferred = versions.first().cloned().unwrap_or_default();
        json!({"name": self.name, "versions": versions, "preferredVersion": preferred})
    }

    /// `APIGroupDiscovery`.
    fn aggregate(&self) -> Value {
        let versions: Vec<Value> = self.versions.iter().map(Version::aggregate).collect();
        json!({"metadata": {"name": self.name}, "versions": versions})
    }
}

impl Version<'_> {
    /// `APIResourceList`.
    fn describe(&self, group: &str) -> Value {
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|resource| {
                let mut description = json!({
                    "name": resource.plural,
                    "singularName": resource.singular,
                    "namespaced": resource.namespaced,
                    "kind": resource.kind,
                    "verbs": VERBS,
                });
                add_aliases(&mut description, resource);
                description
            })
            .collect();
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": format!("{group}/{}", self.name),
            "resources": resources,
        })
    }

    /// `APIVersionDiscovery`.
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
                    "singularResource": resource.singular,
                    "verbs": VERBS,
                });
                add_aliases(&mut description, resource);
                description
            })
            .collect();
        json!({"version": self.name, "resources": resources, "freshness": "Current"})
    }
}

/// What can be done with a resource of a read-only server.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Adds the other names of a resource, which are left out where there are none.
fn add_aliases(description: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        description["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        description["categories"] = json!(resource.categories);
    }
}

#[cfg(test)]
mod tests;
