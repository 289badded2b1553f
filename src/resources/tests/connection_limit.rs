//! Tests of the limit of connections. Clients open more connections than the limit, from several
//! loopback addresses. Other clients must still be served.

use super::tls_listener::{Identity, Listening};
use super::*;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Time limit of each step of a test. A step normally takes far less time.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens a TCP connection from 127.0.0.`last`.
async fn connect(listening: &Listening, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(listening.address).await.unwrap()
}

/// Opens an HTTP/2 connection from 127.0.0.`last`, without a client certificate.
async fn open_http2(listening: &Listening, last: u8) -> SendRequest<Body> {
    http2_with_certificate(listening, last, None).await
}

/// Opens an HTTP/2 connection from 127.0.0.`last`, with the client certificate `certificate` if it
/// is not None.
async fn http2_with_certificate(
    listening: &Listening,
    last: u8,
    certificate: Option<&Identity>,
) -> SendRequest<Body> {
    let stream = connect(listening, last).await;
    let handshake = listening.handshake(b"h2", certificate, stream);
    let stream = tokio::time::timeout(STEP_TIMEOUT, handshake)
        .await
        .expect("the handshake took too long")
        .expect("the connection was closed during the handshake");
    let io = TokioIo::new(stream);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Sends a get request. Returns None if the connection is closed.
async fn get(
    sender: &mut SendRequest<Body>,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<Response<hyper::body::Incoming>> {
    let path = format!("https://localhost{path}");
    let answer = sender.send_request(request("GET", &path, headers)).await;
    answer.ok()
}

/// Sends a liveness probe and reads the answer. Returns true if the probe succeeds.
async fn probe_succeeds(sender: &mut SendRequest<Body>) -> bool {
    match get(sender, "/livez", &[]).await {
        Some(answer) => answer.status() == 200 && answer.into_body().collect().await.is_ok(),
        None => false,
    }
}

/// Opens a connection from 127.0.0.`last` and sends a watch request of this user.
async fn open_watch(listening: &Listening, last: u8, user: &str) -> Watching {
    let mut sender = open_http2(listening, last).await;
    let path = format!("{ALL}?watch=1&resourceVersion=105");
    let answer = get(&mut sender, &path, &[("x-user", user)]).await;
    let answer = answer.expect("the connection was closed without an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    Watching {
        _sender: sender,
        body: answer.into_body(),
    }
}

struct Watching {
    _sender: SendRequest<Body>,
    body: hyper::body::Incoming,
}

/// Sends a list request and reads the answer. Returns the status code, or None if the connection is
/// closed.
async fn list(sender: &mut SendRequest<Body>, headers: &[(&str, &str)]) -> Option<StatusCode> {
    let answer = get(sender, ALL, headers).await?;
    let status = answer.status();
    answer.into_body().collect().await.ok()?;
    Some(status)
}

#[tokio::test]
async fn one_user_cannot_block_the_front_proxy_probes_or_other_users() {
    let mut fixture = Fixture::filled();
    let listening = Listening::within(16, fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut bob = open_http2(&listening, 2).await;
    assert_eq!(
        list(&mut bob, &[("x-user", "bob")]).await,
        Some(StatusCode::OK)
    );
    let mut watches = Vec::new();
    for _ in 0..10 {
        for last in [2, 3, 4, 5] {
            watches.push(open_watch(&listening, last, "eve").await);
        }
    }
    // Other users also connect from 127.0.0.2, which is an address of `eve`.
    assert_eq!(
        list(&mut bob, &[("x-user", "bob")]).await,
        Some(StatusCode::OK)
    );
    let mut jane = open_http2(&listening, 2).await;
    assert_eq!(
        list(&mut jane, &[("x-user", "jane")]).await,
        Some(StatusCode::OK)
    );
    let mut administrator = open_http2(&listening, 2).await;
    let headers = [("x-user", "root"), ("x-group", "system:masters")];
    assert_eq!(
        list(&mut administrator, &headers).await,
        Some(StatusCode::OK)
    );
    let mut probe = open_http2(&listening, 2).await;
    assert!(probe_succeeds(&mut probe).await);
    let mut proxy = http2_with_certificate(&listening, 2, Some(&listening.front_proxy)).await;
    assert_eq!(
        list(&mut proxy, &[("x-user", "joe")]).await,
        Some(StatusCode::OK)
    );
    fixture.put(106, "n", "new", |_| {});
    let mut continuing = 0;
    for watch in &mut watches {
        let next = watch.body.frame().await;
        continuing += usize::from(next.is_some_and(|it| it.is_ok()));
    }
    // Eve keeps the connections that the five others do not need.
    assert_eq!(continuing, 16 - 5);
}

#[tokio::test]
async fn an_untrusted_certificate_gets_no_reserved_connection() {
    let fixture = Fixture::filled();
    let listening = Listening::within(8, fixture.router.clone(), fixture.shutdown.clone()).await;
    let forged = Identity::new("nobody");
    let mut first = http2_with_certificate(&listening, 2, Some(&forged)).await;
    assert!(get(&mut first, "/apis", &[]).await.is_some());
    let mut more = Vec::new();
    for _ in 0..5 {
        let mut next = http2_with_certificate(&listening, 2, Some(&forged)).await;
        let answer = get(&mut next, "/apis", &[]).await;
        if let Some(answer) = answer {
            answer.into_body().collect().await.ok();
        }
        more.push(next);
    }
    let mut user = open_http2(&listening, 3).await;
    assert_eq!(
        list(&mut user, &[("x-user", "jane")]).await,
        Some(StatusCode::OK)
    );
}
