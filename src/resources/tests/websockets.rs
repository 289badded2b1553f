//! Tests of watches over WebSocket, with real connections over loopback.

use super::connection_timeouts::{advance, server_with_large_list};
use super::tls_listener::Listening;
use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{SinkExt as _, StreamExt as _};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

const LIST: &str = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true&\
                    allowWatchBookmarks=true";
/// The key and the answer to it from RFC 6455.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Time limit of each step of a test. A step normally takes far less time.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) async fn listening(fixture: &Fixture) -> Listening {
    Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await
}

/// The client's side of a WebSocket watch.
pub(super) struct Client {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    /// The headers of the answer 101.
    headers: HeaderMap,
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
    let headers = answer.headers().clone();
    let io = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    let socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    Ok(Client { socket, headers })
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
async fn each_event_is_one_message() {
    let mut fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    for accept in ["application/json", TABLE] {
        let headers = [("accept", accept)];
        let mut client = opened(&listening, LIST, &headers).await;
        assert_eq!(client.headers["sec-websocket-accept"], ACCEPT);
        assert_eq!(client.headers.get("sec-websocket-protocol"), None);
        let mut messages = Vec::new();
        for _ in 0..6 {
            messages.push(client.next_event().await);
        }
        let types = messages.iter().map(|message| {
            assert_eq!(message.matches('\n').count(), 1);
            assert!(message.ends_with('\n'));
            let event: Value = serde_json::from_str(message).unwrap();
            event["type"].as_str().unwrap().to_owned()
        });
        let types: Vec<String> = types.collect();
        assert_eq!(types[5], "BOOKMARK");
        assert!(types[..5].iter().all(|it| it == "ADDED"), "{types:?}");

        // The same watch over HTTP has the same bytes.
        let path = format!("{BASE}/inflightoperations?watch=1&{LIST}");
        let mut body = fixture
            .send(request("GET", &path, &headers))
            .await
            .into_body();
        let mut lines = Vec::new();
        while lines.split_inclusive(|byte| *byte == b'\n').count() < 6 || !lines.ends_with(b"\n") {
            let frame = body.frame().await.unwrap().unwrap();
            lines.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(messages.concat(), String::from_utf8(lines).unwrap());

        let version = if accept == TABLE { 107 } else { 106 };
        fixture.put(version, "b", "w", |_| {});
        let event: Value = serde_json::from_str(&client.next_event().await).unwrap();
        assert_eq!(event["type"], "MODIFIED");
        let version = version.to_string();
        assert_eq!(event["object"]["metadata"]["resourceVersion"], version);
    }
}

#[tokio::test]
async fn the_only_subprotocol_is_accepted() {
    let fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    for subprotocol in ["base64.binary.k8s.io", "binary.k8s.io", "other"] {
        let headers = [("sec-websocket-protocol", subprotocol)];
        let mut client = opened(&listening, "resourceVersion=104", &headers).await;
        assert_eq!(client.headers["sec-websocket-protocol"], subprotocol);
        assert!(client.next_event().await.starts_with("{\"type\":\"ADDED\""));
    }
}

#[tokio::test]
async fn errors_before_the_start_are_http_answers() {
    let fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    for (query, headers, code) in [
        ("", ("sec-websocket-key", ""), 400),
        ("", ("sec-websocket-version", "8"), 400),
        ("", ("sec-websocket-protocol", "a, b"), 400),
        ("", ("accept", "application/yaml"), 406),
        ("sendInitialEvents=true", ("accept", "*/*"), 422),
        ("", ("x-user", "nobody"), 403),
        ("", ("authorization", "Bearer bad"), 401),
    ] {
        let refused = open(&listening, query, &[headers]).await;
        let (answered, body) = refused.err().expect("the request must be refused");
        assert_eq!(answered, code, "{headers:?} {body}");
        let status: Value = serde_json::from_str(&body).unwrap_or_default();
        if code != 406 {
            assert_eq!(status["code"], code, "{body}");
        }
    }
    wait_for_watches(&fixture, 0).await;
}

#[tokio::test]
async fn a_subprotocol_can_contain_the_token() {
    let fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    for (token, is_valid) in [("good", true), ("bad", false)] {
        let token = URL_SAFE_NO_PAD.encode(token);
        let offered = format!("base64url.bearer.authorization.k8s.io.{token}, x.k8s.io");
        let headers = [("sec-websocket-protocol", offered.as_str())];
        match open(&listening, "resourceVersion=104", &headers).await {
            Ok(client) => {
                assert!(is_valid);
                assert_eq!(client.headers["sec-websocket-protocol"], "x.k8s.io");
            }
            Err((code, _)) => assert_eq!((code.as_u16(), is_valid), (401, false)),
        }
    }
}

#[tokio::test]
async fn the_end_of_a_watch_is_a_close_frame() {
    let fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    let client = opened(&listening, "timeoutSeconds=1&resourceVersion=105", &[]).await;
    assert_eq!(client.close_code().await, CloseCode::Normal);

    // This version is older than the changes that the server still has.
    let mut client = opened(&listening, "resourceVersion=1", &[]).await;
    let event: Value = serde_json::from_str(&client.next_event().await).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(client.close_code().await, CloseCode::Normal);
    wait_for_watches(&fixture, 0).await;

    let client = opened(&listening, "resourceVersion=105", &[]).await;
    fixture.shutdown.cancel();
    assert_eq!(client.close_code().await, CloseCode::Away);
    wait_for_watches(&fixture, 0).await;
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
async fn the_limit_of_watches_includes_websockets() {
    let fixture = Fixture::limited(10, 1);
    let listening = listening(&fixture).await;
    let client = opened(&listening, "resourceVersion=105", &[]).await;
    let (code, _) = open(&listening, "resourceVersion=105", &[])
        .await
        .err()
        .unwrap();
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
    drop(client);
    wait_for_watches(&fixture, 0).await;
    opened(&listening, "resourceVersion=105", &[]).await;
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
    // The last free place is for a user who has none.
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
