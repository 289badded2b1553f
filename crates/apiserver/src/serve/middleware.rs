//! The middleware around all routes. Before the handler of a request runs, the middleware admits the
//! request (see [`super::admission`]). After the handler, the middleware compresses the answer, and
//! counts and logs the request. It also limits the time in which the client must read the answer.

use super::admission::{Incoming, Slot, admit, method_name};
use super::delivery::Delivery;
use super::error_status::ErrorStatus;
use super::gzip;
use super::request::{self, Query, RequestTarget};
use super::request_log::{ClientAddress, RequestLog};
use super::websocket;
use super::{REQUEST_TIMEOUT, ServerState};
use crate::auth::{Unauthenticated, User};
use crate::clock;
use crate::metrics::RequestLabels;
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
use std::time::{Duration, Instant};

/// Time limit for a client to read the answer to a refused request, to a request for a public path,
/// or to a health probe. After this time, the server aborts the answer. So a slow client cannot
/// hold the memory of its answer for longer. Most of these answers have a few KB.
const SMALL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The properties of an admitted request. The handler gets them as an extension of the request.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The target of the request: a resource with a verb, or a path that belongs to no resource.
    pub requested: Arc<RequestTarget>,
    /// The options in the query of the request.
    pub query: Arc<Query>,
    /// True if the client asks for an upgrade to WebSocket. Only watches support this upgrade.
    pub is_websocket: bool,
    /// The slot of a watch. None if the request is not a watch.
    pub watch_slot: Option<Slot>,
    /// The authenticated user. None for public paths (paths without authentication).
    pub user: Option<User>,
}

/// What an answer keeps until the client has read the answer, such as slots.
type Kept = Box<dyn Any + Send>;

/// Processes a request: checks it, calls its handler (`next`), and completes the answer.
pub async fn process_request(
    State(shared): State<Arc<ServerState>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let started = clock::steady();
    // A read-only API needs no request bodies, so the body is dropped unread.
    let (mut parts, _) = request.into_parts();
    let (method, uri) = (parts.method.clone(), parts.uri.clone());
    let client = parts.extensions.get::<ClientAddress>().copied();
    // The kube-apiserver sends `x-remote-user` in the requests that it forwards. It adds the
    // headers `Audit-ID` and `Cache-Control` to the answers. If this server also added these
    // headers, the client would receive each header twice.
    let is_proxied = parts.headers.contains_key("x-remote-user");
    let audit_id = audit_id(&parts.headers);
    let accepts_gzip = gzip::accepts_gzip(&parts.headers);
    let query = Arc::new(Query::of(&uri));
    let requested = parse_target(&mut parts, &query).map(Arc::new);
    let labels = labels(&shared, requested.as_deref().ok(), method_name(&method));
    let is_watch = labels.verb == "WATCH";
    let mut user = None;
    let target = requested.as_ref().ok().cloned();
    let (mut response, kept) = match requested {
        Ok(requested) => {
            let request = Incoming {
                parts,
                requested,
                query,
            };
            run_handler(&shared, request, next, &mut user).await
        }
        Err(failure) => (failure.into_response(), None),
    };
    if accepts_gzip && !is_watch {
        response = gzip::compress(response);
    }
    if method == Method::HEAD {
        remove_body(&mut response);
    }
    if !is_proxied {
        let headers = response.headers_mut();
        headers.insert("audit-id", audit_id.clone());
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
    }
    let is_started_watch = is_watch
        && (response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS);
    let (kept, time_limit) = match kept {
        Some(kept) => (Some(kept), Some(REQUEST_TIMEOUT)),
        None if is_started_watch => (None, None),
        None => (
            limit_small_answer(&shared, &mut response),
            Some(SMALL_ANSWER_TIMEOUT),
        ),
    };
    count(&shared, &labels, &response, started);
    let code = response.status().as_u16();
    let line = RequestLog::is_enabled().then(|| {
        let mut line = RequestLog {
            started,
            client,
            user: user.map(|user| user.name).unwrap_or_default(),
            verb: method_name(&method),
            resource: String::new(),
            namespace: String::new(),
            path: uri.path().to_owned(),
            code,
            audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
        };
        if let Some(RequestTarget::Resource(request)) = target.as_deref() {
            line.verb = request.verb;
            line.resource.clone_from(&request.resource);
            line.namespace.clone_from(&request.namespace);
        }
        line
    });
    response.map(|body| {
        let on_abort = move || shared.server.metrics.request_aborted(&labels);
        Delivery::body(body, time_limit, (kept, line), on_abort)
    })
}

/// Moves the token of a WebSocket request to the header `Authorization`, and parses the path.
fn parse_target(parts: &mut Parts, query: &Query) -> Result<RequestTarget, ErrorStatus> {
    if websocket::is_requested(parts) {
        websocket::move_token_to_authorization(&mut parts.headers)
            .map_err(|Unauthenticated| ErrorStatus::unauthorized())?;
    }
    request::parse(&parts.method, &parts.uri, query)
}

/// Takes a slot for the answer to a refused request, to a request for a public path, or to a health
/// probe. Errors and other answers have separate limits:
///
/// | Answer | Limit | At the limit |
/// |---|---|---|
/// | an error | [`MAX_REFUSALS`](super::MAX_REFUSALS) | the answer loses its body |
/// | another answer | [`MAX_PUBLIC`](super::MAX_PUBLIC) | the client gets a 429 without a body |
///
/// An answer without a body never waits for its client, because HTTP/2 flow control does not apply
/// to headers.
fn limit_small_answer(shared: &ServerState, response: &mut Response) -> Option<Kept> {
    let is_error = !response.status().is_success() && !response.status().is_redirection();
    let limit = if is_error {
        &shared.refusals
    } else {
        &shared.public_answers
    };
    if let Ok(permit) = Arc::clone(limit).try_acquire_owned() {
        return Some(Box::new(permit));
    }
    if !is_error {
        *response = ErrorStatus::too_many_requests("").into_response();
    }
    *response.body_mut() = Body::empty();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONTENT_ENCODING);
    None
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

/// Calls the handler (`next`) if the request is admitted. Returns the answer, and the slot that the
/// answer keeps. It is None for a refused request, a public path, a health probe and a watch.
async fn run_handler(
    shared: &Arc<ServerState>,
    request: Incoming,
    next: Next,
    user: &mut Option<User>,
) -> (Response, Option<Kept>) {
    let admitted = admit(shared, &request, user).await;
    // A watch has its own option for its time limit.
    let limit = if request.is_watch() {
        Ok(None)
    } else {
        request.query.timeout()
    };
    let (slot, limit) = match admitted.and_then(|slot| Ok((slot, limit?))) {
        Ok(admitted) => admitted,
        Err(failure) => return (failure.into_response(), None),
    };
    let (is_watch, is_small) = (request.is_watch(), request.is_public_or_probe());
    let Incoming {
        parts,
        requested,
        query,
    } = request;
    let is_websocket = websocket::is_requested(&parts);
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(Admitted {
        requested,
        query,
        is_websocket,
        watch_slot: slot.clone().filter(|_| is_watch),
        user: user.clone(),
    });
    if is_watch {
        return (next.run(request).await, None);
    }
    let counted = shared.server.metrics.in_flight();
    let limit = limit
        .filter(|limit| !limit.is_zero())
        .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT));
    let result = tokio::time::timeout(limit, next.run(request)).await;
    let response = result.unwrap_or_else(|_| ErrorStatus::timeout().into_response());
    let kept: Kept = Box::new((counted, slot));
    (response, (!is_small).then_some(kept))
}

/// Returns the labels of the request in metrics. Their values come from fixed sets, so clients
/// cannot create an unlimited number of time series.
fn labels(
    shared: &ServerState,
    requested: Option<&RequestTarget>,
    method: &'static str,
) -> RequestLabels {
    let mut labels = RequestLabels {
        verb: method.to_ascii_uppercase(),
        ..RequestLabels::default()
    };
    let Some(RequestTarget::Resource(request)) = requested else {
        return labels;
    };
    if !request.verb.is_empty() {
        labels.verb = request.verb.to_ascii_uppercase();
    }
    let Some(at) = shared.position(request) else {
        return labels;
    };
    let resource = &shared.resources[at];
    RequestLabels {
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
        ..labels
    }
}

/// Counts the request in the metrics. A 429 and a timeout count as terminated requests.
fn count(shared: &ServerState, labels: &RequestLabels, response: &Response, started: Instant) {
    let code = response.status();
    let duration = (labels.verb != "WATCH").then(|| clock::since(started));
    let metrics = &shared.server.metrics;
    if matches!(
        code,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT
    ) {
        metrics.request_terminated(labels, code.as_u16());
    }
    metrics.request(labels, code.as_u16(), duration);
}
