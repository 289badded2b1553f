//! The way in: who asks, what, and may they. Everything passes here once, before any
//! other file of this room, and is counted on the way out.

use super::delivery::Delivery;
use super::gzip;
use super::places::Place;
use super::quoted::Quoted;
use super::request::{self, Asked, Query, Request as ResourceRequest};
use super::respond::{SelfDefence, overload, plain};
use super::select::Reviewed;
use super::status::Failure;
use super::{REQUEST_TIMEOUT, Shared};
use crate::auth::{Attributes, Decision, PeerCertificates, User};
use crate::telemetry::RequestLabels;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Body as _;
use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

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

/// Members of this group are never turned away for load, and have no share of watches:
/// who looks after the cluster gets in when others take all they can. All watches
/// together are bounded for them, too, since memory is.
const MASTERS: &str = "system:masters";

/// The middleware around all routes.
pub async fn admit(
    State(shared): State<Arc<Shared>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let begun = Instant::now();
    // What is read-only has no use for a body: it is dropped unread.
    let (parts, _) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let method = method_name(&parts.method);
    // The kube-apiserver adds its own to what it passes on, and the client would see two.
    let proxied = parts.headers.contains_key("x-remote-user");
    let audit_id = audit_id(&parts.headers);
    let compressed = gzip::accepted(&parts.headers);
    let query = Arc::new(Query::of(&parts.uri));
    let asked = request::parse(&parts.method, &parts.uri, &query);
    let watch = matches!(&asked, Ok(Asked::Resource(resource)) if resource.verb == "watch");
    let (mut response, running) = match &asked {
        Ok(asked) => pass(&shared, asked, query, parts, next).await,
        Err(failure) => (failure.clone().into_response(), None),
    };
    if compressed && !watch {
        response = gzip::compress(response).await;
    }
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
    let asked = asked.ok();
    let labels = Labels {
        asked: asked.as_ref(),
        method,
    };
    labels.count(&shared, &response, begun);
    response.map(|body| {
        let on_cut = move || {
            let asked = asked.as_ref();
            Labels { asked, method }.count_cut(&shared);
        };
        Delivery::body(body, watch, running, on_cut)
    })
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

fn audit_id(headers: &HeaderMap) -> HeaderValue {
    headers
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

/// Lets the request through, if it may and there is a place; the place comes with the
/// answer, which needs it until it is sent.
async fn pass(
    shared: &Arc<Shared>,
    asked: &Asked,
    query: Arc<Query>,
    parts: Parts,
    next: Next,
) -> (Response, Option<Running>) {
    let (seat, place) = match enter(shared, asked, &query, &parts).await {
        Ok(places) => places,
        Err(response) => return (response, None),
    };
    let limit = match (&seat, query.timeout()) {
        (Some(_), _) => None,
        (None, Ok(limit)) => Some(
            limit
                .filter(|limit| !limit.is_zero())
                .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT)),
        ),
        (None, Err(failure)) => return (failure.into_response(), None),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(Admitted {
        asked: asked.clone(),
        query,
        seat,
    });
    let Some(limit) = limit else {
        return (next.run(request).await, None);
    };
    let running = Running::new(shared, place);
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    let response = answered.unwrap_or_else(|_| {
        let mut response = Failure::timeout().into_response();
        response.extensions_mut().insert(SelfDefence);
        response
    });
    (response, Some(running))
}

/// Authenticates, finds a place and authorizes.
async fn enter(
    shared: &Arc<Shared>,
    asked: &Asked,
    query: &Query,
    parts: &Parts,
) -> Result<(Option<Seat>, Option<Place>), Response> {
    let open = matches!(asked, Asked::Path(path) if is_open(path));
    let probe = matches!(asked, Asked::Path(path) if is_probe(path));
    let token = parts.headers.contains_key(header::AUTHORIZATION);
    // A bad token is a 401 everywhere; without one the open paths ask nobody.
    if open && !token {
        return Ok((None, None));
    }
    // Whoever holds a token has yet to be asked about, which takes time and memory.
    let arriving = if token {
        Some(shared.arriving.try_acquire().map_err(|_| overload())?)
    } else {
        None
    };
    let peer = parts.extensions.get().cloned();
    let user = authenticate(shared, peer, &parts.headers)
        .await
        .map_err(IntoResponse::into_response)?;
    drop(arriving);
    if open || probe {
        return Ok((None, None));
    }
    let watch = matches!(asked, Asked::Resource(resource) if resource.verb == "watch");
    let places = if watch {
        &shared.watches
    } else {
        &shared.requests
    };
    let master = user.groups.iter().any(|group| group == MASTERS);
    let place = places.take((!master).then_some(&user.name));
    let places = match place {
        Some(place) if watch => (Some(Taken::seat(shared, place)), None),
        None if watch || !master => return Err(overload()),
        place => (None, place),
    };
    let attributes = attributes(asked, query, &parts.method);
    authorize(shared, &attributes, &user, parts.uri.path()).await?;
    Ok(places)
}

/// Counts a request as long as it runs and its answer is sent, also when its client goes
/// away before the end.
struct Running {
    shared: Arc<Shared>,
    _place: Option<Place>,
}

impl Running {
    fn new(shared: &Arc<Shared>, place: Option<Place>) -> Self {
        shared.server.metrics.in_flight(1);
        Self {
            shared: Arc::clone(shared),
            _place: place,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.server.metrics.in_flight(-1);
    }
}

/// Gives a watch's place back, and uncounts the watch, when it is dropped.
struct Taken {
    shared: Arc<Shared>,
    _place: Place,
}

impl Taken {
    fn seat(shared: &Arc<Shared>, place: Place) -> Seat {
        shared.server.metrics.watchers(1);
        Arc::new(Self {
            shared: Arc::clone(shared),
            _place: place,
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

/// What a request is counted under: labels that a client cannot make up.
struct Labels<'a> {
    asked: Option<&'a Asked>,
    method: &'static str,
}

impl Labels<'_> {
    fn of<'a>(&'a self, shared: &'a Shared) -> RequestLabels<'a> {
        let known = match self.asked {
            Some(Asked::Resource(request)) => {
                shared.resource(request).map(|resource| (request, resource))
            }
            _ => None,
        };
        let Some((request, resource)) = known else {
            return RequestLabels {
                verb: self.method.to_ascii_uppercase(),
                ..RequestLabels::default()
            };
        };
        let verb = if request.verb.is_empty() {
            self.method
        } else {
            request.verb
        };
        RequestLabels {
            verb: verb.to_ascii_uppercase(),
            group: resource.group,
            version: resource.version,
            resource: resource.plural,
            scope: if !request.name.is_empty() {
                "resource"
            } else if !request.namespace.is_empty() {
                "namespace"
            } else {
                "cluster"
            },
        }
    }

    fn count(&self, shared: &Shared, response: &Response, begun: Instant) {
        let labels = self.of(shared);
        let code = response.status().as_u16();
        let duration = (labels.verb != "WATCH").then(|| begun.elapsed());
        let metrics = &shared.server.metrics;
        if response.extensions().get::<SelfDefence>().is_some() {
            metrics.request_terminated(&labels, code);
        }
        metrics.request(&labels, code, duration);
    }

    /// Counts that its client was too slow.
    fn count_cut(&self, shared: &Shared) {
        shared.server.metrics.request_aborted(&self.of(shared));
    }
}
