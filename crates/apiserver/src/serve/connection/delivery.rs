//! Aborts answers that clients read too slowly. Input: the body of an answer. Output: a body with
//! the same bytes, which ends when the connection has sent the last byte.
//!
//! Until the body ends, the request counts towards the limit of requests or watches, and the answer
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
//! An HTTP/1.1 answer of known length is an exception to the first two limits. hyper drops the body
//! as soon as the last byte is in hyper's buffer, even if this byte is still unsent. From then on,
//! the request no longer counts. The client must then read some data at least every two minutes, as
//! in a watch.
//!
//! The task that runs an HTTP/2 stream checks the deadline, for the following reason. A client can
//! keep its connection alive, but leave the flow-control window of a stream at zero. Then the
//! server cannot send data on this stream, and TCP timeouts and pings do not detect the problem. A
//! timeout in the body would have no effect, because hyper does not poll the body of such a stream.

use axum::body::Body;
use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// If a watch has unread data and its client reads nothing for this time, the watch is aborted. The
/// TCP user timeout has the same value: the server's kernel closes a connection if the client's
/// kernel acknowledges no data for this time.
pub const STALL_TIMEOUT: Duration = Duration::from_mins(2);

/// Interval at which an exchange checks its deadline. So an answer is aborted at most this time
/// after its deadline.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// The exchange (a request and its answer) that the current task runs.
    static EXCHANGE: Arc<AbortableExchange>;
}

/// A request and its answer, which can be aborted. In HTTP/2, an exchange is one stream. In
/// HTTP/1.1, an exchange is the whole connection, because aborting one answer closes the
/// connection.
#[derive(Default)]
pub struct AbortableExchange {
    state: Mutex<DeliveryState>,
    /// Woken when all chunks have been sent.
    sent: AtomicWaker,
}

#[derive(Default)]
struct DeliveryState {
    /// The time at which the answer is aborted. None for a watch, and after hyper has dropped the
    /// body. If this value is None, [`STALL_TIMEOUT`] applies to the unsent chunks.
    until: Option<Instant>,
    /// The number of chunks that hyper has not sent.
    unsent_chunks: usize,
    /// The time at which hyper last sent a chunk, or at which the first unsent chunk was created.
    /// None if all chunks have been sent.
    waiting_since: Option<Instant>,
    /// Called if the exchange is aborted while hyper has the body.
    on_abort: Option<Box<dyn FnOnce() + Send>>,
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
                biased;
                end = exchange => Some(end),
                () = state.wait_until_overdue() => None,
            }
        };
        EXCHANGE.scope(self, limited).await
    }

    /// Waits until the deadline has passed. Then calls `on_abort`.
    async fn wait_until_overdue(&self) {
        while !self.is_overdue() {
            sleep(CHECK_INTERVAL).await;
        }
        let on_abort = self.state().on_abort.take();
        if let Some(on_abort) = on_abort {
            on_abort();
        }
    }

    /// Returns true if the deadline of the answer has passed. An answer without a time limit has a
    /// deadline only while there are unsent chunks.
    fn is_overdue(&self) -> bool {
        let state = self.state();
        let stalled = state.waiting_since.map(|since| since + STALL_TIMEOUT);
        let deadline = state.until.or(stalled);
        deadline.is_some_and(|deadline| deadline <= Instant::now())
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
    _kept: K,
}

impl<K: Send + Unpin + 'static> Delivery<K> {
    /// Returns a body with the bytes of `body`, which the client must read within `time_limit`. For
    /// a watch, `time_limit` is None, and [`STALL_TIMEOUT`] applies. `on_abort` is called if the
    /// answer is aborted because the client is too slow.
    ///
    /// The new body drops `kept` when the last byte has been sent, or when the answer is aborted.
    /// There is one exception: for an HTTP/1.1 answer of known length, `kept` is dropped earlier,
    /// when hyper has the last byte in its buffer.
    pub fn body(
        body: Body,
        time_limit: Option<Duration>,
        kept: K,
        on_abort: impl FnOnce() + Send + 'static,
    ) -> Body {
        let exchange = AbortableExchange::current();
        if let Some(exchange) = &exchange {
            let mut state = exchange.state();
            state.until = time_limit.map(|time| Instant::now() + time);
            state.on_abort = Some(Box::new(on_abort));
        }
        Body::new(Self {
            body,
            has_ended: false,
            exchange,
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
        if let Some(exchange) = &self.exchange {
            let mut state = exchange.state();
            state.until = None;
            state.on_abort = None;
        }
    }
}

#[cfg(test)]
mod tests;
