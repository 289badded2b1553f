//! Tests with a simulated connection, which sends when the test says so.

use super::*;
use crate::serve::REQUEST_TIMEOUT;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

/// The data that was taken from a body and is not sent yet.
struct Wire {
    chunks: mpsc::UnboundedReceiver<Bytes>,
    exchange: JoinHandle<bool>,
    cut: Arc<AtomicUsize>,
    kept: Arc<AtomicBool>,
}

/// Set while the value exists.
struct Kept(Arc<AtomicBool>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Wire {
    /// An exchange with this body. Its chunks are taken as soon as they are available.
    fn start(body: impl futures::Stream<Item = Bytes> + Send + 'static, watch: bool) -> Self {
        let (wire, chunks) = mpsc::unbounded_channel();
        let (cut, kept) = (
            Arc::<AtomicUsize>::default(),
            Arc::new(AtomicBool::new(true)),
        );
        let (counted, held) = (cut.clone(), Kept(kept.clone()));
        let exchange = async move {
            let stream = Body::from_stream(body.map(Ok::<_, Infallible>));
            let on_cut = move || {
                counted.fetch_add(1, Ordering::Relaxed);
            };
            let within = (!watch).then_some(REQUEST_TIMEOUT);
            let mut body = Delivery::body(stream, within, held, on_cut);
            while let Some(frame) = body.frame().await {
                wire.send(frame.unwrap().into_data().unwrap()).unwrap();
            }
        };
        let run = Arc::new(AbortableExchange::default()).run(exchange);
        Self {
            chunks,
            exchange: tokio::spawn(async { run.await.is_some() }),
            cut,
            kept,
        }
    }

    fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// Returns true if the body ended completely.
    async fn ended(self) -> bool {
        let ended = self.exchange.await.unwrap();
        assert!(!self.kept.load(Ordering::Relaxed));
        assert_eq!(self.cut.load(Ordering::Relaxed), usize::from(!ended));
        ended
    }
}

fn chunks(count: usize) -> impl futures::Stream<Item = Bytes> + Send {
    futures::stream::repeat(Bytes::from_static(b"chunk")).take(count)
}

/// One chunk each minute, without end.
fn events() -> impl futures::Stream<Item = Bytes> + Send {
    futures::stream::repeat(Bytes::from_static(b"event")).then(|event| async {
        sleep(Duration::from_mins(1)).await;
        event
    })
}

const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_response_ends_when_its_last_byte_is_sent() {
    let mut wire = Wire::start(chunks(3), false);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(wire.chunks.recv().await.unwrap());
    }
    sleep(MOMENT).await;
    while waiting.pop().is_some() {
        assert!(wire.is_kept() && !wire.exchange.is_finished());
        sleep(MOMENT).await;
    }
    assert!(wire.exchange.is_finished());
    assert!(wire.ended().await);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_read_too_slowly_is_aborted() {
    let mut wire = Wire::start(chunks(2), false);
    // It does not help to read a chunk occasionally.
    let first = wire.chunks.recv().await.unwrap();
    let second = wire.chunks.recv().await.unwrap();
    advance(REQUEST_TIMEOUT.saturating_sub(MOMENT)).await;
    drop(first);
    sleep(MOMENT / 2).await;
    assert!(wire.is_kept());
    sleep(MOMENT).await;
    assert!(!wire.is_kept());
    drop(second);
    assert!(!wire.ended().await);
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_body_is_never_polled_is_aborted() {
    let exchange = async {
        let stream = Body::from_stream(chunks(2).map(Ok::<_, Infallible>));
        let _body = Delivery::body(stream, Some(REQUEST_TIMEOUT), (), || {});
        std::future::pending::<()>().await;
    };
    let begun = Instant::now();
    assert!(
        Arc::new(AbortableExchange::default())
            .run(exchange)
            .await
            .is_none()
    );
    assert!(begun.elapsed() >= REQUEST_TIMEOUT);
    assert!(begun.elapsed() < REQUEST_TIMEOUT + MOMENT);
}

#[tokio::test(start_paused = true)]
async fn a_watch_continues_while_its_client_reads() {
    let mut wire = Wire::start(events(), true);
    let mut last = None;
    for _ in 0..100 {
        // The client is always one chunk behind, for longer than the limit of a stalled watch.
        let event = wire.chunks.recv().await.unwrap();
        drop(last.replace(event));
    }
    assert!(wire.is_kept());
    drop(last);
    // The time without any data does not matter either.
    let idle = Wire::start(futures::stream::pending(), true);
    advance(10 * STALL_TIMEOUT).await;
    sleep(MOMENT).await;
    assert!(idle.is_kept());
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_client_reads_nothing_is_aborted() {
    let mut wire = Wire::start(events(), true);
    let event = wire.chunks.recv().await.unwrap();
    let begun = Instant::now();
    let mut others = Vec::new();
    while let Some(event) = wire.chunks.recv().await {
        others.push(event);
    }
    assert!(begun.elapsed() >= STALL_TIMEOUT && begun.elapsed() < STALL_TIMEOUT + MOMENT);
    assert!(!others.is_empty(), "what comes meanwhile changes nothing");
    assert!(!wire.is_kept());
    drop(event);
    assert!(!wire.ended().await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_unsent_buffered_data_is_closed() {
    // HTTP/1.1: the body is dropped, one chunk of it is not sent yet, and the connection waits for
    // the next request.
    let begun = Instant::now();
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
    assert!(begun.elapsed() >= STALL_TIMEOUT && begun.elapsed() < STALL_TIMEOUT + MOMENT);
}

#[tokio::test]
async fn end_and_length_of_a_body_are_passed_through() {
    let body = Delivery::body(Body::from("text"), Some(REQUEST_TIMEOUT), (), || {});
    assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(4));
    assert!(hyper::body::Body::is_end_stream(&Delivery::body(
        Body::empty(),
        Some(REQUEST_TIMEOUT),
        (),
        || {}
    )));
}
