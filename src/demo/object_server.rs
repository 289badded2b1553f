//! Serves the objects of the demo as JSON to get and list requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists.

use super::kinds;
use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates,
};
use aggregated_apiserver::serve::{AdvertisedResource, ErrorStatus, Query, ResourceRequest, verb};
use axum::Router;
use axum::extract::{RawPathParams, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Uri};
use ifo_api::Gvr;
use serde_json::{Value, json};
use std::sync::Arc;

/// The objects that an [`ObjectServer`] serves.
pub trait ServedObjects: Send + Sync {
    /// Returns the resources of the objects.
    fn resources(&self) -> &'static [AdvertisedResource];

    /// Returns the current resourceVersion, and the objects of a resource sorted by namespace and
    /// name. An empty `namespace` means all namespaces.
    fn list(&self, resource: &Gvr, namespace: &str) -> (u64, Vec<Value>);
}

/// The objects of the demo, and the access checks for requests.
#[derive(Clone)]
pub struct ObjectServer {
    /// The objects.
    pub objects: Arc<dyn ServedObjects>,
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

impl ObjectServer {
    /// Returns a router that serves the objects, and passes all other requests to `router`.
    pub fn in_front_of(self, router: Router) -> Router {
        let routes = self.objects.resources().iter().map(|kind| {
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
        let mut routes = Router::new().route(&format!("{root}/{plural}"), any(answer));
        if self.kind.namespaced {
            let within = format!("{root}/namespaces/{{namespace}}/{plural}");
            routes = routes
                .route(&within, any(answer))
                .route(&format!("{within}/{{name}}"), any(answer));
        } else {
            routes = routes.route(&format!("{root}/{plural}/{{name}}"), any(answer));
        }
        routes.with_state(self)
    }

    /// Authenticates and authorizes a request. Returns the error for the client if the request is
    /// refused.
    async fn check_access(
        &self,
        request: &ResourceRequest,
        headers: &HeaderMap,
    ) -> Result<(), ErrorStatus> {
        let peer = PeerCertificates::default();
        let Ok(user) = self.server.authenticate.authenticate(&peer, headers).await else {
            return Err(ErrorStatus::unauthorized());
        };
        // As in a kube-apiserver, the access check for the Namespace object `a` has the namespace
        // `a`.
        let namespace = match self.kind.kind {
            "Namespace" => &request.name,
            _ => &request.namespace,
        };
        let asked = Attributes::Resource {
            verb: request.verb.to_owned(),
            group: self.kind.group.to_owned(),
            version: self.kind.version.to_owned(),
            resource: self.kind.plural.to_owned(),
            subresource: String::new(),
            namespace: namespace.clone(),
            name: request.name.clone(),
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

    /// Returns the object or the list that an authorized client requests.
    fn read(&self, request: &ResourceRequest) -> Result<Value, ErrorStatus> {
        let AdvertisedResource {
            group,
            plural,
            kind,
            ..
        } = *self.kind;
        if !self.kind.verbs.contains(&request.verb) {
            return Err(ErrorStatus::not_supported(request.verb, group, plural));
        }
        let gvr = kinds::gvr(self.kind);
        let (version, mut items) = self.server.objects.list(&gvr, &request.namespace);
        if request.verb == "get" {
            let found = items
                .iter()
                .position(|item| item["metadata"]["name"] == *request.name);
            return match found {
                Some(at) => Ok(items.swap_remove(at)),
                None => Err(ErrorStatus::no_object(group, plural, &request.name)),
            };
        }
        Ok(json!({
            "kind": format!("{kind}List"),
            "apiVersion": gvr.api_version(),
            "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        }))
    }
}

async fn answer(
    State(resource): State<ResourceServer>,
    path: RawPathParams,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let mut request = ResourceRequest::default();
    for (parameter, value) in &path {
        match parameter {
            "namespace" => value.clone_into(&mut request.namespace),
            _ => value.clone_into(&mut request.name),
        }
    }
    request.verb = verb(&method, &request, &Query::of(&uri));
    let allowed = resource.check_access(&request, &headers).await;
    match allowed.and_then(|()| resource.read(&request)) {
        Ok(object) => {
            let content_type = [(CONTENT_TYPE, "application/json")];
            (content_type, object.to_string()).into_response()
        }
        Err(refused) => refused.into_response(),
    }
}
