//! Serves the objects of the demo as JSON to get and list requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists.

use super::kinds::{self, KINDS};
use super::object_store::{ObjectId, ObjectStore};
use crate::auth::{AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates};
use crate::serve::{AdvertisedResource, ErrorStatus};
use axum::Router;
use axum::extract::{RawPathParams, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::sync::Arc;

/// The objects of the demo, and the access checks for requests.
#[derive(Clone)]
pub struct ObjectServer {
    /// The objects.
    pub store: ObjectStore,
    /// Authenticates requests.
    pub authenticate: Arc<dyn Authenticate>,
    /// Authorizes requests.
    pub authorize: Arc<dyn Authorize>,
}

/// Serves the objects of one resource.
#[derive(Clone)]
struct ResourceServer {
    server: ObjectServer,
    kind: &'static AdvertisedResource,
}

/// The namespace and name in the path of a request. A field is empty if the path does not contain
/// it.
#[derive(Default)]
struct ObjectPath {
    namespace: String,
    name: String,
}

impl ObjectServer {
    /// Returns a router that serves the objects, and passes all other requests to `router`.
    pub fn in_front_of(self, router: Router) -> Router {
        let routes = KINDS.iter().map(|kind| {
            let resource = ResourceServer {
                server: self.clone(),
                kind,
            };
            resource.routes()
        });
        let routes = routes.fold(Router::new(), Router::merge);
        routes.fallback_service(router)
    }
}

impl ResourceServer {
    fn routes(self) -> Router {
        let plural = self.kind.plural;
        let version = kinds::gvr(self.kind).api_version();
        let root = if self.kind.group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{version}")
        };
        let mut routes = Router::new().route(&format!("{root}/{plural}"), get(answer));
        if self.kind.namespaced {
            let within = format!("{root}/namespaces/{{namespace}}/{plural}");
            routes = routes
                .route(&within, get(answer))
                .route(&format!("{within}/{{name}}"), get(answer));
        } else {
            routes = routes.route(&format!("{root}/{plural}/{{name}}"), get(answer));
        }
        routes.with_state(self)
    }

    /// Authenticates and authorizes a request. Returns the error for the client if the request is
    /// refused.
    async fn check_access(
        &self,
        verb: &str,
        path: &ObjectPath,
        headers: &HeaderMap,
    ) -> Result<(), ErrorStatus> {
        let peer = PeerCertificates::default();
        let Ok(user) = self.server.authenticate.authenticate(&peer, headers).await else {
            return Err(ErrorStatus::unauthorized());
        };
        // As in a kube-apiserver, the access check for the Namespace object `a` has the namespace
        // `a`.
        let namespace = match self.kind.kind {
            "Namespace" => &path.name,
            _ => &path.namespace,
        };
        let asked = Attributes::Resource {
            verb: verb.to_owned(),
            group: self.kind.group.to_owned(),
            version: self.kind.version.to_owned(),
            resource: self.kind.plural.to_owned(),
            subresource: String::new(),
            namespace: namespace.clone(),
            name: path.name.clone(),
            fields: Vec::new(),
            labels: Vec::new(),
        };
        match self.server.authorize.authorize(&user, &asked).await {
            Ok(AccessDecision::Allow) => Ok(()),
            Ok(AccessDecision::Deny { reason }) => {
                Err(ErrorStatus::forbidden(&user, &asked, &reason))
            }
            Err(_) => Err(ErrorStatus::forbidden(&user, &asked, "")),
        }
    }

    fn list(&self, namespace: &str) -> Value {
        let gvr = kinds::gvr(self.kind);
        let (version, items) = self.server.store.list(&gvr, namespace);
        json!({
            "kind": format!("{}List", self.kind.kind),
            "apiVersion": gvr.api_version(),
            "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        })
    }

    fn find(&self, path: ObjectPath) -> Result<Value, ErrorStatus> {
        let id = ObjectId {
            resource: kinds::gvr(self.kind),
            namespace: path.namespace,
            name: path.name,
        };
        let missing = || ErrorStatus::no_object(self.kind.group, self.kind.plural, &id.name);
        self.server.store.get(&id).ok_or_else(missing)
    }
}

async fn answer(
    State(resource): State<ResourceServer>,
    path: RawPathParams,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let mut names = ObjectPath::default();
    for (parameter, value) in &path {
        match parameter {
            "namespace" => value.clone_into(&mut names.namespace),
            _ => value.clone_into(&mut names.name),
        }
    }
    let is_watch = is_watch(query.as_deref().unwrap_or_default());
    let verb = match (names.name.is_empty(), is_watch) {
        (false, _) => "get",
        (true, true) => "watch",
        (true, false) => "list",
    };
    if let Err(refused) = resource.check_access(verb, &names, &headers).await {
        return refused.into_response();
    }
    match verb {
        "get" => match resource.find(names) {
            Ok(object) => json_response(&object),
            Err(missing) => missing.into_response(),
        },
        "list" => json_response(&resource.list(&names.namespace)),
        // The demo does not serve watches of these objects.
        _ => ErrorStatus::not_supported(verb, resource.kind.group, resource.kind.plural)
            .into_response(),
    }
}

fn json_response(value: &Value) -> Response {
    let content_type = [(CONTENT_TYPE, "application/json")];
    (content_type, value.to_string()).into_response()
}

/// Returns true if the query requests a watch.
fn is_watch(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes())
        .any(|(option, value)| option == "watch" && !matches!(&*value, "0" | "false"))
}
