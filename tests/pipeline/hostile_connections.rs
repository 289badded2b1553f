//! Tests of hostile connections: silent clients, and clients that reset HTTP/2 streams or read no answers.
//! The server must close or limit such connections, stay below its memory limit, and serve other
//! clients.

use crate::demo::{DEADLINE, Demo, OPERATIONS, POLL_INTERVAL, eventually};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Largest resident memory of the server in bytes that the tests allow.
const MAX_MEMORY: u64 = 128 << 20;

async fn tcp(demo: &Demo) -> TcpStream {
    let port = demo.config.cluster_url.port_u16().unwrap();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap()
}

/// Opens a TLS connection to the demo, and negotiates `protocol` (ALPN), such as `h2`.
pub async fn tls(demo: &Demo, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    for root in demo.config.root_cert.as_ref().unwrap() {
        roots.add(root.clone().into()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, tcp(demo).await).await.unwrap()
}

/// Sends `bytes`, and returns everything that the server sends until it closes the connection.
async fn answer(stream: impl AsyncRead + AsyncWrite, bytes: &[u8]) -> Vec<u8> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut received = Vec::new();
    let exchange = async {
        // The server may close or reset the connection at any time. So the test ignores errors.
        let send = async {
            let _ = to.write_all(bytes).await;
            let _ = to.flush().await;
        };
        let _ = tokio::join!(send, from.read_to_end(&mut received));
    };
    timeout(DEADLINE, exchange)
        .await
        .expect("the server must close the connection before the deadline");
    received
}

/// Asserts that the server still serves other clients, has not panicked, and has stayed below
/// [`MAX_MEMORY`].
async fn assert_others_are_served(demo: &Demo) {
    let served = timeout(DEADLINE, demo.operations()).await;
    assert!(
        !served
            .expect("the server must answer other clients before the deadline")
            .is_empty()
    );
    crate::assert_no_panics(&demo.log());
    let peak = crate::peak_memory(demo.id());
    assert!(peak < MAX_MEMORY, "{} MiB at the peak", peak >> 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed() {
    let demo = Demo::start(&[]).await;
    let without_tls = async { answer(tcp(&demo).await, b"").await };
    // This client sends only the beginning of a ClientHello.
    let half_handshake = async { answer(tcp(&demo).await, b"\x16\x03\x01\x02\x00\x01").await };
    let without_request =
        async |protocol: &'static [u8]| answer(tls(&demo, protocol).await, b"").await;
    let half_request = async {
        let head = b"GET /version HTTP/1.1\r\nHost: localhost\r\n";
        answer(tls(&demo, b"http/1.1").await, head).await
    };
    let endless_request = async {
        let mut stream = tls(&demo, b"http/1.1").await;
        let send_slowly = async {
            let mut byte = b"GET /version HTTP/1.1\r\nX: "
                .iter()
                .chain([b'x'].iter().cycle());
            while let Some(byte) = byte.next()
                && stream.write_all(&[*byte]).await.is_ok()
                && stream.flush().await.is_ok()
            {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(DEADLINE, send_slowly)
            .await
            .expect("the server must close the connection before the deadline");
    };
    tokio::join!(
        without_tls,
        half_handshake,
        without_request(b"http/1.1"),
        without_request(b"h2"),
        half_request,
        endless_request
    );
    assert_others_are_served(&demo).await;
}

/// The first bytes that an HTTP/2 client sends: its preface and an empty SETTINGS frame. The tests
/// below write HTTP/2 frames themselves, because HTTP libraries do not send invalid sequences of
/// frames.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const END_STREAM_AND_END_HEADERS: u8 = END_STREAM | END_HEADERS;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn headers_frame(flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, stream, payload)
}

fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    frame(3, 0, stream, &CANCEL)
}

/// Returns the encoded headers of a watch request.
fn watch_headers(demo: &Demo) -> Vec<u8> {
    request_headers(demo, &format!("{OPERATIONS}?watch=true"))
}

/// Returns the token in the kubeconfig of the demo. It has 32 hexadecimal digits.
pub fn token(demo: &Demo) -> String {
    let kubeconfig = std::fs::read_to_string(&demo.kubeconfig).unwrap();
    let mut words = kubeconfig.split(|c: char| !c.is_ascii_hexdigit());
    words
        .find(|word| word.len() == 32)
        .expect("the demo writes a token to its kubeconfig")
        .to_owned()
}

/// Returns the headers of a GET request in HPACK encoding, without the dynamic table and without
/// Huffman codes (RFC 7541, 6.2.2).
fn request_headers(demo: &Demo, path: &str) -> Vec<u8> {
    [
        headers_without_user(path),
        // 0 means that the name of the header follows as text.
        vec![0x00],
        literal("authorization"),
        literal(&format!("Bearer {}", token(demo))),
    ]
    .concat()
}

/// Returns the headers of a GET request without credentials.
fn headers_without_user(path: &str) -> Vec<u8> {
    [
        // The headers `:method: GET` and `:scheme: https`, and the name `:path`. Each byte is an
        // index of the static table.
        vec![0x82, 0x87, 0x04],
        literal(path),
        // The name `:authority`, as an index of the static table.
        vec![0x01],
        literal("localhost"),
    ]
    .concat()
}

/// Encodes a text with its length. A length of 127 or more has several bytes (RFC 7541, 5).
fn literal(text: &str) -> Vec<u8> {
    let mut encoded = vec![u8::try_from(text.len().min(127)).unwrap()];
    if let Some(mut rest) = text.len().checked_sub(127) {
        while rest >= 128 {
            encoded.push(u8::try_from(rest % 128 + 128).unwrap());
            rest /= 128;
        }
        encoded.push(u8::try_from(rest).unwrap());
    }
    encoded.extend(text.as_bytes());
    encoded
}

/// Returns the frames of a request. A frame has at most 16 KiB.
fn request_frames(stream: u32, headers: &[u8]) -> Vec<u8> {
    let mut parts = headers.chunks(16 << 10).peekable();
    let mut frames = Vec::new();
    let (mut kind, mut flags) = (HEADERS, END_STREAM);
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        frames.extend(frame(kind, flags, stream, part));
        (kind, flags) = (CONTINUATION, 0);
    }
    frames
}

/// Returns the first `count` stream numbers that an HTTP/2 client may use. A client may use only
/// odd numbers.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 2 * n + 1)
}

/// Waits until the server has this number of open watches.
async fn wait_for_watches(demo: &Demo, number: usize) {
    let line = format!("ifo_watchers {number}");
    eventually(&line, async || {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let metrics = demo.client.request_text(request).await.unwrap();
        metrics.lines().any(|it| it == line).then_some(())
    })
    .await;
}

/// After the preface of the client, the first frame of the server is a SETTINGS frame. Each setting has a
/// number of two bytes and a value of four bytes (RFC 9113, 6.5).
#[tokio::test(flavor = "multi_thread")]
async fn the_server_announces_its_limits_of_streams_and_headers() {
    let demo = Demo::start(&[]).await;
    let mut stream = tls(&demo, b"h2").await;
    stream.write_all(PREFACE).await.unwrap();
    stream.flush().await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], SETTINGS);
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let value = |number: u8| {
        let mut all = settings.chunks(6).filter(|it| it[..2] == [0, number]);
        all.next()
            .map(|it| u32::from_be_bytes(it[2..].try_into().unwrap()))
    };
    assert_eq!((value(3), value(6)), (Some(1_000), Some(64 << 10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_stream_resets_end_the_connection() {
    let demo = Demo::start(&[]).await;
    let watch = watch_headers(&demo);
    let mut bytes = PREFACE.to_vec();
    for stream in streams(20_000) {
        bytes.extend(headers_frame(END_STREAM_AND_END_HEADERS, stream, &watch));
        bytes.extend(reset(stream));
    }
    let connections = (0..5).map(async |_| answer(tls(&demo, b"h2").await, &bytes).await);
    futures::future::join_all(connections).await;
    assert_others_are_served(&demo).await;
    wait_for_watches(&demo, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_watches_cost_little_and_end_when_reset() {
    // All watches of this test belong to one user, so the test raises the limit for one user. One
    // user may use at most half of all watches.
    let demo = Demo::start(&["--max-watches=1000", "--max-watches-per-user=500"]).await;
    // This call waits until the server serves operations. Before that time, the server refuses
    // watches with 429.
    assert_others_are_served(&demo).await;
    let watch = watch_headers(&demo);
    let mut stream = tls(&demo, b"h2").await;
    let opened: Vec<u8> = streams(500)
        .flat_map(|stream| headers_frame(END_STREAM_AND_END_HEADERS, stream, &watch))
        .collect();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&opened).await.unwrap();
    stream.flush().await.unwrap();
    wait_for_watches(&demo, 500).await;
    assert_others_are_served(&demo).await;
    let closed: Vec<u8> = streams(500).flat_map(reset).collect();
    stream.write_all(&closed).await.unwrap();
    stream.flush().await.unwrap();
    wait_for_watches(&demo, 0).await;
    assert_others_are_served(&demo).await;
}

/// Each request has about 60 KB. The client does not read the bodies of the answers, and cancels the
/// requests at the end.
#[tokio::test(flavor = "multi_thread")]
async fn many_long_requests_cost_little() {
    // The value 0 for SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, 6.5.2).
    const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let demo = Demo::start(&[]).await;
    assert_others_are_served(&demo).await;
    let values: Vec<String> = (0..10_000).map(|value| format!("v{value}")).collect();
    let values = values.join(",");
    let selected = |options: &str, number: u32| {
        let path = format!("{OPERATIONS}?{options}labelSelector=k%20in%20({values},n{number})");
        request_headers(&demo, &path)
    };
    // The JSON of the answer to the first request contains each `&` in an escaped form of six bytes.
    let forbidden = headers_without_user(&format!("/apis/g/v1/{}", "&".repeat(60_000)));
    let requests: [&dyn Fn(u32) -> Vec<u8>; 3] = [
        &|_| forbidden.clone(),
        &|number| selected("", number),
        &|number| selected("watch=1&", number),
    ];
    for headers in requests {
        let mut stream = tls(&demo, b"h2").await;
        let preface = [&PREFACE[..24], &frame(SETTINGS, 0, 0, &NO_WINDOW)].concat();
        stream.write_all(&preface).await.unwrap();
        for number in streams(400) {
            let frames = request_frames(number, &headers(number));
            stream.write_all(&frames).await.unwrap();
        }
        stream.flush().await.unwrap();
        assert_others_are_served(&demo).await;
        let closed: Vec<u8> = streams(400).flat_map(reset).collect();
        stream.write_all(&closed).await.unwrap();
        stream.flush().await.unwrap();
    }
    wait_for_watches(&demo, 0).await;
    assert_others_are_served(&demo).await;
}
