//! Serves the objects of the demo as JSON to get and list requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists.

use super::kinds;
use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, ResourceAttributes,
};
use aggregated_apiserver::serve::{ErrorStatus, Query, ResourceInfo, verb};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use ifo_api::Gvr;
use serde_json::{Value, json};
use std::sync::Arc;

/// The objects that an [`ObjectServer`] serves.
pub trait ServedObjects: Send + Sync {
    /// Returns the resources of the objects.
    fn resources(&self) -> &'static [ResourceInfo];

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

impl ObjectServer {
    /// Returns a router that serves the objects, and passes all other requests to `router`.
    pub fn in_front_of(self, router: Router) -> Router {
        router.layer(middleware::from_fn(move |request: Request, next: Next| {
            let server = self.clone();
            async move {
                let Some((kind, target)) = server.target(&request) else {
                    return next.run(request).await;
                };
                match server.answer(kind, &target, request.headers()).await {
                    Ok(object) => {
                        let content_type = [(CONTENT_TYPE, "application/json")];
                        (content_type, object.to_string()).into_response()
                    }
                    Err(refused) => refused.into_response(),
                }
            }
        }))
    }

    /// Returns the kind, the namespace, the name and the verb that a request is about. Returns None
    /// if the path is not that of an object of the demo.
    fn target(&self, request: &Request) -> Option<(&'static ResourceInfo, ResourceAttributes)> {
        let parts: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let (group, version, rest) = match &*parts {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, plural, name) = match *rest {
            ["namespaces", namespace, plural] => (namespace, plural, ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name),
            [plural] => ("", plural, ""),
            [plural, name] => ("", plural, name),
            _ => return None,
        };
        let kind = self.objects.resources().iter().find(|kind| {
            let is_in_namespace = !namespace.is_empty();
            let has_path = kind.namespaced == is_in_namespace || kind.namespaced && name.is_empty();
            has_path && (kind.group, kind.version, kind.plural) == (group, version, plural)
        })?;
        let mut target = ResourceAttributes {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        target.verb = verb(request.method(), &target, &Query::of(request.uri()));
        Some((kind, target))
    }

    /// Returns the object or the list that a client requests, if the client has the right.
    async fn answer(
        &self,
        kind: &ResourceInfo,
        request: &ResourceAttributes,
        headers: &HeaderMap,
    ) -> Result<Value, ErrorStatus> {
        let peer = PeerCertificates::default();
        let Ok(user) = self.authenticate.authenticate(&peer, headers).await else {
            return Err(ErrorStatus::unauthorized());
        };
        // As in a kube-apiserver, the access check for the Namespace object `a` has the namespace
        // `a`.
        let mut asked = request.clone();
        if kind.kind == "Namespace" {
            asked.namespace.clone_from(&request.name);
        }
        let asked = Attributes::Resource(asked);
        let decision = self.authorize.authorize(&user, &asked).await;
        if !matches!(decision, Ok(AccessDecision::Allow)) {
            return Err(ErrorStatus::forbidden(&user, &asked, ""));
        }
        let (group, plural, name) = (kind.group, kind.plural, &request.name);
        if !kind.verbs.contains(&request.verb) {
            return Err(ErrorStatus::not_supported(request.verb, group, plural));
        }
        let gvr = kinds::gvr(kind);
        let (version, items) = self.objects.list(&gvr, &request.namespace);
        if request.verb == "get" {
            let mut items = items.into_iter();
            let found = items.find(|item| item["metadata"]["name"] == **name);
            return found.ok_or_else(|| ErrorStatus::no_object(group, plural, name));
        }
        Ok(json!({
            "kind": format!("{}List", kind.kind),
            "apiVersion": gvr.api_version(),
            "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        }))
    }
}
