//! Tests of the time limits for reading an answer. The tests simulate a connection: a chunk counts
//! as sent when the test drops the chunk.

use super::*;
use crate::serve::REQUEST_TIMEOUT;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

/// A simulated connection that has one answer to send.
struct Connection {
    /// The chunks that the connection has taken from the body.
    chunks: mpsc::UnboundedReceiver<Bytes>,
    /// The task of the exchange (a request and its answer). Its result is true if the exchange was
    /// not aborted.
    exchange: JoinHandle<bool>,
    /// Number of calls of `on_abort`, which [`Delivery`] calls when the exchange is aborted.
    aborts: Arc<AtomicUsize>,
    /// True until the body of the answer has been dropped. The body contains a [`Kept`].
    kept: Arc<AtomicBool>,
}

/// A value that the body keeps until its last byte is sent. The flag becomes false when this value
/// is dropped.
struct Kept(Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Connection {
    /// Starts an exchange whose answer has this body. The connection takes each chunk as soon as it
    /// is available.
    fn start(body: impl futures::Stream<Item = Bytes> + Send + 'static, watch: bool) -> Self {
        let (taken, chunks) = mpsc::unbounded_channel();
        let (aborts, kept) = (
            Arc::<AtomicUsize>::default(),
            Arc::new(AtomicBool::new(true)),
        );
        let (counted, held) = (aborts.clone(), Kept(kept.clone()));
        let exchange = async move {
            let stream = Body::from_stream(body.map(Ok::<_, Infallible>));
            let on_abort = move || {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            let time_limit = (!watch).then_some(REQUEST_TIMEOUT);
            let mut body = Delivery::body(stream, time_limit, held, on_abort);
            while let Some(frame) = body.frame().await {
                taken.send(frame.unwrap().into_data().unwrap()).unwrap();
            }
        };
        let run = Arc::new(AbortableExchange::default()).run(exchange);
        Self {
            chunks,
            exchange: tokio::spawn(async { run.await.is_some() }),
            aborts,
            kept,
        }
    }

    fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Waits for the end of the exchange. Returns true if the whole body was sent, and false if the
    /// exchange was aborted.
    async fn wait_for_end(self) -> bool {
        let is_complete = self.exchange.await.unwrap();
        assert!(!self.kept.load(Ordering::Relaxed));
        assert_eq!(
            self.aborts.load(Ordering::Relaxed),
            usize::from(!is_complete)
        );
        is_complete
    }
}

fn chunks(count: usize) -> impl futures::Stream<Item = Bytes> + Send {
    futures::stream::repeat(Bytes::from_static(b"chunk")).take(count)
}

/// An endless body with one chunk each minute.
fn events() -> impl futures::Stream<Item = Bytes> + Send {
    futures::stream::repeat(Bytes::from_static(b"event")).then(|event| async {
        sleep(Duration::from_mins(1)).await;
        event
    })
}

const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_response_ends_when_its_last_byte_is_sent() {
    let mut connection = Connection::start(chunks(3), false);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(connection.chunks.recv().await.unwrap());
    }
    sleep(MOMENT).await;
    while waiting.pop().is_some() {
        assert!(connection.is_kept() && !connection.exchange.is_finished());
        sleep(MOMENT).await;
    }
    assert!(connection.exchange.is_finished());
    assert!(connection.wait_for_end().await);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_read_too_slowly_is_aborted() {
    let mut connection = Connection::start(chunks(2), false);
    // The connection sends one chunk just before the time limit. This does not extend the limit.
    let first = connection.chunks.recv().await.unwrap();
    let second = connection.chunks.recv().await.unwrap();
    advance(REQUEST_TIMEOUT.saturating_sub(MOMENT)).await;
    drop(first);
    sleep(MOMENT / 2).await;
    assert!(connection.is_kept());
    sleep(MOMENT + CHECK_INTERVAL).await;
    assert!(!connection.is_kept());
    drop(second);
    assert!(!connection.wait_for_end().await);
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_body_is_never_polled_is_aborted() {
    let exchange = async {
        let stream = Body::from_stream(chunks(2).map(Ok::<_, Infallible>));
        let _body = Delivery::body(stream, Some(REQUEST_TIMEOUT), (), || {});
        std::future::pending::<()>().await;
    };
    let started = Instant::now();
    assert!(
        Arc::new(AbortableExchange::default())
            .run(exchange)
            .await
            .is_none()
    );
    assert!(started.elapsed() >= REQUEST_TIMEOUT);
    assert!(started.elapsed() <= REQUEST_TIMEOUT + CHECK_INTERVAL);
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_while_its_client_reads() {
    let mut connection = Connection::start(events(), true);
    let mut last = None;
    for _ in 0..100 {
        // After the first event, one chunk is always unsent. But the connection sends a chunk every
        // minute, so the watch is not aborted.
        let event = connection.chunks.recv().await.unwrap();
        drop(last.replace(event));
    }
    assert!(connection.is_kept());
    drop(last);
    // A watch without events is not aborted either, because it has no unsent data.
    let idle = Connection::start(futures::stream::pending(), true);
    advance(10 * STALL_TIMEOUT).await;
    sleep(MOMENT).await;
    assert!(idle.is_kept());
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_client_reads_nothing_is_aborted() {
    let mut connection = Connection::start(events(), true);
    let event = connection.chunks.recv().await.unwrap();
    let started = Instant::now();
    let mut others = Vec::new();
    while let Some(event) = connection.chunks.recv().await {
        others.push(event);
    }
    assert!(
        started.elapsed() >= STALL_TIMEOUT && started.elapsed() <= STALL_TIMEOUT + CHECK_INTERVAL
    );
    assert!(!others.is_empty(), "no event arrived during the time limit");
    assert!(!connection.is_kept());
    drop(event);
    assert!(!connection.wait_for_end().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_unsent_buffered_data_is_closed() {
    // The connection behaves like hyper's HTTP/1.1: it has dropped the body, one chunk is unsent,
    // and it waits for the next request.
    let started = Instant::now();
    let connection = async {
        let stream = Body::from_stream(chunks(1).map(Ok::<_, Infallible>));
        let mut body = Delivery::body(stream, Some(REQUEST_TIMEOUT), (), || {});
        let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
        drop(body);
        std::future::pending::<()>().await;
        drop(chunk);
    };
    assert!(
        Arc::new(AbortableExchange::default())
            .run(connection)
            .await
            .is_none()
    );
    assert!(
        started.elapsed() >= STALL_TIMEOUT && started.elapsed() <= STALL_TIMEOUT + CHECK_INTERVAL
    );
}

#[tokio::test]
async fn the_end_and_the_length_of_a_body_are_passed_through() {
    let body = Delivery::body(Body::from("text"), Some(REQUEST_TIMEOUT), (), || {});
    assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(4));
    assert!(hyper::body::Body::is_end_stream(&Delivery::body(
        Body::empty(),
        Some(REQUEST_TIMEOUT),
        (),
        || {}
    )));
}
