//! Aborts answers that clients read too slowly. Input: the body of an answer. Output: a body with
//! the same bytes, which ends when the connection has sent the last byte.
//!
//! Until the body ends, its request counts towards the limit of requests or watches, and the answer
//! keeps objects in memory. So clients have a limited time to read an answer:
//!
//! - An authorized request that is not a watch, such as a list: the client must read the whole
//!   answer within a minute, as in the kube-apiserver.
//! - A request for a public path, or a refused request: the client must read the whole answer
//!   within 10 seconds.
//! - A watch: while there is unread data, the client must read some of it at least every two
//!   minutes.
//!
//! If the client is too slow, the answer is aborted. An HTTP/2 stream is reset, and its connection
//! stays open. An HTTP/1.1 connection is closed.
//!
//! An HTTP/1.1 answer of known length is an exception. hyper drops its body earlier: when hyper has
//! the last byte in its buffer, but may not have sent it. From then on, the request no longer
//! counts, and the client must read some data at least every two minutes, as in a watch.
//!
//! A client can keep its HTTP/2 connection alive, but leave the flow-control window of a stream at
//! zero. Then the server cannot send data on this stream. TCP timeouts and pings do not detect such
//! a client. hyper does not poll the body of such a stream, so a timeout in the body would never
//! run. Therefore, the task that runs the stream checks the deadline.

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
pub struct AbortableExchange(Mutex<DeliveryState>);

#[derive(Debug, Default)]
struct DeliveryState {
    deadline: Option<DeliveryDeadline>,
    was_aborted: bool,
}

/// The time at which an answer is aborted.
#[derive(Clone, Debug)]
enum DeliveryDeadline {
    /// A fixed time.
    Until(Instant),
    /// [`STALL_TIMEOUT`] after the last progress (see [`SentProgress`]). If all data has been sent,
    /// there is no deadline.
    AfterStall(Arc<UnsentChunks>),
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

    fn deadline_time(&self) -> Option<Instant> {
        match self.state().deadline.as_ref()? {
            DeliveryDeadline::Until(deadline_time) => Some(*deadline_time),
            DeliveryDeadline::AfterStall(unsent) => {
                unsent.waiting_since().map(|since| since + STALL_TIMEOUT)
            }
        }
    }

    fn set(&self, deadline: DeliveryDeadline) {
        self.state().deadline = Some(deadline);
    }

    fn was_aborted(&self) -> bool {
        self.state().was_aborted
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the chunks of one body that the connection has not sent yet.
#[derive(Debug)]
struct UnsentChunks {
    progress: Mutex<SentProgress>,
    /// Wakes the task that polls the body, when all chunks have been sent.
    waker: AtomicWaker,
}

#[derive(Debug)]
struct SentProgress {
    unsent_chunks: usize,
    /// The time of the last progress. Each sent chunk is progress. If all earlier chunks have been
    /// sent, a new chunk also sets this time, because the wait for the client begins with it.
    last_progress: Instant,
}

impl UnsentChunks {
    fn progress(&self) -> MutexGuard<'_, SentProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the last progress (see [`SentProgress`]) if a chunk is unsent. Returns
    /// None if all chunks have been sent.
    fn waiting_since(&self) -> Option<Instant> {
        let progress = self.progress();
        (progress.unsent_chunks > 0).then_some(progress.last_progress)
    }
}

/// Some bytes of a body. The connection drops a chunk after the chunk was sent, or if sending
/// fails.
struct Chunk {
    bytes: Bytes,
    unsent: Arc<UnsentChunks>,
}

impl Chunk {
    fn of(bytes: Bytes, unsent: &Arc<UnsentChunks>) -> Bytes {
        let mut progress = unsent.progress();
        if progress.unsent_chunks == 0 {
            progress.last_progress = Instant::now();
        }
        progress.unsent_chunks += 1;
        drop(progress);
        let unsent = Arc::clone(unsent);
        Bytes::from_owner(Self { bytes, unsent })
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut progress = self.unsent.progress();
        progress.unsent_chunks -= 1;
        progress.last_progress = Instant::now();
        let is_last = progress.unsent_chunks == 0;
        drop(progress);
        if is_last {
            self.unsent.waker.wake();
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
    unsent: Arc<UnsentChunks>,
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
        let unsent = Arc::new(UnsentChunks {
            progress: Mutex::new(SentProgress {
                unsent_chunks: 0,
                last_progress: Instant::now(),
            }),
            waker: AtomicWaker::new(),
        });
        let exchange = AbortableExchange::current();
        if let Some(exchange) = &exchange {
            exchange.set(match time_limit {
                Some(time) => DeliveryDeadline::Until(Instant::now() + time),
                None => DeliveryDeadline::AfterStall(Arc::clone(&unsent)),
            });
        }
        Body::new(Self {
            body,
            has_ended: false,
            exchange,
            unsent,
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
                let counted = this.exchange.is_some();
                return Poll::Ready(Some(frame.map(|frame| {
                    frame.map_data(|bytes| {
                        if counted && !bytes.is_empty() {
                            Chunk::of(bytes, &this.unsent)
                        } else {
                            bytes
                        }
                    })
                })));
            }
            this.has_ended = true;
        }
        this.unsent.waker.register(context.waker());
        if this.unsent.waiting_since().is_some() {
            return Poll::Pending;
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.unsent.waiting_since().is_none()
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
        if exchange.was_aborted()
            && let Some(on_abort) = self.on_abort.take()
        {
            on_abort();
        }
        // If the length of an HTTP/1.1 answer is known, hyper drops the body as soon as hyper has
        // taken all bytes. Some of these bytes may be unsent. So the new deadline aborts the
        // connection if the client stops reading these bytes.
        exchange.set(DeliveryDeadline::AfterStall(Arc::clone(&self.unsent)));
    }
}

#[cfg(test)]
mod tests;
