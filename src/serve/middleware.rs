//! The middleware around all routes. It authenticates, limits and authorizes each request before
//! its handler runs, and counts the request when its answer ends.

mod entry;

use self::entry::{Admission, enter};
use super::concurrency_limit::RequestSlot;
use super::delivery::Delivery;
use super::gzip;
use super::negotiate::negotiate_error;
use super::request::{self, Query, RequestTarget};
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

/// A slot of the limit for watches. A watch holds it until it ends.
pub type WatchSlot = Arc<dyn Any + Send + Sync>;

/// The request as its handler sees it.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The requested resource, verb and name.
    pub asked: RequestTarget,
    /// The options of the request.
    pub query: Arc<Query>,
    /// The slot of a watch. None for other requests.
    pub watch_slot: Option<WatchSlot>,
    /// The user. None for public paths.
    pub user: Option<User>,
}

/// Time in which a client must read the answer to a public path, or a refusal. Such an answer has
/// some KB. OpenAPI documents are larger, but all answers share one copy in memory.
const SMALL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The middleware around all routes.
pub async fn process_request(
    State(shared): State<Arc<ServerState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let begun = clock::steady();
    // A read-only API needs no request bodies, so the body is dropped unread.
    let (parts, _) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let method = method_name(&parts.method);
    // The kube-apiserver adds the headers `Audit-ID` and `Cache-Control` to answers that it passes
    // on. If this server added them as well, the client would receive each of them twice.
    let proxied = parts.headers.contains_key("x-remote-user");
    let audit_id = audit_id(&parts.headers);
    let compressed = gzip::accepted(&parts.headers);
    let query = Arc::new(Query::of(&parts.uri));
    let asked = request::parse(&parts.method, &parts.uri, &query);
    let watch = matches!(&asked, Ok(RequestTarget::Resource(resource)) if resource.verb == "watch");
    let labels = labels(&shared, asked.as_ref().ok(), method);
    let mut line = RequestLogLine::begin(&parts, method, &audit_id, begun);
    let (mut response, running) = match asked {
        Ok(asked) => {
            line.asks(&asked);
            run_handler(&shared, (asked, query), parts, next, &mut line).await
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
        Some(running) if !running.is_public => {
            let kept = HeldPermits {
                _running: Some(running),
                _small: None,
            };
            (kept, Some(REQUEST_TIMEOUT))
        }
        None if watch && response.status().is_success() => (HeldPermits::default(), None),
        other => (
            limit_small_answer(&shared, &mut response, other),
            Some(SMALL_ANSWER_TIMEOUT),
        ),
    };
    count(&shared, &labels, &response, begun);
    line.answered(response.status());
    response.map(|body| {
        let on_cut = move || shared.server.metrics.request_aborted(&labels);
        Delivery::body(body, within, (kept, line), on_cut)
    })
}

/// The permits that an answer holds until its client has read it. The permit of a watch is held by
/// its stream instead.
#[derive(Default)]
struct HeldPermits {
    /// The request, with its slot in the limit of requests.
    _running: Option<RunningRequest>,
    /// A slot in the limit of refusals or of public answers.
    _small: Option<OwnedSemaphorePermit>,
}

/// Limits the number of answers that have no slot in the limit of requests: answers to public
/// paths, and refusals. Above the limit, the answer has only a status code. A client cannot delay a
/// status code by not reading, because HTTP/2 flow control does not apply to headers.
fn limit_small_answer(
    shared: &ServerState,
    response: &mut Response,
    running: Option<RunningRequest>,
) -> HeldPermits {
    let refused = !response.status().is_success() && !response.status().is_redirection();
    let bound = if refused {
        &shared.refusals
    } else {
        &shared.public_answers
    };
    if let Ok(permit) = Arc::clone(bound).try_acquire_owned() {
        return HeldPermits {
            _running: running,
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
    HeldPermits::default()
}

/// A refusal in the syntax that the client accepts.
fn refusal(failure: ErrorStatus, headers: &HeaderMap, query: &Query) -> Response {
    failure.response(negotiate_error(headers, query))
}

/// An answer with headers and without a body.
fn without_body(response: &mut Response) {
    let size = response.body().size_hint().exact();
    // A body of unknown length prevents hyper from sending `Content-Length: 0`.
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
        // The kube-apiserver has the same limit of length.
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

/// Passes the request to its handler if it is allowed and below the limits. The answer holds the
/// request's slot until it is sent.
async fn run_handler(
    shared: &Arc<ServerState>,
    (asked, query): (RequestTarget, Arc<Query>),
    parts: Parts,
    next: Next,
    line: &mut RequestLogLine,
) -> (Response, Option<RunningRequest>) {
    let entered = enter(shared, (&asked, &query), &parts, line).await;
    let Admission {
        watch_slot,
        request_slot,
        is_public,
        user,
    } = match entered {
        Ok(entered) => entered,
        Err(response) => return (response, None),
    };
    let limit = match (&watch_slot, query.timeout()) {
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
        watch_slot,
        user,
    });
    let Some(limit) = limit else {
        return (next.run(request).await, None);
    };
    let running = RunningRequest {
        _counted: shared.server.metrics.in_flight(),
        _slot: request_slot,
        is_public,
    };
    let answered = tokio::time::timeout(limit, next.run(request)).await;
    let response = answered.unwrap_or_else(|_| {
        let mut response = ErrorStatus::timeout().into_response();
        response.extensions_mut().insert(SelfDefence);
        response
    });
    (response, Some(running))
}

/// A request that is running, or whose answer is being sent. It also ends when its client
/// disconnects.
struct RunningRequest {
    _counted: CountedInGauge,
    _slot: Option<RequestSlot>,
    is_public: bool,
}

/// The labels under which a request is counted. A client cannot invent new ones.
fn labels(
    shared: &ServerState,
    asked: Option<&RequestTarget>,
    method: &'static str,
) -> RequestLabels<'static> {
    let known = match asked {
        Some(RequestTarget::Resource(request)) => {
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
