//! A WebSocket client for watches in tests.

use super::Caller;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

/// The messages of a WebSocket connection.
pub struct Messages(WebSocketStream<TokioIo<Upgraded>>);

/// Adds the headers of a WebSocket handshake that the request does not have. Removes the headers with
/// the value `-`, so that a test can leave out a header. Both sides of a test have the same key, so
/// the server's answers to the key are equal.
pub fn add_handshake(request: &mut Request<Body>) {
    let headers = request.headers_mut();
    for (name, value) in [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, "websocket"),
        (header::ORIGIN, "http://localhost:8001"),
        (header::SEC_WEBSOCKET_VERSION, "13"),
        (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
    ] {
        let value = http::HeaderValue::from_static(value);
        let given = headers.entry(&name).or_insert(value);
        if given == "-" {
            headers.remove(name);
        }
    }
}

/// Sends a request that asks for a WebSocket. Returns the answer 101 and the messages after it.
/// Returns only the answer if it has another status code.
pub async fn open(
    caller: &Caller,
    request: Request<Body>,
) -> Result<(Response<Body>, Option<Messages>), String> {
    let answer = caller.client.send(request).await;
    let mut answer = answer.map_err(|error| error.to_string())?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok((answer, None));
    }
    let upgraded = hyper::upgrade::on(&mut answer).await;
    let io = TokioIo::new(upgraded.map_err(|error| error.to_string())?);
    let socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    Ok((answer, Some(Messages(socket))))
}

impl Messages {
    /// Returns the next message. Returns None if the connection ends without a close frame.
    pub async fn next(&mut self) -> Option<Message> {
        self.0.next().await?.ok()
    }
}
