//! The middleware around all routes. Before the handler of a request runs, the middleware
//! authenticates, limits and authorizes the request. After the handler, the middleware compresses
//! the answer, and counts and logs the request. It also limits the time in which the client must
//! read the answer.

mod admit_request;

use self::admit_request::{Admission, admit, error_response, method_name};
pub use self::admit_request::{Admitted, WatchSlot};
use super::concurrency_limit::RequestSlot;
use super::create_responses::{SelfDefence, overload};
use super::delivery::Delivery;
use super::error_status::ErrorStatus;
use super::gzip;
use super::request::{self, Query, RequestTarget};
use super::request_log::RequestLogLine;
use super::websocket;
use super::{REQUEST_TIMEOUT, ServerState};
use crate::auth::Unauthenticated;
use crate::clock;
use crate::metrics::{CountedInGauge, RequestLabels};
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Body as _;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Time limit for a client to read the answer to a refused request, to a request for a public path,
/// or to a health probe. After this time, the server aborts the answer. So a slow client cannot
/// hold the memory of its answer for longer. Most of these answers have a few KB.
const SMALL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Processes a request: checks it, calls its handler (`next`), and completes the answer.
pub async fn process_request(
    State(shared): State<Arc<ServerState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let started = clock::steady();
    // A read-only API needs no request bodies, so the body is dropped unread.
    let (mut parts, _) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let method = method_name(&parts.method);
    // The kube-apiserver sends `x-remote-user` in the requests that it forwards. It adds the
    // headers `Audit-ID` and `Cache-Control` to the answers. If this server also added these
    // headers, the client would receive each header twice.
    let is_proxied = parts.headers.contains_key("x-remote-user");
    let audit_id = audit_id(&parts.headers);
    let accepts_gzip = gzip::accepts_gzip(&parts.headers);
    let query = Arc::new(Query::of(&parts.uri));
    let requested = if websocket::is_requested(&parts) {
        websocket::move_token_to_authorization(&mut parts.headers)
            .map_err(|Unauthenticated| ErrorStatus::unauthorized())
    } else {
        Ok(())
    };
    let requested = requested.and_then(|()| request::parse(&parts.method, &parts.uri, &query));
    let is_watch =
        matches!(&requested, Ok(RequestTarget::Resource(resource)) if resource.verb == "watch");
    let labels = labels(&shared, requested.as_ref().ok(), method);
    let mut line = RequestLogLine::begin(&parts, method, &audit_id, started);
    let (mut response, running) = match requested {
        Ok(requested) => {
            line.set_requested(&requested);
            run_handler(&shared, (requested, query), parts, next, &mut line).await
        }
        Err(failure) => (error_response(failure, &parts.headers, &query), None),
    };
    if accepts_gzip && !is_watch {
        response = gzip::compress(response).await;
    }
    if is_head {
        remove_body(&mut response);
    }
    let headers = response.headers_mut();
    if !is_proxied {
        headers.insert("audit-id", audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
    }
    let (kept, time_limit) = match running {
        Some(running) if !running.is_public => {
            let kept = HeldPermits {
                _running: Some(running),
                _small_answer: None,
            };
            (kept, Some(REQUEST_TIMEOUT))
        }
        None if is_watch && is_started_watch(response.status()) => (HeldPermits::default(), None),
        other => (
            limit_small_answer(&shared, &mut response, other),
            Some(SMALL_ANSWER_TIMEOUT),
        ),
    };
    count(&shared, &labels, &response, started);
    line.set_code(response.status());
    response.map(|body| {
        let on_abort = move || shared.server.metrics.request_aborted(&labels);
        Delivery::body(body, time_limit, (kept, line), on_abort)
    })
}

/// Returns true if an answer with this status code contains the events of a watch.
fn is_started_watch(code: StatusCode) -> bool {
    code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS
}

/// The slots that an answer keeps until the client has read the answer. Empty for a watch, because
/// the stream of the watch keeps its slot.
#[derive(Default)]
struct HeldPermits {
    /// The running request, including its slot in the limit of requests.
    _running: Option<RunningRequest>,
    /// The slot in one of the two limits of [`limit_small_answer`].
    _small_answer: Option<OwnedSemaphorePermit>,
}

/// Takes a slot for the answer to a refused request, to a request for a public path, or to a health
/// probe. Returns the slots that the answer keeps. Errors and other answers have separate limits:
///
/// | Answer | Limit | At the limit |
/// |---|---|---|
/// | an error | [`MAX_REFUSALS`](super::MAX_REFUSALS) | the answer loses its body |
/// | another answer | [`MAX_PUBLIC`](super::MAX_PUBLIC) | the client gets a 429 without a body |
///
/// An answer without a body never waits for its client, because HTTP/2 flow control does not apply
/// to headers.
fn limit_small_answer(
    shared: &ServerState,
    response: &mut Response,
    running: Option<RunningRequest>,
) -> HeldPermits {
    let is_error = !response.status().is_success() && !response.status().is_redirection();
    let limit = if is_error {
        &shared.refusals
    } else {
        &shared.public_answers
    };
    if let Ok(permit) = Arc::clone(limit).try_acquire_owned() {
        return HeldPermits {
            _running: running,
            _small_answer: Some(permit),
        };
    }
    if !is_error {
        *response = overload();
    }
    *response.body_mut() = Body::empty();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONTENT_ENCODING);
    HeldPermits::default()
}

/// Removes the body of an answer to a HEAD request, and keeps its headers.
fn remove_body(response: &mut Response) {
    let size = response.body().size_hint().exact();
    // For an empty body of known length, hyper would send `Content-Length: 0`. So the new body is a
    // stream, whose length hyper does not know.
    let nothing = futures::stream::empty::<Result<bytes::Bytes, Infallible>>();
    *response.body_mut() = Body::from_stream(nothing);
    if let Some(size) = size {
        response
            .headers_mut()
            .entry(header::CONTENT_LENGTH)
            .or_insert(HeaderValue::from(size));
    }
}

/// Returns the audit ID that the client has sent. Creates a new ID if the client has sent none, or
/// an ID that is empty or longer than 64 bytes.
fn audit_id(headers: &HeaderMap) -> HeaderValue {
    headers
        .get("audit-id")
        // The kube-apiserver has the same limit.
        .filter(|value| !value.is_empty() && value.len() <= 64)
        .cloned()
        .unwrap_or_else(|| {
            HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
                .expect("a UUID is a valid header value")
        })
}

/// Calls the handler (`next`) if the request is admitted. Returns the answer and the running
/// request, which keeps its slot until the answer has been sent. The running request is None for a
/// watch, and for a request that is refused before its handler runs.
async fn run_handler(
    shared: &Arc<ServerState>,
    (requested, query): (RequestTarget, Arc<Query>),
    parts: Parts,
    next: Next,
    line: &mut RequestLogLine,
) -> (Response, Option<RunningRequest>) {
    let admission = admit(shared, (&requested, &query), &parts, line).await;
    let Admission {
        watch_slot,
        request_slot,
        is_public,
        user,
    } = match admission {
        Ok(admission) => admission,
        Err(response) => return (response, None),
    };
    let limit = match (&watch_slot, query.timeout()) {
        (Some(_), _) => None,
        (None, Ok(limit)) => Some(
            limit
                .filter(|limit| !limit.is_zero())
                .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT)),
        ),
        (None, Err(failure)) => return (error_response(failure, &parts.headers, &query), None),
    };
    let is_websocket = websocket::is_requested(&parts);
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(Admitted {
        requested,
        query,
        is_websocket,
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
    let result = tokio::time::timeout(limit, next.run(request)).await;
    let response = result.unwrap_or_else(|_| {
        let mut response = ErrorStatus::timeout().into_response();
        response.extensions_mut().insert(SelfDefence);
        response
    });
    (response, Some(running))
}

/// A request whose handler is running, or whose answer is being sent. This value is dropped when
/// the answer has been sent, or when the client disconnects.
struct RunningRequest {
    /// Counts the request in the metric of running requests.
    _counted: CountedInGauge,
    /// The slot in the limit of requests.
    _slot: Option<RequestSlot>,
    is_public: bool,
}

/// Returns the labels of the request in metrics. Their values come from fixed sets, so clients
/// cannot create an unlimited number of time series.
fn labels(
    shared: &ServerState,
    requested: Option<&RequestTarget>,
    method: &'static str,
) -> RequestLabels {
    let known = match requested {
        Some(RequestTarget::Resource(request)) => {
            let at = shared.position(request);
            at.map(|at| (request, &shared.resources[at]))
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

fn count(shared: &ServerState, labels: &RequestLabels, response: &Response, started: Instant) {
    let code = response.status().as_u16();
    let duration = (labels.verb != "WATCH").then(|| clock::since(started));
    let metrics = &shared.server.metrics;
    if response.extensions().get::<SelfDefence>().is_some() {
        metrics.request_terminated(labels, code);
    }
    metrics.request(labels, code, duration);
}
