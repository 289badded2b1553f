//! The HTTP API. It serves operations (such as the migration of a VM) as read-only Kubernetes
//! objects. Input: HTTP requests, and for each resource a reader of the index, which contains the
//! objects in memory. Output: the answers to discovery, `OpenAPI`, get, list and watch. These
//! answers are the same as the answers of a kube-apiserver for custom resources.
//!
//! ```text
//! listen ─▶ middleware (authenticate, authorize, limits) ─▶ probes │ discovery │ openapi
//!                                                         └▶ get │ list │ watch
//! request · accept_header · content_negotiation · list_options · selectors: parse the request
//! encode_objects · table · error_status · response_syntax · gzip: create the answer
//! delivery: send the answer, and abort it if the client reads too slowly
//! connections · concurrency_limit: limit the load       request_log: log each request
//! ```
//!
//! Guarantees:
//!
//! - Discovery needs no authentication, and works as soon as the server listens.
//! - A list returns exactly the state at its resourceVersion. A watch delivers exactly the changes
//!   after its resourceVersion.
//! - A slow client does not slow down other clients.
//! - No request makes a handler panic, or makes the memory grow without a limit.

mod accept_header;
mod compare_pace;
mod concurrency_limit;
mod connection_limits;
mod content_negotiation;
mod create_responses;
mod delivery;
pub mod discovery;
mod encode_objects;
mod error_status;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod gate_webhook;
mod get;
mod gzip;
mod health;
mod incomplete_warning;
mod list;
mod list_options;
pub mod listen;
mod middleware;
pub mod openapi;
mod peer_requests;
mod quoting;
mod readiness;
mod request;
mod request_log;
mod selectors;
pub mod served_resources;
mod static_document;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod watch;
mod websocket;

pub use connection_limits::Connections;
pub use discovery::AdvertisedResource;
pub use error_status::ErrorStatus;
pub use readiness::Readiness;
pub use request::{Query, ResourceRequest, verb};
pub use served_resources::{Resource, SharedShortNames};

use crate::auth::{Authenticate, Authorize};
use crate::replicate::ReplicaStatus;
use crate::telemetry::Metrics;
use crate::tracker_task::ReadGaps;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use concurrency_limit::{ConcurrencyLimit, SlotCounts};
use create_responses::{indent, plain};
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode};
use ifo_api::{Collection, Text};
use middleware::Admitted;
use request::RequestTarget;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

/// Time limit of a request that is not a watch. The kube-apiserver's flag `--request-timeout` has
/// the same default.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The parameters of [`router`].
pub struct ServerParameters {
    /// The served resources.
    pub resources: Vec<Resource>,
    /// Authenticates requests.
    pub authenticate: Arc<dyn Authenticate>,
    /// Authorizes requests.
    pub authorize: Arc<dyn Authorize>,
    /// The role of this replica, and the age of the data in its index. One replica, the leader,
    /// detects operations. The other replicas, the followers, copy the leader's index.
    pub replica_status: ReplicaStatus,
    /// Returns the rule sets that may miss operations now, on the leader. The task that writes them
    /// to the index runs on the thread that evaluates rules. So the index does not have them yet
    /// while this thread is blocked. On a follower, the result has no rule sets.
    pub read_gaps: ReadGaps,
    /// The namespace of operations on cluster-scoped objects.
    pub cluster_namespace: Text,
    /// The readiness of this replica.
    pub readiness: Arc<Readiness>,
    /// The metrics that `/metrics` serves. The router counts requests in them.
    pub metrics: Arc<Metrics>,
    /// The content of `/version`.
    pub version: VersionInfo,
    /// Resources that another router serves, but that discovery must list. Only the demo has such
    /// resources, such as VirtualMachines. On a cluster, the kube-apiserver serves and lists them.
    pub served_by_other_router: Option<&'static [AdvertisedResource]>,
    /// When this token is cancelled, all watches end, except the watches of other replicas (see
    /// `peer_requests`). [`listen::serve`] gets the same token.
    pub shutdown: CancellationToken,
    /// The limits of concurrent requests and connections.
    pub limits: Limits,
    /// True if the admission webhook is served.
    pub gate_webhook: bool,
}

/// Limits of concurrent requests and connections. A request above a limit gets a 429. If there are
/// too many connections, the server closes (evicts) an older connection, or refuses the new
/// connection at its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent requests other than watches. A request counts until its answer
    /// has been sent. This limit never refuses a request of a member of `system:masters`.
    /// The module `concurrency_limit` describes the share of each client, and the reserve.
    pub requests: usize,
    /// Maximum number of watches of all clients together.
    pub watches: usize,
    /// Maximum number of watches of one user, or of all `ServiceAccounts` of one namespace. Members
    /// of `system:masters` have no such limit.
    pub watches_per_user: usize,
    /// Maximum number of open connections. A quarter is reserved for newcomers: connections whose
    /// user is not known yet. An eighth is reserved for the front proxy: the kube-apiservers, which
    /// forward the requests of users. The rest is for users. The connections of one user from one
    /// address may be at most half of the rest.
    pub connections: usize,
}

impl Limits {
    /// Smallest allowed value of `connections`. A smaller value would leave too few connections for
    /// users, because some connections are reserved.
    pub const LEAST_CONNECTIONS: usize = 8;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A request takes some milliseconds. More than 100 requests are in flight only if
            // clients read their answers slowly. Each request may have 150 KB of its answer in
            // memory: 15 MB in total. docs/architecture.md has the sum of the server's memory.
            requests: 100,
            // Each watch may have 50 KB that its client has not read: 25 MB in total.
            watches: 500,
            // Even a dashboard or a controller with many informers opens fewer than 125 watches.
            // Three clients together cannot use all watches.
            watches_per_user: 125,
            // A kube-apiserver needs only a few connections, because each connection carries up to
            // a thousand streams. Each connection may hold 200 KB of a request that has not been
            // authenticated: 50 MB in total.
            connections: 256,
        }
    }
}

/// The WebSocket watches may use one of this many connections. One client may have half of these
/// watches. A WebSocket watch needs a connection of its own, also if the kube-apiserver forwards it.
/// So without this limit, the dashboards of two users could use all connections of the front proxy,
/// and the kube-apiserver could not forward other requests.
const WEBSOCKET_SHARE: usize = 4;

/// Largest number of requests whose bearer token is being verified. A further request with a token
/// gets a 429. The users of these requests are not known yet, so the limits of each user do not
/// apply to them. Requests through the front proxy have no token.
const MAX_AUTHENTICATING: usize = 200;

/// Largest number of error answers that the server sends at the same time to requests that
/// [`Limits::requests`] does not count. An example is a 429 to a request above a limit. Further
/// error answers have no body. An error answer has at most 5 KB, or 20 KB if JSON escapes every
/// character.
const MAX_REFUSALS: usize = 300;

/// Largest number of answers that are being sent on public paths (paths without authentication) and
/// to health probes. A further request gets a 429. Each answer takes about 5 KB of memory, because
/// its body is short or shared by all answers.
const MAX_PUBLIC: usize = 1000;

/// The information about the build that `/version` serves.
#[derive(Clone, Debug, Default)]
pub struct VersionInfo {
    /// The semantic version. A leading `v` is optional.
    pub version: String,
    /// The git commit of the build. Empty if it is unknown.
    pub commit: String,
    /// The time of the build in RFC 3339. Empty if it is unknown.
    pub built: String,
}

/// The state that all requests share.
struct ServerState {
    server: ServerParameters,
    resources: Vec<Arc<Resource>>,
    /// Limits the concurrent verifications of bearer tokens.
    token_reviews: Semaphore,
    requests: Arc<ConcurrencyLimit>,
    watches: Arc<ConcurrencyLimit>,
    /// Limits the WebSocket watches. Each of them also counts as a watch.
    websockets: Arc<ConcurrencyLimit>,
    replicas: Arc<ConcurrencyLimit>,
    refusals: Arc<Semaphore>,
    public_answers: Arc<Semaphore>,
}

impl ServerState {
    /// Returns the resource that the request names. None if this server does not serve it.
    fn resource(&self, request: &ResourceRequest) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|resource| {
            resource.group == request.group
                && resource.version == request.version
                && resource.plural == request.resource
        })
    }
}

/// Creates the router with all routes. The middleware authenticates, limits and authorizes requests
/// before they reach a route.
pub fn router(server: ServerParameters) -> Router {
    let discovery =
        discovery::routes(&server.resources, server.served_by_other_router).with_state(());
    let without_cluster = server.served_by_other_router.is_some();
    let openapi = openapi::routes(&server.resources, without_cluster).with_state(());
    let shared = Arc::new(ServerState {
        resources: server.resources.iter().cloned().map(Arc::new).collect(),
        token_reviews: Semaphore::new(MAX_AUTHENTICATING),
        requests: ConcurrencyLimit::new(SlotCounts {
            what: "requests",
            total: (server.limits.requests, "--max-requests-inflight"),
            per_client: None,
        }),
        watches: ConcurrencyLimit::new(SlotCounts {
            what: "watches",
            total: (server.limits.watches, "--max-watches"),
            per_client: Some((server.limits.watches_per_user, "--max-watches-per-user")),
        }),
        websockets: ConcurrencyLimit::new(SlotCounts {
            what: "watches over WebSocket",
            total: (
                server.limits.connections / WEBSOCKET_SHARE,
                "a quarter of --max-connections",
            ),
            per_client: None,
        }),
        replicas: ConcurrencyLimit::new(SlotCounts {
            what: "requests of replicas",
            total: (peer_requests::MAX_REPLICA_REQUESTS, "fixed"),
            per_client: None,
        }),
        refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
        public_answers: Arc::new(Semaphore::new(MAX_PUBLIC)),
        server,
    });
    // The middleware drops the bodies of requests, and the webhook needs them.
    let gate_webhook = if shared.server.gate_webhook {
        gate_webhook::routes(Arc::clone(&shared))
    } else {
        Router::new()
    };
    let routes = Router::new()
        .merge(health::routes())
        .merge(peer_requests::routes())
        .merge(discovery)
        .merge(openapi)
        .fallback(answer)
        .method_not_allowed_fallback(async || ErrorStatus::method_not_allowed().into_response())
        .with_state(Arc::clone(&shared))
        .layer(from_fn_with_state(shared, middleware::process_request));
    // axum chooses the route before it runs the layers of a router. So `without_slash` runs in an
    // outer router, before the route is chosen.
    gate_webhook.fallback_service(MapRequest::new(routes, without_slash))
}

/// Removes slashes at the end of the path. The kube-apiserver also accepts paths with such slashes.
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

/// Answers requests that match no route: requests for resources, and requests for unknown paths.
async fn answer(
    State(shared): State<Arc<ServerState>>,
    Extension(admitted): Extension<Admitted>,
    headers: HeaderMap,
) -> Response {
    match &admitted.requested {
        RequestTarget::Path(path) if path.starts_with("/api") => {
            ErrorStatus::resource_not_found().into_response()
        }
        RequestTarget::Path(_) => unknown_path(&shared),
        RequestTarget::Resource(request) => resource(&shared, request, &admitted, &headers)
            .await
            .unwrap_or_else(|failure| {
                failure.response(content_negotiation::negotiate_error(
                    &headers,
                    &admitted.query,
                ))
            }),
    }
}

async fn resource(
    shared: &ServerState,
    request: &ResourceRequest,
    admitted: &Admitted,
    headers: &HeaderMap,
) -> Result<Response, ErrorStatus> {
    let resource = shared
        .resource(request)
        .filter(|resource| has_valid_scope(resource, request))
        .ok_or_else(ErrorStatus::resource_not_found)?;
    if !request.subresource.is_empty() {
        // The kube-apiserver gives this answer to all verbs if a custom resource does not have the
        // subresource.
        return Err(resource.no_object(&request.name));
    }
    let leadership_end = peer_requests::leadership_end(shared, headers)?;
    let is_synced = shared.server.readiness.synced();
    if is_synced && reads_newest(request, &admitted.query) {
        shared.server.replica_status.wait_until_current().await;
    }
    let was_stale = incomplete_warning::is_stale_before(shared);
    let mut answer_result = match request.verb {
        "get" | "list" | "watch" if !is_synced => Err(ErrorStatus::initializing()),
        // Other programs rely on an activity without a person who reads a warning.
        "get" | "list" | "watch" if was_stale && resource.collection == Collection::Activities => {
            Err(ErrorStatus::no_leader())
        }
        verb @ ("get" | "list" | "watch") if !resource.verbs.contains(&verb) => Err(
            ErrorStatus::not_supported(verb, resource.group, resource.plural),
        ),
        "get" => get::get(resource, request, &admitted.query, headers).await,
        "list" => {
            let is_from_replica = leadership_end.is_some();
            list::list(resource, request, &admitted.query, headers, is_from_replica).await
        }
        "watch" => watch::watch(
            resource,
            request,
            &admitted.query,
            headers,
            match leadership_end {
                Some(leadership_end) => (leadership_end, true),
                None => (shared.server.shutdown.clone(), false),
            },
            admitted.watch_slot.clone(),
        )
        .map(|watch| {
            if resource.collection != Collection::Activities {
                return watch;
            }
            let until_stale = shared.server.replica_status.clone().until_stale();
            watch.map(|body| {
                Body::from_stream(body.into_data_stream().take_until(Box::pin(until_stale)))
            })
        })
        .and_then(|watch| {
            if admitted.is_websocket {
                websocket::accept(headers, watch)
            } else {
                Ok(watch)
            }
        }),
        "" => Err(ErrorStatus::method_not_allowed()),
        verb => Err(ErrorStatus::not_supported(
            verb,
            resource.group,
            resource.plural,
        )),
    };
    if let Ok(response) = &mut answer_result
        && matches!(request.verb, "list" | "watch")
    {
        let user = admitted.user.as_ref();
        let query = &admitted.query;
        let request = (request, &**query, headers);
        incomplete_warning::warn(shared, resource, request, user, was_stale, response).await;
    }
    answer_result
}

/// Returns true if the answer must contain the newest state. Before a follower answers such a
/// request, it waits until it has the leader's newest version
/// ([`ReplicaStatus::wait_until_current`]). A request with a resourceVersion or a continue token
/// accepts an older state.
fn reads_newest(request: &ResourceRequest, query: &Query) -> bool {
    matches!(request.verb, "get" | "list" | "watch")
        && query.text("resourceVersion").is_empty()
        && query.text("continue").is_empty()
}

/// Returns true if the scope of the path (a namespace or the cluster) is possible for the resource.
fn has_valid_scope(resource: &Resource, request: &ResourceRequest) -> bool {
    if resource.namespaced {
        // On the deprecated paths with `/watch/`, a client can also watch the objects with one name
        // in all namespaces.
        request.name.is_empty() || !request.namespace.is_empty() || request.legacy_watch
    } else {
        request.namespace.is_empty()
    }
}

/// Returns a 404 whose body lists the main paths of this server.
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
