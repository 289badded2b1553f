use super::*;
use crate::test_fixtures::client;
use crate::ui::feeds::tests::feeds;
use tokio::io::AsyncWriteExt as _;

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_disconnected() {
    let site = Arc::new(Site {
        guard: Guard::new(80).expect("the system has random numbers"),
        feeds: feeds(|_| None),
        server: client(|_| None),
        begin: Value::Null,
    });
    // The page is larger than this connection.
    let (mut browser, stream) = tokio::io::duplex(4096);
    let request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n";
    browser.write_all(request).await.expect("the request fits");
    serve_connection(stream, site).await;
}
