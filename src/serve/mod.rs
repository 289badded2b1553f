//! HTTP: the operations as Kubernetes objects. Enters: requests, and a reader of the
//! index for each resource. Leaves: discovery, `OpenAPI`, get, list and watch, as
//! kube-apiserver answers them for a CRD, read-only.
//!
//! ```text
//! listen ─▶ access (authenticate, authorize, limits) ─▶ probes │ discovery │ openapi
//!                                                     └▶ get │ list │ watch
//! request · accept · negotiate · options · select: what was asked
//! encode · table · status · respond: the answer       gzip · delivery: its way back
//! request_log: one line for each request
//! connections: who is connected      places: who may have how much
//! ```
//!
//! Promises: discovery answers from the first moment and to everybody; a list is exactly
//! the state at its version; a watch delivers exactly what came after; a slow client
//! costs nobody else anything; nothing a client sends makes a handler panic, or the server
//! take memory without bound.

mod accept;
mod access;
mod completeness;
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
mod lines;
mod list;
pub mod listen;
mod negotiate;
pub mod openapi;
mod options;
mod peer;
mod places;
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
use crate::rules::Coverage;
use crate::telemetry::Metrics;
use access::Admitted;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use http::{HeaderMap, StatusCode};
use ifo_api::completeness::Completeness;
use places::Places;
use request::{Asked, Query, Request};
use respond::{indent, plain};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

/// Longest time until a request is answered (kube-apiserver's `--request-timeout`).
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// All that the router needs.
pub struct Server {
    /// What is served.
    pub resources: Vec<Resource>,
    /// Finds out who asks.
    pub authenticate: Arc<dyn Authenticate>,
    /// Decides whether they may.
    pub authorize: Arc<dyn Authorize>,
    /// Says which rule sets may miss operations.
    pub completeness: Arc<dyn Completeness>,
    /// This replica, and how current it is.
    pub view: View,
    /// What other replicas are told of the rule sets.
    pub coverage: Arc<dyn Fn() -> Coverage + Send + Sync>,
    /// Whether there is anything to serve yet, or still.
    pub health: Arc<Health>,
    /// Where requests are counted, and what `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// What `/version` shows.
    pub version: VersionInfo,
    /// Resources that another router answers for, and that discovery lists, in a server that
    /// clients talk to directly. None for an aggregated server.
    pub direct: Option<&'static [AdvertisedResource]>,
    /// Ends all watches when cancelled; the same as [`listen::serve`] gets.
    pub shutdown: CancellationToken,
    /// How much at once.
    pub limits: Limits,
}

/// How much is answered at once. What is more gets a 429, and connections may be evicted
/// for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests other than watches, until their answers are sent. One user may have half
    /// of them, `system:masters` any number.
    pub requests: usize,
    /// Watches of all users together.
    pub watches: usize,
    /// Watches of one user. `system:masters` may have as many as there are.
    pub watches_per_user: usize,
    /// Connections. A quarter is reserved for newcomers, an eighth for the front proxy.
    /// One user may have half of the rest from one address.
    pub connections: usize,
}

impl Limits {
    /// The fewest connections: with fewer, what is reserved would leave no places for users.
    pub const LEAST_CONNECTIONS: usize = 8;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A request takes some milliseconds, so that more than these are in flight only
            // while clients are slow to take their answers. Each may have some 150 KB of
            // its answer in memory: 15 MB together. docs/architecture.md has the sum.
            requests: 100,
            // Each may have some 50 KB that its client is slow to take: 25 MB together.
            watches: 500,
            // More than a dashboard or a controller with many informers opens, so that
            // no three users can take all places.
            watches_per_user: 125,
            // The aggregator needs a few, each with up to a thousand streams. Each may hold
            // 200 KB of a request that nobody has seen yet: 50 MB together.
            connections: 256,
        }
    }
}

/// Requests whose bearer token is being looked at: strangers, who may be many. Tokens
/// that were seen before take no time, and the front proxy's users have none.
const ARRIVING: usize = 200;

/// Refusals on their way at once. Each has some 5 KB, or 20 KB of what JSON escapes.
const REFUSALS: usize = 300;

/// Answers on their way at once to what everybody may ask for. Their bodies are shared, or
/// short; a stream takes some 5 KB.
const OPEN: usize = 1000;

/// What `/version` shows.
#[derive(Clone, Debug, Default)]
pub struct VersionInfo {
    /// Semantic version, with or without a leading `v`.
    pub version: String,
    /// Commit it was built from, or empty.
    pub commit: String,
    /// When it was built, RFC 3339, or empty.
    pub built: String,
}

/// The server, and what its requests share.
struct ServerState {
    server: Server,
    resources: Vec<Arc<Resource>>,
    arriving: Semaphore,
    requests: Places,
    watches: Places,
    replicas: Places,
    refusals: Arc<Semaphore>,
    open: Arc<Semaphore>,
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

/// All routes, with the way in before them.
pub fn router(server: Server) -> Router {
    let discovery = discovery::routes(&server.resources, server.direct).with_state(());
    let openapi = openapi::routes(&server.resources).with_state(());
    let shared = Arc::new(ServerState {
        resources: server.resources.iter().cloned().map(Arc::new).collect(),
        arriving: Semaphore::new(ARRIVING),
        requests: Places::new(server.limits.requests, server.limits.requests.div_ceil(2)),
        watches: Places::new(server.limits.watches, server.limits.watches_per_user),
        replicas: Places::new(peer::PLACES, peer::PLACES),
        refusals: Arc::new(Semaphore::new(REFUSALS)),
        open: Arc::new(Semaphore::new(OPEN)),
        server,
    });
    let routes = Router::new()
        .merge(probes::routes())
        .merge(peer::routes())
        .merge(discovery)
        .merge(openapi)
        .fallback(answer)
        .method_not_allowed_fallback(async || ErrorStatus::method_not_allowed().into_response())
        .with_state(Arc::clone(&shared))
        .layer(from_fn_with_state(shared, access::admit));
    // Around the routes and not a layer of theirs, which would run after the choice.
    Router::new().fallback_service(MapRequest::new(routes, without_slash))
}

/// The request without slashes at the end of its path, which upstream tolerates too.
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

/// Answers what is not a fixed path.
async fn answer(
    State(shared): State<Arc<ServerState>>,
    Extension(admitted): Extension<Admitted>,
    headers: HeaderMap,
) -> Response {
    match &admitted.asked {
        Asked::Path(path) if path.starts_with("/api") => ErrorStatus::no_resource().into_response(),
        Asked::Path(_) => unknown_path(&shared),
        Asked::Resource(request) => resource(&shared, request, &admitted, &headers)
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
        // As a custom resource without that subresource answers, to all verbs.
        return Err(resource.no_object(&request.name));
    }
    let term = peer::term_of(shared, headers)?;
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
            admitted.seat.clone(),
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

/// Whether the newest state is asked for: a replica that follows finds out first which that
/// is. Version 0 asks for any state, and a continue token for that of its first page.
fn reads_newest(request: &Request, query: &Query) -> bool {
    matches!(request.verb, "get" | "list" | "watch")
        && query.text("resourceVersion").is_empty()
        && query.text("continue").is_empty()
}

/// Whether the path has the form that the resource's scope asks for.
fn fits(resource: &Resource, request: &Request) -> bool {
    if resource.namespaced {
        // The old paths watch a name in all namespaces, too.
        request.name.is_empty() || !request.namespace.is_empty() || request.legacy_watch
    } else {
        request.namespace.is_empty()
    }
}

/// 404 with the paths that there are.
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
