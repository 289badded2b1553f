//! Admits or refuses requests: authenticates the user, applies the limits of requests and watches,
//! and authorizes the request. Each limit has a number of slots. An admitted request takes a slot.

use super::ServerState;
use super::answer::error_status::ErrorStatus;
use super::concurrency_limit::RequestingClient;
use super::connection::connections::{ConnectionClass, classify};
use super::connection::websocket;
use super::request::selectors::ReviewedSelectors;
use super::request::{self, Query};
use crate::auth::{
    ANONYMOUS_USER, AccessDecision, Attributes, PeerCertificates, Unauthenticated, User,
};
use http::header;
use http::request::Parts;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Time between two authorizations of an open watch. A decision can be cached for 10 s, so a user
/// who loses the right to watch gets no further events after one minute.
const AUTHORIZATION_INTERVAL: Duration = Duration::from_secs(50);

/// A slot in a limit. The slot becomes free when it is dropped.
pub(super) type Slot = Box<dyn Any + Send>;

/// The parsed method, URL and headers of a request.
#[derive(Debug)]
pub struct Requested {
    /// The resource with the verb, or the path that belongs to no resource.
    pub attributes: Attributes,
    /// The options in the query.
    pub query: Query,
    /// True if the client asks for an upgrade to WebSocket. Only watches support this upgrade.
    pub is_websocket: bool,
}

impl Requested {
    /// Parses the request. Moves the token of a WebSocket request to the header `Authorization`.
    pub(super) fn of(parts: &mut Parts) -> Result<Self, ErrorStatus> {
        let query = Query::of(&parts.uri);
        let is_websocket = websocket::is_requested(parts);
        if is_websocket {
            websocket::move_token_to_authorization(&mut parts.headers)
                .map_err(|Unauthenticated| ErrorStatus::unauthorized())?;
        }
        Ok(Self {
            attributes: request::parse(&parts.method, &parts.uri, &query)?,
            query,
            is_websocket,
        })
    }

    /// Returns true for a path that needs no authentication, and for a health probe.
    pub(super) fn is_public_or_probe(&self) -> bool {
        self.is_path(is_public_path) || self.is_path(is_probe_path)
    }

    /// Returns true if the request is a watch.
    pub(super) fn is_watch(&self) -> bool {
        matches!(&self.attributes, Attributes::Resource(it) if it.verb == "watch")
    }

    fn is_path(&self, matches: fn(&str) -> bool) -> bool {
        matches!(&self.attributes, Attributes::NonResource { path, .. } if matches(path))
    }

    /// Returns the attributes with the selectors of the query.
    fn reviewed(&self) -> Attributes {
        let mut attributes = self.attributes.clone();
        if let Attributes::Resource(it) = &mut attributes
            // The kube-apiserver reviews no selectors for the deprecated paths of watches.
            && matches!(it.verb, "list" | "watch" | "deletecollection") && !it.legacy_watch
        {
            let selectors = ReviewedSelectors::of(&self.query);
            if it.name.is_empty() {
                it.name = selectors.name;
            }
            it.field_selector.requirements = selectors.fields;
            it.label_selector.requirements = selectors.labels;
        }
        attributes
    }
}

/// Authenticates the request, classifies its connection, takes a slot for the request, and
/// authorizes the request. Stores the user in `user`. Returns the slot.
///
/// A request for a public path and a health probe take no slot. If no slot is free, an
/// administrator's request other than a watch is admitted without a slot.
pub(super) async fn admit(
    shared: &ServerState,
    parts: &Parts,
    request: &Requested,
    user: &mut Option<User>,
) -> Result<Option<Slot>, ErrorStatus> {
    let certificates: PeerCertificates = parts.extensions.get().cloned().unwrap_or_default();
    let authenticate = &shared.server.authenticate;
    // A connection of a kube-apiserver counts in the class `FrontProxy`, and not for the users
    // whose requests it carries. This also applies if the connection carries only requests for
    // discovery.
    let is_front_proxy = authenticate.is_front_proxy(&certificates);
    if is_front_proxy {
        classify(parts, ConnectionClass::FrontProxy, None);
    }
    // Public paths need no token. But an invalid token causes a 401 on every path, so a token is
    // always verified.
    let has_token = parts.headers.contains_key(header::AUTHORIZATION);
    if request.is_path(is_public_path) && !has_token {
        return Ok(None);
    }
    // Verifying a token takes time and memory, so the number of concurrent verifications is
    // limited.
    let token_review = has_token.then(|| shared.load.token_reviews.try_acquire());
    let token_review = token_review
        .transpose()
        .map_err(|_| ErrorStatus::too_many_requests("too many bearer tokens are being verified"))?;
    let found = authenticate.authenticate(&certificates, &parts.headers);
    let found = found
        .await
        .map_err(|Unauthenticated| ErrorStatus::unauthorized())?;
    let user = &*user.insert(found);
    drop(token_review);
    // The kube-apiserver has already processed these headers. Without this error, an administrator
    // who connects directly would get an answer with the administrator's own rights.
    let mut headers = parts.headers.keys();
    if !is_front_proxy && headers.any(|name| name.as_str().starts_with("impersonate-")) {
        let reason = "this server does not impersonate users, but the kube-apiserver does";
        return Err(ErrorStatus::forbidden(user, &request.attributes, reason));
    }
    let access_of_peer = shared.server.hooks.required_access_of_peer(&parts.headers);
    if let Some(required) = &access_of_peer {
        authorize(shared, user, required).await?;
    }
    if request.is_public_or_probe() {
        return Ok(None);
    }
    // A connection without an authenticated user stays a newcomer.
    if access_of_peer.is_some() {
        classify(parts, ConnectionClass::FrontProxy, None);
    } else if user.name != ANONYMOUS_USER {
        classify(parts, ConnectionClass::User, Some(user));
    }
    let slot = take_slot(shared, request, user, access_of_peer.is_some())?;
    authorize(shared, user, &request.reviewed()).await?;
    Ok(slot)
}

/// Takes a slot in the limit of watches, of requests or of replicas' requests.
fn take_slot(
    shared: &ServerState,
    request: &Requested,
    user: &User,
    is_from_replica: bool,
) -> Result<Option<Slot>, ErrorStatus> {
    let client = if is_from_replica {
        RequestingClient::trusted()
    } else {
        let namespace = match &request.attributes {
            Attributes::Resource(resource) => &*resource.namespace,
            Attributes::NonResource { .. } => "",
        };
        RequestingClient::of(user, namespace.is_empty() && !shared.is_filtered)
    };
    let is_watch = request.is_watch();
    let limit = match (is_from_replica, is_watch) {
        (true, _) => &shared.load.replicas,
        (false, true) => &shared.load.watches,
        (false, false) => &shared.load.requests,
    };
    let is_websocket = is_watch && request.is_websocket;
    let websocket = is_websocket.then(|| shared.load.websockets.acquire(&client));
    let websocket = websocket
        .transpose()
        .map_err(ErrorStatus::too_many_requests)?;
    let counted = is_watch.then(|| shared.server.metrics.watcher());
    match limit.acquire(&client) {
        Ok(slot) => Ok(Some(Box::new((counted, slot, websocket)))),
        // Other users must not be able to lock administrators out. So an administrator's request is
        // admitted even if no slot is free. An administrator's watch is different, because the
        // memory for watches is limited.
        Err(_) if user.is_administrator() && !is_watch => Ok(None),
        Err(reached) => Err(ErrorStatus::too_many_requests(reached)),
    }
}

/// Authorizes a request with these attributes. Returns a 403 if the user may not send the request,
/// and a 500 if the authorizer cannot decide.
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

/// Authorizes the request of an open watch regularly. Returns the error for the client when the
/// user may no longer watch. If the authorizer cannot decide, the watch continues until the next
/// attempt. So a restart of the kube-apiserver does not end all watches.
pub(super) fn wait_until_refused(
    shared: Arc<ServerState>,
    request: Arc<Requested>,
    user: User,
) -> impl Future<Output = ErrorStatus> + Send {
    let mut next = Instant::now() + AUTHORIZATION_INTERVAL;
    async move {
        loop {
            sleep_until(next).await;
            next = Instant::now() + AUTHORIZATION_INTERVAL;
            let attributes = request.reviewed();
            match shared.server.authorize.authorize(&user, &attributes).await {
                Ok(AccessDecision::Deny { reason }) => {
                    return ErrorStatus::forbidden(&user, &attributes, &reason);
                }
                Ok(AccessDecision::Allow) => {}
                Err(undecided) => tracing::debug!(
                    %undecided,
                    "an open watch could not be authorized again; it goes on until the next attempt"
                ),
            }
        }
    }
}

/// Returns true for a path that needs no authentication: the version, discovery and `OpenAPI`. The
/// answers on these paths contain no objects. A kube-apiserver with the default RBAC rules is
/// stricter: it gives anonymous users only the version.
fn is_public_path(path: &str) -> bool {
    let root = path.split('/').nth(1).unwrap_or_default();
    path == "/version" || matches!(root, "api" | "apis" | "openapi")
}

fn is_probe_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}
