//! Admits or refuses requests: authenticates the user, applies the limits of connections, requests
//! and watches, and authorizes the request. Each limit has a number of slots. An admitted
//! connection or request takes a slot. Input: a request. Output: the user and the slot of the
//! request, or an error answer.

use crate::auth::{AccessDecision, Attributes, Unauthenticated, User};
use crate::serve::ServerState;
use crate::serve::concurrency_limit::{RequestSlot, RequestingClient};
use crate::serve::connection_limits::{self, ConnectionClass, ConnectionRefused};
use crate::serve::content_negotiation::negotiate_error;
use crate::serve::create_responses::{SelfDefence, plain};
use crate::serve::error_status::ErrorStatus;
use crate::serve::quoting::{Quoted, clip};
use crate::serve::request::{Query, RequestTarget, ResourceRequest};
use crate::serve::request_log::RequestLogLine;
use crate::serve::selectors::ReviewedSelectors;
use crate::serve::websocket;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use std::any::Any;
use std::sync::Arc;

/// Largest length of a path in a message, in bytes. A longer path is cut off.
const MAX_PATH: usize = 512;

/// The message of a 429 if no slot is available for a connection.
const TOO_MANY_CONNECTIONS: &str = "too many connections (--max-connections)";

/// The message of a 429 if [`MAX_AUTHENTICATING`](crate::serve::MAX_AUTHENTICATING) is reached.
const TOO_MANY_TOKENS: &str = "too many bearer tokens are being verified";

/// A slot in the limit of watches. The stream of a watch keeps its slot until the watch ends.
pub type WatchSlot = Arc<dyn Any + Send + Sync>;

/// The properties of an admitted request. The handler gets them as an extension of the request.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The target of the request: a resource with a verb, or a path that belongs to no resource.
    pub requested: RequestTarget,
    /// The options in the query of the request.
    pub query: Arc<Query>,
    /// True if the client asks for an upgrade to WebSocket. Only watches support this upgrade.
    pub is_websocket: bool,
    /// The slot in the limit of watches. None if the request is not a watch.
    pub watch_slot: Option<WatchSlot>,
    /// The authenticated user. None for public paths (paths without authentication).
    pub user: Option<User>,
}

/// The user and the slots of an admitted request.
#[derive(Default)]
pub(super) struct Admission {
    /// The slot of a watch, in the limit of watches or in the limit of replicas' requests. None if
    /// the request is not a watch.
    pub(super) watch_slot: Option<WatchSlot>,
    /// The slot of any other request, in the limit of requests or in the limit of replicas'
    /// requests. None for watches, public paths and health probes, and for an administrator's
    /// request if no slot is free.
    pub(super) request_slot: Option<RequestSlot>,
    /// True if the request is for a public path or a health probe. Such a request has neither of
    /// the slots above.
    pub(super) is_public: bool,
    /// The authenticated user. None for public paths.
    pub(super) user: Option<User>,
}

impl Admission {
    fn public() -> Self {
        Self {
            is_public: true,
            ..Self::default()
        }
    }
}

/// Authenticates the request, takes a slot for its connection and a slot for the request, and
/// authorizes the request. Returns an error answer if the request is refused.
pub(super) async fn admit(
    shared: &Arc<ServerState>,
    (requested, query): (&RequestTarget, &Query),
    parts: &Parts,
    line: &mut RequestLogLine,
) -> Result<Admission, Response> {
    let is_public = matches!(requested, RequestTarget::Path(path) if is_public_path(path));
    let is_probe = matches!(requested, RequestTarget::Path(path) if is_probe_path(path));
    let has_token = parts.headers.contains_key(header::AUTHORIZATION);
    let certificates = parts.extensions.get().cloned().unwrap_or_default();
    // The class of a connection determines which slots it may use. The certificate alone determines
    // the class in two cases:
    //
    // - The certificate belongs to the front proxy: a kube-apiserver that forwards the requests of
    //   users. Its connections belong to the front proxy, and not to these users. This includes the
    //   connections that a kube-apiserver uses only for discovery.
    // - The request is for a public path and has no token. Such a request has no authenticated
    //   user.
    let certificate_class =
        ConnectionClass::of_holder(&shared.server.authenticate.certificate_holder(&certificates));
    let too_many_connections =
        |ConnectionRefused| overload(TOO_MANY_CONNECTIONS.to_owned(), (parts, query));
    if certificate_class == ConnectionClass::FrontProxy || (is_public && !has_token) {
        connection_limits::admit(parts, certificate_class).map_err(too_many_connections)?;
    }
    // Public paths need no token. But an invalid token causes a 401 on every path, so a token is
    // always verified.
    if is_public && !has_token {
        return Ok(Admission::public());
    }
    // Verifying a token takes time and memory, so the number of concurrent verifications is
    // limited.
    let token_review = if has_token {
        let place = shared.token_reviews.try_acquire();
        Some(place.map_err(|_| overload(TOO_MANY_TOKENS.to_owned(), (parts, query)))?)
    } else {
        None
    };
    let authenticate = &shared.server.authenticate;
    let user = authenticate.authenticate(&certificates, &parts.headers);
    let user = user.await.map_err(|Unauthenticated| {
        // A connection is a newcomer until its user is known. This connection now moves from the
        // newcomers to the anonymous user. So clients without valid credentials cannot use up the
        // slots that are reserved for newcomers.
        let _ = connection_limits::admit(parts, ConnectionClass::anonymous());
        error_response(ErrorStatus::unauthorized(), &parts.headers, query)
    })?;
    line.set_user(&user);
    drop(token_review);
    let required = shared.server.hooks.required_access_of_peer(&parts.headers);
    let is_from_replica = required.is_some();
    if let Some(required) = required {
        // The connection of a replica gets the class of the front proxy, which has reserved slots.
        // Any client can claim to be a replica, so the server first checks the access of the user.
        authorize(shared, &user, &required, (parts, query)).await?;
    }
    if !is_probe {
        let class = if is_from_replica {
            ConnectionClass::FrontProxy
        } else {
            ConnectionClass::of_user(&user)
        };
        connection_limits::admit(parts, class).map_err(too_many_connections)?;
    }
    if is_public || is_probe {
        return Ok(Admission {
            user: Some(user).filter(|_| is_probe),
            ..Admission::public()
        });
    }
    let is_watch =
        matches!(requested, RequestTarget::Resource(resource) if resource.verb == "watch");
    let limit = match (is_from_replica, is_watch) {
        (true, _) => &shared.replicas,
        (false, true) => &shared.watches,
        (false, false) => &shared.requests,
    };
    // Other users must not be able to lock administrators out. So an administrator's request is
    // admitted even if no slot is free. An administrator's watch is different, because the memory
    // for watches is limited: the watch is refused if the total limit is reached. The limits of
    // each client do not apply to administrators.
    let client = if is_from_replica {
        RequestingClient::trusted()
    } else {
        RequestingClient::of(&user, is_for_all_namespaces(requested))
    };
    let websocket_slot = if is_watch && websocket::is_requested(parts) {
        let slot = shared.websockets.acquire(&client);
        Some(slot.map_err(|reached| overload(reached.to_string(), (parts, query)))?)
    } else {
        None
    };
    let (watch_slot, request_slot) = match limit.acquire(&client) {
        Ok(slot) if is_watch => {
            let counted = shared.server.metrics.watcher();
            let watch_slot: WatchSlot = Arc::new((counted, slot, websocket_slot));
            (Some(watch_slot), None)
        }
        Ok(slot) => (None, Some(slot)),
        Err(_) if user.is_administrator() && !is_watch => (None, None),
        Err(reached) => return Err(overload(reached.to_string(), (parts, query))),
    };
    let attributes = attributes(requested, query, &parts.method);
    authorize(shared, &user, &attributes, (parts, query)).await?;
    Ok(Admission {
        watch_slot,
        request_slot,
        is_public: false,
        user: Some(user),
    })
}

/// Creates a 429 that names the limit in its message.
fn overload(limit: String, (parts, query): (&Parts, &Query)) -> Response {
    let refusal = ErrorStatus::too_many_requests(limit);
    let mut response = error_response(refusal, &parts.headers, query);
    response.extensions_mut().insert(SelfDefence);
    response
}

/// Checks if the user has the access `attributes`. Returns a 403 if the user does not have this
/// access, and a 500 if the authorizer cannot decide.
async fn authorize(
    shared: &ServerState,
    user: &User,
    attributes: &Attributes,
    (parts, query): (&Parts, &Query),
) -> Result<(), Response> {
    match shared.server.authorize.authorize(user, attributes).await {
        Ok(AccessDecision::Allow) => Ok(()),
        Ok(AccessDecision::Deny { reason }) => {
            let failure = ErrorStatus::forbidden(user, attributes, &reason);
            Err(error_response(failure, &parts.headers, query))
        }
        Err(undecided) => {
            let mut path = Quoted(parts.uri.path()).to_string();
            clip(&mut path, MAX_PATH);
            let message = format!("Internal Server Error: {path}: {undecided}");
            Err(plain(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

/// Returns true if the path needs no authentication: discovery, `OpenAPI` and the version. The
/// answers on these paths are the same for all users.
///
/// Discovery must also work while the server cannot authenticate users: while the discovery of an
/// aggregated API fails, Kubernetes cannot delete any namespace in the cluster.
fn is_public_path(path: &str) -> bool {
    path == "/version"
        || ["/api", "/apis", "/openapi"].iter().any(|root| {
            path.strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

fn is_probe_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

/// Returns true if only users with rights in all namespaces may send the request. This includes
/// requests for no resource, such as `/metrics`.
fn is_for_all_namespaces(requested: &RequestTarget) -> bool {
    match requested {
        RequestTarget::Path(_) => true,
        RequestTarget::Resource(resource) => resource.namespace.is_empty(),
    }
}

fn attributes(requested: &RequestTarget, query: &Query, method: &Method) -> Attributes {
    match requested {
        RequestTarget::Path(path) => Attributes::NonResource {
            path: path.clone(),
            verb: method_name(method).to_owned(),
        },
        RequestTarget::Resource(resource) => resource_attributes(resource, query),
    }
}

/// Returns the attributes of the `SubjectAccessReview` for a request.
fn resource_attributes(requested: &ResourceRequest, query: &Query) -> Attributes {
    // For the deprecated paths with `/watch/`, the `SubjectAccessReview` gets no selectors.
    let has_selectors = matches!(requested.verb, "list" | "watch" | "deletecollection");
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

/// Returns the error in a syntax that the client accepts.
pub(super) fn error_response(failure: ErrorStatus, headers: &HeaderMap, query: &Query) -> Response {
    failure.response(negotiate_error(headers, query))
}

/// Returns the method in lower case, or `other` for a method that Kubernetes does not use.
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
