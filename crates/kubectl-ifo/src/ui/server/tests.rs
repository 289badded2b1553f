use super::*;
use crate::test_fixtures::client;
use crate::ui::feeds::tests::feeds;
use http::HeaderMap;
use tokio::io::{AsyncWriteExt as _, DuplexStream, copy, sink};

/// Returns a server, and a connection on which a browser with a session has requested the path.
async fn requested(path: &str) -> (Arc<Site>, DuplexStream, DuplexStream) {
    let site = Arc::new(Site {
        guard: Guard::new(80).expect("the system has random numbers"),
        feeds: feeds(|_| None),
        server: client(|_| None),
        begin: serde_json::json!({}),
    });
    let address = site.guard.new_address().expect("no address is open");
    let token = address.split_once("token=").expect("a token").1;
    let token = token.parse().expect("a header");
    let headers = HeaderMap::from_iter([("x-ifo-token".parse().expect("a name"), token)]);
    let cookie = site.guard.sign_in(&headers).expect("the token is new");
    let cookie = cookie.split(';').next().unwrap_or_default();
    // The page is larger than this connection.
    let (mut browser, stream) = tokio::io::duplex(4096);
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nCookie: {cookie}\r\n\r\n");
    let sent = browser.write_all(request.as_bytes()).await;
    sent.expect("the request fits");
    (site, browser, stream)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    for path in ["/", "/api/stream"] {
        let (site, _browser, stream) = requested(path).await;
        serve_connection(stream, site).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_stays_open() {
    let (site, mut browser, stream) = requested("/api/stream").await;
    tokio::spawn(async move { copy(&mut browser, &mut sink()).await });
    let served = timeout(Duration::from_hours(1), serve_connection(stream, site));
    assert!(served.await.is_err(), "the connection was closed");
}
