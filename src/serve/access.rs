//! The way in: who asks, what, and may they. Everything passes here once, before any
//! other file of this room, and is counted on the way out.

use super::quoted::Quoted;
use super::request::{self, Asked, Query, Request as ResourceRequest};
use super::respond::{overload, plain};
use super::select::Reviewed;
use super::status::Failure;
use super::{REQUEST_TIMEOUT, Shared};
use crate::auth::{Attributes, Decision, PeerCertificates, User};
use crate::telemetry::Metrics;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Body as _;
use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A watch's place, held for as long as the watch lasts.
pub type Seat = Arc<dyn Any + Send + Sync>;

/// What was asked, for the handler behind.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// What was asked.
    pub asked: Asked,
    /// Its options.
    pub query: Arc<Query>,
    /// Taken by the watch that the request may become.
    pub seat: Option<Seat>,
}

/// Members of this group are never turned away for load.
const MASTERS: &str = "system:masters";

/// The middleware around all routes.
pub async fn admit(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let head = request.method() == Method::HEAD;
    let method = method_name(request.method());
    // The kube-apiserver adds its own to what it passes on, and the client would see two.
    let proxied = request.headers().contains_key("x-remote-user");
    let audit_id = audit_id(&request);
    let query = Arc::new(Query::of(request.uri()));
    let asked = request::parse(request.method(), request.uri(), &query);
    let mut response = match &asked {
        Ok(asked) => pass(&shared, asked, query, request, next).await,
        Err(failure) => failure.clone().into_response(),
    };
    if head {
        without_body(&mut response);
    }
    let headers = response.headers_mut();
    if !proxied {
        headers.insert("audit-id", audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
    }
    let code = response.status().as_u16();
    count(&shared, asked.ok().as_ref(), method, code, begun);
    response
}

/// What the body would have been is told by the headers alone.
fn without_body(response: &mut Response) {
    let size = response.body().size_hint().exact();
    // Of unknown length like the one it replaces, so that no length of 0 is made up.
    let nothing = futures::stream::empty::<Result<bytes::Bytes, Infallible>>();
    *response.body_mut() = Body::from_stream(nothing);
    if let Some(size) = size {
        response
            .headers_mut()
            .entry(header::CONTENT_LENGTH)
            .or_insert(HeaderValue::from(size));
    }
}

fn audit_id(request: &Request<Body>) -> HeaderValue {
    request
        .headers()
        .get("audit-id")
        // As long as upstream takes them.
        .filter(|value| !value.is_empty() && value.len() <= 64)
        .cloned()
        .unwrap_or_else(|| {
            HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
                .expect("a UUID is a valid header value")
        })
}

fn method_name(method: &Method) -> &'static str {
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

/// Whether a path answers to everybody. Discovery, `OpenAPI` and the version must be had
/// before authentication works at all, or they hold up every namespace deletion in the
/// cluster, and they tell the same to all.
fn is_open(path: &str) -> bool {
    path == "/version"
        || ["/api", "/apis", "/openapi"].iter().any(|root| {
            path.strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

/// Authenticates, authorizes, finds a place, and lets the request through.
async fn pass(
    shared: &Arc<Shared>,
    asked: &Asked,
    query: Arc<Query>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let open = matches!(asked, Asked::Path(path) if is_open(path));
    let probe = matches!(asked, Asked::Path(path) if is_probe(path));
    let mut seat = None;
    let mut place: Option<OwnedSemaphorePermit> = None;
    // A bad token is a 401 everywhere; without one the open paths ask nobody.
    if !open || request.headers().contains_key(header::AUTHORIZATION) {
        let peer = request.extensions().get().cloned();
        let user = match authenticate(shared, peer, request.headers()).await {
            Ok(user) => user,
            Err(failure) => return failure.into_response(),
        };
        if !open && !probe {
            let watch = matches!(asked, Asked::Resource(resource) if resource.verb == "watch");
            let places = if watch {
                &shared.watches
            } else {
                &shared.requests
            };
            match Semaphore::try_acquire_owned(Arc::clone(places)) {
                Ok(permit) if watch => seat = Some(Taken::seat(shared, permit)),
                Ok(permit) => place = Some(permit),
                Err(_) if !watch && user.groups.iter().any(|group| group == MASTERS) => {}
                Err(_) => return overload(),
            }
            let attributes = attributes(asked, &query, request.method());
            let path = request.uri().path().to_owned();
            if let Err(response) = authorize(shared, &attributes, &user, &path).await {
                return response;
            }
        }
    }
    let limit = match (&seat, query.timeout()) {
        (Some(_), _) => None,
        (None, Ok(limit)) => Some(
            limit
                .filter(|limit| !limit.is_zero())
                .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT)),
        ),
        (None, Err(failure)) => return failure.into_response(),
    };
    request.extensions_mut().insert(Admitted {
        asked: asked.clone(),
        query,
        seat,
    });
    let Some(limit) = limit else {
        return next.run(request).await;
    };
    let _running = Running::new(shared, place);
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    answered.unwrap_or_else(|_| Failure::timeout().into_response())
}

/// Counts a request as long as it runs, also when its client goes away before the end.
struct Running<'a> {
    metrics: &'a Metrics,
    _place: Option<OwnedSemaphorePermit>,
}

impl<'a> Running<'a> {
    fn new(shared: &'a Shared, place: Option<OwnedSemaphorePermit>) -> Self {
        let metrics = &shared.server.metrics;
        metrics.in_flight(1);
        Self {
            metrics,
            _place: place,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight(-1);
    }
}

/// Gives a watch's place back, and uncounts the watch, when it is dropped.
struct Taken {
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

impl Taken {
    fn seat(shared: &Arc<Shared>, permit: OwnedSemaphorePermit) -> Seat {
        shared.server.metrics.watchers(1);
        Arc::new(Self {
            shared: Arc::clone(shared),
            _permit: permit,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shared.server.metrics.watchers(-1);
    }
}

async fn authenticate(
    shared: &Shared,
    peer: Option<PeerCertificates>,
    headers: &HeaderMap,
) -> Result<User, Failure> {
    shared
        .server
        .authenticate
        .authenticate(&peer.unwrap_or_default(), headers)
        .await
        .map_err(|_| Failure::unauthorized())
}

async fn authorize(
    shared: &Shared,
    attributes: &Attributes,
    user: &User,
    path: &str,
) -> Result<(), Response> {
    match shared.server.authorize.authorize(user, attributes).await {
        Ok(Decision::Allow) => Ok(()),
        Ok(Decision::Deny { reason }) => {
            Err(Failure::forbidden(user, attributes, &reason).into_response())
        }
        Err(undecided) => Err(plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Internal Server Error: {}: {undecided}", Quoted(path)),
        )),
    }
}

fn attributes(asked: &Asked, query: &Query, method: &Method) -> Attributes {
    match asked {
        Asked::Path(path) => Attributes::NonResource {
            path: path.clone(),
            verb: method_name(method).to_owned(),
        },
        Asked::Resource(resource) => resource_attributes(resource, query),
    }
}

fn resource_attributes(asked: &ResourceRequest, query: &Query) -> Attributes {
    // The old watch paths are authorized by their path alone.
    let selectors = matches!(asked.verb, "list" | "watch" | "deletecollection");
    let reviewed = if selectors && !asked.legacy_watch {
        Reviewed::of(query)
    } else {
        Reviewed::default()
    };
    let name = if asked.name.is_empty() {
        reviewed.name
    } else {
        asked.name.clone()
    };
    Attributes::Resource {
        verb: asked.verb.to_owned(),
        group: asked.group.clone(),
        version: asked.version.clone(),
        resource: asked.resource.clone(),
        subresource: asked.subresource.clone(),
        namespace: asked.namespace.clone(),
        name,
        fields: reviewed.fields,
        labels: reviewed.labels,
    }
}

/// Counts a request under labels that a client cannot make up.
fn count(shared: &Shared, asked: Option<&Asked>, method: &str, code: u16, begun: Instant) {
    let known = match asked {
        Some(Asked::Resource(request)) => {
            shared.resource(request).map(|resource| (request, resource))
        }
        _ => None,
    };
    let (verb, group, version, plural, scope) = match known {
        Some((request, resource)) => (
            if request.verb.is_empty() {
                method
            } else {
                request.verb
            },
            resource.group,
            resource.version,
            resource.plural,
            if !request.name.is_empty() {
                "resource"
            } else if !request.namespace.is_empty() {
                "namespace"
            } else {
                "cluster"
            },
        ),
        None => (method, "", "", "", ""),
    };
    let duration = (verb != "watch").then(|| begun.elapsed());
    shared.server.metrics.request(
        &verb.to_ascii_uppercase(),
        group,
        version,
        plural,
        scope,
        code,
        duration,
    );
}
