//! Tests of watches over WebSocket, with real connections over loopback.

use super::connection_timeouts::{advance, server_with_large_list};
use super::tls_listener::Listening;
use super::*;
use futures::{SinkExt as _, StreamExt as _};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

/// The key from RFC 6455.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// Time limit of each step of a test. A step normally takes far less time.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) async fn listening(fixture: &Fixture) -> Listening {
    Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await
}

/// The client's side of a WebSocket watch.
pub(super) struct Client {
    socket: WebSocketStream<TokioIo<Upgraded>>,
}

/// Opens a watch of the operations with [`open_path`].
async fn open(
    listening: &Listening,
    query: &str,
    headers: &[(&str, &str)],
) -> Result<Client, (StatusCode, String)> {
    let path = format!("{BASE}/inflightoperations?watch=1&{query}");
    open_path(listening, &path, headers).await
}

/// Sends a watch request with the headers of a WebSocket handshake and with `headers`. A header in
/// `headers` replaces a header of the handshake. Returns the answer if its status code is not 101.
pub(super) async fn open_path(
    listening: &Listening,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Client, (StatusCode, String)> {
    let io = TokioIo::new(listening.connect(b"http/1.1", false).await);
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let handshake = [
        ("host", "localhost"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", KEY),
    ];
    let mut asked = request("GET", path, &handshake);
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        asked.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = sender.send_request(asked).await.unwrap();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err((answer.status(), text(answer.map(Body::new)).await));
    }
    let io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    Ok(Client { socket })
}

async fn opened(listening: &Listening, query: &str, headers: &[(&str, &str)]) -> Client {
    let client = open(listening, query, headers).await;
    client.unwrap_or_else(|refused| panic!("{query}: {refused:?}"))
}

impl Client {
    async fn next(&mut self) -> Message {
        let message = tokio::time::timeout(STEP_TIMEOUT, self.socket.next()).await;
        message
            .expect("the server sends no message")
            .expect("the server has closed the connection")
            .expect("the server sends valid messages")
    }

    /// Returns the next event, with its line feed.
    pub(super) async fn next_event(&mut self) -> String {
        match self.next().await {
            Message::Text(event) => event.to_string(),
            other => panic!("the server sent {other:?}"),
        }
    }

    /// Returns the code of the close frame, which must be the next message. Then waits until the
    /// server has closed the connection.
    async fn close_code(mut self) -> CloseCode {
        let Message::Close(Some(frame)) = self.next().await else {
            panic!("the server did not send a close frame")
        };
        let end = tokio::time::timeout(STEP_TIMEOUT, self.socket.next()).await;
        assert!(end.expect("the connection stays open").is_none());
        frame.code
    }
}

/// Waits until the metric reports this number of watches.
async fn wait_for_watches(fixture: &Fixture, number: usize) {
    let wanted = format!("ifo_watchers {number}\n");
    let reached = async {
        while !fixture.metrics.render().contains(&wanted) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, reached)
        .await
        .expect("the metric must reach the expected number");
}

#[tokio::test]
async fn a_watch_ends_when_its_client_closes_the_connection() {
    let fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    let mut client = opened(&listening, "resourceVersion=105", &[]).await;
    wait_for_watches(&fixture, 1).await;
    client.socket.close(None).await.unwrap();
    assert!(matches!(client.next().await, Message::Close(None)));
    wait_for_watches(&fixture, 0).await;

    // This client closes its TCP connection without a close frame.
    let client = opened(&listening, "resourceVersion=105", &[]).await;
    wait_for_watches(&fixture, 1).await;
    drop(client);
    wait_for_watches(&fixture, 0).await;
}

#[tokio::test]
async fn pings_are_answered_and_messages_are_ignored() {
    let mut fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    let mut client = opened(&listening, "resourceVersion=105", &[]).await;
    client.socket.send(Message::text("hello")).await.unwrap();
    let ping = Message::Ping("beat".into());
    client.socket.send(ping).await.unwrap();
    assert_eq!(client.next().await, Message::Pong("beat".into()));
    fixture.put(106, "b", "w", |_| {});
    let event = client.next_event().await;
    assert!(event.starts_with("{\"type\":\"MODIFIED\""), "{event}");

    let too_long = Message::text("x".repeat(5000));
    client.socket.send(too_long).await.unwrap();
    let code = client.close_code().await;
    assert_eq!(code, CloseCode::Size);
    wait_for_watches(&fixture, 0).await;
}

#[tokio::test]
async fn websockets_leave_connections_for_other_requests() {
    let limits = Limits {
        connections: 16,
        ..Limits::default()
    };
    let fixture = Fixture::within(limits);
    let listening = Listening::within(16, fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut clients = Vec::new();
    let mut codes = Vec::new();
    for user in ["a", "a", "a", "b", "b", "c"] {
        let headers = [("x-user", user)];
        match open(&listening, "resourceVersion=105", &headers).await {
            Ok(client) => {
                clients.push(client);
                codes.push(101);
            }
            Err((code, _)) => codes.push(code.as_u16()),
        }
    }
    // The last free watch is reserved for a user without a watch.
    assert_eq!(codes, [101, 101, 429, 101, 429, 101]);
    wait_for_watches(&fixture, 4).await;
    clients.pop();
    wait_for_watches(&fixture, 3).await;
    opened(&listening, "resourceVersion=105", &[("x-user", "c")]).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let fixture = server_with_large_list();
    let listening = listening(&fixture).await;
    let mut slow = opened(&listening, "resourceVersion=0", &[]).await;
    let mut idle = opened(&listening, "resourceVersion=160", &[]).await;
    wait_for_watches(&fixture, 2).await;
    advance(Duration::from_secs(121)).await;
    wait_for_watches(&fixture, 1).await;
    let mut received = 0;
    while let Some(Ok(message)) = slow.socket.next().await {
        assert!(message.is_text(), "{message:?}");
        received += 1;
    }
    assert!(received < 60, "the server sent all {received} events");
    let ping = Message::Ping("beat".into());
    idle.socket.send(ping).await.unwrap();
    assert_eq!(idle.next().await, Message::Pong("beat".into()));
}
