//! Serves the objects of the demo as JSON to get and list requests, as a kube-apiserver does. So
//! `kubectl get vm -A` works, and the plugin can check if a namespace exists. The server also answers
//! the dry run of an eviction, so `kubectl ifo impact` works.

use super::object_store::ServedObjects;
use super::{evictions, kinds, object_table};
use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, ResourceAttributes,
    SelectorRequirement,
};
use aggregated_apiserver::serve::{ErrorStatus, Query, ResourceInfo, ReviewedSelectors, verb};
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::Arc;

/// The only subresource that the demo serves, and only as a dry run.
const EVICTION: &str = "eviction";

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
                let (uri, headers) = (request.uri(), request.headers());
                match server.answer(kind, &target, uri, headers).await {
                    Ok((code, object)) => {
                        let content_type = [(CONTENT_TYPE, "application/json")];
                        let object = object_table::requested(object, &request);
                        (code, content_type, object.to_string()).into_response()
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
        let (namespace, plural, name, subresource) = match *rest {
            ["namespaces", namespace, plural] => (namespace, plural, "", ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name, ""),
            ["namespaces", namespace, "pods", name, EVICTION] => {
                (namespace, "pods", name, EVICTION)
            }
            [plural] => ("", plural, "", ""),
            [plural, name] => ("", plural, name, ""),
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
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        };
        target.verb = verb(request.method(), &target, &Query::of(request.uri()));
        Some((kind, target))
    }

    /// Returns the object or the list that a client requests, or the result of a dry run, if the
    /// client has the right.
    async fn answer(
        &self,
        kind: &ResourceInfo,
        request: &ResourceAttributes,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, Value), ErrorStatus> {
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
        let is_eviction = request.subresource == EVICTION;
        let is_supported = if is_eviction {
            let mut options = uri.query().unwrap_or_default().split('&');
            request.verb == "create" && options.any(|it| it == "dryRun=All")
        } else {
            kind.verbs.contains(&request.verb)
        };
        if !is_supported {
            return Err(ErrorStatus::not_supported(request.verb, group, plural));
        }
        let gvr = kinds::gvr(kind);
        let (version, mut items) = self.objects.list(&gvr, &request.namespace);
        if !name.is_empty() {
            let mut items = items.into_iter();
            let found = items.find(|item| item["metadata"]["name"] == **name);
            let found = found.ok_or_else(|| ErrorStatus::no_object(group, plural, name))?;
            if is_eviction {
                evictions::dry_run(&found, &*self.objects)?;
                let success = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
                return Ok((StatusCode::CREATED, success));
            }
            return Ok((StatusCode::OK, found));
        }
        select(&mut items, kind, &ReviewedSelectors::of(&Query::of(uri)))?;
        let list = json!({
            "kind": format!("{}List", kind.kind),
            "apiVersion": gvr.api_version(),
            "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        });
        Ok((StatusCode::OK, list))
    }
}

/// Keeps the objects that the selectors select. As in a kube-apiserver, a field selector with another
/// field is an error.
fn select(
    items: &mut Vec<Value>,
    kind: &ResourceInfo,
    selectors: &ReviewedSelectors,
) -> Result<(), ErrorStatus> {
    let is_field = |it: &str| match it {
        "metadata.name" | "metadata.namespace" => true,
        "spec.nodeName" | "status.phase" => kind.kind == "Pod",
        _ => false,
    };
    if let Some(other) = selectors.fields.iter().find(|it| !is_field(&it.key)) {
        let message = format!("field label not supported: {}", other.key);
        return Err(ErrorStatus::bad_request(message));
    }
    let field = |item: &Value, path: &str| {
        let value = path.split('.').fold(item, |value, name| &value[name]);
        value.as_str().unwrap_or_default().to_owned()
    };
    items.retain(|item| {
        let mut fields = selectors.fields.iter();
        let mut labels = selectors.labels.iter();
        fields.all(|it| is_fulfilled(it, Some(&field(item, &it.key))))
            && labels.all(|it| is_fulfilled(it, item["metadata"]["labels"][&it.key].as_str()))
    });
    Ok(())
}

/// Returns true if an object whose label or field has this value fulfils the requirement.
fn is_fulfilled(requirement: &SelectorRequirement, value: Option<&str>) -> bool {
    let is_listed = value.is_some_and(|it| requirement.values.iter().any(|own| own == it));
    match requirement.operator {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        _ => value.is_none(),
    }
}
