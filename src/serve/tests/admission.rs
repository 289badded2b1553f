//! More connections than there are places, over loopback, from several addresses.

use super::listening::{Listening, echo};
use super::*;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::SockRef;
use std::mem::MaybeUninit;
use tokio::net::{TcpSocket, TcpStream};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Far above what it takes, and below the times after which a silent or idle connection
/// is closed anyway; a handshake's is the exception.
const SOON: Duration = Duration::from_secs(20);

/// Connects from 127.0.0.`last`.
async fn connect(listening: &Listening, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(listening.address).await.unwrap()
}

/// The same with HTTP/2, and with the certificate if so wanted.
async fn http2(listening: &Listening, last: u8, present: bool) -> SendRequest<Body> {
    let stream = connect(listening, last).await;
    let shaken = listening.handshake(b"h2", present, stream);
    let stream = tokio::time::timeout(SOON, shaken)
        .await
        .expect("it is let in")
        .expect("and not closed");
    let io = TokioIo::new(stream);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn get(
    sender: &mut SendRequest<Body>,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<Response<hyper::body::Incoming>> {
    let path = format!("https://localhost{path}");
    let answer = sender.send_request(request("GET", &path, headers)).await;
    answer.ok()
}

/// Asks something that everybody may, and reads the answer.
async fn is_answered(sender: &mut SendRequest<Body>) -> bool {
    match get(sender, "/livez", &[]).await {
        Some(answer) => answer.status() == 200 && answer.into_body().collect().await.is_ok(),
        None => false,
    }
}

/// Whether the other side has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let peeked = SockRef::from(stream).peek(&mut byte);
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn silent_connections_of_two_addresses_keep_out_no_third() {
    let listening = Listening::within(8, echo(), CancellationToken::new()).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        for last in [2, 3] {
            silent.push(connect(&listening, last).await);
        }
    }
    let mut third = http2(&listening, 4, false).await;
    assert!(is_answered(&mut third).await);
    // One has made room for it, and none has run out of time.
    let open: Vec<usize> = (0..silent.len())
        .filter(|&it| is_open(&silent[it]))
        .collect();
    assert_eq!(open, [13, 14, 15, 16, 17, 18, 19]);
    // However many more come, it is at the cost of their own.
    for _ in 0..100 {
        silent.push(connect(&listening, 2).await);
    }
    let mut fourth = http2(&listening, 5, false).await;
    assert!(is_answered(&mut fourth).await);
    assert!(is_answered(&mut third).await);
}

#[tokio::test]
async fn connections_that_ask_for_nothing_much_keep_out_no_third() {
    let listening = Listening::within(8, echo(), CancellationToken::new()).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        for last in [2, 3] {
            let mut sender = http2(&listening, last, false).await;
            assert!(is_answered(&mut sender).await);
            idle.push(sender);
        }
    }
    let mut third = http2(&listening, 4, false).await;
    assert!(is_answered(&mut third).await);
    let mut answered = Vec::new();
    for sender in &mut idle {
        answered.push(is_answered(sender).await);
    }
    let expected = [false, true, true, true, true, true, true, true];
    assert_eq!(answered, expected);
}

#[tokio::test]
async fn unread_answers_to_nobody_keep_out_no_third() {
    let endless = || async {
        let more = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'x'; 16 << 10]));
        Body::from_stream(more)
    };
    let router = Router::new()
        .route("/endless", axum::routing::any(endless))
        .merge(echo());
    let listening = Listening::within(4, router, CancellationToken::new()).await;
    let mut unread = Vec::new();
    for last in [2, 3, 2, 3] {
        let mut sender = http2(&listening, last, false).await;
        let answer = get(&mut sender, "/endless", &[]).await.unwrap();
        unread.push((sender, answer));
    }
    let mut third = http2(&listening, 4, false).await;
    assert!(is_answered(&mut third).await);
}

#[tokio::test]
async fn a_watch_is_not_closed_for_strangers() {
    let mut fixture = Fixture::filled();
    let listening = Listening::within(8, fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut watcher = http2(&listening, 2, false).await;
    let path = format!("{ALL}?watch=1&resourceVersion=105");
    let watch = get(&mut watcher, &path, &[("x-user", "jane")]).await;
    let mut watch = watch.unwrap().into_body();
    // Its own address and others, silent and idle.
    let mut strangers = Vec::new();
    let mut silent = Vec::new();
    for _ in 0..10 {
        for last in [2, 3, 4] {
            silent.push(connect(&listening, last).await);
            let mut stranger = http2(&listening, last, false).await;
            assert!(is_answered(&mut stranger).await);
            strangers.push(stranger);
        }
    }
    fixture.put(106, "n", "new", |_| {});
    let event = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(event.starts_with(b"{\"type\":\"ADDED\""));
}

#[tokio::test]
async fn a_connection_of_the_aggregator_is_kept_also_if_it_only_asks_for_discovery() {
    let fixture = Fixture::filled();
    let listening = Listening::within(2, fixture.router.clone(), fixture.shutdown.clone()).await;
    let mut aggregator = http2(&listening, 2, true).await;
    let headers = [("x-user", "system:kube-aggregator")];
    let answer = get(&mut aggregator, "/apis", &headers).await.unwrap();
    answer.into_body().collect().await.unwrap();
    // The other half is not for its address, so somebody else there is turned away.
    let stranger = connect(&listening, 2).await;
    let refused = listening.handshake(b"h2", false, stranger);
    let refused = tokio::time::timeout(SOON, refused).await;
    assert!(refused.expect("it is closed").is_err());
    for last in [3, 4, 5] {
        let mut stranger = http2(&listening, last, false).await;
        assert!(is_answered(&mut stranger).await);
    }
    assert!(is_answered(&mut aggregator).await);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_keeps_no_place() {
    let fixture = Fixture::filled();
    let listening = Listening::within(2, fixture.router.clone(), fixture.shutdown.clone()).await;
    // The fixture knows nobody by a certificate alone.
    let mut forger = http2(&listening, 2, true).await;
    assert!(is_answered(&mut forger).await);
    let mut next = http2(&listening, 2, false).await;
    assert!(is_answered(&mut next).await);
    assert!(!is_answered(&mut forger).await);
}
