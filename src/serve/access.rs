//! The way in: who asks, what, and may they. Everything passes here once, before any
//! other file of this room, and is counted on the way out.

mod entry;

use self::entry::{Entered, enter};
use super::delivery::Delivery;
use super::gzip;
use super::negotiate::negotiate_error;
use super::places::RequestPlace;
use super::request::{self, Asked, Query};
use super::request_log::RequestLogLine;
use super::respond::{SelfDefence, overload};
use super::status::ErrorStatus;
use super::{REQUEST_TIMEOUT, ServerState};
use crate::auth::User;
use crate::clock;
use crate::telemetry::{CountedInGauge, RequestLabels};
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use hyper::body::Body as _;
use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

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
    /// Who asks. None for paths that are open to everybody.
    pub user: Option<User>,
}

/// How long a client may take for an answer whose request has no place. It has some KB, but
/// for the documents, which are shared and take up nothing while they wait.
const SMALL: Duration = Duration::from_secs(10);

/// The middleware around all routes.
pub async fn admit(
    State(shared): State<Arc<ServerState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let begun = clock::steady();
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
    let labels = labels(&shared, asked.as_ref().ok(), method);
    let mut line = RequestLogLine::begin(&parts, method, &audit_id, begun);
    let (mut response, running) = match asked {
        Ok(asked) => {
            line.asks(&asked);
            pass(&shared, (asked, query), parts, next, &mut line).await
        }
        Err(failure) => (refusal(failure, &parts.headers, &query), None),
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
    let (kept, within) = match running {
        Some(running) if !running.open => {
            let kept = Kept {
                _place: Some(running),
                _small: None,
            };
            (kept, Some(REQUEST_TIMEOUT))
        }
        None if watch && response.status().is_success() => (Kept::default(), None),
        other => (small(&shared, &mut response, other), Some(SMALL)),
    };
    count(&shared, &labels, &response, begun);
    line.answered(response.status());
    response.map(|body| {
        let on_cut = move || shared.server.metrics.request_aborted(&labels);
        Delivery::body(body, within, (kept, line), on_cut)
    })
}

/// What an answer keeps until its client has taken it: each counts as long as it is there.
/// A watch's own stream holds its place.
#[derive(Default)]
struct Kept {
    /// The place of its request.
    _place: Option<RunningRequest>,
    /// One of the few that answers without a place have.
    _small: Option<OwnedSemaphorePermit>,
}

/// A bound for an answer whose request has no place: it is open to everybody, or was
/// refused. Above the bound, of a refusal only the code is told, and who asks for what is
/// open is turned away, also by the code alone: headers are not subject to flow control, so
/// they are gone at once, whatever the client does.
fn small(shared: &ServerState, response: &mut Response, running: Option<RunningRequest>) -> Kept {
    let refused = !response.status().is_success() && !response.status().is_redirection();
    let bound = if refused {
        &shared.refusals
    } else {
        &shared.open
    };
    if let Ok(permit) = Arc::clone(bound).try_acquire_owned() {
        return Kept {
            _place: running,
            _small: Some(permit),
        };
    }
    if !refused {
        *response = overload();
    }
    *response.body_mut() = Body::empty();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONTENT_ENCODING);
    Kept::default()
}

/// A refusal as the client accepts it.
fn refusal(failure: ErrorStatus, headers: &HeaderMap, query: &Query) -> Response {
    failure.response(negotiate_error(headers, query))
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

/// Lets the request through, if it may and there is a place; the place comes with the
/// answer, which needs it until it is sent.
async fn pass(
    shared: &Arc<ServerState>,
    (asked, query): (Asked, Arc<Query>),
    parts: Parts,
    next: Next,
    line: &mut RequestLogLine,
) -> (Response, Option<RunningRequest>) {
    let entered = enter(shared, (&asked, &query), &parts, line).await;
    let Entered {
        seat,
        place,
        open,
        user,
    } = match entered {
        Ok(entered) => entered,
        Err(response) => return (response, None),
    };
    let limit = match (&seat, query.timeout()) {
        (Some(_), _) => None,
        (None, Ok(limit)) => Some(
            limit
                .filter(|limit| !limit.is_zero())
                .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT)),
        ),
        (None, Err(failure)) => return (refusal(failure, &parts.headers, &query), None),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(Admitted {
        asked,
        query,
        seat,
        user,
    });
    let Some(limit) = limit else {
        return (next.run(request).await, None);
    };
    let running = RunningRequest {
        _counted: shared.server.metrics.in_flight(),
        _place: place,
        open,
    };
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    let response = answered.unwrap_or_else(|_| {
        let mut response = ErrorStatus::timeout().into_response();
        response.extensions_mut().insert(SelfDefence);
        response
    });
    (response, Some(running))
}

/// A request that runs or whose answer is being sent. It ends also when its client goes away
/// before the end.
struct RunningRequest {
    _counted: CountedInGauge,
    _place: Option<RequestPlace>,
    open: bool,
}

/// What a request is counted under: labels that a client cannot make up.
fn labels(
    shared: &ServerState,
    asked: Option<&Asked>,
    method: &'static str,
) -> RequestLabels<'static> {
    let known = match asked {
        Some(Asked::Resource(request)) => {
            shared.resource(request).map(|resource| (request, resource))
        }
        _ => None,
    };
    let Some((request, resource)) = known else {
        return RequestLabels {
            verb: method.to_ascii_uppercase(),
            ..RequestLabels::default()
        };
    };
    let verb = if request.verb.is_empty() {
        method
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

fn count(shared: &ServerState, labels: &RequestLabels<'_>, response: &Response, begun: Instant) {
    let code = response.status().as_u16();
    let duration = (labels.verb != "WATCH").then(|| clock::since(begun));
    let metrics = &shared.server.metrics;
    if response.extensions().get::<SelfDefence>().is_some() {
        metrics.request_terminated(labels, code);
    }
    metrics.request(labels, code, duration);
}
