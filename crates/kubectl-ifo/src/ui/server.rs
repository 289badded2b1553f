//! Answers the requests of the page with HTTP/1.1 on 127.0.0.1.
//!
//! Each connection serves one request. The number of connections and the size of a request are
//! bounded. A connection whose client reads nothing is closed.

use super::feeds::Feeds;
use super::guard::Guard;
use super::page;
use super::reads::{self, Answer, error};
use super::stream;
use crate::api_client::ApiClient;
use crate::output::print;
use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, SET_COOKIE};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Largest number of connections. Further connections wait until one ends.
const MAX_CONNECTIONS: usize = 64;

/// Largest size of the request line and the headers of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Largest number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Time in which a client must send the headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a connection without progress is closed. It is longer than an answer of the
/// cluster takes, and than a stream sends nothing.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for one answer of the cluster.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What the server needs to answer requests.
pub(super) struct Site {
    pub(super) guard: Guard,
    pub(super) feeds: Arc<Feeds>,
    pub(super) server: ApiClient,
    /// The data of the event `begin`, without the time.
    pub(super) begin: Value,
}

/// Answers requests. Connections are closed when the returned future is dropped.
pub(super) async fn serve(listener: TcpListener, site: Arc<Site>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve_connection(stream, site.clone()));
            }
            // An example is the limit of open files.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>) {
    // A part of an answer is taken when the connection has room for it.
    let progress = Arc::new(Notify::new());
    let service = service_fn(|request: Request<Incoming>| {
        let (site, progress) = (site.clone(), progress.clone());
        async move {
            let taken = move |part| {
                progress.notify_one();
                part
            };
            let answer = site.answer(request).await;
            Ok::<_, Infallible>(answer.map(|body| body.map_frame(taken)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let stalled = async { while timeout(STALL_TIMEOUT, progress.notified()).await.is_ok() {} };
    tokio::select! {
        // An error means that the client has closed the connection, or has sent no valid request.
        _ = connection => {}
        () = stalled => {}
    }
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (request, _) = request.into_parts();
        let path = request.uri.path();
        let mut response = if let Err((code, why)) = self.guard.check(&request) {
            json_response(error(code, why))
        } else if path == "/" {
            let page = Full::from(page::PAGE.as_str()).boxed_unsync();
            response("text/html; charset=utf-8", page)
        } else if path == "/api/session" {
            self.session(&request.headers)
        } else if !path.starts_with("/api/") {
            json_response(error(StatusCode::NOT_FOUND, "there is no such file"))
        } else if !self.guard.has_session(&request.headers) {
            json_response(unauthorized())
        } else if path == "/api/stream" {
            self.stream()
        } else {
            json_response(
                self.read(path, request.uri.query().unwrap_or_default())
                    .await,
            )
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let methods = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, methods);
        }
        page::protect(response.headers_mut());
        response
    }

    /// Exchanges the token of the printed address for the cookie, and prints an address for the
    /// next browser.
    fn session(&self, headers: &http::HeaderMap) -> Response<Body> {
        let cookie = self.guard.sign_in(headers);
        if cookie.is_none() && !self.guard.has_session(headers) {
            return json_response(unauthorized());
        }
        let mut response = json_response((StatusCode::OK, serde_json::json!({})));
        let cookie = cookie.and_then(|it| HeaderValue::from_str(&it).ok());
        if let Some(cookie) = cookie {
            response.headers_mut().insert(SET_COOKIE, cookie);
            if let Some(address) = self.guard.new_address() {
                // If standard output is closed, no user can read the address.
                let _ = print(format!("for another browser: {address}\n"));
            }
        }
        response
    }

    fn stream(&self) -> Response<Body> {
        let events = stream::events(self.feeds.clone(), self.begin.clone());
        let body = StreamBody::new(events.map(|it| Ok(Frame::data(it))));
        response("text/event-stream", body.boxed_unsync())
    }

    async fn read(&self, path: &str, query: &str) -> Answer {
        let answer = timeout(CLUSTER_TIMEOUT, reads::read(&self.server, path, query)).await;
        let late = "the cluster has not answered within 30 s";
        answer.unwrap_or_else(|_| error(StatusCode::GATEWAY_TIMEOUT, late))
    }
}

fn unauthorized() -> Answer {
    let how = "open the address that `kubectl ifo ui` has printed last";
    error(StatusCode::UNAUTHORIZED, how)
}

fn json_response((code, value): Answer) -> Response<Body> {
    let body = Full::from(value.to_string()).boxed_unsync();
    let mut response = response("application/json", body);
    *response.status_mut() = code;
    response
}

fn response(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests;
