//! The HTTP API: operations as Kubernetes objects. Input: requests, and a reader of the index for
//! each resource. Output: discovery, `OpenAPI`, get, list and watch, with the answers that the
//! kube-apiserver gives for a CRD. The API is read-only.
//!
//! ```text
//! listen ─▶ middleware (authenticate, authorize, limits) ─▶ probes │ discovery │ openapi
//!                                                         └▶ get │ list │ watch
//! request · accept · negotiate · options · select: parse the request
//! encode · table · status · respond · gzip · delivery: create and send the answer
//! connections · concurrency_limit: limit the load       request_log: log each request
//! ```
//!
//! Guarantees:
//!
//! - Discovery is public and answers from the start.
//! - A list is exactly the state at its version. A watch delivers exactly the changes after its
//!   version.
//! - A slow client does not affect other clients.
//! - No input of a client makes a handler panic, or makes the memory grow without a limit.

mod accept;
mod completeness;
mod concurrency_limit;
mod connections;
mod delivery;
pub mod discovery;
mod document;
mod encode;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod get;
mod gzip;
mod health;
mod line_cache;
mod list;
pub mod listen;
mod middleware;
mod negotiate;
pub mod openapi;
mod options;
mod peer_requests;
mod probes;
mod quoted;
mod request;
mod request_log;
pub mod resource;
mod respond;
mod select;
mod status;
mod table;
#[cfg(test)]
mod tests;
mod watch;

pub use connections::Connections;
pub use discovery::AdvertisedResource;
pub use health::Health;
pub use resource::Resource;
pub use status::ErrorStatus;

use crate::auth::{Authenticate, Authorize};
use crate::replicate::View;
use crate::rules::IncompleteRuleSets;
use crate::telemetry::Metrics;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use concurrency_limit::ConcurrencyLimit;
use http::{HeaderMap, StatusCode};
use ifo_api::completeness::Completeness;
use middleware::Admitted;
use request::{Query, Request, RequestTarget};
use respond::{indent, plain};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

/// Time limit of a request (`--request-timeout` of the kube-apiserver).
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The parameters of the router.
pub struct Server {
    /// The served resources.
    pub resources: Vec<Resource>,
    /// Authenticates requests.
    pub authenticate: Arc<dyn Authenticate>,
    /// Authorizes requests.
    pub authorize: Arc<dyn Authorize>,
    /// Reports the rule sets that may miss operations.
    pub completeness: Arc<dyn Completeness>,
    /// The state of this replica: its role, and how current its index is.
    pub view: View,
    /// The state of the rule sets, for other replicas.
    pub coverage: Arc<dyn Fn() -> IncompleteRuleSets + Send + Sync>,
    /// Readiness of this replica.
    pub health: Arc<Health>,
    /// Counts requests. `/metrics` serves it.
    pub metrics: Arc<Metrics>,
    /// The content of `/version`.
    pub version: VersionInfo,
    /// Resources that another router serves and that discovery lists, in a server that clients talk
    /// to directly. None for an aggregated server.
    pub direct: Option<&'static [AdvertisedResource]>,
    /// Ends all watches when it is cancelled. [`listen::serve`] gets the same token.
    pub shutdown: CancellationToken,
    /// Limits of concurrent requests and connections.
    pub limits: Limits,
}

/// Limits of concurrent requests and connections. A request above a limit gets a 429. A connection
/// may also be evicted for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests other than watches, until their answers have been sent. One user may have half of
    /// them. `system:masters` has no limit.
    pub requests: usize,
    /// Watches of all users.
    pub watches: usize,
    /// Watches of one user. For `system:masters` only the limit of all watches applies.
    pub watches_per_user: usize,
    /// Connections. A quarter is reserved for newcomers and an eighth for the front proxy. One user
    /// may have half of the rest from one address.
    pub connections: usize,
}

impl Limits {
    /// The smallest number of connections. With fewer, the reserved places would leave none for
    /// users.
    pub const LEAST_CONNECTIONS: usize = 8;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A request takes some milliseconds. More than 100 are in flight only if clients read
            // their answers slowly. Each may have 150 KB of its answer in memory: 15 MB in total.
            // docs/architecture.md has the sum.
            requests: 100,
            // Each may have 50 KB that its client has not read: 25 MB in total.
            watches: 500,
            // A dashboard or a controller with many informers opens fewer. Three users cannot take
            // all places.
            watches_per_user: 125,
            // The aggregator needs a few connections, each with up to a thousand streams. Each
            // connection may have 200 KB of a request that has not been authenticated: 50 MB in
            // total.
            connections: 256,
        }
    }
}

/// Largest number of requests whose bearer token is being verified. Their users are not known yet,
/// so no user's share can limit them. A token that is in the cache does not count, and requests
/// through the front proxy have no token.
const MAX_AUTHENTICATING: usize = 200;

/// Largest number of refusals that are being sent. Each has some 5 KB, or 20 KB if JSON escapes
/// every character.
const MAX_REFUSALS: usize = 300;

/// Largest number of answers to public paths that are being sent. Each takes some 5 KB, because the
/// bodies are short, or one copy is shared by all answers.
const MAX_PUBLIC: usize = 1000;

/// The content of `/version`.
#[derive(Clone, Debug, Default)]
pub struct VersionInfo {
    /// Semantic version, with or without a leading `v`.
    pub version: String,
    /// The commit of the build, or empty.
    pub commit: String,
    /// The time of the build in RFC 3339, or empty.
    pub built: String,
}

/// The state that all requests share.
struct ServerState {
    server: Server,
    resources: Vec<Arc<Resource>>,
    arriving: Semaphore,
    requests: ConcurrencyLimit,
    watches: ConcurrencyLimit,
    replicas: ConcurrencyLimit,
    refusals: Arc<Semaphore>,
    public_answers: Arc<Semaphore>,
}

impl ServerState {
    /// The resource that a request names, if it is served.
    fn resource(&self, request: &Request) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| {
            resource.group == request.group
                && resource.version == request.version
                && resource.plural == request.resource
        })
    }
}

/// All routes, behind the middleware.
pub fn router(server: Server) -> Router {
    let discovery = discovery::routes(&server.resources, server.direct).with_state(());
    let openapi = openapi::routes(&server.resources).with_state(());
    let shared = Arc::new(ServerState {
        resources: server.resources.iter().cloned().map(Arc::new).collect(),
        arriving: Semaphore::new(MAX_AUTHENTICATING),
        requests: ConcurrencyLimit::new(server.limits.requests, server.limits.requests.div_ceil(2)),
        watches: ConcurrencyLimit::new(server.limits.watches, server.limits.watches_per_user),
        replicas: ConcurrencyLimit::new(
            peer_requests::MAX_FOLLOWER_STREAMS,
            peer_requests::MAX_FOLLOWER_STREAMS,
        ),
        refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
        public_answers: Arc::new(Semaphore::new(MAX_PUBLIC)),
        server,
    });
    let routes = Router::new()
        .merge(probes::routes())
        .merge(peer_requests::routes())
        .merge(discovery)
        .merge(openapi)
        .fallback(answer)
        .method_not_allowed_fallback(async || ErrorStatus::method_not_allowed().into_response())
        .with_state(Arc::clone(&shared))
        .layer(from_fn_with_state(shared, middleware::process_request));
    // This is outside of the router, because a layer would run after the route was chosen.
    Router::new().fallback_service(MapRequest::new(routes, without_slash))
}

/// Removes slashes at the end of the path, which upstream also accepts.
fn without_slash(mut request: http::Request<Body>) -> http::Request<Body> {
    let path = request.uri().path();
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() < path.len() && !trimmed.is_empty() {
        let query = request.uri().query();
        let target = query.map_or_else(|| trimmed.to_owned(), |query| format!("{trimmed}?{query}"));
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = target.parse().ok();
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Answers requests for paths that are not fixed.
async fn answer(
    State(shared): State<Arc<ServerState>>,
    Extension(admitted): Extension<Admitted>,
    headers: HeaderMap,
) -> Response {
    match &admitted.asked {
        RequestTarget::Path(path) if path.starts_with("/api") => {
            ErrorStatus::no_resource().into_response()
        }
        RequestTarget::Path(_) => unknown_path(&shared),
        RequestTarget::Resource(request) => resource(&shared, request, &admitted, &headers)
            .await
            .unwrap_or_else(|failure| {
                failure.response(negotiate::negotiate_error(&headers, &admitted.query))
            }),
    }
}

async fn resource(
    shared: &ServerState,
    request: &Request,
    admitted: &Admitted,
    headers: &HeaderMap,
) -> Result<Response, ErrorStatus> {
    let resource = shared
        .resource(request)
        .filter(|resource| fits(resource, request))
        .ok_or_else(ErrorStatus::no_resource)?;
    if !request.subresource.is_empty() {
        // A custom resource without this subresource answers the same to all verbs.
        return Err(resource.no_object(&request.name));
    }
    let term = peer_requests::term_of(shared, headers)?;
    let is_open = shared.server.health.synced();
    if is_open && reads_newest(request, &admitted.query) {
        shared.server.view.confirm().await;
    }
    let mut answered = match request.verb {
        "get" | "list" | "watch" if !is_open => Err(ErrorStatus::initializing()),
        "get" => get::get(resource, request, &admitted.query, headers).await,
        "list" => list::list(resource, request, &admitted.query, headers).await,
        "watch" => watch::watch(
            resource,
            request,
            &admitted.query,
            headers,
            match term {
                Some(term) => (term, true),
                None => (shared.server.shutdown.clone(), false),
            },
            admitted.watch_slot.clone(),
        ),
        "" => Err(ErrorStatus::method_not_allowed()),
        verb => Err(ErrorStatus::not_supported(
            verb,
            resource.group,
            resource.plural,
        )),
    };
    if let Ok(response) = &mut answered
        && matches!(request.verb, "list" | "watch")
    {
        let user = admitted.user.as_ref();
        completeness::warn(shared, request, &admitted.query, user, response).await;
    }
    answered
}

/// Returns true if the newest state is requested. A follower then first asks the leader for its
/// version. Version 0 requests any state, and a continue token the state of its first page.
fn reads_newest(request: &Request, query: &Query) -> bool {
    matches!(request.verb, "get" | "list" | "watch")
        && query.text("resourceVersion").is_empty()
        && query.text("continue").is_empty()
}

/// Returns true if the path has a namespace exactly if the resource is namespaced.
fn fits(resource: &Resource, request: &Request) -> bool {
    if resource.namespaced {
        // The old paths can also watch a name in all namespaces.
        request.name.is_empty() || !request.namespace.is_empty() || request.legacy_watch
    } else {
        request.namespace.is_empty()
    }
}

/// 404 with a list of the existing paths.
fn unknown_path(shared: &ServerState) -> Response {
    let mut paths = vec!["/apis".to_owned()];
    for resource in &shared.resources {
        paths.push(format!("/apis/{}", resource.group));
        paths.push(format!("/apis/{}", resource.api_version()));
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    paths.sort();
    paths.dedup();
    let json = serde_json::json!({ "paths": paths }).to_string();
    let mut response = plain(
        StatusCode::NOT_FOUND,
        String::from_utf8_lossy(&indent(json.as_bytes())),
    );
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}
