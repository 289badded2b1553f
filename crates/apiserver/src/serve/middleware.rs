//! The middleware around all routes. Before the handler of a request runs, the middleware admits
//! the request (see [`super::admission`]). After the handler, the middleware compresses the answer,
//! and counts and logs the request. It also limits the time in which the client must read the
//! answer.

use super::admission::{Requested, Slot, admit};
use super::answer::error_status::ErrorStatus;
use super::answer::gzip;
use super::connection::connections::{ClientConnection, RequestInFlight};
use super::connection::delivery::Delivery;
use super::request::method_name;
use super::request_log::{self, ClientAddress, LogLine};
use super::{REQUEST_TIMEOUT, ServerState};
use crate::auth::{Attributes, User};
use crate::clock;
use crate::metrics::RequestLabels;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Time limit for a client to read the answer to a refused request, to a request for a public path,
/// or to a health probe. After this time, the server aborts the answer. So a slow client cannot
/// hold the memory of its answer for longer. The limit can be short, because most of these answers
/// have only a few KB.
const SMALL_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An admitted request. The handler gets it as an extension of the request.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub requested: Arc<Requested>,
    /// The authenticated user. None for a public path (a path without authentication) without a
    /// token.
    pub user: Option<User>,
}

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
    let connection = parts.extensions.get::<Arc<ClientConnection>>().cloned();
    let in_flight = parts.extensions.get::<Arc<RequestInFlight>>().cloned();
    // The kube-apiserver sends `x-remote-user` in the requests that it forwards. It adds the
    // headers `Audit-ID` and `Cache-Control` to the answers. If this server also added these
    // headers, the client would receive each header twice.
    let is_proxied = parts.headers.contains_key("x-remote-user");
    let audit_id = audit_id(&parts.headers);
    let accepts_gzip = gzip::accepts_gzip(&parts.headers);
    let requested = Requested::of(&mut parts).map(Arc::new);
    let attributes = requested.as_ref().ok().map(|it| &it.attributes);
    let labels = labels(&shared, attributes, method_name(&method));
    let mut user = None;
    let logged = requested.as_ref().ok().cloned();
    let (mut response, slot) = match requested {
        Ok(requested) => run_handler(&shared, parts, requested, next, &mut user).await,
        Err(failure) => (failure.into_response(), None),
    };
    let is_watch = labels.verb == "WATCH";
    if accepts_gzip && !is_watch {
        response = gzip::compress(response);
    }
    if !is_proxied {
        let headers = response.headers_mut();
        headers.insert("audit-id", audit_id.clone());
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
    }
    let code = response.status();
    let (kept, time_limit) = match slot {
        Some(slot) if !is_watch => (Some(slot), Some(REQUEST_TIMEOUT)),
        slot if is_watch && (code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS) => {
            (slot, None)
        }
        _ => {
            let is_front_proxy = connection.is_some_and(|it| it.is_front_proxy());
            let limit = &shared.load.small_answers[usize::from(is_front_proxy)];
            let permit = limit_small_answer(limit, uri.path(), &mut response);
            (permit, Some(SMALL_ANSWER_TIMEOUT))
        }
    };
    count(&shared, &labels, response.status(), started);
    let line = request_log::is_enabled().then(|| LogLine {
        started,
        client,
        user,
        method: method_name(&method),
        requested: logged,
        uri,
        audit_id,
        code: response.status(),
    });
    response.map(|body| {
        let on_abort = move || shared.server.metrics.request_aborted(&labels);
        Delivery::body(body, time_limit, (kept, line, in_flight), on_abort)
    })
}

/// Takes a slot for the answer to a refused request, to a request for a public path, or to a health
/// probe. If no slot is free, this function removes the body of the answer. It also replaces the
/// status code by a 429, unless the answer is an error or the answer to a probe.
///
/// An answer without a body never waits for its client, because HTTP/2 flow control does not apply
/// to headers.
fn limit_small_answer(limit: &Arc<Semaphore>, path: &str, response: &mut Response) -> Option<Slot> {
    if let Ok(permit) = Arc::clone(limit).try_acquire_owned() {
        return Some(Box::new(permit));
    }
    let code = response.status();
    // The kubelet reads only the status code of the answer.
    let is_probe = ["/livez", "/readyz", "/healthz"].contains(&path);
    if !is_probe && (code.is_success() || code.is_redirection()) {
        *response = ErrorStatus::too_many_requests("").into_response();
    }
    *response.body_mut() = Body::empty();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::CONTENT_ENCODING);
    None
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
/// answer keeps. The slot is None for a refused request, a public path and a health probe.
async fn run_handler(
    shared: &Arc<ServerState>,
    parts: Parts,
    requested: Arc<Requested>,
    next: Next,
    user: &mut Option<User>,
) -> (Response, Option<Slot>) {
    let (is_watch, is_small) = (requested.is_watch(), requested.is_public_or_probe());
    let admitted = admit(shared, &parts, &requested, user).await;
    // The option `timeout` does not apply to a watch. A watch has the option `timeoutSeconds`.
    let limit = if is_watch {
        Ok(None)
    } else {
        requested.query.timeout()
    };
    let (slot, limit) = match admitted.and_then(|slot| Ok((slot, limit?))) {
        Ok(admitted) => admitted,
        Err(failure) => return (failure.into_response(), None),
    };
    let mut request = Request::from_parts(parts, Body::empty());
    request.extensions_mut().insert(Admitted {
        requested,
        user: user.clone(),
    });
    if is_watch {
        return (next.run(request).await, slot);
    }
    let counted = shared.server.metrics.in_flight();
    let limit = limit
        .filter(|limit| !limit.is_zero())
        .map_or(REQUEST_TIMEOUT, |limit| limit.min(REQUEST_TIMEOUT));
    let result = tokio::time::timeout(limit, next.run(request)).await;
    let response = result.unwrap_or_else(|_| ErrorStatus::timeout().into_response());
    let kept: Slot = Box::new((counted, slot));
    (response, (!is_small).then_some(kept))
}

/// Returns the labels of the request in metrics. Their values come from fixed sets, so clients
/// cannot create an unlimited number of time series.
fn labels(
    shared: &ServerState,
    attributes: Option<&Attributes>,
    method: &'static str,
) -> RequestLabels {
    let request = match attributes {
        Some(Attributes::Resource(request)) => Some(request),
        _ => None,
    };
    let verb = request.map_or("", |request| request.verb);
    let verb = if verb.is_empty() { method } else { verb }.to_ascii_uppercase();
    let found = request.and_then(|request| Some((request, shared.resource(request)?.info)));
    let Some((request, resource)) = found else {
        return RequestLabels {
            verb,
            ..RequestLabels::default()
        };
    };
    RequestLabels {
        verb,
        group: resource.group,
        version: resource.version,
        resource: resource.plural,
        scope: match (&*request.namespace, &*request.name) {
            ("", "") => "cluster",
            (_, "") => "namespace",
            _ => "resource",
        },
    }
}

/// Counts the request in the metrics. A request with the answer 429 or 504 also counts as
/// terminated.
fn count(shared: &ServerState, labels: &RequestLabels, code: StatusCode, started: Instant) {
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
