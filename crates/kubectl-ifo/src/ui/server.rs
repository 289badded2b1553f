//! Answers the requests of the page with HTTP/1.1 on 127.0.0.1.
//!
//! Each connection serves one request. The number of connections, the size of the headers and the
//! time of each answer are bounded.

use super::contents::{self, PageContents};
use super::guard::{Guard, Refusal, refuse};
use super::page;
use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::describe::{events, get_rule_set};
use crate::output::print::print;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, SET_COOKIE};
use http::{Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::Event;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Largest number of connections. Further connections wait until one ends.
const MAX_CONNECTIONS: usize = 64;

/// Time in which a client must send the headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a connection is closed, unless it is the stream of a tab. So clients that read
/// nothing do not use up the [`MAX_CONNECTIONS`] for a longer time.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The media type of the stream of a tab.
const EVENT_STREAM: &str = "text/event-stream";

/// Largest number of Events in an answer. Older Events are left out.
const MAX_EVENTS: usize = 50;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What the server needs to answer requests.
pub(super) struct Site {
    pub(super) guard: Guard,
    pub(super) contents: Arc<Mutex<PageContents>>,
    pub(super) server: ApiClient,
}

/// Answers requests. Connections are closed when the returned future is dropped.
pub(super) async fn serve(listener: TcpListener, site: &Site) {
    let accepted = stream::unfold(listener, async |listener| {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return Some((stream, listener)),
                // For example, the process has too many open files. A later attempt can succeed.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    });
    let serve = |stream| site.serve_connection(stream);
    accepted.for_each_concurrent(MAX_CONNECTIONS, serve).await;
}

impl Site {
    async fn serve_connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let is_stream = Cell::new(false);
        let service = service_fn(async |request: Request<Incoming>| {
            let answer = self.answer(request).await;
            is_stream.set(answer.headers()[CONTENT_TYPE] == EVENT_STREAM);
            Ok::<_, Infallible>(answer)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let limit = async {
            sleep(ANSWER_TIMEOUT).await;
            if is_stream.get() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            // An error means that the client has closed the connection, or has sent no valid
            // request.
            _ = connection => {}
            () = limit => {}
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (request, _) = request.into_parts();
        let answer = self.read(&request).await;
        let mut response = answer.unwrap_or_else(|(code, why)| {
            let mut response = json_response(&json!({"error": why}));
            *response.status_mut() = code;
            response
        });
        page::protect(response.headers_mut());
        response
    }

    /// Returns the page, its data, or the details that the page needs when the user opens an
    /// operation. The details are the Events of the subject, and the rule set.
    async fn read(&self, request: &request::Parts) -> Result<Response<Body>, Refusal> {
        self.guard.check(request)?;
        let path = request.uri.path();
        if path == "/" {
            let page = Full::from(page::PAGE.as_str()).boxed_unsync();
            return Ok(response("text/html; charset=utf-8", page));
        }
        if path == "/api/session" {
            return self.session(&request.headers);
        }
        self.guard.check_session(&request.headers)?;
        let query = percent_decode_str(request.uri.query().unwrap_or_default());
        let query = query.decode_utf8_lossy();
        let failed = |it: Problem| (StatusCode::BAD_GATEWAY, it.to_string());
        match path {
            "/api/stream" => {
                let events = contents::events(self.contents.clone());
                let body = StreamBody::new(events.map(|it| Ok(Frame::data(it))));
                Ok(response(EVENT_STREAM, body.boxed_unsync()))
            }
            "/api/events" => {
                let subject = serde_json::from_str(&query)
                    .or_else(|error| refuse(StatusCode::BAD_REQUEST, &error.to_string()))?;
                let events = events::read(&self.server, &subject).await.map_err(failed)?;
                let events: Vec<Value> = events.iter().take(MAX_EVENTS).map(summary).collect();
                Ok(json_response(&json!({"items": events})))
            }
            "/api/ruleset" => {
                let rule_set = get_rule_set(&self.server, &query).await;
                Ok(json_response(&rule_set.map_err(failed)?))
            }
            _ => refuse(StatusCode::NOT_FOUND, "there is no such path"),
        }
    }

    /// Exchanges the token of the printed address for the cookie, and prints an address for the
    /// next browser.
    fn session(&self, headers: &HeaderMap) -> Result<Response<Body>, Refusal> {
        let mut response = json_response(&json!({}));
        if let Some(cookie) = self.guard.sign_in(headers) {
            response.headers_mut().insert(SET_COOKIE, cookie);
            let address = self.guard.new_address();
            // If standard output is closed, no user can read the address.
            let _ = print(format!("for another browser: {address}\n"));
        } else {
            self.guard.check_session(headers)?;
        }
        Ok(response)
    }
}

fn summary(event: &Event) -> Value {
    json!({
        "time": events::last_time(event),
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "source": events::reporter(event),
        "count": events::count(event),
    })
}

fn json_response(value: &Value) -> Response<Body> {
    let body = Full::from(value.to_string()).boxed_unsync();
    response("application/json", body)
}

fn response(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::client;
    use crate::ui::feeds::tests::cluster;
    use tokio::io::{AsyncWriteExt as _, DuplexStream, copy, sink};
    use tokio::time::timeout;

    /// Returns a server, and a connection on which a browser with a session has requested the path.
    async fn requested(path: &str) -> (Site, DuplexStream, DuplexStream) {
        let empty = json!({"metadata": {"resourceVersion": "7"}, "items": []});
        let (source, feeds) = cluster(move |_| Some(empty.clone()));
        let read = PageContents::read(source, feeds, json!({})).await;
        let (contents, _) = read.expect("the cluster answers");
        let site = Site {
            guard: Guard::new(80),
            contents: Arc::new(Mutex::new(contents)),
            server: client(|_| None),
        };
        let address = site.guard.new_address();
        let token = address.split_once("token=").expect("a token").1;
        let token = token.parse().expect("a header");
        let headers = HeaderMap::from_iter([("x-ifo-token".parse().expect("a name"), token)]);
        let cookie = site.guard.sign_in(&headers).expect("the token is new");
        let cookie = cookie.to_str().expect("the cookie is text");
        // The page is larger than this connection.
        let (mut browser, stream) = tokio::io::duplex(4096);
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nCookie: {cookie}\r\n\r\n");
        let sent = browser.write_all(request.as_bytes()).await;
        sent.expect("the request fits");
        (site, browser, stream)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (site, _browser, stream) = requested("/").await;
        site.serve_connection(stream).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_stays_open() {
        let (site, mut browser, stream) = requested("/api/stream").await;
        tokio::spawn(async move { copy(&mut browser, &mut sink()).await });
        let served = timeout(Duration::from_hours(1), site.serve_connection(stream));
        assert!(served.await.is_err(), "the connection was closed");
    }
}
