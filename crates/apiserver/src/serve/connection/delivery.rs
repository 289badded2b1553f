//! Aborts answers that clients read too slowly. Input: the body of an answer. Output: a body with
//! the same bytes, which ends when the connection has sent the last byte.
//!
//! Until the body ends, its request counts towards the limit of requests or watches, and the answer
//! keeps objects in memory. So clients have a limited time to read an answer:
//!
//! - An authorized request other than a watch: the client must read the whole answer within a
//!   minute, as in the kube-apiserver.
//! - A request for a public path, a health probe, or a refused request: the client must read the
//!   whole answer within 10 seconds.
//! - A watch: while there is unread data, the client must read some of it at least every two
//!   minutes.
//!
//! If the client is too slow, the answer is aborted. An HTTP/2 stream is reset, and its connection
//! stays open. An HTTP/1.1 connection is closed.
//!
//! An HTTP/1.1 answer of known length is an exception. hyper drops its body as soon as hyper has
//! the last byte in its buffer. This byte may still be unsent. From then on, the request no longer
//! counts, and the client must read some data at least every two minutes, as in a watch.
//!
//! A client can keep its HTTP/2 connection alive, but leave the flow-control window of a stream at
//! zero. Then the server cannot send data on this stream. TCP timeouts and pings do not detect such
//! a client. A timeout in the body would never run, because hyper does not poll the body of such a
//! stream. So the task that runs the stream checks the deadline.

use axum::body::Body;
use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// If a watch has unread data and its client reads nothing for this time, the watch is aborted. The
/// TCP timeout has the same value: a connection is closed if the client's kernel acknowledges no
/// data for this time.
pub const STALL_TIMEOUT: Duration = Duration::from_mins(2);

tokio::task_local! {
    /// The exchange (a request and its answer) that the current task runs.
    static EXCHANGE: Arc<AbortableExchange>;
}

/// A request and its answer, which can be aborted. In HTTP/2, an exchange is one stream. In
/// HTTP/1.1, an exchange is the whole connection, because aborting one answer closes the
/// connection.
#[derive(Debug, Default)]
pub struct AbortableExchange {
    state: Mutex<DeliveryState>,
    /// Woken when all chunks have been sent.
    sent: AtomicWaker,
}

#[derive(Debug, Default)]
struct DeliveryState {
    /// The time at which the answer is aborted. None for a watch, and after hyper has dropped the
    /// body. Then only [`STALL_TIMEOUT`] applies to the unsent chunks.
    until: Option<Instant>,
    /// The number of chunks that hyper has not sent.
    unsent_chunks: usize,
    /// The time of the last progress. None if all chunks have been sent.
    waiting_since: Option<Instant>,
    was_aborted: bool,
}

impl AbortableExchange {
    /// Returns the exchange that the current task runs. Returns None in tests without a listener.
    fn current() -> Option<Arc<Self>> {
        EXCHANGE.try_with(Arc::clone).ok()
    }

    /// Runs the exchange to its end. Returns None if the exchange was aborted.
    pub async fn run<F: Future>(self: Arc<Self>, exchange: F) -> Option<F::Output> {
        let state = Arc::clone(&self);
        let limited = async {
            tokio::select! {
                // The exchange is polled first, because it can change the deadline.
                biased;
                end = exchange => Some(end),
                () = state.wait_until_overdue() => None,
            }
        };
        EXCHANGE.scope(self, limited).await
    }

    /// Waits until the deadline has passed. Polling the exchange can change the deadline. So this
    /// future must be polled in the same task, each time after the exchange was polled.
    async fn wait_until_overdue(&self) {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|context| {
            loop {
                let Some(deadline_time) = self.deadline_time() else {
                    return Poll::Pending;
                };
                if deadline_time <= Instant::now() {
                    self.state().was_aborted = true;
                    return Poll::Ready(());
                }
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline_time)));
                // The deadline often moves to a later time. The timer is not reset each time,
                // because that is expensive. So the timer may fire before the deadline. The next
                // turn of the loop then resets the timer.
                if timer.is_elapsed() || timer.deadline() > deadline_time {
                    timer.as_mut().reset(deadline_time);
                }
                ready!(timer.as_mut().poll(context));
            }
        })
        .await;
    }

    /// Returns the time at which the exchange is aborted. None if the answer has no time limit, and
    /// no data waits for the client.
    fn deadline_time(&self) -> Option<Instant> {
        let state = self.state();
        let stalled = state.waiting_since.map(|since| since + STALL_TIMEOUT);
        state.until.or(stalled)
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of an answer. hyper drops it when the connection has sent it.
struct Chunk {
    bytes: Bytes,
    exchange: Arc<AbortableExchange>,
}

impl Chunk {
    fn of(bytes: Bytes, exchange: &Arc<AbortableExchange>) -> Bytes {
        let mut state = exchange.state();
        state.unsent_chunks += 1;
        state.waiting_since.get_or_insert_with(Instant::now);
        drop(state);
        let exchange = Arc::clone(exchange);
        Bytes::from_owner(Self { bytes, exchange })
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = self.exchange.state();
        state.unsent_chunks -= 1;
        let is_last = state.unsent_chunks == 0;
        state.waiting_since = (!is_last).then(Instant::now);
        drop(state);
        if is_last {
            self.exchange.sent.wake();
        }
    }
}

/// A body that ends when its last byte has been sent. Until the body is dropped, it keeps a value
/// of type `K`, such as the slot of the request.
pub struct Delivery<K> {
    body: Body,
    /// True if `body` has ended. Its last bytes may still be unsent.
    has_ended: bool,
    exchange: Option<Arc<AbortableExchange>>,
    /// Called if the exchange is aborted.
    on_abort: Option<Box<dyn FnOnce() + Send>>,
    _kept: K,
}

impl<K: Send + Unpin + 'static> Delivery<K> {
    /// Limits the time to read `body`. For a watch, `time_limit` is None, and [`STALL_TIMEOUT`]
    /// applies. The new body drops `kept` when the last byte has been sent, or when the answer is
    /// aborted. There is one exception: for an HTTP/1.1 answer of known length, `kept` is dropped
    /// earlier, when hyper has the last byte in its buffer. `on_abort` is called if the answer is
    /// aborted because the client is too slow.
    pub fn body(
        body: Body,
        time_limit: Option<Duration>,
        kept: K,
        on_abort: impl FnOnce() + Send + 'static,
    ) -> Body {
        let exchange = AbortableExchange::current();
        if let Some(exchange) = &exchange {
            exchange.state().until = time_limit.map(|time| Instant::now() + time);
        }
        Body::new(Self {
            body,
            has_ended: false,
            exchange,
            on_abort: Some(Box::new(on_abort)),
            _kept: kept,
        })
    }
}

impl<K: Unpin> hyper::body::Body for Delivery<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if !this.has_ended {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
            if let Some(frame) = frame {
                // In tests without a listener, there is no exchange, and no connection reports
                // which bytes have been sent.
                return Poll::Ready(Some(frame.map(|frame| {
                    frame.map_data(|bytes| match &this.exchange {
                        Some(exchange) if !bytes.is_empty() => Chunk::of(bytes, exchange),
                        _ => bytes,
                    })
                })));
            }
            this.has_ended = true;
        }
        if let Some(exchange) = &this.exchange {
            exchange.sent.register(context.waker());
            if exchange.state().unsent_chunks > 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        let mut exchange = self.exchange.iter();
        self.body.is_end_stream() && exchange.all(|it| it.state().unsent_chunks == 0)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<K> Drop for Delivery<K> {
    fn drop(&mut self) {
        let Some(exchange) = &self.exchange else {
            return;
        };
        let mut state = exchange.state();
        state.until = None;
        let was_aborted = state.was_aborted;
        drop(state);
        if was_aborted && let Some(on_abort) = self.on_abort.take() {
            on_abort();
        }
    }
}

#[cfg(test)]
mod tests;
