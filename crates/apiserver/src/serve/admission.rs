//! Admits or refuses requests: authenticates the user, applies the limits of connections, requests
//! and watches, and authorizes the request. Each limit has a number of slots. An admitted
//! connection or request takes a slot.

use super::ServerState;
use super::concurrency_limit::RequestingClient;
use super::connections::{self, ConnectionClass, ConnectionRefused};
use super::error_status::ErrorStatus;
use super::request::{Query, RequestTarget, ResourceRequest};
use super::selectors::ReviewedSelectors;
use super::websocket;
use crate::auth::{
    ANONYMOUS_USER, AccessDecision, Attributes, PeerCertificates, Unauthenticated, User,
};
use http::request::Parts;
use http::{Method, header};
use std::any::Any;
use std::sync::Arc;

/// A slot in a limit. The slot becomes free when it is dropped.
pub type Slot = Arc<dyn Any + Send + Sync>;

/// A request whose path and query are parsed.
pub(super) struct Incoming {
    pub(super) parts: Parts,
    pub(super) requested: Arc<RequestTarget>,
    pub(super) query: Arc<Query>,
}

impl Incoming {
    /// Returns true for a path that needs no authentication, and for a health probe.
    pub(super) fn is_public_or_probe(&self) -> bool {
        self.is_path(is_public_path) || self.is_path(is_probe_path)
    }

    /// Returns true if the request is a watch.
    pub(super) fn is_watch(&self) -> bool {
        matches!(&*self.requested, RequestTarget::Resource(resource) if resource.verb == "watch")
    }

    fn is_path(&self, matches: fn(&str) -> bool) -> bool {
        matches!(&*self.requested, RequestTarget::Path(path) if matches(path))
    }

    fn is_for_all_namespaces(&self) -> bool {
        match &*self.requested {
            RequestTarget::Path(_) => true,
            RequestTarget::Resource(resource) => resource.namespace.is_empty(),
        }
    }

    fn attributes(&self) -> Attributes {
        match &*self.requested {
            RequestTarget::Path(path) => Attributes::NonResource {
                path: path.clone(),
                verb: method_name(&self.parts.method).to_owned(),
            },
            RequestTarget::Resource(resource) => resource_attributes(resource, &self.query),
        }
    }
}

/// Authenticates the request, takes a slot for its connection and a slot for the request, and
/// authorizes the request. Stores the user in `user`. Returns the slot of the request. A request for
/// a public path, a health probe, and an administrator's request have no slot.
pub(super) async fn admit(
    shared: &ServerState,
    request: &Incoming,
    user: &mut Option<User>,
) -> Result<Option<Slot>, ErrorStatus> {
    let parts = &request.parts;
    let certificates: PeerCertificates = parts.extensions.get().cloned().unwrap_or_default();
    let authenticate = &shared.server.authenticate;
    let refused = |ConnectionRefused| {
        ErrorStatus::too_many_requests("too many connections (--max-connections)")
    };
    // The connections of a kube-apiserver belong to the front proxy, and not to its users. This
    // includes the connections that it uses only for discovery.
    if authenticate.is_front_proxy(&certificates) {
        connections::admit(parts, ConnectionClass::FrontProxy, None).map_err(refused)?;
    }
    // Public paths need no token. But an invalid token causes a 401 on every path, so a token is
    // always verified.
    let has_token = parts.headers.contains_key(header::AUTHORIZATION);
    if request.is_path(is_public_path) && !has_token {
        return Ok(None);
    }
    // Verifying a token takes time and memory, so the number of concurrent verifications is
    // limited.
    let token_review = has_token.then(|| shared.token_reviews.try_acquire());
    let token_review = token_review
        .transpose()
        .map_err(|_| ErrorStatus::too_many_requests("too many bearer tokens are being verified"))?;
    let found = authenticate.authenticate(&certificates, &parts.headers);
    let found = found
        .await
        .map_err(|Unauthenticated| ErrorStatus::unauthorized())?;
    let user = &*user.insert(found);
    drop(token_review);
    let access_of_peer = shared.server.hooks.required_access_of_peer(&parts.headers);
    if let Some(required) = &access_of_peer {
        authorize(shared, user, required).await?;
    }
    if request.is_public_or_probe() {
        return Ok(None);
    }
    // A connection without an authenticated user stays a newcomer.
    if access_of_peer.is_some() {
        connections::admit(parts, ConnectionClass::FrontProxy, None).map_err(refused)?;
    } else if user.name != ANONYMOUS_USER {
        connections::admit(parts, ConnectionClass::User, Some(user)).map_err(refused)?;
    }
    let slot = take_slot(shared, request, user, access_of_peer.is_some())?;
    authorize(shared, user, &request.attributes()).await?;
    Ok(slot)
}

/// Takes a slot in the limit of watches, of requests or of replicas' requests.
fn take_slot(
    shared: &ServerState,
    request: &Incoming,
    user: &User,
    is_from_replica: bool,
) -> Result<Option<Slot>, ErrorStatus> {
    let client = if is_from_replica {
        RequestingClient::trusted()
    } else {
        RequestingClient::of(user, request.is_for_all_namespaces())
    };
    let is_watch = request.is_watch();
    let limit = match (is_from_replica, is_watch) {
        (true, _) => &shared.replicas,
        (false, true) => &shared.watches,
        (false, false) => &shared.requests,
    };
    let is_websocket = is_watch && websocket::is_requested(&request.parts);
    let websocket = is_websocket.then(|| shared.websockets.acquire(&client));
    let websocket = websocket
        .transpose()
        .map_err(ErrorStatus::too_many_requests)?;
    match limit.acquire(&client) {
        Ok(slot) if is_watch => {
            let counted = shared.server.metrics.watcher();
            Ok(Some(Arc::new((counted, slot, websocket))))
        }
        Ok(slot) => Ok(Some(Arc::new(slot))),
        // Other users must not be able to lock administrators out. So an administrator's request is
        // admitted even if no slot is free. An administrator's watch is different, because the memory
        // for watches is limited.
        Err(_) if user.is_administrator() && !is_watch => Ok(None),
        Err(reached) => Err(ErrorStatus::too_many_requests(reached)),
    }
}

/// Checks if the user has the access `attributes`. Returns a 403 if the user does not have this
/// access, and a 500 if the authorizer cannot decide.
async fn authorize(
    shared: &ServerState,
    user: &User,
    attributes: &Attributes,
) -> Result<(), ErrorStatus> {
    match shared.server.authorize.authorize(user, attributes).await {
        Ok(AccessDecision::Allow) => Ok(()),
        Ok(AccessDecision::Deny { reason }) => {
            Err(ErrorStatus::forbidden(user, attributes, &reason))
        }
        Err(undecided) => Err(ErrorStatus::internal(undecided.to_string())),
    }
}

/// Returns true for a path that needs no authentication, as in the kube-apiserver: the version,
/// discovery and `OpenAPI`.
fn is_public_path(path: &str) -> bool {
    let root = path.split('/').nth(1).unwrap_or_default();
    path == "/version" || matches!(root, "api" | "apis" | "openapi")
}

fn is_probe_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

fn resource_attributes(requested: &ResourceRequest, query: &Query) -> Attributes {
    let has_selectors = matches!(requested.verb, "list" | "watch" | "deletecollection");
    // The kube-apiserver reviews no selectors for the deprecated paths of watches.
    let reviewed = if has_selectors && !requested.legacy_watch {
        ReviewedSelectors::of(query)
    } else {
        ReviewedSelectors::default()
    };
    let name = if requested.name.is_empty() {
        reviewed.name
    } else {
        requested.name.clone()
    };
    Attributes::Resource {
        verb: requested.verb.to_owned(),
        group: requested.group.clone(),
        version: requested.version.clone(),
        resource: requested.resource.clone(),
        subresource: requested.subresource.clone(),
        namespace: requested.namespace.clone(),
        name,
        fields: reviewed.fields,
        labels: reviewed.labels,
    }
}

/// Returns the name of an HTTP method, for metrics, log lines and reviews.
pub(super) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}
