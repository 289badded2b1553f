//! The HTTP API. It serves the objects of a store as read-only Kubernetes objects. Input: HTTP
//! requests, and for each resource a reader of the store. Output: the answers to discovery,
//! `OpenAPI`, get, list and watch. These answers are the same as the answers of a kube-apiserver
//! for custom resources.
//!
//! ```text
//! connection ─▶ middleware ─▶ admission (authenticate, authorize) ─▶ health │ describe
//!                                                             └▶ read (get, list, watch)
//! request: parse the request                 answer: encode the answer
//! concurrency_limit: limit the load          request_log: log each request
//! ```
//!
//! Guarantees:
//!
//! - Discovery needs no authentication, and works as soon as the server listens.
//! - A list returns exactly the state at its resourceVersion. A watch delivers exactly the changes
//!   after its resourceVersion.
//! - A slow client does not slow down other clients.
//! - No request makes a handler panic, or makes the memory grow without a limit.

mod admission;
mod answer;
mod concurrency_limit;
mod connection;
mod describe;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod health;
mod hooks;
mod limits;
mod middleware;
mod read;
mod readiness;
mod request;
mod request_log;
mod resource;
mod visibility;

pub use answer::error_status::ErrorStatus;
pub use connection::connections::Connections;
pub use connection::listen;
pub use describe::{discovery, openapi};
pub use hooks::{Hooks, NoHooks, Read};
pub use limits::{Limits, MAX_AUTHENTICATING, MAX_SMALL_ANSWERS};
pub use readiness::Readiness;
pub use request::selectors::ReviewedSelectors;
pub use request::{Query, verb};
pub use request_log::{ACCESS_LOG, ClientAddress};
pub use resource::{
    AnyResource, Cell, CellContext, CellValue, Column, Resource, ResourceInfo, SelectableField,
    any_label,
};
pub use visibility::{View, ViewedObjects, Visibility, yield_regularly};

use crate::Model;
use crate::auth::{Attributes, Authenticate, Authorize, ResourceAttributes, User, anonymous};
use crate::metrics::Metrics;
use admission::wait_until_refused;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use connection::websocket;
use futures::future::BoxFuture;
use http::HeaderMap;
use limits::LoadLimits;
use middleware::Admitted;
use read::watch::WatchEnd;
use read::{get, list, watch};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower_http::normalize_path::NormalizePath;
use visibility::RestrictedUser;

/// Time limit of a request that is not a watch. The kube-apiserver's flag `--request-timeout` has
/// the same default.
pub const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The parameters of [`router`], apart from the resources.
pub struct ServerParameters {
    /// The title in the `OpenAPI` documents.
    pub title: &'static str,
    /// Authenticates requests.
    pub authenticate: Arc<dyn Authenticate>,
    /// Authorizes requests.
    pub authorize: Arc<dyn Authorize>,
    /// Callbacks of the program that uses this crate.
    pub hooks: Arc<dyn Hooks>,
    /// The readiness of this replica.
    pub readiness: Arc<Readiness>,
    /// The router counts requests in these metrics.
    pub metrics: Arc<Metrics>,
    /// Returns the content of `/metrics`, in the text format of `OpenMetrics`.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The semantic version of the server, for `/version`. A leading `v` is optional.
    pub version: String,
    /// Further routes, which are authenticated, authorized and limited like all others. The server
    /// drops the bodies of their requests.
    pub routes: Router,
    /// Further routes that every client may use. Their requests are neither authenticated nor
    /// limited.
    pub public_routes: Router,
    /// When this token is cancelled, all watches end, except the watches of other replicas. Those
    /// end with the token that [`Hooks::peer_stream_end`] returns. The caller must pass the same
    /// token to [`listen::serve`].
    pub shutdown: CancellationToken,
    /// The limits of concurrent requests and connections.
    pub limits: Limits,
}

impl ServerParameters {
    /// Returns the parameters of a server with one replica. The replica counts as joined
    /// ([`Readiness::set_has_joined`]), because there are no other replicas. The server serves no
    /// objects before the caller calls [`Readiness::set_synced`].
    pub fn new(
        title: &'static str,
        authenticate: Arc<dyn Authenticate>,
        authorize: Arc<dyn Authorize>,
    ) -> Self {
        let readiness = Arc::new(Readiness::new());
        readiness.set_has_joined();
        Self {
            title,
            authenticate,
            authorize,
            hooks: Arc::new(NoHooks),
            readiness,
            metrics: Arc::default(),
            render_metrics: Arc::new(String::new),
            version: "0.0.0".to_owned(),
            routes: Router::new(),
            public_routes: Router::new(),
            shutdown: CancellationToken::new(),
            limits: Limits::default(),
        }
    }
}

/// The state that all requests share.
struct ServerState {
    server: ServerParameters,
    resources: Vec<AnyResource>,
    /// True if a resource has a [`Visibility`]. In this case, users who may read only some
    /// namespaces may also send requests for all namespaces, because the server hides the other
    /// objects. The module `concurrency_limit` reserves slots for requests that only privileged
    /// users can send. Without a [`Visibility`], requests for all namespaces are such requests.
    is_filtered: bool,
    load: LoadLimits,
}

impl ServerState {
    /// Returns the resource that the request names. None if this server does not serve the
    /// resource.
    fn resource(&self, request: &ResourceAttributes) -> Option<&AnyResource> {
        self.resources.iter().find(|AnyResource { info, .. }| {
            info.group == request.group
                && info.version == request.version
                && info.plural == request.resource
        })
    }
}

/// Answers the requests for a resource.
type Served = Box<
    dyn for<'a> Fn(
            &'a Arc<ServerState>,
            &'a ResourceAttributes,
            &'a Admitted,
            &'a HeaderMap,
        ) -> BoxFuture<'a, Result<Response, ErrorStatus>>
        + Send
        + Sync,
>;

fn served<M: Model>(resource: Resource<M>) -> Served {
    let resource = Arc::new(resource);
    Box::new(move |shared, request, admitted, headers| {
        let resource = Arc::clone(&resource);
        Box::pin(async move { read(&resource, shared, request, admitted, headers).await })
    })
}

/// Creates the router with all routes. The middleware authenticates, limits and authorizes requests
/// before they reach a route.
pub fn router<R: Into<AnyResource>>(
    mut server: ServerParameters,
    resources: impl IntoIterator<Item = R>,
) -> Router {
    let resources: Vec<AnyResource> = resources.into_iter().map(Into::into).collect();
    let infos: Vec<ResourceInfo> = resources.iter().map(|it| it.info).collect();
    let discovery = discovery::routes(&infos);
    let openapi = openapi::routes(server.title, &server.version, &resources);
    let further = std::mem::take(&mut server.routes);
    let public = std::mem::take(&mut server.public_routes);
    let shared = Arc::new(ServerState {
        is_filtered: resources.iter().any(|it| it.is_filtered),
        resources,
        load: LoadLimits::new(&server.limits),
        server,
    });
    let state = Arc::clone(&shared);
    let answer = move |Extension(admitted): Extension<Admitted>, headers: HeaderMap| {
        let shared = Arc::clone(&state);
        async move { answer(&shared, &admitted, &headers).await }
    };
    let routes = Router::new()
        .merge(health::routes())
        .with_state(Arc::clone(&shared))
        .merge(further)
        .merge(discovery)
        .merge(openapi)
        .fallback(answer)
        .method_not_allowed_fallback(async || ErrorStatus::method_not_allowed().into_response())
        .layer(from_fn_with_state(shared, middleware::process_request));
    // As in the kube-apiserver, a path may end with slashes. They must be removed before axum
    // chooses a route. axum chooses the route before it runs the layers of a router. So the outer
    // router removes the slashes.
    public.fallback_service(NormalizePath::trim_trailing_slash(routes))
}

/// Answers a request that no other route matches: a request for a resource, or an unknown path.
async fn answer(shared: &Arc<ServerState>, admitted: &Admitted, headers: &HeaderMap) -> Response {
    let request = match &admitted.requested.attributes {
        Attributes::Resource(request) => Some(request),
        Attributes::NonResource { .. } => None,
    };
    let found = request.and_then(|request| Some((request, shared.resource(request)?)));
    let answer = match found.filter(|(request, found)| has_valid_scope(&found.info, request)) {
        Some((request, found)) => (found.served)(shared, request, admitted, headers).await,
        None => Err(ErrorStatus::resource_not_found()),
    };
    answer.unwrap_or_else(IntoResponse::into_response)
}

async fn read<M: Model>(
    resource: &Arc<Resource<M>>,
    shared: &Arc<ServerState>,
    request: &ResourceAttributes,
    admitted: &Admitted,
    headers: &HeaderMap,
) -> Result<Response, ErrorStatus> {
    let info = &resource.info;
    if !request.subresource.is_empty() {
        // The kube-apiserver gives this answer to all verbs if a custom resource does not have the
        // subresource.
        return Err(info.no_object(&request.name));
    }
    match request.verb {
        verb @ ("get" | "list" | "watch") if info.verbs.contains(&verb) => {}
        "" => return Err(ErrorStatus::method_not_allowed()),
        verb => return Err(ErrorStatus::not_supported(verb, info.group, info.plural)),
    }
    let server = &shared.server;
    let hooks = &server.hooks;
    let peer_end = hooks.peer_stream_end(headers)?;
    if !server.readiness.synced() {
        return Err(ErrorStatus::initializing());
    }
    let is_current = !reads_newest(&admitted.requested.query) || hooks.wait_until_current().await;
    let may_be_outdated = hooks.before_read(info)?;
    // A replica copies all objects, so no object is hidden from other replicas.
    let user = peer_end.is_none().then(|| restricted(resource, admitted));
    let user = user.flatten();
    let is_filtered = match &user {
        Some(RestrictedUser { user, visibility }) => {
            visibility.is_filtered(user, &request.namespace).await?
        }
        None => false,
    };
    let mut read = Read {
        resource: info,
        request,
        query: &admitted.requested.query,
        headers,
        user: admitted.user.as_ref(),
        may_be_outdated,
        is_current,
        is_filtered,
        version: None,
    };
    let peer = peer_end.is_some().then_some(&**hooks);
    let mut response = match request.verb {
        "get" => return get::get(resource, &read, user.as_ref()).await,
        "list" => {
            let (list, version) = list::list(resource, &read, peer, user.as_ref()).await?;
            read.version = Some(version);
            list
        }
        _ => {
            let stop = peer_end.unwrap_or_else(|| server.shutdown.clone());
            let end = watch_end(shared, info, admitted, stop);
            let watch = watch::watch(resource, &read, peer, user, end)?;
            if admitted.requested.is_websocket {
                websocket::accept(headers, watch)?
            } else {
                watch
            }
        }
    };
    hooks.add_headers(read, &mut response).await;
    Ok(response)
}

/// Returns the user of the request. None if no object can be hidden from this user.
fn restricted<M: Model>(resource: &Resource<M>, admitted: &Admitted) -> Option<RestrictedUser<M>> {
    let visibility = resource.visibility.clone()?;
    let user = user_of(admitted);
    (!user.is_administrator()).then_some(RestrictedUser { user, visibility })
}

fn user_of(admitted: &Admitted) -> User {
    admitted.user.clone().unwrap_or_else(anonymous)
}

/// Returns a future that completes when a watch must end:
///
/// - when `stop` is cancelled,
/// - when the future of [`Hooks::watch_end`] completes, or
/// - when the user may no longer watch. Only in this case, the output is an error for the client.
fn watch_end(
    shared: &Arc<ServerState>,
    info: &ResourceInfo,
    admitted: &Admitted,
    stop: CancellationToken,
) -> WatchEnd {
    let end = shared.server.hooks.watch_end(info);
    let end = end.unwrap_or_else(|| Box::pin(std::future::pending()));
    let requested = Arc::clone(&admitted.requested);
    let refused = wait_until_refused(Arc::clone(shared), requested, user_of(admitted));
    Box::pin(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => None,
            () = end => None,
            refused = refused => Some(refused),
        }
    })
}

/// Returns true if the answer must contain the newest state. A request with a resourceVersion or a
/// continue token accepts an older state.
fn reads_newest(query: &Query) -> bool {
    query.text("resourceVersion").is_empty() && query.text("continue").is_empty()
}

/// Returns true if the scope of the path (a namespace or the cluster) is possible for the resource.
fn has_valid_scope(resource: &ResourceInfo, request: &ResourceAttributes) -> bool {
    if resource.namespaced {
        // On the deprecated paths with `/watch/`, a client can also watch the objects with one name
        // in all namespaces.
        request.name.is_empty() || !request.namespace.is_empty() || request.legacy_watch
    } else {
        // As in the kube-apiserver, a request for the Namespace `a` has the namespace `a`.
        let is_own_name = resource.kind == "Namespace" && request.namespace == request.name;
        request.namespace.is_empty() || is_own_name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Attributes;
    use http::{Method, Uri};

    #[test]
    fn the_namespace_of_a_request_for_a_namespace_must_be_its_own_name() {
        let namespaces = ResourceInfo {
            namespaced: false,
            kind: "Namespace",
            ..ResourceInfo::namespaced(("", "v1"), "namespaces", "Namespace")
        };
        for (path, expected) in [
            ("/api/v1/namespaces", true),
            ("/api/v1/namespaces/a", true),
            ("/api/v1/watch/namespaces/a", true),
            ("/api/v1/namespaces/a/namespaces", false),
            ("/api/v1/namespaces/a/namespaces?watch=true", false),
            ("/api/v1/watch/namespaces/a/namespaces", false),
            ("/api/v1/namespaces/a/namespaces/b", false),
        ] {
            let uri: Uri = path.parse().unwrap();
            let parsed = request::parse(&Method::GET, &uri, &Query::of(&uri)).unwrap();
            let Attributes::Resource(request) = parsed else {
                panic!("{path}");
            };
            assert_eq!(has_valid_scope(&namespaces, &request), expected, "{path}");
        }
    }
}
