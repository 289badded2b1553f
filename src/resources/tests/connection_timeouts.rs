//! Tests of time limits and size limits of connections over loopback: answers that clients do not
//! read, idle connections, and large requests.

use super::tls_listener::{Listening, echo};
use super::*;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Creates a server whose list of operations has about 12 MB. This is more than the socket buffers
/// hold.
pub fn server_with_large_list() -> Fixture {
    let mut fixture = Fixture::bounded(64 << 20);
    for number in 0..60 {
        fixture.put(101 + number, "n", &format!("o{number}"), |object| {
            object["status"]["message"] = json!("x".repeat(200_000));
        });
    }
    fixture
}

/// Advances the clock in steps. After each step, the function waits some milliseconds of real time.
/// During this time, the tasks whose timers have fired run, and their data arrives.
pub async fn advance(time: Duration) {
    const STEP: Duration = Duration::from_secs(10);
    let mut left = time;
    while !left.is_zero() {
        tokio::time::pause();
        tokio::time::advance(left.min(STEP)).await;
        tokio::time::resume();
        left = left.saturating_sub(STEP);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Waits until the metric reports this number of requests in flight.
async fn wait_for_in_flight(fixture: &Fixture, number: usize) {
    let wanted =
        format!("apiserver_current_inflight_requests{{request_kind=\"readOnly\"}} {number}\n");
    let reached = async {
        while !fixture.metrics.render().contains(&wanted) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), reached)
        .await
        .expect("the metric must reach the expected number");
}

#[tokio::test]
async fn an_unread_stream_is_reset_and_its_connection_continues() {
    let fixture = server_with_large_list();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut sender = listening.http2().await;
    let mut ask = async |query: &str| {
        let path = format!("https://localhost{ALL}{query}");
        let asked = request("GET", &path, &[]);
        let answer = sender.send_request(asked).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body()
    };
    let stalled = ask("").await;
    let mut watch = ask("?watch=1&resourceVersion=159").await;
    wait_for_in_flight(&fixture, 1).await;
    advance(Duration::from_secs(61)).await;
    // The request no longer counts as in flight, although its connection is still open.
    wait_for_in_flight(&fixture, 0).await;
    let error = stalled.collect().await.unwrap_err();
    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
    let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"{\"type\":\"ADDED\""));
    assert_eq!(
        ask("?limit=1").await.collect().await.unwrap().to_bytes()[0],
        b'{'
    );
    let aborted = "apiserver_request_aborts_total{verb=\"LIST\"";
    assert!(fixture.metrics.render().contains(aborted));
}

#[tokio::test]
async fn an_http2_connection_without_streams_is_closed_and_one_with_a_watch_stays_open() {
    let fixture = Fixture::filled();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let connect = async || {
        let io = TokioIo::new(listening.connect(b"h2", false).await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let connection = tokio::spawn(connection);
        let asked = request("GET", "https://localhost/version", &[]);
        text(sender.send_request(asked).await.unwrap().map(Body::new)).await;
        (sender, connection)
    };
    let (_idle, idle) = connect().await;
    let (mut sender, busy) = connect().await;
    let path = format!("https://localhost{ALL}?watch=1");
    let watch = sender
        .send_request(request("GET", &path, &[]))
        .await
        .unwrap();
    advance(Duration::from_secs(200)).await;
    tokio::time::timeout(Duration::from_mins(1), idle)
        .await
        .expect("the idle connection was not closed")
        .unwrap()
        .expect("the idle connection was closed with an error");
    assert!(!busy.is_finished());
    drop(watch);
}

#[tokio::test]
async fn too_long_headers_and_paths_get_their_own_status_codes() {
    let listening = Listening::start(echo(), CancellationToken::new()).await;
    let long = "x".repeat(97 << 10);
    let mut sender = listening.http2().await;
    let asked = request("GET", "https://localhost/", &[("x-long", &long)]);
    // The server announces its limit, so the client may refuse to send the request.
    if let Ok(answer) = sender.send_request(asked).await {
        assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    // The test writes the bytes of the next requests itself, because the HTTP client refuses to
    // send such long paths.
    let ask = async |path: usize, header: usize| {
        let (path, header) = ("x".repeat(path << 10), "x".repeat(header << 10));
        let head = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\nX: {header}\r\n\r\n");
        let mut stream = listening.connect(b"http/1.1", false).await;
        // Writing can fail, because the server may refuse the request before the client has sent
        // it.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.flush().await;
        let mut code = [0; 12];
        let read = stream.read_exact(&mut code).await;
        read.map(|_| String::from_utf8(code.to_vec()).unwrap())
    };
    assert_eq!(ask(60, 1).await.unwrap(), "HTTP/1.1 200");
    assert_eq!(ask(63, 1).await.unwrap(), "HTTP/1.1 431");
    // If headers are much larger than the limit, the server does not read them to their end. It
    // closes the connection while the client is still sending. So the client may get a connection
    // error instead of the answer.
    let code = ask(0, 1024).await;
    assert!(code.is_err() || code.is_ok_and(|code| code == "HTTP/1.1 431"));
}

#[tokio::test]
async fn request_bodies_are_not_read() {
    const SIZE: usize = 64 << 20;
    const PART: usize = 16 << 10;
    let fixture = Fixture::filled();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let taken = Arc::new(Mutex::new(0));
    let counted = taken.clone();
    let parts = (0..SIZE / PART).map(move |_| {
        *counted.lock().unwrap() += PART;
        Ok::<_, std::convert::Infallible>(vec![b'x'; PART])
    });
    let mut asked = request("POST", &format!("https://localhost{ALL}"), &[]);
    *asked.body_mut() = Body::from_stream(futures::stream::iter(parts));
    let mut sender = listening.http2().await;
    let answer = sender.send_request(asked).await.unwrap();
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    drop(sender);
    let taken = *taken.lock().unwrap();
    assert!(taken < SIZE / 8, "{taken}");
}

#[tokio::test]
async fn an_idle_http1_connection_is_closed() {
    let fixture = Fixture::filled();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let io = TokioIo::new(listening.connect(b"http/1.1", false).await);
    let (mut sender, connection) = http1::handshake(io).await.unwrap();
    let connection = tokio::spawn(connection);
    let headers = [("host", "localhost"), ("x-user", "jane")];
    let asked = request("GET", &format!("{ALL}?limit=1"), &headers);
    text(sender.send_request(asked).await.unwrap().map(Body::new)).await;
    advance(Duration::from_secs(100)).await;
    let closed = tokio::time::timeout(Duration::from_mins(1), connection).await;
    let _ = closed.expect("the idle connection was not closed");
}

#[tokio::test]
async fn a_small_answer_that_is_not_read_is_reset_after_ten_seconds() {
    let fixture = Fixture::filled();
    let listening = Listening::start(fixture.router.clone(), fixture.shutdown.clone()).await;
    let io = TokioIo::new(listening.connect(b"h2", false).await);
    let mut without_window = http2::Builder::new(TokioExecutor::new());
    let handshake = without_window.initial_stream_window_size(0).handshake(io);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let asked = request("GET", "https://localhost/version", &[]);
    let unread = sender.send_request(asked).await.unwrap().into_body();
    advance(Duration::from_secs(11)).await;
    let reset = tokio::time::timeout(Duration::from_mins(1), unread.collect()).await;
    let error = reset.expect("the stream was not reset").unwrap_err();
    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
}
