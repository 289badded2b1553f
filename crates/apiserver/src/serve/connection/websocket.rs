//! Serves watches over WebSocket, with which dashboards in browsers watch resources. Input: a watch
//! request that asks for the upgrade to WebSocket. Output: the answer 101, and then one message for
//! each event of the watch.
//!
//! A WebSocket watch has the same events, limits and log line as any other watch, because only the
//! transport differs:
//!
//! 1. The handler of the watch creates its usual answer. [`accept`] changes the status code and the
//!    headers of this answer to those of a WebSocket handshake. The body still has the events.
//! 2. The middleware wraps the body, as it does for any other watch.
//! 3. The listener takes the body from the answer, and completes the upgrade of the connection.
//!    [`EventSocket`] then reads events from the body and sends them as messages.
//!
//! As in the kube-apiserver, each message has the type text and contains one event in JSON. The
//! server ignores the data that it receives. Only HTTP/1.1 has this upgrade. To forward a request
//! for the upgrade, the kube-apiserver always uses HTTP/1.1.

mod bearer_subprotocol;

use super::delivery::STALL_TIMEOUT;
use crate::serve::answer::error_status::ErrorStatus;
use axum::BoxError;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use http_body_util::BodyExt as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

pub use bearer_subprotocol::move_token_to_authorization;

/// RFC 6455 defines this text. The answer contains the hash of the client's key and this text. The
/// hash proves that the server supports WebSocket.
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Largest message that a client may send, in bytes. After a larger message, the server closes the
/// connection. The server ignores all messages, so no client needs to send any.
const MAX_RECEIVED: usize = 4 << 10;
/// Size of the buffer for received data in bytes. Each WebSocket watch has this buffer.
const READ_BUFFER: usize = 4 << 10;
/// Time limit for the client to answer the close frame of the server. After this time, the server
/// closes the connection without the answer. The limit is shorter than the ten seconds that open
/// requests have at shutdown. So WebSocket watches do not make the shutdown longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns true if the client asks for an upgrade to WebSocket.
pub fn is_requested(request: &Parts) -> bool {
    let has = |name: HeaderName, wanted: &str| {
        let values = request.headers.get_all(name).iter();
        let mut tokens = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        tokens.any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    request.method == Method::GET
        && request.version == Version::HTTP_11
        && has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
}

/// Changes the answer of a watch to the answer of a WebSocket handshake. The events stay in the
/// body. Returns a 400 if the handshake of the client is invalid.
///
/// As in the kube-apiserver, a client may offer one subprotocol, which has no effect. A client that
/// offers several subprotocols gets a 400, because the server cannot know which one the client
/// expects.
///
/// The header `Origin` is not checked. This check would protect users who authenticate with
/// cookies, and this server does not use cookies.
pub fn accept(headers: &HeaderMap, watch: Response) -> Result<Response, ErrorStatus> {
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|key| !key.is_empty())
        .ok_or_else(|| ErrorStatus::bad_request("mismatch challenge/response"))?;
    if headers
        .get(header::SEC_WEBSOCKET_VERSION)
        .is_none_or(|version| version != "13")
    {
        return Err(ErrorStatus::bad_request(
            "missing or bad WebSocket Version: the server supports version 13",
        ));
    }
    let mut subprotocols = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter(|value| !value.is_empty());
    let subprotocol = subprotocols.next();
    if subprotocols.next().is_some() || subprotocol.is_some_and(|it| it.as_bytes().contains(&b','))
    {
        return Err(ErrorStatus::bad_request(
            "the client offers more than one WebSocket subprotocol",
        ));
    }
    let upgrade = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept_value(key)),
    ];
    let subprotocol = subprotocol.map(|it| [(header::SEC_WEBSOCKET_PROTOCOL, it.clone())]);
    let code = StatusCode::SWITCHING_PROTOCOLS;
    Ok((code, upgrade, subprotocol, watch.into_body()).into_response())
}

fn accept_value(key: &HeaderValue) -> HeaderValue {
    let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(ACCEPT_SUFFIX);
    HeaderValue::try_from(STANDARD.encode(hash.finish())).expect("Base64 is a valid header value")
}

/// The connection of a WebSocket watch.
pub struct EventSocket(WebSocketStream<TokioIo<Upgraded>>);

impl EventSocket {
    /// Waits until the answer 101 has been sent. From then on, the protocol of the connection is
    /// WebSocket.
    pub async fn open(upgrade: OnUpgrade) -> Result<Self, BoxError> {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .max_message_size(Some(MAX_RECEIVED))
            .max_frame_size(Some(MAX_RECEIVED));
        let io = TokioIo::new(upgrade.await?);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config));
        Ok(Self(socket.await))
    }

    /// Sends the events of a watch until the watch ends, the client closes the connection, or
    /// `going_away` completes. Then closes the connection.
    pub async fn serve(
        mut self,
        events: Body,
        going_away: impl Future<Output = ()>,
    ) -> Result<(), BoxError> {
        let code = tokio::select! {
            biased;
            () = going_away => Some(CloseCode::Away),
            code = self.send_events(events) => code?,
        };
        // If the client does not answer the close frame in time, the server closes the connection.
        let closed = timeout(CLOSE_TIMEOUT, self.close(code)).await;
        Ok(closed.unwrap_or(Ok(()))?)
    }

    /// Sends each event as one message. Returns when the body has ended, or when the client has
    /// sent a close frame or a message that is too large. The result is the code of the close frame
    /// that the server must send, or None if the client has sent a close frame.
    async fn send_events(&mut self, mut events: Body) -> Result<Option<CloseCode>, BoxError> {
        loop {
            tokio::select! {
                received = self.0.next() => match received {
                    None | Some(Ok(Message::Close(_))) => return Ok(None),
                    // The answer to a ping is sent before the next message is read. So a client
                    // that does not read cannot fill the memory with answers.
                    Some(Ok(Message::Ping(_))) => timeout(STALL_TIMEOUT, self.0.flush()).await??,
                    Some(Err(Error::Capacity(_))) => return Ok(Some(CloseCode::Size)),
                    Some(received) => drop(received?),
                },
                frame = events.frame() => {
                    let Some(frame) = frame.transpose()? else {
                        return Ok(Some(CloseCode::Normal));
                    };
                    // The chunk is dropped when all its events have been sent. Until then, the
                    // module `delivery` counts the chunk as unsent, and aborts the exchange if the
                    // client does not read.
                    let chunk = frame.into_data().unwrap_or_default();
                    // The JSON of an event contains no line feed, except at its end.
                    for event in chunk.split_inclusive(|byte| *byte == b'\n') {
                        let event = chunk.slice_ref(event);
                        let frame = Frame::message(event, OpCode::Data(Data::Text), true);
                        self.0.send(Message::Frame(frame)).await?;
                    }
                }
            }
        }
    }

    /// Sends a close frame with this code. If the code is None, the client has sent a close frame,
    /// and the library answers it with the same code. Waits until both sides have sent a close
    /// frame, and closes the TLS connection.
    async fn close(&mut self, code: Option<CloseCode>) -> Result<(), Error> {
        if let Some(code) = code {
            let reason = "".into();
            self.0.close(Some(CloseFrame { code, reason })).await?;
        }
        // While this loop reads, the library also sends the answer to the client's close frame.
        while let Some(Ok(_)) = self.0.next().await {}
        // The client may already have closed its side.
        let _ = self.0.get_mut().shutdown().await;
        Ok(())
    }
}
